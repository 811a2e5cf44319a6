"""A policy with a bug: it starts and lapses nothing, stops nothing either, and is tried less and
less.

Ending the process would not help: the next one would plan the same from the same state. So running
jobs go on, the master reports the fault (`dlq nodes`, `dlq why`), and plans again after a while,
for the state may have moved on. Nothing of it is stored: a restarted master tries anew and, if the
bug is still met, says so once more.
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
    """Another plan has failed; return when to plan again. A fault that goes on is journaled
    once.
    """
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
    """A plan has come to its end: say for how long there was none."""
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
