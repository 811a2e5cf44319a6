"""The state of this node's GPUs in a heartbeat: plain values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuSymptom:
    """A fault of a GPU: a message of the driver with its age, or a present state."""

    code: str
    detail: str = ""
    age_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLoad:
    """The load of a GPU over a span; samples cover `seen_s` of it.

    The figures of power and clock are None if the driver does not give them.
    """

    span_s: float
    seen_s: float
    mean_utilization_percent: float
    peak_utilization_percent: int
    power_watts: int | None = None
    clock_mhz: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHealth:
    """One GPU by its index; figures are None if the driver does not give them."""

    index: int
    symptoms: tuple[GpuSymptom, ...] = ()
    temperature_celsius: int | None = None
    utilization_percent: int | None = None
    used_memory_bytes: int | None = None
    load: GpuLoad | None = None
