"""The rank of a gang that failed first, by the time of each end, not of its report; pure.

A report says how long ago its rank ended, on its node's own clock (the shim's record of the end, on
CLOCK_BOOTTIME). An end is late only by its report's way to the master, which is far below
CLOCKS_DIFFER_S unless a machine is starved. Ends that lie closer together are not told apart by
time: of those the one is named that is a cause rather than an effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from signal import SIGHUP, SIGINT, SIGPIPE, SIGTERM

from dlq_master.model.attempts import unnoticed_ends
from dlq_master.model.attempts.attempt import Attempt, RankStatus
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.gpu_health import is_hardware
from dlq_master.model.nodes.node import Node
from dlq_master.model.transitions import StopCause

CLOCKS_DIFFER_S = 1.0

# Sent by somebody who ends a job, or by a peer that is gone: never the fault that began it.
_TOLD_TO_END = frozenset({SIGTERM, SIGINT, SIGHUP, SIGPIPE})
_SHELL_SIGNAL = 128  # a shell, and a container's init, exit with this plus the signal


def first_failed(attempt: Attempt) -> int | None:
    """The rank whose failure came first, of those that are known by now; None: nobody failed, or
    only because they were told to leave.

    A rank that nobody will ever hear of goes before all others. The last words of the others then
    come from its silence, and its node caused the end of the attempt. A gang that was given up at
    its barrier keeps the rank that it waited for.
    """
    named = attempt.first_failed_rank
    if named is not None and attempt.ranks[named].start_error:
        return named
    own = [rank for rank, status in enumerate(attempt.ranks) if _own(attempt, status)]
    if not own:
        return named
    lost = [rank for rank in own if attempt.ranks[rank].lost]
    if lost:
        return named if named in lost else lost[0]
    earliest_s = min(_ended_s(attempt.ranks[rank]) for rank in own)
    together = [
        rank for rank in own if _ended_s(attempt.ranks[rank]) <= earliest_s + CLOCKS_DIFFER_S
    ]
    return min(together, key=lambda rank: _order(attempt, rank))


def on_ailing_gpu(attempt: Attempt, nodes: Mapping[NodeId, Node]) -> NodeId | None:
    """The node of the rank that failed first, if a GPU that it had there ails; None: it has to
    blame itself.
    """
    first = attempt.first_failed_rank
    failed = next((rank for rank in attempt.ranks if rank.failed), None)
    status = failed if first is None else attempt.ranks[first]
    node = None if status is None else nodes.get(status.node_id)
    if node is None:
        return None
    ailing = {one.gpu for one in node.conditions if is_hardware(one)}
    slots = attempt.lease.allocation.slots
    had = {gpu for slot in slots if slot.node_id == node.node_id for gpu in slot.gpu_indices}
    return node.node_id if had & ailing else None


def _own(attempt: Attempt, status: RankStatus) -> bool:
    """Whether it failed, and not because it was told to leave."""
    if not status.failed or status.hold_expired:
        return False
    asked_s = attempt.notice_time_s
    if attempt.stop_cause is None or asked_s is None or status.start_error:
        return True
    if attempt.stop_cause is StopCause.GANG_FAILURE:
        # The failure comes before the kills that follow it. The report of an independent failure
        # may come later.
        return status.lost or _ended_s(status) < asked_s or not _signal(status)
    return unnoticed_ends.is_own(attempt, status)


def _order(attempt: Attempt, rank: int) -> tuple[bool, float, bool, int]:
    status = attempt.ranks[rank]
    return _is_effect(status), _ended_s(status), rank != attempt.first_failed_rank, rank


def _is_effect(status: RankStatus) -> bool:
    if status.oom_killed or status.gpu_oom or status.start_error:
        return False
    return status.peer_lost or _signal(status) in _TOLD_TO_END


def _signal(status: RankStatus) -> int:
    """The signal that ended it, also where its exit code says so; 0 for none."""
    beyond = (status.exit_code or 0) - _SHELL_SIGNAL
    return status.signal or max(0, beyond)


def _ended_s(status: RankStatus) -> float:
    return float("inf") if status.exited_time_s is None else status.exited_time_s
