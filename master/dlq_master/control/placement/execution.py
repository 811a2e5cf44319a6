"""The execution of plans: check, apply to the cluster, write into the journal, launch.

Every plan goes this way: plans of the policy, loans and reclaims of operators, migrations to rented
machines, and promises for changed deadlines.
"""

from collections.abc import Iterable

from dlq_common.errors import Conflict
from dlq_master.control.loop.turn import State, Turn
from dlq_master.control.reservations import reservations
from dlq_master.control.trials import traffic
from dlq_master.model.cluster.drive import Happened
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.machines.renting import NOTHING_RENTED, RentingView
from dlq_master.model.nodes.node import NodeState
from dlq_master.model.plan import Plan, Start
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy import turn as plans
from dlq_master.policy.legal.check import IllegalPlan, check_delta

RETURNED_SHARE = 0.95  # of the known nodes must be back before a started master starts jobs


def look(turn: Turn) -> View:
    """The policies' view of this turn."""
    return View(turn.state.cluster, turn.now_s, pause_of(turn.state, turn.now_s))


def pause_of(state: State, now_s: float) -> ReasonCode | None:
    """Why no job may start or lapse now: nodes are still coming back after a master's start."""
    nodes = state.cluster.nodes.values()
    if now_s < state.started_s + state.config.nodes.start_grace:
        known = [node for node in nodes if node.state is not NodeState.DOWN]
        back = sum(node.node_id in state.nodes.greeted for node in known)
        if back < RETURNED_SHARE * len(known):
            return ReasonCode.MASTER_STARTING
    return None


def check(turn: Turn, plan: Plan) -> None:
    """Raises Conflict for a plan that is not legal (a bug)."""
    try:
        check_delta(look(turn), plan, turn.state.policy)
    except IllegalPlan as error:
        raise _conflict(error) from error


def carry_out(
    turn: Turn,
    plan: Plan,
    actor: str = "scheduler",
    *,
    machines: RentingView = NOTHING_RENTED,
) -> None:
    """Check a plan, apply it and launch its starts. `machines`: the machines that its maker saw.

    Raises Conflict for a plan that is not legal; then nothing has changed.
    """
    try:
        view = look(turn)._replace(machines=machines)
        happened = plans.carry_out(view, plan, turn.state.policy, turn.state.epoch)
    except IllegalPlan as error:
        raise _conflict(error) from error
    follow(turn, happened, actor)


def follow(turn: Turn, happened: Iterable[Happened], actor: str = "scheduler") -> None:
    """Write an applied plan into the journal, and launch its starts."""
    happened = list(happened)
    turn.follow(happened, actor=actor)
    for one in happened:
        if isinstance(one.change, Start):
            _launch(turn, one.change.job_id)
            reservations.warn_at_start(turn, one.change.job_id)


# --- helpers, in order of use ---------------------------------------------------------------------


def _conflict(error: IllegalPlan) -> Conflict:
    return Conflict(f"nothing was done: {error.why}", hint="please report it")


def _launch(turn: Turn, job_id: JobId) -> None:
    """Give the new attempt its rendezvous port, and tell its nodes."""
    job = turn.state.cluster.jobs[job_id]
    assert job.live_attempt is not None
    key = AttemptKey(job_id, job.live_attempt)
    attempt = turn.state.cluster.attempts[key]
    turn.put_attempt(attempt._replace(master_port=_port(turn, key)))
    traffic.order(turn, job, attempt)
    if attempt.waits_for_others:
        turn.state.attempts.starting.add(key)
    for rank, status in enumerate(attempt.ranks):
        turn.intend("launch", status.node_id, key, attempt.epoch, rank)


def _port(turn: Turn, key: AttemptKey) -> int:
    """The next rendezvous port that no live attempt has; if all are taken, one is shared."""
    state = turn.state
    jobs = state.config.jobs
    span = jobs.port_last - jobs.port_first + 1
    port = jobs.port_first + state.attempts.next_port % span
    for _ in range(span):
        state.attempts.next_port += 1
        holder = state.attempts.ports.get(port)
        if holder is None or holder not in state.cluster.attempts:
            break
        port = jobs.port_first + state.attempts.next_port % span
    state.attempts.ports[port] = key
    return port
