"""Late reports of a rank's end correct the record, and change no decision.

A rank whose node was silent is judged by when it ended, not by when it was heard. While its attempt
lives, another rank may come to be the one that failed first. A rank may be lost when its attempt
ends. A later report of its end is written down beside the others. Attempt and job stay as they are.
"""

from dlq_master.control.attempts.ranks import status_of
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import ReportedRank
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.first_failure import first_failed
from dlq_master.model.ids import NodeId


def note_first(turn: Turn, before: Attempt, after: Attempt) -> None:
    """Say so if it has become known that another rank failed before the one that was named."""
    was, now = before.first_failed_rank, after.first_failed_rank
    if was is None or now is None or was == now:
        return
    status = after.ranks[now]
    turn.note(
        "first_failure_corrected",
        job_id=after.key.job_id,
        attempt=after.key.number,
        node_id=status.node_id,
        cause=f"node rank {now} failed first, not node rank {was}, and was heard later",
        node_rank=now,
        exit_code=status.exit_code,
        signal=status.signal,
    )


def take(turn: Turn, node_id: NodeId, report: ReportedRank) -> None:
    """How a rank ended that was lost with its attempt: told once, since then it is lost no more."""
    past = turn.archive.attempts(report.key.job_id)
    attempt = next((it for it in past if it.key == report.key and not it.live), None)
    rank = report.node_rank
    if attempt is None or attempt.epoch != report.epoch or not 0 <= rank < len(attempt.ranks):
        return
    before = attempt.ranks[rank]
    status = status_of(before, report, turn.now_s)
    if before.node_id != node_id or not before.lost or status.lost:
        return
    ranks = (*attempt.ranks[:rank], status, *attempt.ranks[rank + 1 :])
    after = attempt._replace(ranks=ranks)
    after = after._replace(first_failed_rank=first_failed(after))
    turn.batch.attempts.append(after)
    turn.note(
        "rank_told_late",
        job_id=report.key.job_id,
        attempt=report.key.number,
        node_id=node_id,
        actor=f"node:{node_id}",
        cause="its attempt had ended without it",
        node_rank=rank,
        exit_code=status.exit_code,
        signal=status.signal,
    )
    note_first(turn, attempt, after)
