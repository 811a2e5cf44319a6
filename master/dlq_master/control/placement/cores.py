"""Jobs without GPUs: how many cores carry the memory that they ask for, and what a core counts.

Both are settled once, at the submission. So a plan only ever counts cores, and a restart of the
master changes neither. A node that joins later with more memory for each core changes nothing for
jobs that wait.
"""

from collections.abc import Iterable
from dataclasses import replace

from dlq_common.errors import Unsatisfiable
from dlq_master.control.loop.turn import Turn
from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import Request
from dlq_master.model.traits import has_all

_GIB = 2**30


def fitted(turn: Turn, request: Request) -> Request:
    """The request with the cores that carry its memory. Raises Unsatisfiable for more memory than
    the cores of any node carry.
    """
    if not request.without_gpus:
        return request
    request = replace(request, core_weight=1.0 / turn.state.config.scheduler.cores_per_gpu)
    nodes = turn.state.cluster.nodes.values()
    giving = [node for node in nodes if node.cores and node.core_memory_bytes]
    if not giving:
        return request
    return with_memory(request, giving)


def with_memory(request: Request, nodes: Iterable[Node]) -> Request:
    """As many cores as carry its memory on most of these nodes; each has to bring its part."""
    count = request.nodes or 1
    each = request.gpus // count
    # Without a number of nodes the memory is said for each core alone.
    asked = max(request.memory_bytes_per_node or 0, each * (request.core_memory_bytes or 0))
    if not asked:
        return request
    traits = replace(request, core_memory_bytes=None).shape.traits
    able = [node for node in nodes if traits is None or has_all(node, traits)]
    if each > max([node.cores for node in able], default=0):
        return request  # it has too few cores, and is told so
    for core_bytes in sorted({node.core_memory_bytes for node in able}):
        cores = max(each, -(-asked // core_bytes))
        fits = [node for node in able if node.core_memory_bytes >= core_bytes]
        room = (
            sum(node.cores for node in fits)
            if request.nodes is None
            else max(node.cores for node in fits)
        )
        if cores <= room:
            return replace(request, gpus=cores * count, core_memory_bytes=-(-asked // cores))
    most = max((node.cores * node.core_memory_bytes for node in able), default=0)
    raise Unsatisfiable(
        "no set of the cluster's nodes could ever hold this job",
        reasons=(
            f"it asks for {asked / _GIB:.4g}GiB of memory, the largest node gives "
            f"{most / _GIB:.4g}GiB to CPU jobs",
        ),
        hint="see what there is: dlq nodes",
    )
