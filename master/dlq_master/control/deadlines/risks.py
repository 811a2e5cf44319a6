"""A promise that may not be kept is told so at once, not when the next slot is planned.

A node that is silent, lost, drained or cordoned takes GPUs from the plan. A job may also run for
longer than was reserved, lose time, or show by its own steps that it will. Whose slots then do not
suffice hears of it (`promise_at_risk`): within a second of a node, else within `LOOK_S`. One whose
deadline passes is told so within a second (`promise_missed`). The next slot's plan finds other
slots for it (`promise_safe`), or gives the promise up (`promise_broken`). A promise with no fault
any more is safe after a while (`calm_s`). That while doubles each time it was too short. So a pace
at the edge of the reservation, or an unsteady node, is no news every ten seconds. Nothing of it is
stored: a master that starts again looks again, and tells it once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from dlq_common.text.instants import format_instant
from dlq_master.control.loop.turn import Turn
from dlq_master.control.placement.execution import look
from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.cluster.drive import Happened
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.policy.promise.capacity.rules import Promises

CALM_S = 30.0  # without a risk, before a promise is told to be safe
LONGEST_CALM_S = 1200.0


class Risk(NamedTuple):
    """Since when a promise is known to be at risk and why, and the job as it was then."""

    since_s: float
    cause: str
    job: Job


def calm_s(times: int) -> float:
    """How long nothing may be wrong with a promise that was told to be safe so often before."""
    return min(LONGEST_CALM_S, CALM_S * 2.0 ** min(times, 10))


@dataclass(slots=True)
class Risks:
    """`nodes`: nodes that have changed since the last look; `told`: jobs whose owners know of the
    risk; `missed`: that this deadline has passed. `calm`: since when nothing is wrong with one that
    was told; `safe`: how often it was told to be safe. `look_s`: when to look again though no node
    has changed; `slot`: that of the last look.
    """

    nodes: dict[NodeId, None] = field(default_factory=dict)
    told: dict[JobId, Risk] = field(default_factory=dict)
    missed: dict[JobId, int] = field(default_factory=dict)
    calm: dict[JobId, float] = field(default_factory=dict)
    safe: dict[JobId, int] = field(default_factory=dict)
    look_s: float = 0.0
    slot: int = -1

    def moved(self, happened: Iterable[Happened]) -> None:
        """These have moved: with a node, promises may fall."""
        for one in happened:
            if one.node_id is not None:
                self.nodes[one.node_id] = None

    def calmed(self, found: Collection[JobId], now_s: float) -> list[JobId]:
        """The warned jobs that have not been at risk for long enough, given the jobs at risk
        now.
        """
        quiet = self.told.keys() - found
        self.calm = {job_id: self.calm.get(job_id, now_s) for job_id in sorted(quiet)}
        return [
            job_id
            for job_id, since_s in self.calm.items()
            if now_s - since_s >= calm_s(self.safe.get(job_id, 0))
        ]

    def over(self, job_id: JobId) -> Risk:
        """Its owner is told that it is safe, or knows that nothing is promised any more."""
        self.calm.pop(job_id, None)
        self.safe[job_id] = self.safe.get(job_id, 0) + 1
        return self.told.pop(job_id)

    def forget(self, promised: Collection[JobId]) -> None:
        """Nothing but these is promised any more."""
        self.safe = {job_id: times for job_id, times in self.safe.items() if job_id in promised}

    def clear(self) -> None:
        """Nothing is."""
        for known in (self.nodes, self.told, self.missed, self.calm, self.safe):
            known.clear()


LOOK_S = 10.0


def watch(turn: Turn) -> None:
    """Once a second."""
    state = turn.state
    rules, risks = state.policy.promises, state.deadlines.risks
    if rules is None or not state.cluster.promised:
        risks.clear()
        return
    _tell_missed(turn)
    if risks.nodes or turn.now_s >= risks.look_s or risks.slot != state.cluster.slot:
        risks.nodes.clear()
        risks.look_s, risks.slot = turn.now_s + LOOK_S, state.cluster.slot
        _look(turn, rules)


# --- helpers, in order of use ---------------------------------------------------------------------


def _tell_missed(turn: Turn) -> None:
    """The plan of the next slot may be minutes away, and only then calls them broken."""
    cluster, risks = turn.state.cluster, turn.state.deadlines.risks
    missed = {}
    for job_id in cluster.promised:
        job = cluster.jobs[job_id]
        step = job.promised or 0
        by_s = due_s(job, step)
        if turn.now_s <= by_s:
            continue
        missed[job_id] = step
        if risks.missed.get(job_id) != step:
            cause = f"its deadline was {_instant(by_s)}, and it has not ended"
            risks.told[job_id] = Risk(turn.now_s, cause, job)
            turn.note("promise_missed", job_id=job_id, cause=cause)
    risks.missed = missed


def _look(turn: Turn, rules: Promises) -> None:
    from dlq_master.policy.promise.capacity.grids import next_decision_s, type_of
    from dlq_master.policy.promise.verdicts.danger import closed_nodes
    from dlq_master.policy.promise.verdicts.proof import at_risk

    cluster, risks = turn.state.cluster, turn.state.deadlines.risks
    told = risks.told
    found = at_risk(look(turn), rules, turn.state.trials.work_by_steps_s)
    then_s = max(turn.now_s, next_decision_s(cluster))
    for job_id in sorted(found.keys() - told.keys()):
        job = cluster.jobs[job_id]
        why = found[job_id].words(closed_nodes(cluster, type_of(cluster, job)))
        by_s = due_s(job, job.promised or 0)
        if by_s <= then_s:
            cause = (
                f"{why}; its deadline comes before other slots are looked for, at {_instant(by_s)}"
            )
        elif found[job_id].steps:
            cause = f"{why}; it loses its promise once it has run for longer than was reserved"
        elif found[job_id].over:
            cause = f"{why}; unless it has by {_instant(then_s)}, it is given up"
        else:
            cause = f"{why}; at {_instant(then_s)} other slots are looked for, else it is given up"
        told[job_id] = Risk(turn.now_s, cause, job)
        turn.note("promise_at_risk", job_id=job_id, cause=cause)
    wrong = found.keys() | risks.missed.keys()
    calmed = risks.calmed(wrong, turn.now_s)
    for job_id in sorted(told.keys() - wrong):
        _let_go(turn, job_id, calmed=job_id in calmed)
    risks.forget(cluster.promised)


def _instant(at_s: float) -> str:
    return format_instant(at_s).replace(".000Z", "Z")


def _let_go(turn: Turn, job_id: JobId, *, calmed: bool) -> None:
    """Of who has lost its promise, or has ended, that was told already. A new plan is believed at
    once.
    """
    risks = turn.state.deadlines.risks
    job = turn.state.cluster.jobs.get(job_id)
    if job is None or job.ended or job.promised is None:
        risks.over(job_id)
        return
    moved = job.slots != risks.told[job_id].job.slots
    if not (moved or calmed):
        return
    risks.over(job_id)
    words = "other slots were found for it" if moved else "its slots suffice again"
    turn.note("promise_safe", job_id=job_id, cause=words)
