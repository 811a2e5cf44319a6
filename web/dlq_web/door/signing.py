"""The door itself: a one-time link opens a session in a cookie, and leaving ends it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from dlq_common.errors import Unauthenticated
from dlq_web.door.sessions import LONGEST_S, WebSessions


class SigningDoor:
    """Lets a browser in and out."""

    def __init__(self, sessions: WebSessions, cookie: str) -> None:
        """`cookie`: its name, which differs between servers of one host."""
        self._sessions = sessions
        self._cookie = cookie

    def routes(self) -> list[Route]:
        """In and out."""
        return [
            Route("/enter", self.enter, methods=["GET"]),
            Route("/leave", self.leave, methods=["POST"]),
        ]

    async def enter(self, http: Request) -> Response:
        """Use the link up, and go on to the first page. Raises Unauthenticated. A HEAD, by which
        programs look at links, uses none up.
        """
        if http.method == "HEAD":
            return Response()
        secret = self._sessions.enter(http.query_params.get("link", ""))
        if secret is None:
            raise Unauthenticated(
                "this link has been used, or is too old",
                hint="press Enter where `dlq web` runs: it prints a new one",
            )
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            self._cookie, secret, max_age=int(LONGEST_S), httponly=True, samesite="lax", path="/"
        )
        return answer

    async def leave(self, http: Request) -> Response:
        """End the session, also in other tabs."""
        self._sessions.leave(http.cookies.get(self._cookie, ""))
        answer = JSONResponse({"left": True})
        answer.delete_cookie(self._cookie, path="/")
        return answer
