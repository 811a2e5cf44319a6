"""When a job that loses its lease is told: as late as its save allows, and not all at once."""

from dlq_master.model.grace import SAVE_FACTOR, percentile_95


def delay_s(left_s: float, saves: tuple[float, ...], *, earlier: int, concurrent: int) -> float:
    """How long the node waits before the notice, `left_s` before the boundary.

    A lapse is decided ahead of its boundary. A job whose saves have been observed goes on until it
    is just in time; one that never saved is told at once. Lapses follow `earlier` ones of the same
    turn in waves of `concurrent`, so that a boundary does not drown the file system.
    """
    save_s = SAVE_FACTOR * percentile_95(saves) if saves else 0.0
    wait_s = max(0.0, left_s - save_s) if saves else 0.0
    return wait_s + earlier // concurrent * max(1.0, save_s)
