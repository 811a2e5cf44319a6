"""Aryl's workloads over any trace (section 7.1), and the inference load that decides on loans."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import cos, pi
from random import Random
from typing import NamedTuple

from dlq_simulator.workload import Trace, TraceJob

_DAY_S = 86_400
# Jobs of Pollux' four workloads on several GPUs, by model and batch.
_TUNED = {
    ("bert", 384): 36,
    ("cifar10", 2048): 120,
    ("cifar10", 4096): 122,
    ("deepspeech2", 320): 32,
    ("deepspeech2", 640): 26,
    ("imagenet", 3200): 4,
    ("imagenet", 6400): 7,
    ("yolov3", 64): 30,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aryl:
    """Abilities of a trace's jobs, as percentages of all jobs.

    elastic: may run on up to `stretch` times its GPUs, the widest jobs first (the paper's elastic
    jobs are its large ones). checkpointless: loses everything when it is preempted. any_gpu: names
    no GPU type. mixed: may lie on several types at once. A job without a `gpu_type` gets this
    `gpu_type`. tuned: of the elastic jobs, the share whose batch follows their GPUs. Their models
    and batches are drawn from those of Pollux' workloads, as Aryl does.
    """

    elastic: float = 5.0
    checkpointless: float = 20.0
    any_gpu: float = 21.0
    mixed: float = 0.0
    tuned: float = 0.0
    stretch: int = 2
    gpus_per_worker: int = 1
    gpu_type: str = "V100"

    def workload(self, rng: Random, trace: Trace) -> Trace:
        """Each share is exact, rounded, and drawn independently of the others."""
        jobs = list(trace.jobs)
        count = len(jobs)
        order = sorted(range(count), key=lambda at: (-jobs[at].num_gpus, rng.random()))
        elastic = set(order[: round(count * self.elastic / 100)])
        lossy = set(rng.sample(range(count), round(count * self.checkpointless / 100)))
        typeless = set(rng.sample(range(count), round(count * self.any_gpu / 100)))
        mixed = set(rng.sample(range(count), round(count * self.mixed / 100)))
        tunable = order[: len(elastic)] if self.tuned else []
        tuned = set(rng.sample(tunable, round(len(tunable) * self.tuned / 100)))
        for at, job in enumerate(jobs):
            made = replace(
                job,
                checkpoint=at not in lossy,
                any_gpu=at in typeless,
                mixed=at in mixed or None,
                gpu_type=job.gpu_type or self.gpu_type,
            )
            if at in tuned:
                model, batch = rng.choices(tuple(_TUNED), tuple(_TUNED.values()))[0]
                made = replace(made, tuned=True, model=model, batch_size=batch)
            jobs[at] = self._stretched(made) if at in elastic else made
        return Trace.of(trace.path, jobs, trace.notes)

    def _stretched(self, job: TraceJob) -> TraceJob:
        each = self.gpus_per_worker if job.num_gpus % self.gpus_per_worker == 0 else 1
        base = job.num_gpus // each
        return replace(job, gpus_per_worker=each, min_workers=base, max_workers=base * self.stretch)


class Load(NamedTuple):
    """From `at_s` on this share of the inference servers is busy."""

    at_s: int
    busy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Diurnal:
    """The inference load of figure 1: a day's wave with a peak of `peak`, `ratio` times its trough.

    Section 2.1: the mean is about 65 %, the peak of about four hours reaches 95 %, peak to trough
    is about 2.2. `noise` is the standard deviation of each step.
    """

    days: int = 15
    step_s: int = 300
    peak: float = 0.95
    ratio: float = 2.2
    noise: float = 0.01
    peak_hour: float = 22.0

    def loads(self, rng: Random) -> list[Load]:
        """One load each `step_s`, from 0 to the end of the last day."""
        trough = self.peak / self.ratio
        middle, swing = (self.peak + trough) / 2, (self.peak - trough) / 2
        loads = []
        for at_s in range(0, self.days * _DAY_S, self.step_s):
            angle = 2 * pi * (at_s / _DAY_S - self.peak_hour / 24)
            busy = middle + swing * cos(angle) + rng.gauss(0.0, self.noise)
            loads.append(Load(at_s, round(min(1.0, max(0.0, busy)), 4)))
        return loads
