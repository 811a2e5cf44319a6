"""Tuned jobs over Pollux' workloads (OSDI 2021, 5.1): run times by goodput, from 1 GPU on.

Pollux' files name a model, GPUs and a batch for each job, and no run time. Here a job trains its
model once. Its run time is that on its GPUs with its batch, and with tuning it may have any number
of GPUs. As in the authors' simulator, a job has 64 GPUs at most, and no more than its largest batch
can feed, and `ncf` has one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.goodput import training_s
from dlq_simulator.world.goodput_models import MODELS

_ALONE = frozenset({"ncf"})  # gains nothing from a second GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class PolluxJobs:
    """`tuned`: batch and GPUs may change; without it a job runs as its row says. `most`: GPUs of a
    job; `node_gpus`: of a node of the cluster for which the run times are computed.
    """

    tuned: bool = True
    most: int = 64
    node_gpus: int = 4

    def workload(self, trace: Trace) -> Trace:
        """The same jobs, for which nothing is drawn. The trace has models and batches of Pollux."""
        return Trace.of(trace.path, [self._trained(job) for job in trace.jobs])

    def _trained(self, job: TraceJob) -> TraceJob:
        model, own = MODELS.get(job.model or ""), job.num_gpus
        if model is None or job.batch_size is None:
            raise ValueError(f"job {job.job_id!r} has no model and batch of Pollux' workloads")
        takes_s = training_s(model, own, ceil(own / self.node_gpus), job.batch_size)
        told = replace(job, duration_s=max(1, round(takes_s)))
        if not self.tuned:
            return told
        most = own if model.name in _ALONE else max(own, min(self.most, model.most_gpus))
        return replace(told, tuned=True, min_workers=1, max_workers=most)
