"""The wall: the GPU map without names for a screen that everybody passes, and its one read.

The page itself has no data and no session. Its address has the token behind a `#`, so only the read
carries it. While the master is away the last map stays, and says since when.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlq_common.clock import Clock
from dlq_common.errors import Unauthenticated
from dlq_web.door.wall import WallToken
from dlq_web.line.calls import Asking
from dlq_web.pages.kept import KeptAnswers, tagged
from dlq_web.pages.machines.gpu_map import GpuMap, nameless
from dlq_web.pages.machines.gpus import USES, document_of
from dlq_web.pages.machines.maps import FRESH_S, ask_map
from dlq_web.pages.page import open_page


class Wall:
    """The page and its data, by the rights of this line."""

    def __init__(self, line: Asking, token: WallToken, clock: Clock) -> None:
        self._line, self._token = line, token
        self._maps: KeptAnswers[GpuMap] = KeptAnswers(clock, FRESH_S)

    def routes(self) -> list[Route]:
        """Both addresses."""
        return [
            Route("/wall", self.page, methods=["GET"]),
            Route("/wall/map.json", self.document, methods=["GET"]),
        ]

    async def page(self, _http: Request) -> Response:
        """An empty page that reads the map."""
        return open_page("wall", "GPUs", uses=USES)

    async def document(self, http: Request) -> Response:
        """The map without names. Raises Unauthenticated without the token that lies there now."""
        scheme, _, told = http.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self._token.opens(told.strip()):
            raise Unauthenticated(
                "this wall is not open, or not any more",
                hint="`dlq web --wall`, or an operator, prints its address",
            )
        whole = nameless(await self._maps.by("wall", self._line, ask_map))
        return tagged(http, document_of(whole, http.query_params.get("cursor", "")))
