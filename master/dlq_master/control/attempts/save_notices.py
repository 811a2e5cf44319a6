"""When a job that loses its lease is told: as late as its save allows, and not all at once."""

from dlq_master.model.attempts.grace import SAVE_FACTOR, percentile_95


def delay_s(left_s: float, saves: tuple[float, ...], *, wave: int, waves: int) -> float:
    """How long the node waits before the notice, `left_s` before the boundary.

    A lapse is decided ahead of its boundary. A job whose saves have been observed goes on until it
    is just in time; one that never saved is told at once. Lapses come in waves, so that a boundary
    does not drown the file system: the last of `waves` is just in time, those before it earlier,
    and only what does not fit before the boundary goes beyond it.
    """
    if not saves:
        return float(wave)
    save_s = SAVE_FACTOR * percentile_95(saves)
    return max(left_s - save_s * (waves - wave), save_s * wave)


def waves_of(lapsing: int, saving: int, concurrent: int) -> int:
    """Waves that `lapsing` jobs need beside the `saving` ones, at most `concurrent` at a time."""
    return -(-(lapsing + saving) // max(1, concurrent))
