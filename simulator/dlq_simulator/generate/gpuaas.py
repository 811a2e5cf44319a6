"""Random instances of GPU as a Service (section 4.1): due dates, weights, arrivals at four
rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Literal

from dlq_simulator.workload import Trace, TraceJob

Rate = Literal["exponential", "high", "low", "mixed"]
RATES: tuple[Rate, ...] = ("exponential", "high", "low", "mixed")
_PER_NODE = 10  # jobs
_MEAN_GAP_S = 75_000  # times nodes
_MOST_GPUS = 8  # of one job, as of one node: P1m
_HIGH_PER_HOUR = 135  # submissions on a system of few thousand GPUs: 1,000 nodes here
_ALTERNATES_AFTER = 10  # submissions
_DUE = (1.0, 3.0)  # times the shortest run time
_WEIGHT = (0.003, 0.015)  # per second of tardiness
# Hours on one K80 for a job of each network, from short to long. They are invented, as the authors'
# profiles are not public. About eight GPUs are about five times faster.
_HOURS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"Alexnet": (2, 12), "Resnet": (6, 40), "VGG": (8, 60), "DeepSpeech": (10, 80)}
)
# Seconds of an iteration on one K80, likewise.
_STEP_S: Mapping[str, float] = MappingProxyType(
    {"Alexnet": 0.4, "Resnet": 0.9, "VGG": 1.6, "DeepSpeech": 2.5}
)
_SCALING = 0.8  # t(g) = t(1) / g ** 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAsAService:
    """Ten jobs a node; each job asks for its fastest configuration, all GPUs of one node."""

    nodes: int = 10
    rate: Rate = "exponential"

    def workload(self, rng: Random) -> Trace:
        submit_s, jobs = 0.0, []
        for number in range(self.nodes * _PER_NODE):
            jobs.append(self._job(rng, number, round(submit_s, 3)))
            submit_s += rng.expovariate(1 / self.mean_gap_s(number))
        return Trace.of(f"gpuaas-{self.rate}", jobs)

    def mean_gap_s(self, number: int) -> float:
        """Seconds that on average pass after the job of this number."""
        if self.rate == "exponential":
            return _MEAN_GAP_S / self.nodes
        high_s = 3600 / _HIGH_PER_HOUR * 1000 / self.nodes
        calm = self.rate == "low" or (self.rate == "mixed" and number // _ALTERNATES_AFTER % 2)
        return high_s * 4 if calm else high_s

    def _job(self, rng: Random, number: int, submit_s: float) -> TraceJob:
        network = rng.choice(list(_HOURS))
        alone_s = rng.uniform(*_HOURS[network]) * 3600
        shortest_s = round(alone_s / _MOST_GPUS**_SCALING, 3)
        return TraceJob(
            job_id=f"J{number + 1}",
            submit_time_s=submit_s,
            num_gpus=_MOST_GPUS,
            duration_s=shortest_s,
            model=network,
            iterations=max(1, round(alone_s / _STEP_S[network])),
            min_workers=1,
            max_workers=_MOST_GPUS,
            due_s=round(rng.uniform(*_DUE) * shortest_s, 3),
            weight=round(rng.uniform(*_WEIGHT), 6),
        )
