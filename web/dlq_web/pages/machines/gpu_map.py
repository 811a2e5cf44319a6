"""The GPU map as values: each GPU with its use, its lease and its marks, and counts of them.

Allocated, used, and held but idle are three different things here. All numbers of a page are counts
of one and the same choice of GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from math import ceil
from typing import NamedTuple

from dlq.v1 import job_pb2, lease_pb2
from dlq.v1 import node_service_pb2 as wire
from dlq_cli.output.render import clean_line
from dlq_cli.words import ATTEMPT_STATES, NODE_STATES
from dlq_common.text.wire import from_timestamp

WIDTHS = (8, 16, 32)  # of jobs that look for a block


class GpuUse(StrEnum):
    """The use of a GPU. The first letters are those of the map's document."""

    FREE = "free"
    USED = "used"
    IDLE = "idle"  # its job runs, and nothing ran on it in the last measured second
    HELD = "held"  # its job does not run, or it reports no use
    WITHHELD = "withheld"
    CLOSED = "closed"


class Mark(StrEnum):
    """Further facts of a GPU, beside its use."""

    PROMISED = "promised"  # its lease keeps a promised deadline
    LEAVING = "leaving"  # its job was asked to leave
    LENT = "lent"  # by the inference side
    RENTED = "rented"


class MapLease(NamedTuple):
    """The right of a job to GPUs; None: not known, or not for the reader."""

    job_id: str
    user: str
    team: str
    state: str
    marks: frozenset[Mark]
    term_s: float | None
    hold_s: float | None
    gpus: int


class MapGpu(NamedTuple):
    """A GPU; `lease` is a place among the leases of the map."""

    number: int
    gpu_type: str
    use: GpuUse
    percent: int | None
    lease: int | None


class MapNode(NamedTuple):
    """A node with its GPUs, or with those that were chosen."""

    node_id: str
    state: str
    flags: tuple[str, ...]
    pool: str
    mark: Mark | None
    gpus: tuple[MapGpu, ...]
    agent_version: str = ""

    @property
    def hindered(self) -> bool:
        """Something keeps it, or a GPU of it, from new work."""
        closed = any(gpu.use in (GpuUse.WITHHELD, GpuUse.CLOSED) for gpu in self.gpus)
        return self.state != "up" or bool({*self.flags} - {"loaned"}) or closed


class GpuMap(NamedTuple):
    """All that was asked for, as of one instant of the master."""

    now_s: float
    nodes: Sequence[MapNode]
    leases: Sequence[MapLease]


class GpuChoice(NamedTuple):
    """The chosen type, pool and state of GPUs; empty: all."""

    gpu_type: str = ""
    pool: str = ""
    state: str = ""  # a GpuUse or a Mark


class FreeBlock(NamedTuple):
    """The free GPUs of one type, and the number of jobs of each width that fit side by side."""

    gpu_type: str
    free: int
    largest: int  # on one node
    fits: Mapping[int, int]


def map_of(pages: Iterable[wire.GetGpuMapResponse]) -> GpuMap:
    """The map of the master's answers."""
    nodes: list[MapNode] = []
    leases: list[MapLease] = []
    places: dict[str, int] = {}
    now_s = 0.0
    for page in pages:
        now_s = from_timestamp(page.master_time)
        here = []
        for lease in page.leases:  # a gang may be on several pages
            if lease.job_id not in places:
                places[lease.job_id] = len(leases)
                leases.append(_lease(lease))
            here.append(places[lease.job_id])
        nodes += [_node(node, here, leases) for node in page.nodes]
    return GpuMap(now_s, nodes, leases)


def chosen(whole: GpuMap, choice: GpuChoice) -> GpuMap:
    """The same with these GPUs alone, and the nodes that have some of them."""
    if not any(choice):
        return whole
    nodes = []
    for node in whole.nodes:
        if choice.pool and node.pool != choice.pool:
            continue
        gpus = tuple(gpu for gpu in node.gpus if _fits(gpu, node, whole.leases, choice))
        if gpus:
            nodes.append(node._replace(gpus=gpus))
    return whole._replace(nodes=nodes)


def nameless(whole: GpuMap) -> GpuMap:
    """The same without any name: nodes and jobs have the numbers of their places."""
    nodes = [
        node._replace(node_id=f"{place:05}", flags=(), agent_version="")
        for place, node in enumerate(whole.nodes)
    ]
    leases = [
        lease._replace(job_id=str(place), user="", team="")
        for place, lease in enumerate(whole.leases)
    ]
    return whole._replace(nodes=nodes, leases=leases)


def counts(shown: GpuMap) -> Mapping[GpuUse, int]:
    """How many GPUs are of each use."""
    found = Counter(gpu.use for node in shown.nodes for gpu in node.gpus)
    return {use: found[use] for use in GpuUse}


def blocks(shown: GpuMap) -> list[FreeBlock]:
    """The free blocks of each type. A job wider than a node takes nodes that are wholly free."""
    sizes: dict[str, list[tuple[int, int]]] = {}  # of each node: GPUs of the type, free ones
    for node in shown.nodes:
        for gpu_type in {gpu.gpu_type for gpu in node.gpus}:
            uses = [gpu.use for gpu in node.gpus if gpu.gpu_type == gpu_type]
            sizes.setdefault(gpu_type, []).append((len(uses), uses.count(GpuUse.FREE)))
    return [_block(gpu_type, found) for gpu_type, found in sorted(sizes.items())]


def types_of(whole: GpuMap) -> list[str]:
    """The types of GPUs that there are."""
    return sorted({gpu.gpu_type for node in whole.nodes for gpu in node.gpus})


def marks_of(node: MapNode, gpu: MapGpu, leases: Sequence[MapLease]) -> Iterator[Mark]:
    """The marks of a GPU: those of its node, and those of its lease."""
    if node.mark is not None:
        yield node.mark
    if gpu.lease is not None:
        yield from sorted(leases[gpu.lease].marks)


# --- helpers, in order of use ---------------------------------------------------------------------


def _lease(told: wire.GpuMapLease) -> MapLease:
    marks = {Mark.PROMISED} if told.kind == lease_pb2.LEASE_KIND_SLO else set()
    return MapLease(
        told.job_id,
        clean_line(told.user),
        clean_line(told.team),
        ATTEMPT_STATES.get(told.attempt_state) or "",
        frozenset(marks | ({Mark.LEAVING} if told.leaving else set())),
        from_timestamp(told.term_end_time) if told.HasField("term_end_time") else None,
        from_timestamp(told.hold_until_time) if told.HasField("hold_until_time") else None,
        told.gpu_count,
    )


def _node(told: wire.GpuMapNode, here: Sequence[int], leases: Sequence[MapLease]) -> MapNode:
    types = list(told.gpu_types) * (len(told.gpu_indexes) if len(told.gpu_types) == 1 else 1)
    withheld = frozenset(told.withheld_gpu_indexes)
    gpus = []
    for index, gpu_type, place, percent in zip(
        told.gpu_indexes, types, told.lease_places, told.utilization_percents, strict=True
    ):
        lease = here[place] if place >= 0 else None
        measured = percent if percent >= 0 else None
        use = _use(index in withheld, told.open, None if lease is None else leases[lease], measured)
        gpus.append(MapGpu(index, gpu_type, use, measured, lease))
    pool = told.pool or "training"
    mark = {"inference": Mark.LENT, "priced": Mark.RENTED}.get(pool)
    lent = pool != "inference" or "loaned" in told.flags
    return MapNode(
        told.node_id,
        NODE_STATES.get(told.state) or "unknown",
        tuple(told.flags),
        pool,
        mark if lent else None,
        tuple(gpus),
        told.agent_version,
    )


def _use(withheld: bool, open_: bool, lease: MapLease | None, percent: int | None) -> GpuUse:
    """By the order of the master: held, withheld, closed, free."""
    if lease is None:
        return GpuUse.WITHHELD if withheld else GpuUse.FREE if open_ else GpuUse.CLOSED
    if percent:
        return GpuUse.USED
    runs = lease.state == ATTEMPT_STATES[job_pb2.ATTEMPT_STATE_RUNNING]
    return GpuUse.IDLE if percent == 0 and runs else GpuUse.HELD


def _fits(gpu: MapGpu, node: MapNode, leases: Sequence[MapLease], choice: GpuChoice) -> bool:
    if choice.gpu_type and gpu.gpu_type != choice.gpu_type:
        return False
    return not choice.state or choice.state in (gpu.use, *marks_of(node, gpu, leases))


def _block(gpu_type: str, sizes: Sequence[tuple[int, int]]) -> FreeBlock:
    per_node = max(size for size, _ in sizes)
    whole = sum(size == free == per_node for size, free in sizes)
    fits = {
        width: sum(free // width for _, free in sizes)
        if width <= per_node
        else whole // ceil(width / per_node)
        for width in WIDTHS
    }
    return FreeBlock(gpu_type, sum(free for _, free in sizes), max(free for _, free in sizes), fits)
