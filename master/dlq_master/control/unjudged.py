"""Jobs whose deadlines nobody judges, since the planning process cannot be started as this master's version.

Nothing of it is stored: a master that starts again has a planner of its own version, and they are judged.
"""

from __future__ import annotations

from dlq_master.control.away import Away
from dlq_master.control.turn import Turn


def delay_of(away: Away) -> str:
    """Why nothing new is promised until the master is restarted; empty: it is."""
    planner = away.planner
    if planner is None or not (facts := planner.facts()).outdated:
        return ""
    return facts.last_failure


def tell(turn: Turn) -> None:
    """Each of them once, after a plan."""
    away, waiting = turn.state.away, turn.state.cluster.unjudged
    away.delayed &= waiting.keys()
    if waiting and (why := delay_of(away)):
        for job_id in sorted(waiting.keys() - away.delayed):
            turn.note("promise_delayed", job_id=job_id, cause=why)
        away.delayed |= waiting.keys()
