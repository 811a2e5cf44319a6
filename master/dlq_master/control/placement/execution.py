"""Plans are carried out here: checked, applied to the cluster, written down, and launched.

Every plan goes this way. It may be the policy's plan, a loan or a reclaim by people, a migration to
a rented machine, or a promise for new deadlines.
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

RETURNED_SHARE = 0.95  # of the known nodes: then a started master places work again


def look(turn: Turn) -> View:
    """The policies' view of this turn."""
    return View(turn.state.cluster, turn.now_s, pause_of(turn.state, turn.now_s))


def pause_of(state: State, now_s: float) -> ReasonCode | None:
    """Why nothing may start or lapse: known nodes are still coming back."""
    nodes = state.cluster.nodes.values()
    if now_s < state.started_s + state.config.nodes.start_grace:
        known = [node for node in nodes if node.state is not NodeState.DOWN]
        back = sum(node.node_id in state.nodes.greeted for node in known)
        if back < RETURNED_SHARE * len(known):
            return ReasonCode.MASTER_STARTING
    return None


def check(turn: Turn, plan: Plan) -> None:
    """Raises Conflict for a plan that is not legal, which is a bug of its maker."""
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
    """Check a plan, apply it and launch what it starts. `machines`: the plan's own view of them.

    Raises Conflict for a plan that is not legal; then nothing has changed.
    """
    try:
        view = look(turn)._replace(machines=machines)
        happened = plans.carry_out(view, plan, turn.state.policy, turn.state.epoch)
    except IllegalPlan as error:
        raise _conflict(error) from error
    follow(turn, happened, actor)


def follow(turn: Turn, happened: Iterable[Happened], actor: str = "scheduler") -> None:
    """Write down what a plan has changed, and launch what it has started."""
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
    """The next rendezvous port that no living attempt has; when all are taken, one is shared."""
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
