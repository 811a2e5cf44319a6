"""Goodput of a training job: useful examples per second (Pollux, Qiao et al., OSDI 2021).

A job gets the most goodput from its GPUs with one certain batch, which `best` finds.

Goodput is throughput times statistical efficiency (section 3). A step of k GPUs on n nodes, each
with a local batch m and s accumulated passes before the last one, takes (section 3.2)

    T_grad = a_grad + b_grad m
    T_sync = 0 with one GPU, a_local + b_local (k - 2) on one node, a_node + b_node (k - 2) on more
    T_iter = s T_grad + (T_grad^g + T_sync^g)^(1/g)

where g says how well both overlap: 1 not at all, without end perfectly. The step uses the batch
M = k m (s + 1). An example of it is worth (phi + M0) / (phi + M) of one in a batch of M0. Here phi
is the noise scale of the gradient (section 3.1). The learning rate follows the batch by AdaScale,
so that the same work leads to the same model. `goodput_models` has the parameters of six models.

One deviation: phi rises while a job trains, and Pollux follows it. Here it is the one that gives
the recorded number of steps at the largest batch. So a job's pace depends on its GPUs alone.
"""

from __future__ import annotations

from functools import cache
from math import ceil
from typing import NamedTuple

_BATCHES = 50  # tried between the smallest and the largest, as in the released program
_EXACT = 1e-8


class TrainedModel(NamedTuple):
    """A model with its step times in seconds, noise scale and range of batches.

    `overlap` is g above. `steps`: those of the whole training with the batch `batch`, which is M0
    and the least; `most_batch` is the largest. `local`: the least and the most examples that one
    GPU takes at once.
    """

    name: str
    grad_s: float
    grad_each_s: float
    node_s: float
    node_each_s: float
    local_s: float
    local_each_s: float
    overlap: float
    noise: float
    batch: int
    most_batch: int
    local: tuple[int, int]
    steps: int

    @property
    def most_gpus(self) -> int:
        """More would have fewer examples than the least."""
        return self.most_batch // self.local[0]


class Tuned(NamedTuple):
    """Examples per second that are worth as much as those of a batch of M0, and the batch."""

    goodput: float
    batch: int
    passes: int  # accumulated before the last one


def step_s(model: TrainedModel, gpus: int, nodes: int, local: float, passes: int) -> float:
    """T_iter."""
    grad_s = model.grad_s + model.grad_each_s * local
    sync_s = 0.0
    if gpus > 1:
        base_s, each_s = (
            (model.node_s, model.node_each_s) if nodes > 1 else (model.local_s, model.local_each_s)
        )
        sync_s = base_s + each_s * (gpus - 2)
    both_s = (grad_s**model.overlap + sync_s**model.overlap) ** (1.0 / model.overlap)
    return float(passes * grad_s + both_s)


def efficiency(model: TrainedModel, batch: float) -> float:
    """The worth of an example in a batch of this size; 1 in one of M0."""
    return (model.noise + model.batch) / (model.noise + batch)


def with_batch(model: TrainedModel, gpus: int, nodes: int, batch: float) -> Tuned:
    """Of a job that trains with about this batch. GPUs beyond `most_gpus` do nothing."""
    gpus = min(gpus, model.most_gpus)
    least, most = model.local
    share = max(1.0 * least, batch / gpus)
    passes = ceil(share / most - _EXACT) - 1
    local = ceil(share / (passes + 1) - _EXACT)
    whole = gpus * local * (passes + 1)
    rate = whole / step_s(model, gpus, nodes, local, passes)
    return Tuned(rate * efficiency(model, whole), whole, passes)


@cache
def best(model: TrainedModel, gpus: int, nodes: int) -> Tuned:
    """With the batch of the most goodput."""
    used = min(gpus, model.most_gpus)
    least, most = max(model.batch, used * model.local[0]), model.most_batch
    ratio = (most / least) ** (1.0 / (_BATCHES - 1))
    tried = [with_batch(model, gpus, nodes, least * ratio**at) for at in range(_BATCHES)]
    return max(tried, key=lambda one: one.goodput)


def training_s(model: TrainedModel, gpus: int, nodes: int, batch: float) -> float:
    """The whole training with one batch throughout."""
    return model.steps * model.batch / with_batch(model, gpus, nodes, batch).goodput
