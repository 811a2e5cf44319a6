"""The GPU map as each reader may see it: one for all pages, kept for some seconds."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from dlq.v1 import node_service_pb2 as wire
from dlq_common.clock import Clock
from dlq_web.line.calls import Asking
from dlq_web.line.methods import named
from dlq_web.pages.kept import KeptAnswers
from dlq_web.pages.machines.gpu_map import GpuMap, map_of

FRESH_S = 5.0
NODES_AT_ONCE = 1_000
MOST_NODES = 10_000
_MAP = named("NodeService", "GetGpuMap")


class GpuMaps:
    """The GPU maps of readers, for all pages of a server."""

    def __init__(self, clock: Clock) -> None:
        self._kept: KeptAnswers[GpuMap] = KeptAnswers(clock, FRESH_S)

    async def of(self, http: HTTPConnection) -> GpuMap:
        """The map as the reader may see it, at most FRESH_S old. Raises DlqError."""
        return await self._kept.of(http, "map", ask_map)


async def ask_map(line: Asking) -> GpuMap:
    """The whole map, page by page."""
    pages: list[wire.GetGpuMapResponse] = []
    request = wire.GetGpuMapRequest(page_size=NODES_AT_ONCE)
    while len(pages) * NODES_AT_ONCE < MOST_NODES:
        pages.append(await line.call(_MAP, request))
        request.page_token = pages[-1].next_page_token
        if not request.page_token:
            break
    return map_of(pages)
