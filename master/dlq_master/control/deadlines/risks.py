"""A promise that may not be kept is told so at once, not when the next slot is planned.

A node that is silent, lost, drained or cordoned takes GPUs from the plan. A job may also run for
longer than was reserved, lose time, or show by its own steps that it will. Whose slots then do not
suffice hears of it (`promise_at_risk`): within a second of a node, else within `LOOK_S`. One whose
deadline passes is told so within a second (`promise_missed`). The next slot's plan finds other
slots for it (`promise_safe`), or gives the promise up (`promise_broken`). A promise with no fault
any more is safe after a while (`risk_watch.calm_s`). Nothing of it is stored: a master that starts
again looks again, and tells it once more.
"""

from __future__ import annotations

from dlq_common.text.instants import format_instant
from dlq_master.control.deadlines.risk_watch import Risk
from dlq_master.control.loop.turn import Turn
from dlq_master.control.placement.execution import look
from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.ids import JobId
from dlq_master.policy.promise.capacity.rules import Promises

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
