"""Puts together the server for all users: their sessions, the ways in, and the API and the pages.

It keeps nothing but tokens of programs. After a restart people sign in anew, and no job notices.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response

from dlq_common.clock import Clock
from dlq_common.daemon.config import SecretFile, read_secret
from dlq_common.errors import DlqError, Unauthenticated
from dlq_common.ids import Ids
from dlq_web.api.health import WebHealth
from dlq_web.app import assembled, refused
from dlq_web.config import OpenIdConfig
from dlq_web.door.bearers import Bearers
from dlq_web.door.persons import Persons
from dlq_web.door.sessions import MOST_OF_A_PERSON, Person, WebSessions
from dlq_web.door.shared_guard import SharedGuard, Tries
from dlq_web.door.tokens import Tokens
from dlq_web.door.wall import WallToken
from dlq_web.entrance.account import AccountPage
from dlq_web.entrance.device import DeviceDoor
from dlq_web.entrance.id_tokens import TokenReader
from dlq_web.entrance.issuer import Client, Fetch, Issuer, fetching
from dlq_web.entrance.openid import BEGIN, OpenIdDoor
from dlq_web.entrance.rechecks import Rechecks
from dlq_web.entrance.rules import ClaimRules, GroupRules
from dlq_web.entrance.ways import Entrance
from dlq_web.line.service import ServiceLine
from dlq_web.line.standing import StandingLine
from dlq_web.wall import Wall

MOST_SESSIONS = 5_000
SWEEP_S = 5.0
COOKIE, PLAIN_COOKIE = "__Host-dlq", "dlq_web"  # the first is for HTTPS alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """How the world sees the server. `origin`: "https://dlq.example.org", without a path."""

    origin: str
    behind_proxy: bool = False
    certificates: bool = False
    state_dir: Path
    wall_user: str = ""  # whose map a screen on the wall shows, without names; "": there is none


class SharedServer:
    """The application, and all that it holds open."""

    def __init__(self, site: Site, service: ServiceLine, clock: Clock, ids: Ids) -> None:
        """ConfigError when the file of tokens is damaged."""
        address = urlsplit(site.origin)
        secure = address.scheme == "https"
        cookie = COOKIE if secure else PLAIN_COOKIE
        self.sessions = WebSessions(
            clock, most=MOST_SESSIONS, most_of_a_person=MOST_OF_A_PERSON, left=self._left
        )
        self._persons = Persons(lambda: service.identity, clock, self.sessions.dismiss)
        tokens = Tokens(site.state_dir, clock)
        self._bearers = Bearers(tokens, self.sessions, self._persons, clock)
        self._tries = tries = Tries(clock, behind_proxy=site.behind_proxy)
        self.entrance = Entrance(
            self.sessions, self._persons, service.use_link, cookie,
            secure=secure, certificates=site.certificates,
        )  # fmt: skip
        self._account = AccountPage(tokens, self._bearers, clock)
        self._service = service
        self._clock, self._ids = clock, ids
        self.rechecks: Rechecks | None = None  # where an issuer opens sessions
        self._wall = StandingLine(service, site.wall_user, clock)
        self._wall_token = WallToken(site.state_dir if site.wall_user else None)
        self._guard = Middleware(
            SharedGuard, tries=tries, bearer=self._bearers.session, sessions=self.sessions,
            origin=site.origin, cookie=cookie, clock=clock, refuse=_refused,
        )  # fmt: skip

    def add_openid(self, openid: OpenIdConfig, origin: str, fetch: Fetch | None = None) -> None:
        """Offer the way in by this issuer. ConfigError when a file that it names cannot be read."""
        secret = (
            read_secret(SecretFile(Path(openid.client_secret_file)))
            if openid.client_secret_file
            else ""
        )
        issuer = Issuer(
            openid.issuer, Client(openid.client_id, secret), fetch or fetching(openid.ca_file),
            self._clock,
        )  # fmt: skip
        groups = GroupRules(openid.user_groups, openid.operator_groups, openid.admin_groups)
        rules = ClaimRules(
            openid.user_claim, openid.user_pattern, openid.groups_claim, groups, openid.told_groups
        )
        reader = TokenReader(issuer, self._clock, openid.clock_skew)
        device = DeviceDoor(
            self._persons, self._tries, self._clock,
            origin=origin, secure=urlsplit(origin).scheme == "https", begin=BEGIN,
        )  # fmt: skip
        self.rechecks = Rechecks(
            issuer, reader, rules, self._clock, openid.recheck, self.sessions.dismiss
        )
        door = OpenIdDoor(
            issuer, reader, rules, self.entrance, self._clock,
            origin=origin, scopes=openid.scopes, device=device, rechecks=self.rechecks,
            tries=self._tries, skew_s=openid.clock_skew,
        )  # fmt: skip
        self.entrance.add(door.way(openid.button))

    def app(self) -> Starlette:
        """The application; every way in has been added before."""
        wall = Wall(self._wall, self._wall_token, self._clock)
        doors = [*self.entrance.routes(), *self._account.routes(), *wall.routes()]
        health = WebHealth(self._service.probe)
        return assembled(doors, health, self._guard, self._clock, self._ids)

    async def keep_swept(self) -> None:
        """End what is over, for ever."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sessions.sweep()
            self._bearers.sweep()

    async def close(self) -> None:
        """End all sessions, and their lines to the master."""
        self.sessions.end_all()
        await self._persons.close()
        await self._wall.close()

    def _left(self, person: Person) -> None:
        if self.rechecks is not None:
            self.rechecks.left(person)
        self._persons.left(person)


def _refused(http: HTTPConnection, error: DlqError) -> Response:
    """A person who is not signed in is led to the ways in, and back afterwards."""
    wants_page = "text/html" in http.headers.get("accept", "")
    if isinstance(error, Unauthenticated) and wants_page and http.scope["method"] == "GET":
        return RedirectResponse(f"/sign-in?next={quote(http.url.path, safe='/')}", 303)
    return refused(http, error)
