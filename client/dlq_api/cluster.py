"""The way to a cluster: connect, submit, and look for jobs.

The identity, its renewal, the list of masters and the settings are those of the CLI.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

from dlq_api.executor import Executor
from dlq_api.job import Job, JobArray, JobGroup, list_table
from dlq_api.line import ClusterLine, caller
from dlq_api.submitting import submitted, submitted_array, submitted_group
from dlq_api.words import Source, SubmitWords, Text
from dlq_cli.lists.select import one_job
from dlq_common.errors import NotFound


class JobTable(list[Job]):
    """Jobs as a list, drawn as a table in notebooks."""

    def _repr_html_(self) -> str:
        return list_table(self, f"{len(self)} jobs")


def connect(home: Text | None = None, *, patience: float | None = None) -> Cluster:
    """A line to the master, with the identity and the settings of `dlq`.

    `home`: the identity directory, by default $DLQ_HOME or ~/.config/dlq. On the master's host
    nobody need log in before. `patience`: seconds to go on while the master does not answer.
    Raises Unauthenticated when nobody is logged in here.
    """
    directory = None if home is None else Path(os.fspath(home))
    return Cluster(ClusterLine(caller(directory, patience)))


class Cluster:
    """A connection to one cluster. Threads may share it; a fork may not.

    Use it as `with dlq.connect() as cluster:`, or let the end of the program close it.
    """

    def __init__(self, line: ClusterLine) -> None:
        self.line = line

    @property
    def user(self) -> str:
        """The user of the certificate."""
        return self.line.connection.identity.user

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return self.line.connection.identity.cluster

    def submit(
        self, source: Source, *arguments: Text, request_id: str = "", **words: Unpack[SubmitWords]
    ) -> Job:
        """Queue a job, and return it once that is on the master's disk.

        `source`: a script or job file by its name, a command as a list, or the content of a job
        file as a mapping. `arguments` go to the script or command. `words`: the flags of
        `dlq submit` with `_` for `-`; they win over the file. InvalidRequest names the bad one.

        A lost answer is asked for again, and makes no second job. After Unavailable the job may be
        queued: `request_id=error.metadata["request_id"]` submits at most once.
        """
        return submitted(self.line, source, arguments, words, request_id)

    def submit_array(
        self, source: Source, *arguments: Text, request_id: str = "", **words: Unpack[SubmitWords]
    ) -> JobArray:
        """Queue an array, such as `array="0-99%8"`: all its tasks or none. Else as `submit`."""
        return submitted_array(self.line, source, arguments, words, request_id)

    def submit_group(
        self,
        source: Text | Mapping[str, object],
        *,
        request_id: str = "",
        **words: Unpack[SubmitWords],
    ) -> JobGroup:
        """Queue jobs that start together and end together: all members of a file, or none.

        `source`: the file's name, or its content as a mapping with `members`. `words` hold for all
        members. InvalidRequest names the bad member.
        """
        return submitted_group(self.line, source, words, request_id)

    def job(self, job_id: int | str) -> Job:
        """The job of this number or unique name, or the task `12_4` of an array. NotFound: there
        is none.
        """
        named = one_job(self.line.jobs, str(job_id))
        return Job(self.line, self.line.jobs.get(named.job_id).job)

    def array(self, array_id: int | str) -> JobArray:
        """The array of this number."""
        found = self.line.jobs.list(job_ids=[str(array_id)]).jobs
        if not found:
            raise NotFound(f"there is no array {array_id}", kind="job", id=array_id)
        return JobArray(self.line, str(array_id), found)

    def jobs(
        self,
        *,
        states: Sequence[str] | str = (),
        user: str = "",
        queue: str = "",
        name: str = "",
        team: str = "",
        node: str = "",
        search: str = "",
        order: str = "",
        limit: int | None = None,
    ) -> JobTable:
        """The caller's jobs that match, in the order of their numbers. `user="*"`: all users'. The
        master filters, orders and counts; `limit` keeps a large cluster's answer small.
        """
        listed = self.line.jobs.list(
            states=[states] if isinstance(states, str) else states,
            user=user,
            queue=queue,
            name=name,
            team=team,
            node=node,
            search=search,
            order=order,
            limit=limit,
        )
        return JobTable(Job(self.line, job) for job in listed.jobs)

    def executor(
        self,
        *,
        concurrent: int = 0,
        directory: Text | None = None,
        **words: Unpack[SubmitWords],
    ) -> Executor:
        """Functions as jobs of this cluster: see `dlq.Executor`, which takes more words."""
        return Executor(self, concurrent=concurrent, directory=directory, **words)

    def close(self) -> None:
        """End the line. Waits and followers get Unavailable; jobs go on."""
        self.line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<dlq.Cluster {self.name} as {self.user}>"
