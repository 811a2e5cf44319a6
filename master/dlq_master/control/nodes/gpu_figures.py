"""What GPUs last measured: shown, never stored, nothing follows from it."""

from typing import NamedTuple


class Figures(NamedTuple):
    """What a GPU last measured; None: its driver does not say."""

    temperature_celsius: int | None
    utilization_percent: int | None
    used_memory_bytes: int | None
