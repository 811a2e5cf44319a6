"""The workload of Tiresias' testbed (section 5.1): 480 jobs, ten models, Poisson arrivals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import log
from random import Random
from types import MappingProxyType

from dlq_simulator.workload import Trace, TraceJob

# GPUs to jobs: half of 480 are single-GPU ones.
_MIX: Mapping[int, int] = MappingProxyType({1: 240, 2: 40, 4: 80, 8: 90, 16: 25, 32: 5})
_MIX_JOBS = sum(_MIX.values())
# Table 6: model to model size and largest tensor in MB.
MODELS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "vgg19": (548.1, 392.0),
        "vgg16": (527.8, 392.0),
        "vgg11": (506.8, 392.0),
        "alexnet": (235.9, 144.0),
        "resnet152": (230.2, 9.0),
        "resnet101": (170.4, 9.0),
        "resnet50": (97.7, 9.0),
        "inception4": (162.9, 5.9),
        "inception3": (91.0, 7.8),
        "googlenet": (26.7, 3.9),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiresias:
    """`jobs` in the proportions of the paper (exactly its numbers at 480); times in seconds."""

    jobs: int = _MIX_JOBS
    mean_gap_s: float = 30.0
    shortest_s: int = 120
    longest_s: int = 7200

    def workload(self, rng: Random) -> Trace:
        """Widths and models are dealt out and shuffled; run times are uniform on a log scale."""
        widths = [self._width(place) for place in range(self.jobs)]
        models = [list(MODELS)[place % len(MODELS)] for place in range(self.jobs)]
        rng.shuffle(widths)
        rng.shuffle(models)
        gaps = accumulate(rng.expovariate(1 / self.mean_gap_s) for _ in range(self.jobs - 1))
        submits = [0, *(round(at_s) for at_s in gaps)]
        rows = zip(submits, widths, models, strict=True)
        return Trace.of("tiresias", [self._job(rng, n, *row) for n, row in enumerate(rows)])

    def _width(self, place: int) -> int:
        """The width that stands at this share of the paper's list, narrow ones first."""
        at = place * _MIX_JOBS // self.jobs
        counted = accumulate(_MIX.values())
        return next(width for width, upto in zip(_MIX, counted, strict=True) if at < upto)

    def _job(self, rng: Random, number: int, submit_s: int, gpus: int, model: str) -> TraceJob:
        low, high = log(self.shortest_s), log(self.longest_s)
        size_mb, largest_mb = MODELS[model]
        return TraceJob(
            job_id=str(number),
            submit_time_s=submit_s,
            num_gpus=gpus,
            duration_s=round(2.718281828459045 ** rng.uniform(low, high)),
            model=model,
            # As many parameter servers as GPUs, in every job with more than one.
            ps=gpus if gpus > 1 else 0,
            skew=round(largest_mb / size_mb, 4) if gpus > 1 else None,
        )
