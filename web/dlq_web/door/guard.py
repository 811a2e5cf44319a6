"""Refuses requests that come from elsewhere: a forged Host, no session, a foreign page.

Every answer carries the same headers. They allow scripts and styles of this server alone, no
frames, and no word about this page to any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dlq_common.clock import Clock
from dlq_common.errors import DlqError, InvalidRequest, PermissionDenied, Unauthenticated
from dlq_web.door.budgets import Budgets
from dlq_web.door.sessions import Session, WebSessions, is_token

CSRF_HEADER = "x-dlq-csrf"
SAFE = frozenset({"GET", "HEAD"})
OPEN = (
    "/static/", "/enter", "/enter/", "/sign-in", "/livez", "/readyz", "/favicon.ico", "/wall",
    "/wall/map.json", "/device", "/device/",
)  # fmt: skip
STRANGER = "dlq.stranger"  # in a scope: whether another user of this host has connected
LARGEST_BODY = 1024 * 1024
BODY_S = 30.0  # for the whole of a body
EACH_SECOND, AT_ONCE = 50.0, 200.0  # requests of all sessions of one person
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """An ASGI middleware around everything."""

    _way_in = "`dlq web` prints a link"
    _unknown_name = "open the address that `dlq web` has printed"
    _headers: Mapping[str, str] = HEADERS

    def __init__(
        self,
        app: ASGIApp,
        *,
        sessions: WebSessions,
        hosts: Collection[str],
        cookie: str,
        clock: Clock,
        refuse: Callable[[HTTPConnection, DlqError], Response],
    ) -> None:
        """`hosts`: the values of Host that are this server's. `cookie`: the name of its cookie.
        `refuse`: the answer to a request that is refused.
        """
        self._app = app
        self._sessions = sessions
        self._hosts = frozenset(hosts)
        self._cookie = cookie
        self._rate = Budgets("requests", clock, each_second=EACH_SECOND, at_once=AT_ONCE)
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sending = _with_headers(send, self._headers)
        http = HTTPConnection(scope)
        try:
            await self._check(http)
        except DlqError as error:
            await self._refuse(http, error)(scope, receive, sending)
            return
        await self._app(scope, _bounded(receive), sending)

    async def _check(self, http: HTTPConnection) -> None:
        host = http.headers.get("host", "")
        if host not in self._hosts:
            raise PermissionDenied("this name is not the server's", hint=self._unknown_name)
        if int(_digits(http.headers.get("content-length", "0"))) > LARGEST_BODY:
            raise InvalidRequest(f"a request has at most {LARGEST_BODY} bytes")
        path = http.url.path
        if http.scope.get(STRANGER) and path not in ("/livez", "/readyz"):
            raise PermissionDenied(
                "this server answers its own user alone", hint="`dlq web` serves you yourself"
            )
        if any(path == one or (one.endswith("/") and path.startswith(one)) for one in OPEN):
            self._check_open(http)
            return
        session = await self._session(http)
        if session is None:
            raise Unauthenticated("nobody is signed in here", hint=self._way_in)
        # Strangers of this host take nothing from it, and one person nothing from another.
        self._rate.take("" if session.person is None else session.person.name)
        self._check_page(http, session)
        if http.scope["method"] not in SAFE:
            self._check_origin(http, session)
        http.state.session = session

    def _check_open(self, http: HTTPConnection) -> None:
        """A request that anybody may make: a one-time link is all that counts here."""

    async def _session(self, http: HTTPConnection) -> Session | None:
        scheme, _, token = http.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return await self._program(http, token.strip())
        session = self._sessions.of(http.cookies.get(self._cookie, ""))
        return session if session is not None and session.by_cookie else None

    async def _program(self, _http: HTTPConnection, token: str) -> Session | None:
        session = self._sessions.of(token)
        return None if session is None or session.by_cookie else session

    def _check_page(self, http: HTTPConnection, session: Session) -> None:
        """A page of another port of this host may lead here, and open nothing in the background."""
        foreign = http.headers.get("sec-fetch-site", "") in ("same-site", "cross-site")
        if session.by_cookie and foreign and http.headers.get("sec-fetch-mode") != "navigate":
            raise PermissionDenied("the request comes from another page")

    def _check_origin(self, http: HTTPConnection, session: Session) -> None:
        """A cookie goes along with the requests of every page, the token only with ours."""
        if not session.by_cookie:
            return
        self._check_own_page(http)
        if not is_token(session, http.headers.get(CSRF_HEADER, "")):
            raise PermissionDenied(
                "the request lacks the token of this session", hint="reload the page"
            )

    def _check_own_page(self, http: HTTPConnection) -> None:
        origin = http.headers.get("origin", "")
        if origin and origin.partition("://")[2] not in self._hosts:
            raise PermissionDenied("the request comes from another page")


def _digits(text: str) -> str:
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise InvalidRequest("Content-Length is a number")
    return text


def _with_headers(send: Send, told: Mapping[str, str]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in told.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sending


def _bounded(receive: Receive) -> Receive:
    """The same body, which ends the request once it is too long, whatever its header says, and once
    it comes too slowly.
    """
    taken, whole, until_s = 0, False, asyncio.get_running_loop().time() + BODY_S

    async def receiving() -> Message:
        nonlocal taken, whole
        if whole:
            return await receive()  # the end of the connection
        try:
            async with asyncio.timeout_at(until_s):
                message = await receive()
        except TimeoutError:
            raise InvalidRequest(f"a request is sent within {BODY_S:.0f} s") from None
        whole = not message.get("more_body", False)
        taken += len(message.get("body", b""))
        if taken > LARGEST_BODY:
            raise InvalidRequest(f"a request has at most {LARGEST_BODY} bytes")
        return message

    return receiving
