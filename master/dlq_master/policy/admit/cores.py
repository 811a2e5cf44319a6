"""Whether the registered nodes could ever hold a job without GPUs, and the words if not."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dlq_master.model.nodes.free_gpus import Pool
from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import Shape
from dlq_master.model.traits import has_all, runtime_of, too_small, words_of
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.place.placement import Placement

NO_CORES = (
    "no node gives cores to CPU jobs (node.job_cpus in the configuration of an agent says how "
    "many; on a machine of your own, `dlq up --cores N`)"
)


def never_cores(
    nodes: Collection[Node], pools: Sequence[Pool], placement: Placement, shape: Shape
) -> Reason | None:
    """Why no set of these nodes could ever hold it; None if one could. `pools`: that of all job
    cores, or none.
    """
    if any(placement.find(pool, shape) for pool in pools):
        return None
    able = [node for node in nodes if shape.traits is None or has_all(node, shape.traits)]
    largest = max([node.cores for node in able], default=0)
    code, need = ReasonCode.NO_SUCH_SHAPE, shape.gpus
    if not any(node.cores for node in nodes):
        return Reason(code, "cores", need, 0, (), NO_CORES)
    if not largest:
        words = words_of(shape.traits or "")
        if not words and runtime_of(shape.traits) is not None:
            words = "containers"
        most = too_small([node for node in nodes if node.cores], shape.traits or "")
        told = f"; the most is {most}" if most else ""
        return Reason(code, "cores", need, 0, (), f"no node that gives cores has {words}{told}")
    if shape.nodes is None:
        total = sum([node.cores for node in able])
        told = f"it asks for {need} cores, and all nodes together give {total} to CPU jobs"
        return Reason(code, "cores", need, total, (), told)
    each = need // shape.nodes
    asks = f"asks for {each} cores" + (
        f" on each of {shape.nodes} nodes" if shape.nodes > 1 else ""
    )
    if each > largest:
        told = f"it {asks}, the largest node gives {largest} to CPU jobs"
        return Reason(code, "cores", each, largest, (), told)
    count = sum([node.cores >= each for node in able])
    told = f"it {asks}, and only {count} nodes give so many to CPU jobs"
    return Reason(code, "cores", need, count, (), told)
