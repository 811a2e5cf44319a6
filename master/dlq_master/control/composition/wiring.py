"""The functions that take part in every turn, in the order of their calls."""

from typing import Final

from dlq_master.control.attempts import (
    barrier,
    dispatch,
    live_resizes,
    stalls,
    stops,
    suspensions,
)
from dlq_master.control.composition.handlers import HANDLERS
from dlq_master.control.deadlines import missed, risks
from dlq_master.control.jobs import eligible, groups, limits
from dlq_master.control.loans import loans
from dlq_master.control.loop.turn import State, Steps, Turn, Wiring
from dlq_master.control.machines import pools, renting, run_times
from dlq_master.control.nodes import nodes
from dlq_master.control.people import attendance, people
from dlq_master.control.placement import avoided_nodes, scheduling, usage
from dlq_master.control.read_model import journal
from dlq_master.control.read_model.published import Published
from dlq_master.control.reservations import reservations
from dlq_master.control.trials import first_steps, traffic, trials
from dlq_master.model.attempts.attempt_steps import Renewed
from dlq_master.model.cluster.cluster import Touched
from dlq_master.store.stored_tables import FORESEEN, LESSONS, WAITED

# --- after steps of state machines ------------------------------------------------------------


def _gates(turn: Turn, steps: Steps) -> None:
    turn.state.jobs.gates.moved(one.job_id for one in steps.happened)


def _retries(turn: Turn, steps: Steps) -> None:
    jobs = turn.state.jobs
    jobs.retries.moved(turn.state.cluster, jobs.gates, steps.happened)


def _groups(turn: Turn, steps: Steps) -> None:
    if turn.state.cluster.groups:
        groups.moved(turn, (one.job_id for one in steps.happened))


def _risks(turn: Turn, steps: Steps) -> None:
    turn.state.deadlines.risks.moved(steps.happened)


def _bookings(turn: Turn, steps: Steps) -> None:
    turn.state.reservations.conflict_watch.moved(steps.happened)


def _waits(turn: Turn, steps: Steps) -> None:
    jobs = turn.state.cluster.jobs
    for one in steps.happened:
        if one.job_id is not None and not isinstance(one.event, Renewed):
            turn.state.jobs.waits.moved(jobs[one.job_id], turn.now_s)


def _provide(turn: Turn, steps: Steps) -> None:
    """Rented machines and checks: a cluster without them pays no call for them."""
    if turn.state.config.pools:
        renting.provide(turn, steps)
    checks = turn.state.nodes.checks
    if checks.living and checks.room is not None:
        checks.room.take(turn, steps)


# --- before the commit ------------------------------------------------------------------------


def _write_waits(turn: Turn, touched: Touched) -> None:
    turn.state.jobs.waits.touched(touched.jobs)
    turn.batch.put(WAITED, *turn.state.jobs.waits.rows(turn.now_s))


def _write_forecasts(turn: Turn, touched: Touched) -> None:
    turn.batch.put(FORESEEN, *turn.state.forecast.accuracy.rows(touched.jobs))
    turn.batch.drop(FORESEEN, *turn.state.forecast.accuracy.dropped())


def _write_lessons(turn: Turn, touched: Touched) -> None:
    run_times.note_ended(turn, touched.attempts)
    rows, dropped = turn.state.trials.learned.changed(turn.state.cluster)
    turn.batch.put(LESSONS, *rows)
    turn.batch.drop(LESSONS, *dropped)


def _write_usage(turn: Turn, _touched: Touched) -> None:
    turn.batch.meta.update(usage.to_write(turn.state.cluster))
    turn.state.attempts.bookkeeping.write(turn.batch, turn.state.cluster, turn.now_s)


def _write_costs(turn: Turn, _touched: Touched) -> None:
    state, batch = turn.state, turn.batch
    if state.config.pools or state.machines.fleet:
        state.machines.note_unforetold(batch.jobs)
        nodes = state.cluster.nodes
        batch.stays += state.machines.occupancy.take(
            batch.attempts, nodes, state.machines.fleet, turn.now_s
        )


# --- ticks and the end of a turn --------------------------------------------------------------


def _settle_checks(turn: Turn) -> None:
    checks = turn.state.nodes.checks
    if checks.overdue and checks.room is not None:
        checks.room.settle(turn)


def _watch_checks(turn: Turn) -> None:
    if (room := turn.state.nodes.checks.room) is not None:
        room.watch(turn)


def _forget_requests(turn: Turn) -> None:
    retention_s = turn.state.config.jobs.request_id_kept
    turn.batch.forget_requests_before_s = turn.now_s - retention_s


def _settle_suspensions(turn: Turn) -> None:
    if turn.state.attempts.suspended:
        suspensions.settle(turn, planned=False)


def _plan(turn: Turn) -> float | None:
    wake_at_s = scheduling.plan(turn)
    if turn.state.attempts.suspended:
        suspensions.settle(turn, planned=True)
    return wake_at_s


def _ask_planner(state: State, now_s: float) -> None:
    """Ask the planning process for what may take long (control/placement/offloaded.py)."""
    state.placement.offloaded.ask(
        state.cluster, state.policy, now_s, state.placement.nothing_placed
    )


def _ask_solver(state: State, _now_s: float) -> None:
    """Ask for the machines that an integer program chooses (control/machines/solving.py)."""
    state.machines.solving.ask()


def _ask_providers(state: State, _now_s: float) -> None:
    state.machines.hand_over()


WIRING: Final = Wiring(
    handlers=HANDLERS,
    ticks={
        "leases": (
            nodes.watch_silence,
            barrier.watch,
            live_resizes.watch,
            limits.watch,
            attendance.watch,
            trials.watch,
            loans.watch,
            renting.watch,
            pools.watch,
            risks.watch,
            missed.watch,
            stalls.watch,
            first_steps.watch,
            traffic.close_overdue,
            reservations.watch,
            scheduling.notice_pause,
            scheduling.watch_waits,
            _watch_checks,
        ),
        "compact": (people.drop_expired, _forget_requests),
    },
    stepped=(
        _gates,
        _retries,
        _groups,
        _risks,
        _bookings,
        _waits,
        limits.stepped,
        renting.note_migrations,
        journal.note_steps,
        stops.tell,
        _provide,
    ),
    before_plan=(
        groups.settle,
        _settle_suspensions,
        eligible.settle,
        avoided_nodes.steer,
        renting.arrive,
        _settle_checks,
    ),
    plan=_plan,
    before_commit=(_write_waits, _write_forecasts, _write_lessons, _write_usage, _write_costs),
    commands=dispatch.commands_for,
    after_turn=(_ask_planner, _ask_solver, _ask_providers),
    published=Published,
)
