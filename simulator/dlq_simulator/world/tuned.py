"""Tuned jobs: batch and learning rate follow the allocation (Aryl 7.1, TunedJobs).

A trace marks such a job with `tuned`, and names its model. Its pace on any GPUs is its goodput
there with the best batch, relative to that of its `duration_s`. The duration is the time on
`num_gpus` GPUs of as few nodes as hold them, with the batch `batch_size`. Without a batch it is the
time with the best one. So a tuned job may be faster on its own GPUs than its duration says. Twice
the GPUs may gain less than twice the pace, or nothing. All policies see the same jobs. A policy
that resizes jobs and knows run times is told these paces, as for other elastic jobs.
"""

from __future__ import annotations

from functools import cache
from math import ceil

from dlq_simulator.workload import TraceJob
from dlq_simulator.world.goodput import best, with_batch
from dlq_simulator.world.goodput_models import MODELS


def pace(row: TraceJob, gpus: int, node_gpus: int, nodes: int | None = None) -> float:
    """Work per second of a tuned job on `gpus` GPUs, in seconds of its duration.

    `node_gpus`: the GPUs of the largest node. `nodes`: the number of its nodes; None: as few as
    hold it.
    """
    assert row.model is not None  # of which the reader makes sure
    most = ceil(gpus / node_gpus) if nodes is None else nodes
    return _pace(row.model, row.num_gpus, row.batch_size, gpus, most, node_gpus)


@cache
def _pace(name: str, own: int, batch: int | None, gpus: int, nodes: int, node_gpus: int) -> float:
    """As `pace`. `own`: the GPUs of the request; `batch`: its batch, None: the best one."""
    model, own_nodes = MODELS[name], ceil(own / node_gpus)
    if batch is None:
        before = best(model, own, own_nodes)
    else:
        before = with_batch(model, own, own_nodes, batch)
    return best(model, gpus, nodes).goodput / before.goodput
