"""Jobs that hold GPUs and do nothing, by the rules of `[[idle]]`: seen, told, paused or cancelled.

Agents report loads now and then, beside a heartbeat. A window of each job on each node sums them in
memory. Of it, only the decision is stored, an event with its reason. A master that starts begins
all windows anew, so no job is idle before one has passed. Idle GPU-seconds go into the books every
ten minutes: a master that dies loses those since then. An agent that starts again, or is silent,
leaves a gap, and a gap counts as busy (policy/activity.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import floor
from typing import NamedTuple

from dlq_common.text.units import approximate_span
from dlq_master.control.attempts import stragglers
from dlq_master.control.attempts.work_loss import loss_words
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import ToldGpu
from dlq_master.control.stimuli.nodes import ToldLoad, ToldUse
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.attempts.unsaved import stop_loss
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.job import HoldKind, Job
from dlq_master.model.transitions import StopCause
from dlq_master.model.usage.accounting import DAY_S, Account, Used, class_of
from dlq_master.policy.activity import (
    ActivityRule,
    IdleAction,
    IdleRule,
    UseSpan,
    UseWindow,
    Worker,
    busiest,
    is_idle,
    mean_use,
)
from dlq_master.store.tables.accounts import UseRow

WRITE_S = 600.0


@dataclass(slots=True)
class Idleness:
    """`windows` by attempt, by their seconds, and by node: a long one is too coarse for a rule with
    a short one. `found`: the rules by which an attempt is idle now, by number, with words. `uses`:
    the last report on each rank.
    """

    rules: tuple[IdleRule, ...] = ()
    windows: dict[AttemptKey, dict[float, dict[str, UseWindow]]] = field(default_factory=dict)
    found: dict[AttemptKey, dict[int, str]] = field(default_factory=dict)
    uses: dict[AttemptKey, dict[int, ToldUse]] = field(default_factory=dict)
    unwritten: dict[Account, float] = field(default_factory=dict)  # idle GPU-seconds
    charged_s: dict[NodeId, float] = field(default_factory=dict)  # when a node last told of some
    write_s: float = 0.0


def take(turn: Turn, node_id: NodeId, told: Iterable[ToldGpu]) -> None:
    """A report on all GPUs of a node: the jobs that hold them are judged."""
    loads: dict[int, ToldLoad] = {}
    unused: dict[int, float] = {}
    for one in told:
        if one.load is not None:
            loads[one.gpu] = one.load
            if not one.load.peak_percent:
                unused[one.gpu] = one.load.seen_s
    if unused:
        _charge(turn, node_id, unused)
    if not turn.state.attempts.idleness.rules:
        return
    for attempt in _running_on(turn, node_id):
        mine = [loads.get(gpu) for gpu in _gpus(attempt, node_id)]
        known = [(load.span_s, load.seen_s, load.mean_percent / 100.0) for load in mine if load]
        if mine and len(known) == len(mine):  # one that is missing leaves a gap
            _add(turn, node_id, attempt, busiest(known))


def take_uses(turn: Turn, node_id: NodeId, told: Iterable[ToldUse]) -> None:
    """A report on the ranks of a node. It judges jobs without GPUs, by their CPU time."""
    idleness = turn.state.attempts.idleness
    running = {attempt.key: attempt for attempt in _running_on(turn, node_id)}
    for use in told:
        attempt = running.get(use.key)
        if attempt is None or use.epoch != attempt.epoch or use.node_rank >= len(attempt.ranks):
            continue
        if attempt.ranks[use.node_rank].node_id != node_id:
            continue
        idleness.uses.setdefault(use.key, {})[use.node_rank] = use
        if use.work is not None:
            stragglers.take(turn, node_id, attempt, use)
        cores = _cores(attempt, node_id)
        if idleness.rules and cores and use.cpu_s is not None:
            _add(turn, node_id, attempt, UseSpan(use.span_s, min(use.span_s, use.cpu_s / cores)))


class Activity(NamedTuple):
    """Words on a living attempt that is idle, stalled, or slowed down by a node, and the last
    reports on its ranks.
    """

    idle: str
    stall: str
    straggler: str
    uses: Mapping[int, ToldUse]


class Consequence(NamedTuple):
    """The action of a rule on a job. `told`: by notifications, too. `ending`: of its words."""

    action: IdleAction
    dry_run: bool
    told: bool
    ending: str = ""


def decided(turn: Turn, rule: ActivityRule, job: Job, attempt: Attempt) -> Consequence:
    """The action of a rule that a job has met. A pause never loses work."""
    action = rule.action
    if rule.dry_run:
        ending = f"; a dry run, so nothing is done ({action.value} without it)"
        return Consequence(action, dry_run=True, told=False, ending=ending)
    if action is IdleAction.PAUSE:
        loss = stop_loss(job, attempt, turn.now_s)
        if loss is not None:
            ending = f"; not paused: {loss_words(job, loss)} would be lost"
            return Consequence(IdleAction.NOTIFY, dry_run=False, told=True, ending=ending)
    return Consequence(action, dry_run=False, told=action is not IdleAction.WARN)


def carry_out(turn: Turn, job: Job, attempt: Attempt, found: Consequence, words: str) -> None:
    """Pause or cancel the job, after the event was noted; `words` are the reason."""
    if found.dry_run:
        return
    action = found.action
    if action is IdleAction.PAUSE and job.hold is not None:  # it runs all the same, and stays held
        turn.stop(attempt.key, StopCause.PAUSE, actor="master")
    elif action is IdleAction.PAUSE:
        held = on_job.Held(kind=HoldKind.PAUSED, reason=words)
        turn.step_job(job.job_id, held, actor="master", cause=words)
    elif action is IdleAction.CANCEL:
        turn.step_job(job.job_id, on_job.Cancelled(), actor="master", cause=words)


def forget_ended(turn: Turn) -> None:
    """Now and then: drop what was kept for attempts that do not run any more, and write the idle
    time since the last time.
    """
    idleness, living = turn.state.attempts.idleness, turn.state.cluster.attempts
    for kept in (idleness.windows, idleness.found, idleness.uses):
        for key in [key for key in kept if key not in living]:
            del kept[key]
    if idleness.unwritten and turn.now_s >= idleness.write_s:
        idleness.write_s = turn.now_s + WRITE_S
        rows = idleness.unwritten.items()
        turn.batch.idle_uses += [UseRow(account, Used(idle=idle_s)) for account, idle_s in rows]
        idleness.unwritten = {}


# --- helpers, in order of use ---------------------------------------------------------------------


def _running_on(turn: Turn, node_id: NodeId) -> Iterator[Attempt]:
    cluster = turn.state.cluster
    for key in cluster.attempts_on(node_id):
        attempt = cluster.attempts[key]
        if attempt.state is AttemptState.RUNNING and attempt.stop_cause is None:
            yield attempt


def _charge(turn: Turn, node_id: NodeId, unused: Mapping[int, float]) -> None:
    """The idle time of GPUs goes to the accounts of those that hold them. It is no longer than the
    time since the last report of the node, whatever that says.
    """
    cluster, idleness = turn.state.cluster, turn.state.attempts.idleness
    kept, before_s = idleness.unwritten, idleness.charged_s.get(node_id, 0.0)
    idleness.charged_s[node_id] = turn.now_s
    for attempt in _running_on(turn, node_id):
        most_s = turn.now_s - max(before_s, attempt.started_time_s or turn.now_s)
        idle_s = sum(min(unused.get(gpu, 0.0), most_s) for gpu in _gpus(attempt, node_id))
        if idle_s > 0.0:
            job = cluster.jobs[attempt.key.job_id]
            account = Account(
                floor(turn.now_s / DAY_S),
                job.user,
                job.team,
                class_of(attempt, job),
                cluster.nodes[node_id].pool.value,
            )
            kept[account] = kept.get(account, 0.0) + idle_s


def _gpus(attempt: Attempt, node_id: NodeId) -> tuple[int, ...]:
    slots = attempt.lease.allocation.slots
    return next((slot.gpu_indices for slot in slots if slot.node_id == node_id), ())


def _cores(attempt: Attempt, node_id: NodeId) -> int:
    slots = attempt.lease.allocation.slots
    return next((len(slot.core_indices) for slot in slots if slot.node_id == node_id), 0)


def _add(turn: Turn, node_id: NodeId, attempt: Attempt, span: UseSpan) -> None:
    idleness, job = turn.state.attempts.idleness, turn.state.cluster.jobs[attempt.key.job_id]
    if job.check:  # a check of a disk leaves the GPUs idle, and has its own time limit
        return
    worker = worker_of(job, turn.state.config.interactive.queue)
    windows = idleness.windows.setdefault(attempt.key, {})
    for window_s in {rule.window_of(worker) for rule in idleness.rules if rule.covers(worker)}:
        each = windows.setdefault(window_s, {})
        if node_id not in each:
            each[node_id] = UseWindow(window_s)
        each[node_id].add(turn.now_s, span)
    _judge(turn, attempt, job, worker)


def _judge(turn: Turn, attempt: Attempt, job: Job, worker: Worker) -> None:
    idleness, now_s = turn.state.attempts.idleness, turn.now_s
    windows, nodes = idleness.windows[attempt.key], attempt.lease.allocation.node_ids
    beat = turn.state.jobs.beats.get(job.job_id)
    beat_s = None if beat is None else beat.time_s
    for number, rule in enumerate(idleness.rules):
        if not rule.covers(worker):
            continue
        window_s = rule.window_of(worker)
        use = mean_use(windows[window_s], nodes, window_s, now_s)
        known = idleness.found.get(attempt.key, {})
        if is_idle(rule, worker, use, beat_s, now_s):
            if number not in known:
                words = _words(rule, use or 0.0, window_s, number)
                idleness.found.setdefault(attempt.key, {})[number] = words
                _act(turn, rule, job, attempt, words)
        elif number in known and use is not None:
            _end(turn, rule, job, number, attempt.key)


def worker_of(job: Job, interactive: str = "") -> Worker:
    """The facts of a job that rules look at. `interactive`: the queue of interactive jobs."""
    return Worker(
        user=job.user,
        team=job.team,
        queue=job.queue,
        name=job.name,
        number=str(job.job_id),
        interactive=job.rules.attended or bool(interactive and job.queue == interactive),
    )


def _words(rule: IdleRule, use: float, window_s: float, number: int) -> str:
    where = rule.section or f"rule {number + 1} of [[idle]]"
    return (
        f"its use was {100.0 * use:.1f} % over {approximate_span(window_s)}, below the"
        f" {100.0 * rule.below:g} % of {where}"
    )


def _act(turn: Turn, rule: IdleRule, job: Job, attempt: Attempt, words: str) -> None:
    found = decided(turn, rule, job, attempt)
    turn.note(
        "job_idle" if found.told else "job_idle_seen",
        job_id=job.job_id,
        cause=words + found.ending,
        action=found.action.value,
        dry_run=found.dry_run,
    )
    carry_out(turn, job, attempt, found, words)


def _end(turn: Turn, rule: IdleRule, job: Job, number: int, key: AttemptKey) -> None:
    """It works again: the rule counts anew."""
    found = turn.state.attempts.idleness.found
    del found[key][number]
    if not found[key]:
        del found[key]
    turn.note("job_idle_over", job_id=job.job_id, cause=f"by rule {number + 1} of [[idle]]")
