"""Jobs from the master, as Slurm's programs ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from dlq.v1 import event_pb2, job_pb2
from dlq_cli.app import App
from dlq_cli.lists.select import several_jobs
from dlq_cli.lists.tasks import folded
from dlq_cli.slurm.jobs.array_text import slurm_indexes
from dlq_cli.slurm.jobs.seen import NO_DETAIL, SeenJob
from dlq_cli.slurm.words import own_word
from dlq_cli.words import SLURM_CODES
from dlq_client.jobs import JobList, Jobs
from dlq_common.errors import NotFound, PermissionDenied

_WITH_NODES = tuple(word for word, code in SLURM_CODES.items() if code in {"CF", "R", "CG"})
_CANCELS = event_pb2.EventFilter(kinds=["job_cancelled"])
_MOST_AT_ONCE = 1_000
ENDED_WITHIN_S = 300
"""Slurm's MinJobAge: ended jobs are shown for so long."""


def everybody(
    app: App,
    *,
    detailed: bool,
    ended_within_s: int = ENDED_WITHIN_S,
    states: Sequence[str] = (),
    user: str = "*",
    queue: str = "",
    name: str = "",
) -> list[SeenJob]:
    """All users' jobs, or those of one, as far as the master shows them to the caller; else the
    caller's own. `states`: dlq's words for those that are wanted. Of other people's jobs no name is
    known.
    """
    jobs = Jobs(app.connection())

    def listed(of_user: str) -> JobList:
        return jobs.list(
            user=of_user,
            ended_within_s=ended_within_s,
            with_details=detailed,
            states=states,
            queue=queue,
            name=name,
        )

    try:
        return _seen(app, listed(user))
    except PermissionDenied:
        return _seen(app, listed(""))


def at_work(app: App) -> list[SeenJob]:
    """Jobs that have nodes, with their details. The thousands that wait are left out."""
    return everybody(app, detailed=True, ended_within_s=1, states=_WITH_NODES)


def named(app: App, ids: Sequence[str], *, detailed: bool) -> list[SeenJob]:
    """The jobs of `17`, `12_4`, `12`, `12_[0-3]`, `12+0` that the caller may see; of a step such as
    `17.batch` its job. Missing jobs are left out.
    """
    jobs = Jobs(app.connection())
    words = list(dict.fromkeys(own_word(each.partition(".")[0]) for each in ids))
    try:
        return _seen(app, _listed(jobs, words, detailed=detailed))
    except NotFound:
        pass
    found: dict[str, SeenJob] = {}
    for word in words:
        try:
            listed = _listed(jobs, [word], detailed=detailed)
        except NotFound:
            continue
        found.update((job.job.job_id, job) for job in _seen(app, listed))
    return list(found.values())


def _listed(jobs: Jobs, words: Sequence[str], *, detailed: bool) -> JobList:
    return jobs.list(job_ids=several_jobs(jobs, words), with_details=detailed)


def _seen(app: App, found: JobList) -> list[SeenJob]:
    cluster, now_s = app.connection().identity.cluster, app.clock.now_s()
    details = found.details or [NO_DETAIL] * len(found.jobs)
    return [
        SeenJob(job, cluster, now_s, detail)
        for job, detail in zip(found.jobs, details, strict=True)
    ]


def name_cancellers(app: App, jobs: Sequence[SeenJob]) -> None:
    """Note on cancelled jobs their cancellers, as far as the journal has them. An operator may
    have cancelled a job, and so may the master.
    """
    own = {job.raw_id: job for job in jobs if job.code == "CA" and not job.job.redacted}
    ids = list(own)
    for first in range(0, len(ids), _MOST_AT_ONCE):
        some = ids[first : first + _MOST_AT_ONCE]
        with suppress(NotFound):  # forgotten meanwhile
            for event in Jobs(app.connection()).events(*some, chosen=_CANCELS):
                kind, _, name = event.actor.partition(":")
                if event.kind == "job_cancelled" and event.job_id in own:
                    own[event.job_id].canceller = name if kind == "user" else ""


def folded_lines(jobs: Sequence[SeenJob], asked: Sequence[str] = ()) -> list[SeenJob]:
    """One line for all tasks of an array that wait in the same state. Members of groups differ, and
    have a line each, and so have tasks that were `asked` for by their own names.
    """
    if alone := [job for job in jobs if job.in_array and job.shown_id in asked]:
        others = [job for job in jobs if job not in alone]
        return [*folded_lines(others), *alone]
    if not any(job.in_array for job in jobs):
        return list(jobs)
    by_first: dict[str, SeenJob] = {}
    for job in jobs:
        by_first[job.job.job_id] = job
        if job.in_array:
            by_first.setdefault(job.job.array_task.array_id, job)
    members = [job for job in jobs if job.het_id]
    lines = folded([job.job for job in jobs if not job.het_id], slurm_indexes)
    if not members:
        return [_line(line, by_first) for line in lines]
    at = {id(job): number for number, job in enumerate(jobs)}
    placed = [(at[id(_first(line, by_first))], _line(line, by_first)) for line in lines]
    placed += [(at[id(job)], job) for job in members]
    return [line for _, line in sorted(placed, key=lambda one: one[0])]


def _first(line: job_pb2.Job, known: dict[str, SeenJob]) -> SeenJob:
    number, bar, _ = line.job_id.partition("_")
    return known[number if bar else line.job_id]


def _line(line: job_pb2.Job, known: dict[str, SeenJob]) -> SeenJob:
    first = _first(line, known)
    return SeenJob(line, first.cluster, first.now_s, first.detail)
