"""A rank as this master sees it: its role on its node, and its status after a report.

No other module decides the role. It follows from the live attempts alone: their placement, fences,
known ends, and stops. Welcomes, commands, reports and heartbeats all use it.
"""

from collections.abc import Iterator
from enum import Enum

from dlq_common.failure_signs import says_gpu_oom, says_peer_lost
from dlq_common.start_causes import may_start_elsewhere
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import ReportedPhase, ReportedRank
from dlq_master.model.attempts.attempt import Attempt, RankPhase, RankStatus
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, NodeId

PHASES = {
    ReportedPhase.PREPARING: RankPhase.PREPARING,
    ReportedPhase.READY: RankPhase.STARTING,
    ReportedPhase.STARTED: RankPhase.RUNNING,
    ReportedPhase.STOPPING: RankPhase.RUNNING,
    ReportedPhase.EXITED: RankPhase.EXITED,
    ReportedPhase.START_FAILED: RankPhase.EXITED,
    ReportedPhase.ABSENT: RankPhase.EXITED,
}
# Its shim killed it, or told it to leave, so its exit is not its own failure.
_HOLD_EXPIRED = "hold_expired"
NEVER_STARTED = "never_started"
# Its node has a newer attempt of this name than the backup that was restored here.
OTHERS = "fence_mismatch"


class RankRole(Enum):
    """The role of a rank on that node."""

    RUNS = "runs"  # it should run there
    LEAVES = "leaves"  # its attempt is stopping
    GONE = "gone"  # its attempt is live, and the rank has ended there
    STRAY = "stray"  # it was lost, or its attempt ended or is elsewhere: it must be stopped
    ORPHAN = "orphan"  # its job is not in this database: an operator decides

    @property
    def ours(self) -> bool:
        """Whether a live attempt has placed it there."""
        return self in (RankRole.RUNS, RankRole.LEAVES, RankRole.GONE)


def role_of(
    cluster: Cluster, node_id: NodeId, key: AttemptKey, epoch: int, rank: int
) -> RankRole | None:
    """The role of a rank that a live attempt has placed there; None: no live attempt has.

    `epoch` and `key` are the fence of its launch.
    """
    attempt = cluster.attempts.get(key)
    if attempt is None or attempt.epoch != epoch or not 0 <= rank < len(attempt.ranks):
        return None
    status = attempt.ranks[rank]
    if status.node_id != node_id:
        return None
    if status.gone:
        return RankRole.STRAY if status.lost else RankRole.GONE
    stays = attempt.stop_cause is None and not status.leaving
    return RankRole.RUNS if stays else RankRole.LEAVES


def ranks_on(cluster: Cluster, node_id: NodeId) -> Iterator[tuple[Attempt, int, RankRole]]:
    """The ranks of live attempts on the node that are not known to have ended."""
    for key in cluster.attempts_on(node_id):
        attempt = cluster.attempts[key]
        for rank in range(len(attempt.ranks)):
            found = role_of(cluster, node_id, key, attempt.epoch, rank)
            if found in (RankRole.RUNS, RankRole.LEAVES):
                yield attempt, rank, found


def standing(turn: Turn, node_id: NodeId, key: AttemptKey, epoch: int, rank: int) -> RankRole:
    """The role of a rank that a node reports, also of one that no live attempt has."""
    placed = role_of(turn.state.cluster, node_id, key, epoch, rank)
    if placed is not None:
        return placed
    return RankRole.ORPHAN if turn.known_job(key.job_id) is None else RankRole.STRAY


def status_of(before: RankStatus, report: ReportedRank, now_s: float) -> RankStatus:
    """The status of a rank after a report. `before`: its status until then."""
    phase = PHASES[report.phase]
    vanished = report.phase is ReportedPhase.ABSENT and before.phase is not RankPhase.ASSIGNED
    failed_start = report.phase is ReportedPhase.START_FAILED
    # The shim was killed too, perhaps with its host: the rank has ended, and its result is unknown.
    untold = (
        report.phase is ReportedPhase.EXITED
        and report.exit_code is None
        and not report.signal
        and report.ended_by not in (_HOLD_EXPIRED, NEVER_STARTED)
    )
    return RankStatus(
        node_id=before.node_id,
        phase=phase,
        exit_code=report.exit_code,
        signal=report.signal or None,
        oom_killed=report.oom_killed,
        words=report.error if phase is RankPhase.EXITED else "",
        start_error=(
            before.start_error or report.error or "it could not be started"
            if failed_start
            else before.start_error
        ),
        no_room=before.no_room or (failed_start and report.no_room),
        start_cause=report.start_cause or before.start_cause,
        nowhere=failed_start and not may_start_elsewhere(report.start_cause),
        exited_time_s=now_s - report.age_s if phase is RankPhase.EXITED else None,
        done_file=report.done,
        saved=before.saved or (report.checkpoint is not None and report.checkpoint.after_notice),
        hold_expired=phase is RankPhase.EXITED
        and _HOLD_EXPIRED in (report.ended_by, report.noticed),
        noticed=_noticed(report),
        catches=report.catches,
        lost=vanished or untold,
        given_up=failed_start and report.error == OTHERS,
        ready_time_s=(
            now_s - report.age_s
            if before.ready_time_s is None and report.phase is ReportedPhase.READY
            else before.ready_time_s
        ),
        ports=report.ports or before.ports,
        workers_done=before.workers_done or report.workers_done,
        failed_task=report.failed_task,
        last_lines=report.last_lines,
        gpu_oom=any(map(says_gpu_oom, report.last_lines)),
        peer_lost=any(map(says_peer_lost, report.last_lines)),
        image_digest=report.image_digest or before.image_digest,
        move=report.move or before.move,
    )


def _noticed(report: ReportedRank) -> bool | None:
    """Whether it had notice before its end; None: it has not ended, or that is unknown."""
    if PHASES[report.phase] is not RankPhase.EXITED:
        return None
    return True if report.noticed else False if report.unnoticed else None
