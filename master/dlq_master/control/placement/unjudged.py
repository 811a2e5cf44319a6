"""Jobs whose deadlines nobody judges: the planning process cannot be started as this master's
version, or fails.

Nothing of it is stored. A restarted master has a planner of its own version, which judges them. A
planner that still fails is found out anew.
"""

from __future__ import annotations

from dlq_master.control.forecast.helper_health import HelperHealth
from dlq_master.control.loop.turn import Turn
from dlq_master.control.placement.offloaded import Offloaded


def delay_of(away: Offloaded) -> str:
    """Why nothing new is promised until people do something; empty: it is."""
    planner = away.planner
    if planner is None:
        return ""
    if (facts := planner.facts()).outdated:
        return facts.last_failure
    return _failing(away.health) if away.health.failing else ""


def tell(turn: Turn) -> None:
    """Each of them once, after a plan."""
    away, waiting = turn.state.placement.offloaded, turn.state.cluster.unjudged
    away.delayed &= waiting.keys()
    if waiting and (why := delay_of(away)):
        for job_id in sorted(waiting.keys() - away.delayed):
            turn.note("promise_delayed", job_id=job_id, cause=why)
        away.delayed |= waiting.keys()


def _failing(health: HelperHealth) -> str:
    """Without counts: it stays the same for as long as it fails in the same way."""
    return (
        f"nobody judges deadlines, since the planning process fails ({health.last_error}); "
        "it is tried again, and its operator finds more in `dlq doctor`"
    )
