"""Planning in a turn, and the reasons why jobs wait, by the last plan."""

from __future__ import annotations

from collections.abc import Callable

from dlq_common.daemon.logs import get_logger
from dlq_master.control.forecast.helper_health import HelperHealth
from dlq_master.control.loop.incidents import sheltered
from dlq_master.control.loop.turn import State, Turn
from dlq_master.control.placement import execution, offloaded, plan_faults
from dlq_master.control.placement.execution import look, pause_of
from dlq_master.control.placement.offloaded import Offloaded
from dlq_master.control.stimuli import PlanMade
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.model.words import sentence
from dlq_master.policy.admit import any_that_fits
from dlq_master.policy.policy import Policy
from dlq_master.policy.reasons.decisions import BoundaryDecisions, Decisions
from dlq_master.policy.reasons.explain import explain, explain_briefly, jobs_ahead
from dlq_master.policy.reasons.summary import ReasonSummary

_log = get_logger("master.scheduling")
MANY = 1_000  # waiting jobs from which lists show reasons that may be a second old
BOUNDARIES_KEPT_S = 5.0
# The answer to a submission must be cheap. Up to so many lines of waiting jobs it has the place in
# the queue. Up to so many attempts it names the holders of GPUs.
MOST_LINES = 64
MOST_LOOKED_AT = 32


def plan(turn: Turn) -> float | None:
    """Plan, carry the plan out, and return when to plan again if nothing happens before."""
    state = turn.state
    state.placement.forget_decisions()
    begins_s = state.jobs.gates.begins.next_s()
    if state.placement.fault is not None and turn.now_s < state.placement.fault.retry_s:
        turn.plan_due = False
        return _earliest(state.placement.fault.retry_s, begins_s)
    pause = pause_of(state, turn.now_s)
    state.placement.nothing_placed = pause
    now = (state.cluster, state.policy, turn.now_s, state.epoch, pause)
    applied = offloaded.apply(state.placement.offloaded, *now)
    execution.follow(turn, applied.happened)
    if applied.stage is not None:
        _say_made(applied)
    if applied.whole:
        turn.plan_due = False
        plan_faults.recovered(turn)
        return _earliest(applied.wake_at_s, _pause_ends_s(state, turn.now_s), begins_s)
    decided = offloaded.decided(state.placement.offloaded, *now)
    state.placement.last = decided.outcome or state.placement.last
    execution.follow(turn, decided.happened)
    tell_delayed(turn)
    turn.plan_due = False
    if decided.fault is not None:
        return _earliest(plan_faults.failed(turn, decided.fault), begins_s)
    plan_faults.recovered(turn)
    return _earliest(decided.wake_at_s, _pause_ends_s(state, turn.now_s), begins_s)


def delay_of(away: Offloaded) -> str:
    """Why deadlines are not judged until an operator acts; empty: they are."""
    planner = away.planner
    if planner is None:
        return ""
    if (facts := planner.facts()).outdated:
        return facts.last_failure
    return _failing(away.health) if away.health.failing else ""


def tell_delayed(turn: Turn) -> None:
    """Tell each job with an unjudged deadline once why it waits for the verdict."""
    away, waiting = turn.state.placement.offloaded, set(turn.state.cluster.to_judge())
    away.delayed &= waiting
    if waiting and (why := delay_of(away)):
        for job_id in sorted(waiting - away.delayed):
            turn.note("promise_delayed", job_id=job_id, cause=why)
        away.delayed |= waiting


def _failing(health: HelperHealth) -> str:
    """Without counts, so that the text changes only with the error."""
    return (
        f"nobody judges deadlines, since the planning process fails ({health.last_error}); "
        "it is tried again, and its operator finds more in `dlq doctor`"
    )


def plan_made(turn: Turn, told: PlanMade) -> None:
    """Take in an answer of the planning process; this turn applies it."""
    if turn.state.placement.offloaded.heard(told.answer):
        turn.plan_due = True


def notice_pause(turn: Turn) -> None:
    """Once a second: plan if a pause of starts has begun or ended."""
    if pause_of(turn.state, turn.now_s) is not turn.state.placement.nothing_placed:
        turn.plan_due = True


def never(turn: Turn, request: Request, gpus: int | None = None) -> Reason | None:
    """Why no set of the registered nodes could ever hold this request. `gpus`: another width than
    the request's. None: some set could, or there are no nodes.
    """
    cluster = turn.state.cluster
    nodes = cluster.nodes.values()
    if not any(node.gpus or (request.without_gpus and node.cores) for node in nodes):
        return None
    shape = request.shape if gpus is None else request.shape_on(gpus)
    return sheltered(
        lambda: any_that_fits.never(cluster, turn.state.policy.placement, shape),
        lambda _: None,
    )


def reasons(turn: Turn, job_id: JobId) -> tuple[Reason, ...]:
    """Every reason why a job does not run, by the last plan. The first question decides about the
    end of all terms. That is kept until a change, in a large cluster for some seconds.
    """

    def told() -> tuple[Reason, ...]:
        decisions = _decisions(turn.state, turn.now_s)
        return explain(look(turn), decisions.policy, job_id, decisions=decisions)

    return _reasons(turn, job_id, told)


def _reasons(
    turn: Turn, job_id: JobId, explained: Callable[[], tuple[Reason, ...]]
) -> tuple[Reason, ...]:
    if job_id not in turn.state.cluster.jobs:  # it ended long ago
        return (Reason(ReasonCode.ENDED, detail=turn.job(job_id).state.value),)
    fault = turn.state.placement.fault
    told = () if fault is None else (Reason(ReasonCode.PLAN_FAILED, detail=fault.words),)
    return told + sheltered(
        explained,
        lambda bug: () if told else (Reason(ReasonCode.PLAN_FAILED, detail=repr(bug)),),
    )


def at_a_glance(turn: Turn, job_id: JobId) -> tuple[Reason, ...]:
    """The reasons in the answer to a submission: by the plan of this turn, without a further one.
    They name the holders of GPUs only if there are few attempts.
    """
    state = turn.state
    few = len(state.cluster.attempts) <= MOST_LOOKED_AT

    def told() -> tuple[Reason, ...]:
        return explain_briefly(look(turn), _quick(state), job_id, state.placement.last, holders=few)

    return _reasons(turn, job_id, told)


def place(turn: Turn, job_id: JobId) -> int | None:
    """The number of jobs ahead of a new job. None: it does not wait, or counting is too costly."""
    policy, cluster = _quick(turn.state), turn.state.cluster
    lines = sum(map(len, cluster.waiting.by_priority.values()))
    if policy.order.anew or lines > MOST_LINES or job_id not in cluster.jobs:
        return None
    return jobs_ahead(look(turn), policy, job_id)


def explained(turn: Turn, job_id: JobId) -> tuple[tuple[Reason, ...], int | None]:
    """Every reason, and the number of jobs ahead of it (None: it does not wait)."""
    decisions = _decisions(turn.state, turn.now_s)
    told = reasons(turn, job_id)
    return told, jobs_ahead(look(turn), decisions.policy, job_id, decisions.order)


def main_reason(state: State, job: Job, now_s: float) -> ReasonCode | None:
    """The main reason of a waiting job, for lists: cheap after the first job."""
    glance = listed_summary(state, now_s)
    return sheltered(lambda: glance.code(job), lambda _: ReasonCode.PLAN_FAILED)


def watch_waits(turn: Turn) -> None:
    """Once a second: count the waiting time of each job by its reason."""
    state = turn.state
    state.placement.looked = None
    if state.placement.fault is None:
        glance = state.placement.looked = summary_of(state, turn.now_s)
        sheltered(
            lambda: state.jobs.waits.look(state.cluster.jobs, glance, turn.now_s, state.started_s),
            lambda _: None,
        )


def listed_summary(state: State, now_s: float) -> ReasonSummary:
    """The reasons for lists, by the last plan. With MANY waiting jobs they may be a second old: a
    new summary costs as much as a plan, and readers ask after each change.
    """
    looked = state.placement.looked
    if looked is None or state.cluster.waiting.count < MANY:
        return summary_of(state, now_s)
    return looked


def summary_of(state: State, now_s: float) -> ReasonSummary:
    """The reasons of all jobs by the last plan; made once after each plan."""
    if state.placement.summary is None:
        view = View(state.cluster, now_s, pause_of(state, now_s))
        state.placement.summary = ReasonSummary(view, _quick(state), state.placement.last)
    return state.placement.summary


# --- helpers, in order of use ---------------------------------------------------------------------


def _decisions(state: State, now_s: float) -> Decisions:
    """The decisions of the last plan; made once after each plan."""
    if state.placement.decisions is None:
        view, policy = View(state.cluster, now_s, pause_of(state, now_s)), _quick(state)
        boundaries = state.placement.boundaries = _boundaries(state, view, policy)
        state.placement.decisions = Decisions(view, policy, state.placement.last, boundaries)
    return state.placement.decisions


def _boundaries(state: State, view: View, policy: Policy) -> BoundaryDecisions:
    """The decisions at boundaries. With MANY jobs they are kept for a while: each costs a walk."""
    kept, cluster = state.placement.boundaries, state.cluster
    many = cluster.waiting.count + len(cluster.attempts) > MANY
    fresh = kept is not None and 0.0 <= view.now_s - kept.view.now_s <= BOUNDARIES_KEPT_S
    if kept is not None and kept.policy is policy and many and fresh:
        return kept
    return BoundaryDecisions(view, policy)


def _say_made(applied: offloaded.Applied) -> None:
    """Log a plan of the planning process: its time, and the first change that was dropped."""
    _log.info(
        "plan_made",
        stage=applied.stage,
        waited_s=round(applied.waited_s, 4),
        plan_s=round(applied.plan_s, 4),
        changes=len(applied.happened),
        dropped=len(applied.dropped),
        why=applied.dropped[0].why if applied.dropped else "",
    )


def _quick(state: State) -> Policy:
    """The policy without solvers: answers and the loop do not wait for one."""
    return state.placement.offloaded.quick(state.policy)


def _pause_ends_s(state: State, now_s: float) -> float | None:
    """The end of the grace after a master's start: a plan is due then."""
    ends_s = state.started_s + state.config.nodes.start_grace
    return ends_s if now_s < ends_s else None


def _earliest(*instants_s: float | None) -> float | None:
    return min((at_s for at_s in instants_s if at_s is not None), default=None)


def in_words(pause: ReasonCode | None) -> str:
    """The sentence for a pause of starts; empty for none."""
    return "" if pause is None else sentence.PLAIN[pause]
