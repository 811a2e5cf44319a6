"""Plans that fail, by a bug of the policy: nothing starts or lapses, and running jobs go on.

A restart would not help, since the same state gives the same plan. So the master reports the fault
(`dlq nodes`, `dlq why`), and plans again after a pause that doubles: the state may have changed.
Nothing is stored: a restarted master plans at once.
"""

from __future__ import annotations

import traceback

from dlq_common.daemon.logs import get_logger
from dlq_master.control.loop.turn import Turn
from dlq_master.control.placement.state import PlanFault

FIRST_PAUSE_S = 10.0
LONGEST_PAUSE_S = 300.0
LONGEST_CAUSE = 500

_log = get_logger("master.plan_faults")


def failed(turn: Turn, fault: Exception) -> float:
    """Note a failed plan; return when to plan again. A repeated fault is journaled once."""
    where, before = _where(fault), turn.state.placement.fault
    again = before is not None and before.where == where
    count = before.times + 1 if before is not None and again else 1
    pause_s = min(FIRST_PAUSE_S * 2.0 ** (count - 1), LONGEST_PAUSE_S)
    words = f"{type(fault).__name__}: {fault}"[:LONGEST_CAUSE]
    since_s = before.since_s if before is not None and again else turn.now_s
    turn.state.placement.fault = PlanFault(where, words, since_s, count, turn.now_s + pause_s)
    if again:
        _log.error("plan_failed_again", cause=words, count=count, pause_s=pause_s)
    else:
        _log.error("plan_failed", exc_info=fault)
        turn.note("plan_failed", cause=words, where=where)
    return turn.now_s + pause_s


def recovered(turn: Turn) -> None:
    """After a good plan: note how long plans have failed."""
    fault, turn.state.placement.fault = turn.state.placement.fault, None
    if fault is not None:
        lasted_s = round(turn.now_s - fault.since_s, 3)
        turn.note("plan_recovered", cause=fault.words, count=fault.times, lasted_s=lasted_s)


def _where(fault: Exception) -> str:
    frames = traceback.extract_tb(fault.__traceback__)
    if not frames:
        return type(fault).__name__
    path = frames[-1].filename.rpartition("dlq_master/")[2]
    return f"{type(fault).__name__} in {path}:{frames[-1].lineno}"
