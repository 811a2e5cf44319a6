"""The web server for all users in front of a master's real door, without a port of its own."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from dlq.v1 import identity_service_pb2 as identity_wire
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub
from dlq_client.line.identity import certified, save_identity
from dlq_client.service import ServiceHome
from dlq_common.clock import Clock
from dlq_common.identity.pki import CertifiedIdentity, Role
from dlq_web.config import OpenIdConfig
from dlq_web.door.shared_guard import CERTIFICATE
from dlq_web.entrance.issuer import Fetch
from dlq_web.line.service import ServiceLine
from dlq_web.shared import COOKIE, SharedServer, Site
from support.fake_clock import SeededIds
from support.page_certificate import page_certificate
from support.rpc_house import DEADLINE_S, RpcHouse

ORIGIN = "https://dlq.example.org"
PAGE = {"accept": "text/html"}


@dataclass
class Doorstep:
    """The application as a socket would call it: from an address, perhaps with a certificate."""

    app: Any
    address: str = "192.0.2.7"
    certificate: CertifiedIdentity | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        told = {**scope, "client": (self.address, 4711), CERTIFICATE: self.certificate}
        await self.app(told, receive, send)


@dataclass
class SharedWebHouse:
    """The server, and as many browsers as a test wants."""

    house: RpcHouse
    server: SharedServer
    app: Any
    open: list[httpx.AsyncClient] = field(default_factory=list)

    def browser(
        self, address: str = "192.0.2.7", certificate: CertifiedIdentity | None = None
    ) -> httpx.AsyncClient:
        """A browser that has not signed in."""
        step = Doorstep(self.app, address, certificate)
        transport = httpx.ASGITransport(step, raise_app_exceptions=False)
        made = httpx.AsyncClient(transport=transport, base_url=ORIGIN)
        self.open.append(made)
        return made

    async def link(self, name: str, role: Role = Role.USER) -> str:
        """The secret of a one-time link, as the command line asks the master for it."""
        stub: Any = IdentityServiceStub(self.house.channel_as(name, role))
        request = identity_wire.CreateSignInLinkRequest()
        return str((await stub.CreateSignInLink(request, timeout=DEADLINE_S)).secret)

    async def signed_in(self, name: str, role: Role = Role.USER) -> httpx.AsyncClient:
        """A browser whose user has used a link."""
        browser = self.browser()
        answer = await enter(browser, name, await self.link(name, role))
        assert answer.status_code == 303, answer.text
        return browser


def web_toml(house: RpcHouse, root: Path, port: int, more: str = "") -> Path:
    """The files of the service `portal` as a process, as an operator makes them. `more`: further
    tables.
    """
    key, certificate = house.certificate("portal", Role.WEB)
    address = f"127.0.0.1:{house.server.api_port}"
    (root / "identity").mkdir(mode=0o700)
    ca = house.authority.certificate_pem()
    save_identity(root / "identity", certified(key, certificate, ca, address))
    page, page_key = page_certificate(root)
    path = root / "web.toml"
    path.write_text(
        f'[page]\norigin = "https://localhost:{port}"\n'
        f'[listen]\naddress = "127.0.0.1:{port}"\ncertificate = "{page}"\nkey = "{page_key}"\n'
        f'[service]\nstate_dir = "{root}"\nlogin_socket = "{root}/none"\n{more}'
    )
    return path


async def enter(browser: httpx.AsyncClient, name: str, link: str, **headers: str) -> httpx.Response:
    """The button of a link's page is pressed."""
    told = {"origin": ORIGIN, "sec-fetch-site": "same-origin", **headers}
    return await browser.post("/enter", data={"user": name, "link": link}, headers=PAGE | told)


async def csrf_of(browser: httpx.AsyncClient) -> dict[str, str]:
    """The headers of a change that a page of this browser makes."""
    text = (await browser.get("/account", headers=PAGE)).text
    found = re.search(r'name="csrf" content="([^"]+)"', text)
    assert found is not None
    return {"x-dlq-csrf": found[1], "origin": ORIGIN}


def service_home(directory: Path) -> ServiceHome:
    """Where a service keeps its identity, on a host without a login broker."""
    return ServiceHome(directory, Path("/nowhere/login.sock"), "dlq-web")


@asynccontextmanager
async def shared_web_house(
    house: RpcHouse,
    state_dir: Path,
    *,
    clock: Clock | None = None,
    openid: OpenIdConfig | None = None,
    fetch: Fetch | None = None,
    behind_proxy: bool = False,
    wall_user: str = "",
) -> AsyncIterator[SharedWebHouse]:
    """The server as the service `portal`; it is gone afterwards."""
    key, certificate = house.certificate("portal", Role.WEB)
    address = f"127.0.0.1:{house.server.api_port}"
    identity = certified(key, certificate, house.authority.certificate_pem(), address)
    service = ServiceLine(identity, service_home(state_dir / "identity"), house.clock)
    site = Site(
        origin=ORIGIN, behind_proxy=behind_proxy, certificates=True, state_dir=state_dir,
        wall_user=wall_user,
    )  # fmt: skip
    server = SharedServer(site, service, clock or house.clock, SeededIds(9))
    if openid is not None:
        server.add_openid(openid, ORIGIN, fetch)
    made = SharedWebHouse(house, server, server.app())
    try:
        yield made
    finally:
        for browser in made.open:
            await browser.aclose()
        await server.close()
        await service.close()


def cookie_of(browser: httpx.AsyncClient) -> str:
    """The secret of the browser's session."""
    return browser.cookies.get(COOKIE) or ""
