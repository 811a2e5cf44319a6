"""Why the kept plan does not keep a promise as the cluster is now, and what could be promised
instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.job import Alternative, Job
from dlq_master.model.nodes.node import Node, NodeState
from dlq_master.model.nodes.owned import is_own
from dlq_master.model.view import View
from dlq_master.model.words.promise_words import few, span
from dlq_master.policy.promise.capacity.grids import slot_s
from dlq_master.policy.promise.capacity.leases import Grid, SloJob
from dlq_master.policy.promise.solver.selector import Selection
from dlq_master.policy.promise.verdicts.admission import PromiseBook
from dlq_master.policy.promise.verdicts.offer import FixKind, earliest_deadline
from dlq_master.policy.promise.verdicts.reading import goes_on, pace, pause_of, total_s, worked_s


class Danger(NamedTuple):
    """Why a promise is in danger.

    `lack`: the GPUs missing in the fullest of its slots; 0: that is not the reason. Else `needs_s`
    and `has_s`, seconds of work: the remaining need, and the part that has slots. With `over` the
    job has used up its reservation: its reserved and its present run time. With `steps` it will use
    it up: all its work by its own steps, and by its estimate.
    """

    lack: int = 0
    needs_s: float = 0.0
    has_s: float = 0.0
    over: bool = False
    steps: bool = False
    silent: bool = False  # work since its last save may be lost

    def words(self, closed: str) -> str:
        """The reason in words. `closed`: the nodes that are gone."""
        if self.over:
            return (
                f"it has run for {span(self.has_s)} of {span(self.needs_s)} that were "
                "reserved, and has not ended"
            )
        if self.steps:
            told, promised = span(self.needs_s), span(self.has_s)
            return (
                f"at the pace of its own steps it takes {told}, not the {promised} that it "
                "was promised for"
            )
        if self.lack:
            gpus = f"{self.lack} GPU{'' if self.lack == 1 else 's'}"
            return f"its slots are short of {gpus}" + (f": {closed}" if closed else "")
        if self.silent:
            told = f"{closed}: " if closed else ""
            return (
                f"{told}if what it has not saved is lost, it needs {span(self.needs_s)}, and "
                f"its slots have {span(self.has_s)}"
            )
        return f"it still needs {span(self.needs_s)}, and its slots have {span(self.has_s)}"


def closed_nodes(cluster: Cluster, gpu_type: str) -> str:
    """The own nodes of this type that take no work, and why, the last lost first; empty: none."""
    gone = [
        node
        for node in cluster.nodes.values()
        if is_own(node) and gpu_type in node.masks() and (not node.open or node.windows)
    ]
    gone.sort(key=lambda node: (-_since_s(node), node.node_id))
    return few([f"{node.node_id} is {_closed_because(node)}" for node in gone])


def given_up(
    chosen: Selection, asked: Iterable[SloJob], own: SloJob, grid: Grid, begin_s: float, why: str
) -> Alternative:
    """The message to a job whose promise no plan keeps.

    It names the cause, the promises that are kept, and the deadline that is possible beside them.
    `begin_s`: the instant of the plan's start.
    """
    kept = [job for job in asked if job.promised is not None and job.key not in chosen.broken]
    names = sorted([job.key for job in kept], key=int)
    held = {job.key for job in kept}
    plan = chosen.plan.without([key for key in chosen.plan.segments if key not in held])
    book = PromiseBook(grid=grid, jobs=tuple(kept), plan=plan)
    alone = own._replace(promised=None, team="")
    at_s = earliest_deadline(book, alone, lambda: True)
    detail = f"{why}; kept: {few([f'job {name}' for name in names])}" if names else why
    if at_s is None:
        return Alternative(detail=detail)
    late_s = float(ceil(begin_s + at_s))
    fix = FixKind.LATER_DEADLINE.value
    return Alternative(earliest_s=late_s, fix=fix, fix_s=late_s, detail=detail)


def _since_s(node: Node) -> float:
    """When the node was last marked or lost."""
    noted = [note.since_s for note in node.notes]
    return max([node.vanished_time_s or 0.0, *noted])


def _closed_because(node: Node) -> str:
    """Why a node takes no work."""
    if node.state is not NodeState.UP:
        return node.state.value
    flags = ", ".join(sorted(flag.value for flag in node.flags))
    if flags or not node.windows:
        return flags or "closed"
    return f"reserved ({node.windows[0].reservation_id})"


NOISE_S = 1e-3


class Outlook(NamedTuple):
    """Seconds of its reserved work that are left, and that have slots before the deadline."""

    needs_s: float
    has_s: float

    @property
    def in_time(self) -> bool:
        return self.needs_s <= self.has_s + NOISE_S


def is_silent(attempt: Attempt | None) -> bool:
    """Whether one of the attempt's nodes is silent, so that its state is unknown."""
    return attempt is not None and attempt.state is AttemptState.UNKNOWN


def outlook(view: View, job: Job, extra: float) -> Outlook:
    """The outlook of a promised job that gets all its planned slots.

    Plans are pessimistic: every segment pays for a save and a resume, and best-effort work counts
    once it is saved. So a warning is certain.
    """
    cluster, at_s = view.cluster, view.now_s
    attempt = cluster.live_attempt(job)
    if is_silent(attempt):
        attempt = None  # only saved work is certain
    needs_s = (total_s(job, extra) - worked_s(cluster, job, attempt, at_s)) / pace(cluster, job)
    if attempt is not None and attempt.state is AttemptState.PAUSING:
        needs_s -= attempt.executed_s(at_s)  # it is saving this work
    by_s, term_s = due_s(job, job.promised or 0), slot_s(cluster)
    runs, has_s = goes_on(attempt, at_s), 0.0
    if runs and attempt is not None:
        until_s = min(attempt.lease.term_end_s, by_s)
        has_s, at_s = until_s - at_s, until_s
    resume_s = pause_of(cluster, job).resume_s if runs or job.worked_s else 0.0
    for begin, end in job.slots:
        first_s, last_s = max(at_s, begin * term_s), min(end * term_s, by_s)
        if last_s > first_s:
            stays = runs and first_s == at_s
            has_s += max(0.0, last_s - first_s - (0.0 if stays else resume_s))
            at_s = last_s
    return Outlook(needs_s, has_s)
