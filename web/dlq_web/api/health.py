"""`/livez` and `/readyz`: whether the server runs, and whether the master answers it.

Everybody may ask, so the answers name no person and no cluster. The master is asked once in
EVERY_S, however often somebody looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from dlq.v1 import queue_service_pb2
from dlq_common.errors import DlqError
from dlq_web.door.sessions import line_of
from dlq_web.line.methods import named

EVERY_S, PATIENCE_S = 2.0, 1.0
Probe = Callable[[float], Awaitable[object]]
_GET_CLUSTER = named("QueueService", "GetCluster")


class WebHealth:
    """The last answer of the master."""

    def __init__(self, probe: Probe | None = None) -> None:
        """`probe`: another way to ask the master, for a server that is not its user's."""
        self._probe = probe
        self._fault = "nobody has asked yet"
        self._until_s = -1.0
        self._asking = asyncio.Lock()

    def routes(self) -> list[Route]:
        """Both questions."""
        return [
            Route("/livez", self.live, methods=["GET"]),
            Route("/readyz", self.ready, methods=["GET"]),
        ]

    async def live(self, _http: Request) -> Response:
        """The server runs, since it answers."""
        return PlainTextResponse("ok\n")

    async def ready(self, http: Request) -> Response:
        """200 when the master answered lately, else 503 and the reason word."""
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() >= self._until_s:
                self._fault = await _fault(http, self._probe)
                self._until_s = loop.time() + EVERY_S
        if self._fault:
            return PlainTextResponse(f"the master does not answer: {self._fault}\n", 503)
        return PlainTextResponse("ok\n")


async def _fault(http: Request, probe: Probe | None) -> str:
    try:
        if probe is not None:
            await probe(PATIENCE_S)
            return ""
        request = queue_service_pb2.GetClusterRequest()
        await line_of(http).call(_GET_CLUSTER, request, PATIENCE_S)
    except DlqError as error:
        return error.reason
    return ""
