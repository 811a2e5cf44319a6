"""The guard of a server for all users: their sessions, and the tries of strangers.

An open door is one for everybody. So each address has a budget of tries. An account has none: a
link has 256 random bits, and such a budget would only lock its owner out. The program of a good
token spends none of its address's budget.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp

from dlq_common.clock import Clock
from dlq_common.errors import DlqError, PermissionDenied, Unauthenticated
from dlq_common.identity.pki import CertifiedIdentity
from dlq_web.door.budgets import Budgets, address_key
from dlq_web.door.guard import HEADERS, SAFE, Guard
from dlq_web.door.sessions import Session, WebSessions

CERTIFICATE = "dlq.certificate"  # in a scope: the identity that the connection has proven
SPENDS_ITSELF = ("/device", "/enter/openid/logout")  # their handlers know who is no stranger
TRIES_EACH_SECOND, TRIES_AT_ONCE = 1.0, 30.0
BY_TOKEN = "by a token of the account page, as `Authorization: Bearer TOKEN`"

Bearer = Callable[[str], Awaitable[Session | None]]


class Tries:
    """The budgets of addresses from which nobody has signed in yet."""

    def __init__(self, clock: Clock, *, behind_proxy: bool) -> None:
        """`behind_proxy`: a reverse proxy of this host says in X-Forwarded-For who has come."""
        self._behind_proxy = behind_proxy
        self._addresses = Budgets(
            "tries to sign in", clock, each_second=TRIES_EACH_SECOND, at_once=TRIES_AT_ONCE
        )

    def take(self, http: HTTPConnection) -> None:
        """One try from there. Raises TryAgain."""
        self._addresses.take(self.address(http))

    def address(self, http: HTTPConnection) -> str:
        """The part of the address that stands for the host."""
        if self._behind_proxy:
            # The proxy appends the peer that it has seen itself; all before is hearsay.
            told = http.headers.getlist("x-forwarded-for")
            return address_key(told[-1].rpartition(",")[2].strip()) if told else "proxy"
        return address_key(http.client.host if http.client is not None else "")


class SharedGuard(Guard):
    """The guard, with sessions of many people."""

    _way_in = f"a person signs in at /sign-in, and a program {BY_TOKEN}"
    _unknown_name = "the operator names it: [page] origin in web.toml"
    # With `no-referrer` the forms of signing in say `Origin: null`, as pages of others do.
    _headers = HEADERS | {
        "Referrer-Policy": "same-origin",
        "Strict-Transport-Security": "max-age=31536000",
    }

    def __init__(
        self,
        app: ASGIApp,
        *,
        tries: Tries,
        bearer: Bearer,
        sessions: WebSessions,
        origin: str,
        cookie: str,
        clock: Clock,
        refuse: Callable[[HTTPConnection, DlqError], Response],
    ) -> None:
        """`bearer`: the session of a program with this token. `origin`: the address of the page.
        The rest is as of every guard.
        """
        hosts = (origin.partition("://")[2],)
        super().__init__(
            app, sessions=sessions, hosts=hosts, cookie=cookie, clock=clock, refuse=refuse
        )
        self._origin = origin
        self._tries = tries
        self._bearer = bearer

    def _check_open(self, http: HTTPConnection) -> None:
        path = http.url.path
        if not path.startswith(SPENDS_ITSELF):
            if not path.startswith("/enter"):
                return
            self._tries.take(http)
        if http.scope["method"] not in SAFE:
            # No session, so no token yet: a page of another site must not sign anybody in.
            self._check_own_page(http)
            if http.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
                raise PermissionDenied("the request comes from another page")

    def _check_own_page(self, http: HTTPConnection) -> None:
        """A page of the same name without TLS is another page."""
        if http.headers.get("origin", self._origin) != self._origin:
            raise PermissionDenied("the request comes from another page")

    async def _session(self, http: HTTPConnection) -> Session | None:
        session = await super()._session(http)
        if session is not None and session.certificate:
            shown = certificate_of(http)
            if shown is None or shown.serial != session.certificate:
                raise Unauthenticated(
                    "this session is bound to a client certificate, which was not shown",
                    hint="sign in anew at /sign-in",
                )
        return session

    async def _program(self, http: HTTPConnection, token: str) -> Session | None:
        session = await self._bearer(token)
        if session is None:
            self._tries.take(http)
        return session


def certificate_of(http: HTTPConnection) -> CertifiedIdentity | None:
    """The identity that the connection has proven with a certificate of the cluster's CA."""
    found = http.scope.get(CERTIFICATE)
    return found if isinstance(found, CertifiedIdentity) else None
