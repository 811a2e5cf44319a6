"""The page of the GPU map, and its one read of data: a drawing, and a table with the same."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.units import approximate_span
from dlq_web.pages.kept import tagged
from dlq_web.pages.machines.gpu_map import (
    WIDTHS,
    GpuChoice,
    GpuMap,
    GpuUse,
    MapGpu,
    MapLease,
    MapNode,
    Mark,
    blocks,
    chosen,
    counts,
    types_of,
)
from dlq_web.pages.machines.maps import GpuMaps
from dlq_web.pages.page import page

ROWS = 50  # nodes of a page of the table
PIECE = 1_024  # nodes of one answer of data
POOLS = {"training": "own", "inference": "inference", "priced": "rented"}
USES = {
    GpuUse.USED: "used: a job holds it, and something ran on it",
    GpuUse.IDLE: "held but idle: its job runs, and nothing ran on it in the last measured second",
    GpuUse.HELD: "held: its job starts or leaves, or it reports no use",
    GpuUse.FREE: "free",
    GpuUse.WITHHELD: "withheld: it takes no work",
    GpuUse.CLOSED: "closed: its node takes no work",
}


class HeldGpus(NamedTuple):
    """GPUs of a node that are alike, as words."""

    use: GpuUse
    indexes: str
    job_id: str
    words: str


class TableRow(NamedTuple):
    """A node in the table."""

    node_id: str
    state: str
    told: str
    holdings: Sequence[HeldGpus]


def routes(maps: GpuMaps) -> list[Route]:
    """The page and its data."""
    pages = GpuPages(maps)
    return [
        Route("/gpus", pages.gpus, methods=["GET"]),
        Route("/gpus/map.json", pages.document, methods=["GET"]),
    ]


class GpuPages:
    """Both answers, of the maps of one server."""

    def __init__(self, maps: GpuMaps) -> None:
        self._maps = maps

    async def gpus(self, http: Request) -> Response:
        """The counts and blocks of a choice, and its nodes a page at a time."""
        whole, choice = await self._maps.of(http), _choice(http)
        shown = chosen(whole, choice)
        cursor = http.query_params.get("cursor", "")
        start = bisect_right(shown.nodes, cursor, key=lambda node: node.node_id) if cursor else 0
        here = shown.nodes[start : start + ROWS]
        more = start + ROWS < len(shown.nodes)
        following = http.url.include_query_params(cursor=here[-1].node_id) if more else None
        return page(
            http, "gpus", "GPUs", asked=choice, types=types_of(whole), pools=POOLS,
            states=[*GpuUse, *Mark], uses=USES, counts=counts(shown), blocks=blocks(shown),
            widths=WIDTHS, rows=[_row(node, shown) for node in here], start=start,
            whole=len(whole.nodes), shown=len(shown.nodes),
            data=f"/gpus/map.json?{http.url.remove_query_params('cursor').query}",
            following=f"/gpus?{following.query}" if following else "", after=-1,
        )  # fmt: skip

    async def document(self, http: Request) -> Response:
        """The same choice for the drawing, PIECE nodes at a time, with a tag."""
        shown = chosen(await self._maps.of(http), _choice(http))
        return tagged(http, document_of(shown, http.query_params.get("cursor", "")))


def document_of(shown: GpuMap, cursor: str) -> bytes:
    """A piece of a map in few bytes; a use is the first letter of its word."""
    start = bisect_right(shown.nodes, cursor, key=lambda node: node.node_id) if cursor else 0
    here = shown.nodes[start : start + PIECE]
    places: dict[int, int] = {}
    nodes = [_packed(node, places) for node in here]
    leases = [_packed_lease(shown.leases[place]) for place in places]
    more = start + PIECE < len(shown.nodes)
    told = {
        "now": round(shown.now_s),
        "nodes": nodes,
        "leases": leases,
        "next": here[-1].node_id if more else None,
    }
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


# --- helpers, in order of use ---------------------------------------------------------------------


def _choice(http: Request) -> GpuChoice:
    given = http.query_params
    return GpuChoice(given.get("type", ""), given.get("pool", ""), given.get("state", ""))


def _row(node: MapNode, shown: GpuMap) -> TableRow:
    def alike(gpu: MapGpu) -> tuple[str, int]:
        return gpu.use, -1 if gpu.lease is None else gpu.lease

    ordered = sorted(node.gpus, key=alike)
    groups = [list(found) for _, found in groupby(ordered, key=alike)]
    groups.sort(key=lambda found: found[0].number)
    told = ", ".join([*node.flags, *([node.mark] if node.mark else [])])
    return TableRow(node.node_id, node.state, told, [_holding(one, shown) for one in groups])


def _holding(gpus: Sequence[MapGpu], shown: GpuMap) -> HeldGpus:
    first = gpus[0]
    lease = None if first.lease is None else shown.leases[first.lease]
    told = [str(first.use)]
    percents = [gpu.percent for gpu in gpus if gpu.percent is not None]
    if percents and first.use is GpuUse.USED:
        told[0] = f"used to {round(sum(percents) / len(percents))} %"
    if lease is not None:
        told += _lease_words(lease, shown.now_s)
    numbers = re.sub(r"[\[\]]", "", compress_hostlist([str(gpu.number) for gpu in gpus]))
    return HeldGpus(first.use, numbers, "" if lease is None else lease.job_id, ", ".join(told))


def _lease_words(lease: MapLease, now_s: float) -> Iterable[str]:
    if lease.user:
        yield f"{lease.user} of {lease.team}" if lease.team else lease.user
    yield from sorted(lease.marks)
    if lease.term_s is not None:
        yield f"term {_left(lease.term_s - now_s)}"
    if lease.hold_s is not None:
        yield f"hold {_left(lease.hold_s - now_s)}"


def _left(seconds: float) -> str:
    return f"{approximate_span(seconds)} left" if seconds >= 1 else "over"


def _packed(node: MapNode, places: dict[int, int]) -> list[Any]:
    """Id, state, flags, pool, mark, types, numbers, uses, percents (-1: none), leases (-1)."""
    types = list(dict.fromkeys(gpu.gpu_type for gpu in node.gpus))
    return [
        node.node_id,
        node.state,
        ",".join(node.flags),
        node.mark or "",
        "+".join(types),
        [gpu.number for gpu in node.gpus],
        "".join(gpu.use[0] for gpu in node.gpus),
        [-1 if gpu.percent is None else gpu.percent for gpu in node.gpus],
        [
            -1 if gpu.lease is None else places.setdefault(gpu.lease, len(places))
            for gpu in node.gpus
        ],
    ]


def _packed_lease(lease: MapLease) -> list[Any]:
    """Job, user, team, state, marks, term and hold as instants, GPUs."""
    return [
        lease.job_id,
        lease.user,
        lease.team,
        lease.state,
        "+".join(sorted(lease.marks)),
        None if lease.term_s is None else round(lease.term_s),
        None if lease.hold_s is None else round(lease.hold_s),
        lease.gpus,
    ]
