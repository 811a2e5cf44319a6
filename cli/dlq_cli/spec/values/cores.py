"""Jobs without GPUs: `--cores 16`, or `--gpus 0` with the cores of each node, and their relation to
the rest of a spec.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dlq_cli.spec.values.given import ReadLayer, wrong
from dlq_common.job_fields.reading.words import PER_GPU

_GPUS = ("resources.gpus_total", "resources.gpus")
# Keys of jobs with GPUs alone.
_OF_GPUS = (
    "resources.gpu_type", "resources.gpu_memory", "resources.halve_batch", "resources.mixed_gpus",
    "elastic.gpus", "elastic.sizes", "roles.workers", "deadline", "soft_deadline", "due", "profile",
)  # fmt: skip


class Cores(NamedTuple):
    """Cores of the whole job, and its nodes if their number matters."""

    total: int
    nodes: int | None


def cores_of(layer: ReadLayer) -> Cores | None:
    """The cores of a job without GPUs; None: it has GPUs."""
    asked = layer.get("resources.cores")
    zero = next((layer[key] for key in _GPUS if key in layer and layer[key].value == 0), None)
    said = asked or zero
    if said is None:
        _need_cores(layer)
        return None
    _check_without(layer, said.origin)
    nodes = _number(layer, "nodes")
    each = layer.get("resources.cpus")
    if asked is None:
        nodes = nodes or 1
        return Cores(nodes * (math.ceil(_float(each.value)) if each else 1), nodes)
    total = _number(layer, "resources.cores") or 1
    if each is not None:
        raise wrong(
            each.origin,
            f"cpus are those of each node, and {asked.origin} says those of the whole job: "
            "say one of them",
        )
    if nodes is None and "resources.memory" in layer:
        nodes = 1  # a size of each node
    if nodes and total % nodes:
        raise wrong(asked.origin, f"{total} cores cannot be divided evenly over {nodes} nodes")
    return Cores(total, nodes)


def _check_without(layer: ReadLayer, origin: str) -> None:
    """Raises InvalidRequest for a word about GPUs beside it."""
    for key in _GPUS:
        if key in layer and layer[key].value:
            raise wrong(
                origin,
                f"a job with cores of its own has no GPU, and {layer[key].origin} asks for "
                f"{layer[key].value}",
                hint="a job with GPUs says the cores of each node by --cpus",
            )
    for key in _OF_GPUS:
        if key in layer and layer[key].value:
            raise wrong(layer[key].origin, f"a job without GPUs ({origin}) has no {key}")
    launch = layer.get("launch")
    if launch is not None and launch.value == PER_GPU:
        raise wrong(launch.origin, f"a job without GPUs ({origin}) has no process for each GPU")


def _need_cores(layer: ReadLayer) -> None:
    """Raises InvalidRequest for a word that only a job without GPUs can have."""
    each = layer.get("resources.memory_per_core")
    if each is not None:
        raise wrong(
            each.origin, "only a job without GPUs has cores of its own: --cores, or --gpus 0"
        )


def _number(layer: ReadLayer, key: str) -> int | None:
    given = layer.get(key)
    return given.value if given is not None and isinstance(given.value, int) else None


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 1.0
