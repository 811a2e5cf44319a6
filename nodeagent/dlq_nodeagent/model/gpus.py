"""How the GPUs of this node are, as a heartbeat tells it: plain values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuSymptom:
    """Something wrong with a GPU: a message of the driver with its age, or a present state."""

    code: str
    detail: str = ""
    age_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLoad:
    """The load of a GPU over a span. Samples cover `seen_s` of it; of the rest nothing is known.

    The figures of power and clock are None where the driver does not say.
    """

    span_s: float
    seen_s: float
    mean_utilization_percent: float
    peak_utilization_percent: int
    power_watts: int | None = None
    clock_mhz: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHealth:
    """One GPU by its index; figures are None where the driver does not say."""

    index: int
    symptoms: tuple[GpuSymptom, ...] = ()
    temperature_celsius: int | None = None
    utilization_percent: int | None = None
    used_memory_bytes: int | None = None
    load: GpuLoad | None = None
