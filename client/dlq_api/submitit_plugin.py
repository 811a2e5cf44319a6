"""submitit on dlq: `submitit.AutoExecutor(folder, cluster="dlq")`.

submitit keeps its own files and its own way to checkpoint. At the notice of dlq it stores the
function, and leaves with the code that queues the job again. An array is one array of dlq. All jobs
of a program wait on one stream, so nothing polls the master.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from submitit.core import core, job_environment, utils

from dlq_common.clock import SteadyClock
from dlq_common.ids import RandomIds
from dlq_train import PREEMPTED

R = TypeVar("R")

# The words of submitit that all clusters share, and ours for them. A bare number of `time` is
# minutes.
EQUIVALENT = {
    "name": "job_name",
    "timeout_min": "time",
    "mem_gb": "mem",
    "nodes": "nodes",
    "cpus_per_task": "cpus",
    "gpus_per_node": "gpus_per_node",
    "tasks_per_node": "tasks_per_node",
}
EXECUTOR_VARIABLE = "SUBMITIT_EXECUTOR"
_DEFAULT_MINUTES = 5  # as submitit has it


@cache
def _cluster_of(pid: int) -> Any:
    from dlq_api.cluster import connect

    return connect()


def _cluster() -> Any:
    """The connection of this process; a fork gets its own."""
    return _cluster_of(os.getpid())


class DlqWatcher(core.InfoWatcher):
    """The states of jobs, from the one stream of the connection."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[str, Any] = {}
        self._ends: dict[str, Future[Any]] = {}

    def job(self, job_id: str) -> Any:
        """The job of dlq: `17`, or the task `12_4`."""
        if job_id not in self._jobs:
            self._jobs[job_id] = _cluster().job(job_id)
        return self._jobs[job_id]

    def end(self, job_id: str) -> Future[Any]:
        """A future that is done when the job has ended."""
        if job_id not in self._ends:
            self._ends[job_id] = self.job(job_id).future()
        return self._ends[job_id]

    def knows(self, job_id: str, job: Any) -> None:
        """A job that was just submitted."""
        self._jobs[job_id] = job

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Asks nobody, once the first question has begun the watch."""
        return mode != "cache" and self.end(job_id).done()

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """The word of dlq, in capitals as submitit has them. It asks the master."""
        return "UNKNOWN" if mode == "cache" else str(self.job(job_id).state).upper()

    def get_info(self, job_id: str, mode: str = "standard") -> dict[str, str]:
        """The fields of `dlq show --json`, as text."""
        facts = {} if mode == "cache" else self.job(job_id).facts
        return {name: str(value) for name, value in facts.items()}


class DlqJob(core.Job[R]):
    """A job of submitit that is a job of dlq."""

    watcher = DlqWatcher()

    def cancel(self, check: bool = True) -> None:
        """Ask for its end."""
        self.watcher.job(self.job_id).cancel()

    def wait(self) -> None:
        """Until it has ended."""
        self.watcher.end(self.job_id).result()


class DlqJobEnvironment(job_environment.JobEnvironment):
    """The variables of dlq that submitit looks for inside a job. Each node has one task."""

    _env: ClassVar[dict[str, str]] = {
        "job_id": "DLQ_JOB_ID",
        "array_job_id": "DLQ_ARRAY_JOB_ID",
        "array_task_id": "DLQ_ARRAY_TASK_ID",
        "num_tasks": "DLQ_NNODES",
        "num_nodes": "DLQ_NNODES",
        "node": "DLQ_NODE_RANK",
        "global_rank": "DLQ_NODE_RANK",
        "local_rank": "DLQ_NO_LOCAL_RANK",
    }

    def _requeue(self, countdown: int) -> None:
        """Leave, to be run again: the function has been stored."""
        sys.exit(PREEMPTED)


class DlqExecutor(core.Executor):
    """Runs functions of submitit as jobs of dlq.

    Parameters of dlq alone have its name before them: `dlq_queue="night"`, `dlq_deadline="8h"`.
    They are the words of `dlq.Cluster.submit`. `python`: the interpreter of the jobs.
    """

    job_class = DlqJob

    def __init__(
        self, folder: str | Path, max_num_timeout: int = 3, python: str = sys.executable
    ) -> None:
        super().__init__(folder)
        self.max_num_timeout = max_num_timeout
        self.python = python

    @classmethod
    def affinity(cls) -> int:
        """Only by name: its presence changes nothing for programs that name no cluster."""
        return -1

    @classmethod
    def _equivalence_dict(cls) -> Any:
        return EQUIVALENT

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        from dlq_api.words import WORDS

        return set(WORDS) - {"array", "command", "run"}

    def _convert_parameters(self, params: dict[str, Any]) -> dict[str, Any]:
        converted: dict[str, Any] = super()._convert_parameters(params)
        if "mem_gb" in params:
            converted["mem"] = f"{round(params['mem_gb'] * 1024)}M"
        return converted

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        unknown = kwargs.keys() - self._valid_parameters() - {"stderr_to_stdout"}
        if unknown:
            raise ValueError(f"no words of dlq: {', '.join(sorted(unknown))}")
        if kwargs.get("tasks_per_node", 1) != 1:
            raise ValueError("tasks_per_node: dlq runs one task of submitit on each node")
        super()._internal_update_parameters(**kwargs)

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        home = utils.JobPaths.get_first_id_independent_folder(self.folder)
        home.mkdir(parents=True, exist_ok=True)
        minutes = self.parameters.get("time", _DEFAULT_MINUTES)
        ids, pickles = RandomIds(SteadyClock()), list[Path]()
        for delayed in delayed_submissions:
            pickles.append(home / f"{ids.request_id()}.pkl")
            delayed.set_timeout(minutes, self.max_num_timeout)
            delayed.dump(pickles[-1])
        made: list[core.Job[Any]] = []
        for job_id, job in self._submitted(len(pickles)):
            DlqJob.watcher.knows(job_id, job)
            tasks = list(range(self.parameters.get("nodes") or 1))
            made.append(DlqJob(folder=self.folder, job_id=job_id, tasks=tasks))
        for submitted, pickle in zip(made, pickles, strict=True):
            submitted.paths.move_temporary_file(pickle, "submitted_pickle")
        return made

    def _submitted(self, count: int) -> Sequence[tuple[str, Any]]:
        """One job, or the tasks of one array, each with the name that submitit gives it."""
        single = count == 1
        command = [self.python, "-u", "-m", "submitit.core._submit", self.folder]
        words = self._words("%j" if single else "%A_%a")
        if single:
            job = _cluster().submit(command, **words)
            return [(job.id, job)]
        array = _cluster().submit_array(command, array=f"0-{count - 1}", **words)
        return [(f"{array.id}_{index}", task) for index, task in enumerate(array)]

    def _words(self, number: str) -> dict[str, Any]:
        """The words of the submission. The stored function is the proof that work is saved."""
        words = {"time": _DEFAULT_MINUTES, **self.parameters}
        words.pop("tasks_per_node", None)
        merged = words.pop("stderr_to_stdout", False)
        logs = str(self.folder).replace("%j", number) + f"/{number}_%n_log"
        words.setdefault("output", f"{logs}.out")
        if not merged:
            words.setdefault("error", f"{logs}.err")
        words.setdefault("signal", DlqJobEnvironment.USR_SIG)
        home = utils.JobPaths.get_first_id_independent_folder(self.folder)
        words.setdefault("checkpoint_dir", home)
        words.setdefault("checkpoint_marker", f"**/{number}_submitted.pkl")
        env = dict(words.pop("env", {}))
        words["env"] = {**env, EXECUTOR_VARIABLE: self.name()}
        return words
