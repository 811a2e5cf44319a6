"""Reports about a rank for the master: only facts; the master decides about the attempt."""

import errno

from dlq_common.live_resize import JOIN_FAILED
from dlq_nodeagent.model.messages import CheckpointFact, Phase, RankReport, SuspensionFact
from dlq_nodeagent.model.mistakes import cause_of_stage, start_exit_code
from dlq_nodeagent.model.port import ExitRecord, ExitWhy
from dlq_nodeagent.model.rank import Rank, RankState, answered_notice

NEVER_STARTED = "never_started"

_PHASES = {
    RankState.PREPARING: Phase.PREPARING,
    RankState.LAUNCHING: Phase.PREPARING,
    RankState.RUNNING: Phase.STARTED,
    RankState.SUSPENDING: Phase.STARTED,
    RankState.SUSPENDED: Phase.STARTED,
    RankState.RESUMING: Phase.STARTED,
    RankState.STOP_WAITING: Phase.STOPPING,
    RankState.STOPPING: Phase.STOPPING,
    RankState.RELEASING: Phase.STOPPING,
}
_MOVES = {RankState.RUNNING: "running", RankState.SUSPENDED: "suspended"}


def phase_of(rank: Rank) -> Phase:
    """The phase on the wire. A rank that holds its GPUs counts as exited once that is reported."""
    if rank.state is RankState.PREPARING and rank.prepared and rank.launch.at_barrier:
        return Phase.READY
    if rank.state in _PHASES and not rank.gpus_held:
        return _PHASES[rank.state]
    if _mistake_code(rank) is not None:
        return Phase.EXITED
    failed = bool(rank.error) or (rank.record is not None and rank.record.start_error is not None)
    return Phase.START_FAILED if failed else Phase.EXITED


def report_of(rank: Rank, *, sequence: int, now_s: float) -> RankReport:
    """The report of a rank as it is; `now_s` is boottime, and ages are counted from it."""
    phase = phase_of(rank)
    ended = phase in (Phase.EXITED, Phase.START_FAILED)
    record = rank.record if ended else None
    ready = phase is Phase.READY
    since_s = rank.ended_s if ended else rank.ready_s if ready else rank.started_s
    return RankReport(
        sequence=sequence,
        key=rank.launch.key,
        fence=rank.launch.fence,
        phase=phase,
        exit_code=_exit_code(rank) if ended else None,
        signal=0 if record is None else (record.signal or 0),
        oom_killed=record is not None and record.oom_kills > 0,
        error=error_of(rank) or (_gave_up(rank) if ended else ""),
        ended_by=_ended_by(record) if ended else "",
        checkpoint=_checkpoint(rank, now_s),
        done=rank.done,
        run_s=None if record is None else run_s(record),
        peak_memory_bytes=0 if record is None else (record.peak_memory_bytes or 0),
        cpu_s=0.0 if record is None else record.cpu_s,
        save_s=_save_s(rank),
        age_s=0.0 if since_s is None else max(0.0, now_s - since_s),
        detail=rank.detail if phase is Phase.PREPARING else "",
        gpu_indexes=rank.launch.gpu_indexes,
        # A node that joins later needs the rendezvous.
        ports=rank.ports if ready or (rank.launch.live and not ended) else (),
        workers_done=rank.workers_done,
        last_lines=rank.last_lines if ended else (),
        failed_task=rank.failed_task if ended else "",
        noticed="" if record is None else (record.noticed or ""),
        unnoticed=record is not None and _unnoticed(rank, record),
        catches=None if record is None or rank.stopping is None else rank.stopping.catches,
        gpus_held=rank.gpus_held,
        no_room=ended and _no_room(rank),
        start_cause=_start_cause(rank) if ended else "",
        image_digest=rank.image_digest,
        suspension=None if ended else _suspension(rank),
    )


def run_s(record: ExitRecord) -> float | None:
    """The time from the start of the main process to the end of the rank; None: it never ran."""
    if record.started_boottime_ns is None:
        return None
    return max(0, record.ended_boottime_ns - record.started_boottime_ns) / 1e9


def error_of(rank: Rank) -> str:
    """Why it never started, or is not over; empty for a rank that ran and ended."""
    if rank.error or rank.record is None or rank.record.start_error is None:
        return rank.error
    failed = rank.record.start_error
    return f"{failed.stage}: {failed.text}"


def _gave_up(rank: Rank) -> str:
    """Why this node itself has ended it."""
    return JOIN_FAILED if rank.stopping is not None and rank.stopping.cause == JOIN_FAILED else ""


def _exit_code(rank: Rank) -> int | None:
    mistake_code = _mistake_code(rank)
    if mistake_code is not None:
        return mistake_code
    return None if rank.record is None else rank.record.code


def _mistake_code(rank: Rank) -> int | None:
    """A shell's exit code for the user's own mistake that kept it from starting."""
    if rank.record is None or rank.record.start_error is None:
        return rank.exit_code
    return start_exit_code(rank.record.start_error.stage, rank.record.start_error.errno)


def _no_room(rank: Rank) -> bool:
    failed = None if rank.record is None else rank.record.start_error
    return rank.no_room or (failed is not None and failed.errno == errno.ENOSPC)


def _start_cause(rank: Rank) -> str:
    failed = None if rank.record is None else rank.record.start_error
    return rank.start_cause if failed is None else cause_of_stage(failed.stage, failed.errno)


def _ended_by(record: ExitRecord | None) -> str:
    if record is None:
        return NEVER_STARTED
    # The exit of a process that was asked to leave is still its own.
    return "exited" if record.why is ExitWhy.EXITED else record.why.value


_BY_ITSELF = frozenset({ExitWhy.EXITED, ExitWhy.START_ERROR})


def _unnoticed(rank: Rank, record: ExitRecord) -> bool:
    """Whether the rank ended by itself before it was told to leave, by the shim's record.

    If an agent has begun to give a notice, its file may have been there before the shim knew. Then
    nobody knows, and the answer is False. A stop without grace is a kill, which gives a rank no
    notice.
    """
    if record.why not in _BY_ITSELF or record.noticed is not None:
        return False
    asked = rank.stopping
    return asked is None or asked.noticed_s is None or asked.grace_s == 0.0


def _checkpoint(rank: Rank, now_s: float) -> CheckpointFact | None:
    found = rank.checkpoint
    if found is None:
        return None
    return CheckpointFact(
        path=found.path,
        step=found.step,
        age_s=max(0.0, now_s - found.committed_s),
        evidence=found.evidence,
        after_notice=answered_notice(rank) or _answered_shim(rank),
    )


def _suspension(rank: Rank) -> SuspensionFact | None:
    found = rank.suspension
    if found is None:
        return None
    state = _MOVES.get(rank.state, "moving")
    if rank.state is RankState.SUSPENDED and found.failure:
        state = "stranded"
    return SuspensionFact(
        number=found.number,
        state=state,
        memory_bytes=found.nbytes,
        took_s=found.took_s,
        failure=found.failure,
        remaps=state == "suspended" and found.left and not found.own_only,
        own_only=found.own_only,
    )


def _answered_shim(rank: Rank) -> bool:
    """Whether it saved because its shim told it to leave.

    There was no master, and perhaps no agent, so the times must tell. They count from the end,
    which may be before this boot.
    """
    record, found = rank.record, rank.checkpoint
    if record is None or found is None or rank.ended_s is None:
        return False
    if record.noticed != "hold_expired" or record.noticed_boottime_ns is None:
        return False
    grace_s = (record.ended_boottime_ns - record.noticed_boottime_ns) / 1e9
    return found.committed_s > rank.ended_s - grace_s


def _save_s(rank: Rank) -> float | None:
    """The measured time from a notice to its answer, else the job's own estimate."""
    if rank.checkpoint is None:
        return None
    if not answered_notice(rank):
        return rank.checkpoint.save_s
    assert rank.stopping is not None
    assert rank.stopping.noticed_s is not None
    return max(0.0, rank.checkpoint.committed_s - rank.stopping.noticed_s)
