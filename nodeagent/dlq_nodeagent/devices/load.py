"""Sums of samples: the load of each GPU since the last report.

A sample stands for the time since the one before it. After a longer pause than `LONGEST_S` nobody
knows what happened meanwhile, and the pause counts as not seen. All times are of the boot's clock,
so a clock that is set does not matter. An agent that starts again begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dlq_nodeagent.devices.port import DeviceSample
from dlq_nodeagent.model.gpus import GpuLoad

LONGEST_S = 5.0  # between two samples that tell of the time in between


@dataclass(slots=True)
class _Sum:
    """Of one GPU: seconds seen, and percent and watts x seconds."""

    seen_s: float = 0.0
    percent_s: float = 0.0
    peak: int = 0
    powered_s: float = 0.0
    watt_s: float = 0.0
    clock_mhz: int | None = None

    def add(self, sample: DeviceSample, span_s: float) -> None:
        """A sample that stands for this span."""
        if sample.utilization_percent is None:
            return
        self.seen_s += span_s
        self.percent_s += sample.utilization_percent * span_s
        self.peak = max(self.peak, sample.utilization_percent)
        self.clock_mhz = sample.clock_mhz
        if sample.power_watts is not None:
            self.powered_s += span_s
            self.watt_s += sample.power_watts * span_s

    def load(self, span_s: float) -> GpuLoad:
        return GpuLoad(
            span_s=span_s,
            seen_s=self.seen_s,
            mean_utilization_percent=round(self.percent_s / self.seen_s, 3),
            peak_utilization_percent=self.peak,
            power_watts=round(self.watt_s / self.powered_s) if self.powered_s else None,
            clock_mhz=self.clock_mhz,
        )


@dataclass(slots=True)
class LoadMeter:
    """The sums since `since_s`, when it begins."""

    since_s: float
    _taken_s: float = field(init=False)
    _sums: dict[str, _Sum] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._taken_s = self.since_s

    def take(self, samples: Iterable[DeviceSample], now_s: float) -> None:
        """Samples of just now."""
        span_s, self._taken_s = now_s - self._taken_s, now_s
        if not 0.0 < span_s <= LONGEST_S:
            return
        for sample in samples:
            self._sums.setdefault(sample.uuid, _Sum()).add(sample, span_s)

    def drawn(self) -> Mapping[str, GpuLoad]:
        """The load of each GPU that was seen, by uuid, up to the last sample. The next one begins
        there.
        """
        span_s, sums = self._taken_s - self.since_s, self._sums
        self.since_s, self._sums = self._taken_s, {}
        return {uuid: each.load(span_s) for uuid, each in sums.items() if each.seen_s > 0.0}
