"""`dlq-web` for all users in a browser: a process with HTTPS before a master's real door.

The door lives in a thread of its own. Its jobs wait for ever, and its users are those of RpcHouse.
"""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

from dlq.v1 import identity_service_pb2 as identity_wire
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_master.model.nodes.node import Gpu
from dlq_master.rpc.calls.roles import GroupGrants
from support.browser_site import Site
from support.oidc_issuer import CLIENT_SECRET
from support.oidc_server import IssuerSite, issuer_site, toml_of
from support.ports import free_ports
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.shared_web_house import web_toml
from support.waiting import wait_until

NOBODY: Any = {"cookies": [], "origins": []}
USERS = {"alice": ("gpu-ops", "staff"), "bob": ("staff",), "mallory": ()}
WALL = '[wall]\nuser = "bob"\n'


@dataclass
class People:
    """The server for all users; `new_link` and `submitted` take the name of a user."""

    base: str
    config: Path
    house: RpcHouse
    portal: BlockingPortal

    def new_link(self, name: str = "alice") -> str:
        """A link that nobody has used, as `dlq web --link` of this user prints it."""
        secret = self.portal.call(self._secret, name)
        return f"{self.base}/enter?{urlencode({'user': name, 'link': secret})}"

    def submitted(self, user: str, name: str) -> str:
        """The number of a new job of this user."""
        return str(self.portal.call(self._submit, user, name))

    def wall(self) -> str:
        """The address for a screen on the wall, as the operator's command prints it."""
        return subprocess.run(
            [sys.executable, "-m", "dlq_web.daemon", "wall", "--config", self.config],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip

    async def _secret(self, name: str) -> str:
        stub: Any = IdentityServiceStub(self.house.channel_as(name, Role.USER))
        request = identity_wire.CreateSignInLinkRequest()
        return str((await stub.CreateSignInLink(request, timeout=DEADLINE_S)).secret)

    async def _submit(self, user: str, name: str) -> str:
        stub: Any = JobServiceStub(self.house.channel_as(user, Role.USER))
        request = wire.SubmitJobRequest(request_id=name)
        request.spec.name = name
        request.spec.command.append("/bin/true")
        request.spec.resources.gpu_count = 1
        return str((await stub.SubmitJob(request, timeout=DEADLINE_S)).job.job_id)


@dataclass
class SharedSite(Site):
    """The same browser at the server for all users; its pages are nobody's until one signs in."""

    people: People | None = None
    oidc: IssuerSite | None = None

    @property
    def issuer(self) -> IssuerSite:
        """The issuer of OpenID Connect, and its users."""
        assert self.oidc is not None
        return self.oidc

    def of(self, name: str, **settings: Any) -> Any:
        """A page of a browser profile in which this user has signed in by a link."""
        assert self.people is not None
        page = self.page(ignore_https_errors=True, **settings)
        page.goto(self.people.new_link(name))
        page.get_by_role("button", name=f"Sign in as {name}").click()
        page.get_by_role("link", name=f"{name} (user)").wait_for()
        return page


@contextmanager
def shared_site(root: Path, site: Site) -> Iterator[SharedSite]:
    """The server, and the browser of `site`; others' jobs are hidden from users."""
    port, oidc_port = free_ports(2)
    door = rpc_house(
        root, web_may_act_for=("user", "operator"), web_certificates_s=3_600.0,
        group_grants=GroupGrants({"gpu-ops": "operator"}),
    )  # fmt: skip
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(door) as house,
        issuer_site(oidc_port, USERS) as oidc,
    ):
        house.control.published.others_shown = "hidden"
        for node_id, node in list(house.control.published.all_nodes.items()):
            gpus = (Gpu(index=0, gpu_type="h100"),)
            house.control.published.all_nodes[node_id] = node._replace(gpus=gpus)
        secret = root / "openid.secret"
        secret.write_text(f"{CLIENT_SECRET}\n")
        secret.chmod(0o600)
        config = web_toml(house, root, port, WALL + toml_of(oidc, secret))
        people = People(f"https://localhost:{port}", config, house, portal)
        others = (f"{oidc.issuer.address}/",)
        with _serving(people, root):
            yield SharedSite(
                site.daemons, people, site.browser, NOBODY, others=others, people=people, oidc=oidc
            )


@contextmanager
def _serving(people: People, root: Path) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "dlq_web.daemon", "serve", "--config", people.config],
        stderr=subprocess.DEVNULL,
    )
    tls = ssl.create_default_context(cafile=str(root / "page.crt"))

    def is_ready() -> bool:
        assert process.poll() is None, "dlq-web has ended"
        try:
            return httpx.get(f"{people.base}/readyz", verify=tls).is_success
        except httpx.TransportError:
            return False

    try:
        wait_until(is_ready, what="dlq-web serves")
        yield
    finally:
        process.terminate()
        process.wait()
