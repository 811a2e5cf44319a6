"""When a job that loses its lease is told: as late as its save allows, and not all at once."""

from typing import TYPE_CHECKING

from dlq_master.model.attempt import Attempt
from dlq_master.model.grace import SAVE_FACTOR, percentile_95
from dlq_master.model.plan import Change, Lapse

if TYPE_CHECKING:
    from dlq_master.control.turn import Turn


def delay_s(turn: "Turn", attempt: Attempt, change: Change | None) -> float:
    """How long the node waits before the notice; 0 for any stop but a lapse.

    A lapse is decided ahead of its boundary. A job whose saves have been observed goes on until it
    is just in time; one that never saved is told at once. Beyond `concurrent_saves` the notices of
    one turn follow each other, so that a boundary does not drown the file system.
    """
    if not isinstance(change, Lapse):
        return 0.0
    saves = turn.state.cluster.jobs[attempt.key.job_id].saves
    save_s = SAVE_FACTOR * percentile_95(saves) if saves else 0.0
    wait_s = max(0.0, change.at_s - turn.now_s - save_s) if saves else 0.0
    turn.lapses += 1
    wave = (turn.lapses - 1) // turn.state.config.jobs.concurrent_saves
    return wait_s + wave * max(1.0, save_s)
