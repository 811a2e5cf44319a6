"""Reports of nodes about ranks, and their consequences: the only place where attempts end.

A report counts if its fence is the one stored at the placement and it comes from the node of that
rank. Any other report changes nothing. It is acknowledged, so that it is not sent again. If it
shows a running rank that should not run, the rank is stopped.

A rank whose node was silent counts as ended when it ended, not when its report came. So the rank
that failed first may turn out to be another one while the attempt is live. A rank may be lost when
its attempt ends. A later report of its end is stored, but changes neither attempt nor job.
"""

from collections.abc import Iterable
from typing import Final

from dlq_common.start_causes import StartCause
from dlq_master.control.attempts import live_resizes, quarantine, suspensions
from dlq_master.control.attempts.ranks import (
    NEVER_STARTED,
    OTHERS,
    PHASES,
    RankRole,
    role_of,
    standing,
    status_of,
)
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import ReportedCheckpoint, ReportedPhase, ReportedRank
from dlq_master.model.attempts import attempt_steps as on_attempt
from dlq_master.model.attempts import exit_zero, gang, live_resize, unnoticed_ends
from dlq_master.model.attempts.attempt import Attempt, AttemptState, RankPhase, RankStatus
from dlq_master.model.attempts.first_failure import first_failed
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.job import Checkpoint
from dlq_master.model.nodes.node import NodeState
from dlq_master.model.transitions import StopCause
from dlq_master.store.batch import Intention

_HAS_BEGUN = frozenset(
    {
        ReportedPhase.STARTED,
        ReportedPhase.STOPPING,
        ReportedPhase.EXITED,
        ReportedPhase.START_FAILED,
    }
)
MOST_STRAYS: Final = 10_000  # of a node, between two hellos
MOST_OPEN: Final = 50_000  # commands to a node that says of strays


def take(turn: Turn, node_id: NodeId, reports: Iterable[ReportedRank]) -> int:
    """Apply the reports of a node in order; return their highest sequence, to be acknowledged."""
    highest = 0
    for report in reports:
        highest = max(highest, report.sequence)
        found = standing(turn, node_id, report.key, report.epoch, report.node_rank)
        turn.state.nodes.note_clinging(node_id, report, found)
        _answer_launches(turn, node_id, report)
        if found.ours and _is_unaccounted(turn, node_id, report):
            continue
        if found.ours:
            _apply_report(turn, node_id, turn.state.cluster.attempts[report.key], report)
        else:
            _reject_report(turn, node_id, report, found)
        _note_preparing(turn, node_id, report)
    return highest


def lose(turn: Turn, key: AttemptKey, *, actor: str, cause: str, node_id: NodeId) -> None:
    """Mark the attempt's ranks on this node as lost, which ends the rest of the gang. Ranks that
    an operator gave up do not count as failed.
    """
    turn.note(
        "rank_lost",
        key=key,
        node_id=node_id,
        actor=actor,
        cause=cause,
    )
    lost = RankStatus(
        node_id,
        phase=RankPhase.EXITED,
        exited_time_s=turn.now_s,
        lost=True,
        given_up=actor.startswith("user:"),
    )
    for rank, status in enumerate(turn.state.cluster.attempts[key].ranks):
        if status.node_id == node_id and not status.gone:
            _set_status(turn, key, rank, lost, actor)


def fail_start(turn: Turn, launch: Intention, why: str) -> None:
    """Mark a rank as failed to start: its node refuses the launch for good."""
    attempt = turn.state.cluster.attempts.get(launch.key)
    if attempt is None or attempt.epoch != launch.epoch or attempt.ranks[launch.node_rank].gone:
        return
    failed = RankStatus(
        launch.node_id,
        phase=RankPhase.EXITED,
        exited_time_s=turn.now_s,
        start_error=why,
        start_cause=StartCause.OTHER_ATTEMPT,
        given_up=why == OTHERS,
    )
    _set_status(turn, launch.key, launch.node_rank, failed, f"node:{launch.node_id}")


def settle_return(turn: Turn, key: AttemptKey) -> None:
    """Return an UNKNOWN attempt to the state of its ranks: all its nodes answer again."""
    turn.step_attempt(key, gang.returned(turn.state.cluster.attempts[key]), actor="master")
    open_barrier(turn, key)
    suspensions.heard(turn, key)


def never_ran(turn: Turn, key: AttemptKey, rank: int, why: str) -> None:
    """Mark a rank as failed to start: its node is silent, and it still waits at the barrier."""
    node_id = turn.state.cluster.attempts[key].ranks[rank].node_id
    gone = RankStatus(
        node_id,
        phase=RankPhase.EXITED,
        exited_time_s=turn.now_s,
        start_error=why,
        start_cause=StartCause.BARRIER,
    )
    _set_status(turn, key, rank, gone, "master")


def open_barrier(turn: Turn, key: AttemptKey) -> None:
    """Start the ranks of a gang once all are ready: send the launches again, without the barrier
    and with the ports of all ranks. The gangs of a group start together.
    """
    attempt = turn.state.cluster.attempts.get(key)
    if attempt is None or not gang.all_ready(attempt):
        return
    gangs = gangs_beside(turn, key) if attempt.together else [attempt]
    ready = [one for one in gangs if one is not None and gang.all_ready(one)]
    whole = len(ready) == len(gangs)
    if attempt.together and any(rank.gone for one in ready for rank in one.ranks):
        whole = False
    for one in ready if whole else ():
        _release_ranks(turn, one)


def _is_unaccounted(turn: Turn, node_id: NodeId, report: ReportedRank) -> bool:
    """Whether to ignore the report: an agent that lost its records says that a rank is absent, and
    cannot know. Any other report about the rank ends the doubt.
    """
    waiting, it = turn.state.nodes.unaccounted.get(node_id, {}), (report.key, report.node_rank)
    if it in waiting and report.phase is not ReportedPhase.ABSENT:
        del waiting[it]
    return it in waiting


def _answer_launches(turn: Turn, node_id: NodeId, report: ReportedRank) -> None:
    """Drop the launches of a rank that runs, or has ended. Its node has them on its disk, and does
    not say so in a message of its own.
    """
    if report.phase in _HAS_BEGUN:
        for row in turn.state.attempts.outbox.of_rank(report.key, report.node_rank):
            if row.kind == "launch" and (row.node_id, row.epoch) == (node_id, report.epoch):
                turn.delivered(row.sequence)


def _note_preparing(turn: Turn, node_id: NodeId, report: ReportedRank) -> None:
    """Note the work of a node before a rank can start, such as pulling an image; once for each
    text.
    """
    said, rank = turn.state.attempts.preparing, (report.key, report.node_rank)
    if report.phase is not ReportedPhase.PREPARING or not _lives(turn, node_id, report):
        said.pop(rank, None)
    elif report.detail and said.get(rank) != report.detail:
        said[rank] = report.detail
        turn.note(
            "rank_preparing",
            key=report.key,
            node_id=node_id,
            actor=f"node:{node_id}",
            cause=report.detail,
            node_rank=report.node_rank,
        )


def _lives(turn: Turn, node_id: NodeId, report: ReportedRank) -> bool:
    fence = (report.key, report.epoch, report.node_rank)
    found = role_of(turn.state.cluster, node_id, *fence)
    return found in (RankRole.RUNS, RankRole.LEAVES)


def _reject_report(turn: Turn, node_id: NodeId, report: ReportedRank, found: RankRole) -> None:
    """Handle a report of a rank that no live attempt has on this node: stop it if it runs."""
    strays = turn.state.nodes.unowned.setdefault(node_id, {})
    if PHASES[report.phase] is RankPhase.EXITED:
        strays.pop((report.key, report.node_rank), None)
        _record_late_end(turn, node_id, report)
        _drop_commands(turn, report.key, report.node_rank, node_id)
        return
    seen = (report.key, report.node_rank) in strays
    if _is_flood(turn, node_id, 0 if seen else len(strays)):
        turn.end_session(node_id)
        return
    strays[report.key, report.node_rank] = report.gpu_indexes
    if found is RankRole.ORPHAN:
        # An unknown job, perhaps newer than a restored backup: an operator decides about it.
        turn.skip_job_id(report.key.job_id)
        if not seen:
            rank = str(report.key)
            turn.note("orphan_seen", node_id=node_id, actor=f"node:{node_id}", rank=rank)
        return
    stop_stray(turn, node_id, report.key, report.epoch, report.node_rank)


def stop_stray(turn: Turn, node_id: NodeId, key: AttemptKey, epoch: int, rank: int) -> None:
    """Stop a rank that no live attempt has there. An open stop is sent again with each hello, so
    there is one, however often the node tells of the rank.
    """
    for row in turn.state.attempts.outbox.of_rank(key, rank):
        if (row.kind, row.node_id, row.epoch) == ("stop", node_id, epoch):
            return
    turn.intend("stop", node_id, key, epoch, rank, "superseded", grace_s=0.0)


def _is_flood(turn: Turn, node_id: NodeId, strays: int) -> bool:
    """Whether a node tells of more strays than a host has processes, or takes no command."""
    return strays >= MOST_STRAYS or turn.state.attempts.outbox.count_of_node(node_id) >= MOST_OPEN


def _apply_report(turn: Turn, node_id: NodeId, attempt: Attempt, report: ReportedRank) -> None:
    key = attempt.key
    actor = f"node:{node_id}"
    if report.checkpoint is not None:
        _promote(turn, key, report, report.checkpoint)
    before = attempt.ranks[report.node_rank]
    status = status_of(before, report, turn.now_s)
    if not attempt.at_barrier and (before.ports or len(attempt.ranks) > 1):
        status = status._replace(ports=before.ports)  # the other ranks use these
    if status.gone and not before.gone:
        _drop_commands(turn, key, report.node_rank, node_id)
        turn.note(
            "rank_exited",
            key=key,
            node_id=node_id,
            actor=actor,
            cause=report.error or report.ended_by,
            node_rank=report.node_rank,
            exit_code=report.exit_code,
            signal=report.signal,
        )
        never_ran = report.ended_by == NEVER_STARTED and report.exit_code is None
        if not status.start_error and not status.lost and not never_ran:
            # It ran, even if no report said so.
            running = RankStatus(node_id, phase=RankPhase.RUNNING)
            _set_status(turn, key, report.node_rank, running, actor)
    _set_status(turn, key, report.node_rank, status, actor)
    if (status.workers_done, status.gone) != (before.workers_done, before.gone):
        _end_servers(turn, key)


def _set_status(turn: Turn, key: AttemptKey, rank: int, status: RankStatus, actor: str) -> None:
    """Store the new status of one rank, and carry out all that follows for its gang and job."""
    before = turn.state.cluster.attempts[key]
    known = before.ranks[rank]
    if known.joining or known.leaving or known.joined:
        status = live_resize.heard(known, status, turn.now_s)
    attempt = gang.heard(before, rank, status)
    if attempt is before:
        return
    turn.put_attempt(attempt)
    _note_first_failure(turn, before, attempt)
    if status.gone:
        _drop_launches(turn, key, rank)
    if (event := gang.progress(attempt)) is not None:
        turn.step_attempt(key, event, actor=actor)
    open_barrier(turn, key)
    _stop_the_rest(turn, key, actor)
    if attempt.moves:
        suspensions.heard(turn, key)
    if live_resizes.settle(turn, key):
        _return_if_heard(turn, key)
    attempt = turn.state.cluster.attempts[key]
    if gang.over(attempt):
        rules = turn.job(key.job_id).rules
        end = gang.verdict(attempt, rules)
        cause = unnoticed_ends.words(attempt) or exit_zero.words(attempt, rules)
        turn.step_attempt(key, end, actor="master", cause=cause)
        quarantine.take(turn, attempt, end, turn.job(key.job_id))


def _return_if_heard(turn: Turn, key: AttemptKey) -> None:
    """Return an UNKNOWN attempt whose silent node is not part of it any more."""
    attempt, nodes = turn.state.cluster.attempts[key], turn.state.cluster.nodes
    states = {nodes[name].state for name in attempt.place.node_ids}
    if turn.state.nodes.is_unaccounted(attempt):
        return
    if attempt.state is AttemptState.UNKNOWN and states <= {NodeState.UP, NodeState.SUSPECT}:
        settle_return(turn, key)


def _stop_the_rest(turn: Turn, key: AttemptKey, actor: str) -> None:
    """Stop all ranks if the status of one requires it."""
    attempt = turn.state.cluster.attempts[key]
    if gang.silenced(attempt):
        turn.stop(key, StopCause.HOLD_EXPIRED, grace_s=0.0, actor=actor)
    elif gang.must_stop(attempt):
        turn.stop(key, StopCause.GANG_FAILURE, grace_s=0.0, actor="master")
    elif gang.first_left_saved(attempt, turn.job(key.job_id).rules):
        assert attempt.stop_cause is not None
        sooner = on_attempt.sooner(attempt, attempt.stop_cause, gang.FOLLOW_S)
        turn.step_attempt(key, sooner, actor="master", cause="rank 0 has saved and left")


def _end_servers(turn: Turn, key: AttemptKey) -> None:
    """Send TERM to the remaining ranks (servers) once all workers are done: that is a good end."""
    attempt = turn.state.cluster.attempts.get(key)
    if attempt is None or attempt.stop_cause is not None or not gang.workers_done(attempt):
        return
    for rank, status in enumerate(attempt.ranks):
        if not status.gone:
            turn.intend("signal", status.node_id, key, attempt.epoch, rank, cause="TERM")


def _drop_launches(turn: Turn, key: AttemptKey, rank: int) -> None:
    """Drop launches of a rank that is gone. Its stops stay: a lost rank may still run."""
    for row in turn.state.attempts.outbox.of_rank(key, rank):
        if row.kind == "launch":
            turn.delivered(row.sequence)


def _promote(turn: Turn, key: AttemptKey, report: ReportedRank, found: ReportedCheckpoint) -> None:
    """Make a committed checkpoint the one that the next attempt resumes from.

    Every rank of a gang may report it, and the first report counts. Only a rank that saved reports
    how long that took.
    """
    checkpoint = Checkpoint(
        found.path, found.step, turn.now_s - found.age_s, key.number, report.save_s
    )
    known = turn.state.cluster.attempts[key].checkpoint
    if known is not None and (known.path, known.step) == (checkpoint.path, checkpoint.step):
        if known.save_s is not None or report.save_s is None:
            return
        checkpoint = known._replace(save_s=report.save_s)
    elif known is not None and checkpoint.time_s <= known.time_s:
        return
    actor = f"node:{turn.state.cluster.attempts[key].ranks[report.node_rank].node_id}"
    turn.step_attempt(key, on_attempt.Committed(checkpoint=checkpoint), actor=actor)
    job = turn.job(key.job_id)
    if not job.ended and not gang.is_reduced(turn.state.cluster.attempts[key], job):
        saved = on_job.Saved(checkpoint=checkpoint, save_s=report.save_s)
        turn.step_job(key.job_id, saved, actor=actor)


def _drop_commands(turn: Turn, key: AttemptKey, rank: int, node_id: NodeId) -> None:
    """Drop all commands for a rank that is gone from this node."""
    for row in turn.state.attempts.outbox.of_rank(key, rank):
        if row.node_id == node_id:
            turn.delivered(row.sequence)


def _note_first_failure(turn: Turn, before: Attempt, after: Attempt) -> None:
    """Note that another rank failed before the one that was named first."""
    was, now = before.first_failed_rank, after.first_failed_rank
    if was is None or now is None or was == now:
        return
    status = after.ranks[now]
    turn.note(
        "first_failure_corrected",
        key=after.key,
        node_id=status.node_id,
        cause=f"node rank {now} failed first, not node rank {was}, and was heard later",
        node_rank=now,
        exit_code=status.exit_code,
        signal=status.signal,
    )


def _record_late_end(turn: Turn, node_id: NodeId, report: ReportedRank) -> None:
    """Store the end of a rank that was lost when its attempt ended; only the first such report."""
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
        key=report.key,
        node_id=node_id,
        actor=f"node:{node_id}",
        cause="its attempt had ended without it",
        node_rank=rank,
        exit_code=status.exit_code,
        signal=status.signal,
    )
    _note_first_failure(turn, attempt, after)


def gangs_beside(turn: Turn, key: AttemptKey) -> list[Attempt | None]:
    """The live attempt of each member of the group that has not ended; None: it has none."""
    cluster = turn.state.cluster
    group = cluster.jobs[key.job_id].group
    members = () if group is None else cluster.groups.get(group.array_id, ())
    return [cluster.live_attempt(cluster.jobs[job_id]) for job_id in members]


def _release_ranks(turn: Turn, attempt: Attempt) -> None:
    """Launch the ranks of a gang without the barrier."""
    key = attempt.key
    ports = attempt.ranks[0].ports
    port = ports[0] if ports else attempt.master_port
    turn.put_attempt(attempt._replace(barrier_time_s=turn.now_s, master_port=port))
    if port is not None:
        turn.state.attempts.ports[port] = key
    turn.note("barrier_opened", key=key)
    for rank, status in enumerate(attempt.ranks):
        if status.phase is RankPhase.STARTING:
            turn.intend("launch", status.node_id, key, attempt.epoch, rank)
    event = gang.progress(turn.state.cluster.attempts[key])
    if event is not None:
        turn.step_attempt(key, event, actor="master")
