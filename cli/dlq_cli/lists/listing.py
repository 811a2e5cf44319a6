"""The jobs that a list shows, and its layout; `dlq status` prints it once or keeps it up to
date.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlq.v1 import job_pb2
from dlq_cli.lists.columns import COLUMNS, DEFAULT, LetterFormat, default_columns, sort_jobs
from dlq_cli.lists.tasks import folded, shown_id
from dlq_cli.output.render import OutputLook, table_of_columns
from dlq_cli.words import shown_state
from dlq_client.jobs import JobList, Jobs
from dlq_common.errors import InvalidRequest, NotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which jobs."""

    job_ids: Sequence[str]
    user: str
    states: Sequence[str]
    ended_within_s: int | None
    team: str = ""
    node: str = ""
    search: str = ""
    order: str = ""  # of the master
    limit: int | None = None

    def ask(self, jobs: Jobs) -> JobList:
        """The jobs now; NotFound when named ones are not there."""
        found = self.found(jobs)
        for job_id in self.missing(found):
            raise not_found(job_id)
        return found

    def found(self, jobs: Jobs) -> JobList:
        """The present jobs of the query."""
        return jobs.list(
            user=self.user,
            states=self.states,
            ended_within_s=self.ended_within_s,
            job_ids=self.job_ids,
            team=self.team,
            node=self.node,
            search=self.search,
            order=self.order,
            limit=self.limit,
        )

    @property
    def chooses(self) -> bool:
        """Whether the master leaves jobs out by more than their states."""
        return self.limit is not None or any((self.team, self.node, self.search))

    def missing(self, found: JobList) -> list[str]:
        """The named jobs that do not exist; unknown where more than names was asked for."""
        if self.states or self.chooses:
            return []
        there = {job.job_id for job in found.jobs}
        return [job_id for job_id in self.job_ids if job_id not in there]

    def admits(self, job: job_pb2.Job) -> bool:
        """Whether a job that just changed still belongs in the list; one that ended stays."""
        return not self.states or shown_state(job) in self.states


# Columns whose order the master knows, by its words.
_ORDERS = {"id": "number", "submit": "submit", "end": "end", "user": "user", "gpus": "gpus"}


def order_of(sort: str) -> str:
    """The word of the master for a --sort; InvalidRequest where it knows none. "": by id."""
    sign = "-" if sort.startswith("-") else ""
    order = _ORDERS.get(sort.strip().removeprefix("-").lower() or "id")
    if order is None:
        raise InvalidRequest(
            "--sort: with --limit the master sorts, by one column",
            field="--sort",
            hint=f"columns: {', '.join(_ORDERS)}; with - before it the order falls",
        )
    return f"{sign}{order}"


def not_found(job_id: str) -> NotFound:
    """The error of a job that is not there, or another's."""
    return NotFound(f"there is no job {job_id}", kind="job", id=job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListLayout:
    """How to print them."""

    columns: Sequence[str] | LetterFormat
    headings: bool
    ids_only: bool
    sort: str
    one_line_each: bool = False  # tasks of an array that wait are one line otherwise

    def text(self, jobs: Sequence[job_pb2.Job], look: OutputLook) -> str:
        """The list as text, sorted."""
        if self.ids_only:
            return "".join(f"{shown_id(job)}\n" for job in self.ordered(jobs, look))
        ordered = self.ordered(jobs if self.one_line_each else folded(jobs), look)
        if isinstance(self.columns, LetterFormat):
            head = [self.columns.heading()] if self.headings else []
            return "".join(
                f"{line}\n" for line in head + [self.columns.row(j, look) for j in ordered]
            )
        names = default_columns(ordered) if self.columns is DEFAULT else self.columns
        columns = [COLUMNS[name] for name in names]
        return table_of_columns(
            [column.cell for column in columns],
            [[text(job, look) for job in ordered] for _, text, _ in columns],
            look,
            headings=self.headings,
        )

    def ordered(self, jobs: Sequence[job_pb2.Job], look: OutputLook) -> Sequence[job_pb2.Job]:
        """The jobs by --sort, else as they came: by id."""
        return sort_jobs(jobs, self.sort, look) if self.sort else jobs
