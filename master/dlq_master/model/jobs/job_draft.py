"""A job on its way to its next value: its fields in a list, changed by their positions.

A job has some eighty fields and takes two steps per completion, which has 20 us in all. This costs
a third of `_replace` (`python -m benchmarks.drafts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dlq_master.model.estimates.estimate import Basis
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.band import Band, Segments
from dlq_master.model.jobs.eligible import Block, Dependency
from dlq_master.model.jobs.job import (
    SEVERAL,
    Alternative,
    Checkpoint,
    EndReason,
    HoldKind,
    Job,
    JobState,
    Pause,
    Resizing,
    Taken,
)
from dlq_master.model.resources import Allocation
from dlq_master.model.values import Draft, maker

_at = Job._fields.index
_STATE = _at("state")
_HOLD = _at("hold")
_HOLD_REASON = _at("hold_reason")
_HELD_BY = _at("held_by")
_VERSION = _at("version")
_QUEUED_SINCE_S = _at("queued_since_s")
_LEVEL = _at("level")
_SEQUENCE = _at("sequence")
_ATTAINED_GPU_S = _at("attained_gpu_s")
_EXECUTED_S = _at("executed_s")
_WAITED_S = _at("waited_s")
_PROMOTED = _at("promoted")
_ATTEMPTS = _at("attempts")
_LIVE_ATTEMPT = _at("live_attempt")
_FIRST_START_TIME_S = _at("first_start_time_s")
_START_TIME_S = _at("start_time_s")
_END_TIME_S = _at("end_time_s")
_END_REASON = _at("end_reason")
_EXIT_CODE = _at("exit_code")
_SIGNAL = _at("signal")
_PREEMPTIONS = _at("preemptions")
_REQUEUES = _at("requeues")
_INFRA_FAILURES = _at("infra_failures")
_RESTARTS = _at("restarts")
_CHECKPOINT = _at("checkpoint")
_SAVES = _at("saves")
_LOST_GPU_S = _at("lost_gpu_s")
_WORKED_S = _at("worked_s")
_REGRANT = _at("regrant")
_GPU_TYPE_RAN = _at("gpu_type_ran")
_TOTAL_GPU_S = _at("total_gpu_s")
_TOTAL_EXECUTED_S = _at("total_executed_s")
_BLOCKED = _at("blocked")
_DEPENDS = _at("depends")
_REQUEST = _at("request")
_RULES = _at("rules")
_FAILED_NODES = _at("failed_nodes")
_RETRY_TIME_S = _at("retry_time_s")
_BAND = _at("band")
_SLOTS = _at("slots")
_PROMISED = _at("promised")
_VERDICT = _at("verdict")
_GPU_TYPE_PROMISED = _at("gpu_type_promised")
_MOVES = _at("moves")
_MARGIN = _at("margin")
_PAUSE = _at("pause")
_TRIALS = _at("trials")
_TRIAL_TIME_S = _at("trial_time_s")
_MEASURED_S = _at("measured_s")
_ESTIMATE_S = _at("duration_estimate_s")
_ALTERNATIVE = _at("alternative")
_BASIS = _at("basis")
_RESUMES = _at("resumes")
_QUEUED_S = _at("queued_s")
_DISPLACED = _at("displaced")
_TAKEN = _at("taken")
_RESIZING = _at("resizing")
_RESIZES = _at("resizes")

_job = maker(Job)

SAVES_KEPT = 20
FAILED_NODES_KEPT = 8

_INFRA = frozenset({EndReason.NODE_LOST, EndReason.START_FAILED, EndReason.JOIN_FAILED})
_PREEMPTED = frozenset({EndReason.PREEMPTED, EndReason.PREEMPTED_LOST})
_RESTARTED = frozenset(
    {EndReason.USER_ERROR, EndReason.OOM_HOST, EndReason.OOM_GPU, EndReason.SIGNAL}
)


def sealed(draft: Draft, state: JobState) -> Job:
    """The job that the draft has become, in this state."""
    draft[_STATE] = state
    draft[_VERSION] += 1
    return _job(draft)


def at_position(job: Job, sequence: int) -> Job:
    """The job, elsewhere in its level; no step of its machine."""
    draft = list(job)
    draft[_SEQUENCE] = sequence
    return _job(draft)


def move(draft: Draft, sequence: int) -> None:
    """It gets another position in its level."""
    draft[_SEQUENCE] = sequence


def wait(draft: Draft, since_s: float | None) -> None:
    """It waits for GPUs from here on, or (None) cannot yet."""
    draft[_QUEUED_SINCE_S] = since_s


def stop_waiting(draft: Draft, at_s: float) -> None:
    """It waits for GPUs no longer."""
    since_s = draft[_QUEUED_SINCE_S]
    if since_s is not None:
        waited_s = at_s - since_s
        draft[_QUEUED_S] += waited_s
        # Waiting before the first run does not count: PROMOTEKNOB compares waiting with execution.
        if draft[_EXECUTED_S]:
            draft[_WAITED_S] += waited_s
    draft[_QUEUED_SINCE_S] = None
    draft[_PROMOTED] = False
    draft[_REGRANT] = None


def place(draft: Draft, attempt: int, at_s: float) -> None:
    """It waits no longer: it holds GPUs for this attempt."""
    stop_waiting(draft, at_s)
    draft[_LIVE_ATTEMPT] = draft[_ATTEMPTS] = attempt


def run(draft: Draft, at_s: float, *, resized: bool) -> None:
    """Its live attempt runs, perhaps with another number of GPUs than the one before it."""
    draft[_START_TIME_S] = at_s
    if draft[_FIRST_START_TIME_S] is None:
        draft[_FIRST_START_TIME_S] = at_s
    draft[_RESIZING] = None
    draft[_RESIZES] += resized


def run_on(draft: Draft, gpu_type: str) -> None:
    """Its live attempt runs on GPUs of this type; nothing changes where it is the one that it
    always had.
    """
    if draft[_GPU_TYPE_RAN] != gpu_type and gpu_type:
        draft[_GPU_TYPE_RAN] = SEVERAL if draft[_GPU_TYPE_RAN] else gpu_type


def resize(draft: Draft) -> None:
    """Its live attempt runs on with another number of GPUs."""
    draft[_RESIZES] += 1


def save(draft: Draft, checkpoint: Checkpoint, save_s: float | None) -> None:
    """It has a newer checkpoint, which took so long."""
    draft[_CHECKPOINT] = checkpoint
    if save_s is not None:
        draft[_SAVES] = (*draft[_SAVES], save_s)[-SAVES_KEPT:]


def resume(draft: Draft, resume_s: float) -> None:
    """It went on so long after it had been given GPUs."""
    draft[_RESUMES] = (*draft[_RESUMES], round(resume_s, 3))[-SAVES_KEPT:]


def displace(draft: Draft, taken: Taken) -> None:
    """It is to leave for another."""
    draft[_TAKEN] = taken


def left(draft: Draft, taken: Taken | None) -> None:
    """It has left its GPUs: for whom, if that was why, and what it lost."""
    if taken is not None:
        draft[_TAKEN] = taken
        draft[_DISPLACED] += 1
    elif draft[_TAKEN] is not None and draft[_TAKEN].lost_s is None:
        draft[_TAKEN] = None  # it ended otherwise before it could


def return_to(draft: Draft, allocation: Allocation | None, resizing: Resizing | None) -> None:
    """It goes on with these GPUs, which were kept for it, at once; or (None) as any other."""
    draft[_REGRANT] = allocation
    draft[_RESIZING] = None if allocation is None else resizing


def vacate(draft: Draft, usage: tuple[float, float, float, float]) -> None:
    """Its attempt is over: its consumption goes into the books."""
    draft[_LIVE_ATTEMPT] = None
    charge(draft, usage)


def charge(draft: Draft, usage: tuple[float, float, float, float]) -> None:
    """Its consumption goes into the books."""
    gpu_s, executed_s, lost_gpu_s, worked_s = usage
    draft[_ATTAINED_GPU_S] += gpu_s
    draft[_EXECUTED_S] += executed_s
    draft[_TOTAL_GPU_S] += gpu_s
    draft[_TOTAL_EXECUTED_S] += executed_s
    draft[_LOST_GPU_S] += lost_gpu_s
    draft[_WORKED_S] += worked_s


def explain(
    draft: Draft, reason: EndReason, exit_code: int | None = None, signal: int | None = None
) -> None:
    """How its last attempt ended."""
    draft[_END_REASON] = reason
    draft[_EXIT_CODE] = exit_code
    draft[_SIGNAL] = signal


def count(draft: Draft, reason: EndReason) -> None:
    """One more end of this kind that was not the end of the job."""
    draft[_PREEMPTIONS] += reason in _PREEMPTED
    draft[_INFRA_FAILURES] += reason in _INFRA
    draft[_REQUEUES] += reason is EndReason.REQUEUE_EXIT
    draft[_RESTARTS] += reason in _RESTARTED


def blame(draft: Draft, node_ids: tuple[NodeId, ...]) -> None:
    """The cluster, and not the job, failed on these nodes; `count` it first."""
    others = [node_id for node_id in draft[_FAILED_NODES] if node_id not in node_ids]
    draft[_FAILED_NODES] = (*others, *node_ids)[-FAILED_NODES_KEPT:]


def back_off(draft: Draft, at_s: float) -> None:
    """It is tried again a little later, and later each time."""
    wait_s = draft[_RULES].retry_backoff_s * 2.0 ** (max(1, draft[_INFRA_FAILURES]) - 1)
    if wait_s > 0.0:
        draft[_RETRY_TIME_S] = at_s + wait_s
        draft[_BLOCKED] = Block.BACKOFF
        draft[_QUEUED_SINCE_S] = None


def forgive(draft: Draft) -> None:
    """Nothing is held against any node any longer."""
    draft[_FAILED_NODES] = ()


def acquit(draft: Draft) -> None:
    """It has got on since the cluster failed it: that is not the job's doing."""
    draft[_INFRA_FAILURES] = 0
    draft[_FAILED_NODES] = ()


def avoid(draft: Draft, node_ids: tuple[NodeId, ...]) -> None:
    """It is not to be placed on these nodes."""
    draft[_REQUEST] = replace(draft[_REQUEST], avoid=node_ids)


def end(draft: Draft, at_s: float) -> None:
    """It is over for good."""
    draft[_END_TIME_S] = at_s
    draft[_HOLD] = None
    draft[_BLOCKED] = None
    draft[_QUEUED_SINCE_S] = None


def hold(draft: Draft, kind: HoldKind, reason: str = "", by: str = "") -> None:
    """Something keeps it from starting."""
    draft[_HOLD] = kind
    draft[_HOLD_REASON] = reason
    draft[_HELD_BY] = by


def release(draft: Draft) -> None:
    """Nothing holds it any longer. From poison, it is given its chances again: somebody has
    looked.
    """
    if draft[_HOLD] is HoldKind.POISON:
        draft[_INFRA_FAILURES] = 0
        forgive(draft)
    draft[_HOLD] = None
    draft[_HOLD_REASON] = draft[_HELD_BY] = ""


def refuse(draft: Draft, why: str) -> None:
    """It is told why it was not admitted."""
    draft[_HOLD_REASON] = why


def demote(draft: Draft, level: int) -> None:
    """It is served later."""
    draft[_LEVEL] = level


def promote(draft: Draft, keeps: bool) -> None:
    """It is in the first level, and what it has had is forgotten; `keeps`: it is served first of
    all.
    """
    draft[_LEVEL] = 0
    draft[_PROMOTED] = keeps
    draft[_ATTAINED_GPU_S] = draft[_EXECUTED_S] = draft[_WAITED_S] = 0.0


def reserve(draft: Draft, band: Band, slots: Segments, promised: int | None, verdict: str) -> None:
    """It stands in this band, and these slots are planned for it."""
    draft[_BAND], draft[_SLOTS] = band, slots
    draft[_PROMISED], draft[_VERDICT] = promised, verdict


def bind(draft: Draft, gpu_type: str) -> None:
    """Its promise stands on GPUs of this type (""; as before) as long as it has one."""
    if draft[_PROMISED] is None:
        draft[_GPU_TYPE_PROMISED] = ""
    elif gpu_type:
        draft[_GPU_TYPE_PROMISED] = gpu_type


def make_way(draft: Draft) -> None:
    """It goes elsewhere for others."""
    draft[_MOVES] += 1


def add_margin(draft: Draft, margin: float, pause: Pause | None) -> None:
    """So much of its estimate is reserved beyond it, and each stop is charged with that."""
    draft[_MARGIN] = margin
    draft[_PAUSE] = pause or draft[_PAUSE]


def offer(draft: Draft, alternative: Alternative | None) -> None:
    """This could have been promised instead."""
    draft[_ALTERNATIVE] = alternative


def try_on(draft: Draft, trials: tuple[int, ...], at_s: float) -> None:
    """It is to be profiled."""
    draft[_BAND], draft[_TRIALS], draft[_TRIAL_TIME_S] = Band.PROFILE, trials, at_s


def measure(draft: Draft, measured_s: float) -> None:
    """A trial of another size is over."""
    draft[_MEASURED_S] = (*draft[_MEASURED_S], measured_s)
    draft[_TRIALS] = draft[_TRIALS][1:]
    if not draft[_TRIALS]:
        draft[_BAND] = Band.SPOT


def estimate(draft: Draft, estimate_s: float, basis: Basis) -> None:
    """It is known how long it runs."""
    draft[_ESTIMATE_S], draft[_BASIS] = estimate_s, basis
    _end_trials(draft)


def leave_unmeasured(draft: Draft, basis: Basis) -> None:
    """Nobody tries any more to find out how long it runs."""
    draft[_BASIS], draft[_MEASURED_S] = basis, ()
    _end_trials(draft)


def _end_trials(draft: Draft) -> None:
    draft[_TRIALS] = ()
    if draft[_BAND] is Band.PROFILE:
        draft[_BAND] = Band.SPOT


def block(draft: Draft, by: Block | None, depends: Dependency | None) -> None:
    """It may not wait yet, or (None) may."""
    draft[_BLOCKED] = by
    draft[_DEPENDS] = depends


def update(draft: Draft, values: Iterable[tuple[str, object]]) -> None:
    """Other values for what its user may choose."""
    before = draft[_REQUEST]
    for name, value in values:
        draft[_at(name)] = value
    if draft[_REQUEST].gpus != before.gpus or draft[_REQUEST].nodes != before.nodes:
        _forget_trials(draft)


def _forget_trials(draft: Draft) -> None:
    """A measurement, past or to come, says nothing of its present size."""
    if draft[_TRIALS] or draft[_MEASURED_S]:
        draft[_TRIALS] = draft[_MEASURED_S] = ()
        draft[_BAND] = Band.SPOT
