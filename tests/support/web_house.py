"""The web server of one person in front of a master's real door, without a port of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from starlette.applications import Starlette

from dlq_client.line.identity import Identity, certified
from dlq_common.clock import Clock
from dlq_common.identity.pki import Role
from dlq_web.app import build_app
from dlq_web.door.sessions import Person, WebSessions
from dlq_web.line.calls import MasterLine
from dlq_web.line.feed import EventFeed
from support.fake_clock import SeededIds
from support.rpc_house import RpcHouse

ADDRESS = "127.0.0.1:7330"
COOKIE = "dlq_7330"


@dataclass(frozen=True, slots=True)
class WebHouse:
    """The server, and a browser that has not signed in."""

    browser: httpx.AsyncClient
    sessions: WebSessions
    feed: EventFeed
    app: Starlette

    def program(self) -> dict[str, str]:
        """The headers of a program with a token."""
        return {"authorization": f"Bearer {self.sessions.begin(by_cookie=False)}"}

    async def enter(self) -> httpx.Response:
        """The browser opens a fresh link."""
        return await self.browser.get("/enter", params={"link": self.sessions.new_link()})


@asynccontextmanager
async def web_house(
    house: RpcHouse, name: str = "alice", role: Role = Role.USER, home: Path | None = None
) -> AsyncIterator[WebHouse]:
    """The server of this person; it is gone afterwards. `home`: where a wall's token lies."""
    key, certificate = house.certificate(name, role)
    address = f"127.0.0.1:{house.server.api_port}"
    identity = certified(key, certificate, house.authority.certificate_pem(), address)
    async with web_server_of(identity, ADDRESS, house.clock, name, role, home) as web:
        yield web


@asynccontextmanager
async def web_server_of(
    identity: Identity,
    address: str,
    clock: Clock,
    name: str = "root",
    role: Role = Role.ADMIN,
    home: Path | None = None,
) -> AsyncIterator[WebHouse]:
    """The server of this identity, which takes itself to be at this address."""
    line = MasterLine(identity, clock)
    feed, sessions = EventFeed(line), WebSessions(clock)
    person = Person(name, role.value, "lab", line, feed)
    app = build_app(person, sessions, (address,), clock, SeededIds(9), COOKIE, home)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{address}") as browser:
        yield WebHouse(browser, sessions, feed, app)
    await feed.close()
    await line.close()
