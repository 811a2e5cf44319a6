"""The promised jobs of one GPU type as plans see them; only changed jobs are read anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.band import Segments
from dlq_master.model.jobs.job import Job
from dlq_master.policy.promise.capacity.grids import type_of
from dlq_master.policy.promise.capacity.leases import Grid, SloJob
from dlq_master.policy.promise.capacity.rules import Promises
from dlq_master.policy.promise.slots.ledger import Promised
from dlq_master.policy.promise.slots.plan import left_of
from dlq_master.policy.promise.verdicts.admission import PromiseBook
from dlq_master.policy.promise.verdicts.reading import may_make_way, slo_job, total_s


class Seen(NamedTuple):
    """A job and its live attempt as read for a plan.

    `own`: the job as the plan sees it. `reserved_s`: all its reserved seconds of work. `slots`: its
    remaining slots, from the plan's start.
    """

    job: Job
    attempt: Attempt | None
    own: SloJob
    reserved_s: float
    slots: Segments


Table = dict[JobId, Seen]


def seen(cluster: Cluster, gpu_type: str, origin: int, extra: float, grid: Grid) -> Table:
    """The jobs with a promise on this GPU type, in the order of the cluster's index.

    `origin`: the slot from which plans count. The same object while no job has changed.
    """
    key, of = ("seen", gpu_type), (cluster.terms, origin, extra, grid.node_gpus)
    known: Table = cluster.memo.get(key, *of) or {}
    table: Table = {}
    jobs, attempts = cluster.jobs, cluster.attempts
    same = True
    for job_id in cluster.promised:
        job = jobs[job_id]
        if type_of(cluster, job) != gpu_type:
            continue
        one = known.get(job_id)
        if one is None or one.job is not job or not _still(one, attempts):
            same = False
            one = _read(cluster, job, origin, extra, grid, one)
        table[job_id] = one
    if same and len(table) == len(known):
        return known
    cluster.memo.put(key, table, *of)
    return table


def _still(one: Seen, attempts: Mapping[AttemptKey, Attempt]) -> bool:
    """Whether an unchanged job has the same live attempt."""
    attempt = one.attempt
    if attempt is None:
        return one.job.live_attempt is None
    return attempts.get(attempt.key) is attempt


def _read(
    cluster: Cluster, job: Job, origin: int, extra: float, grid: Grid, before: Seen | None
) -> Seen:
    """The job as it is now; a value equal to that of `before` is the same object."""
    own = slo_job(cluster, job, origin, extra, spare=may_make_way(job, grid))
    slots = left_of(job.slots, origin)
    if before is not None and (own, slots) == (before.own, before.slots):
        own, slots = before.own, before.slots
    return Seen(job, cluster.live_attempt(job), own, total_s(job, extra), slots)


def kept_book(
    cluster: Cluster, gpu_type: str, origin: int, extra: float, grid: Grid, rules: Promises
) -> PromiseBook:
    """The promises on this GPU type, from slot `origin` on."""
    table = seen(cluster, gpu_type, origin, extra, grid)
    key, of = ("book", gpu_type), (cluster.terms, origin, extra, grid, rules.quotas)
    known: tuple[Table, PromiseBook] | None = cluster.memo.get(key, *of)
    if known is not None and known[0] is table:
        return known[1]
    before, book = known or ({}, PromiseBook(grid=grid, quotas=rules.quotas))
    gone, come = _changed(before, table), _changed(table, before)
    if gone or come:
        book = book.exchanged(gone, come, [Promised(one.own, one.slots) for one in table.values()])
    cluster.memo.put(key, (table, book), *of)
    return book


def _changed(table: Table, other: Table) -> list[Promised]:
    """The rows of a table that the other one lacks."""
    found = []
    for job_id, one in table.items():
        was = other.get(job_id)
        if was is not one and (was is None or was.own is not one.own or was.slots is not one.slots):
            found.append(Promised(one.own, one.slots))
    return found
