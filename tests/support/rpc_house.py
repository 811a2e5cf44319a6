"""A whole master's door on loopback: real ports, real mutual TLS, a fake loop behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from dlq_common.clock import SteadyClock
from dlq_common.identity.facts import SERVER_NAME
from dlq_common.identity.files import write_private, write_public
from dlq_common.identity.pki import Authority, KeyAndRequest, Role, new_key_and_csr
from dlq_master.control.loop.meter import Meter
from dlq_master.control.read_model.ports import Control
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.sessions import Sessions
from dlq_master.rpc.audit.audit import Audit
from dlq_master.rpc.calls.parts import Lead
from dlq_master.rpc.calls.roles import GroupGrants
from dlq_master.rpc.calls.signs import Signs
from dlq_master.rpc.people.authorities import Authorities
from dlq_master.rpc.server import MasterServer, ServerSettings
from dlq_master.rpc.specs.hooked import SubmitHooks
from support.fake_clock import SeededIds
from support.fake_control import FakeControl
from support.fake_foresight import FakeForesight
from support.kept_steps import KeptSteps

DEADLINE_S = 60.0
NO_GRANTS = GroupGrants()


def founded(directory: Path, now_s: float) -> Authorities:
    """A new CA, in its files."""
    directory.mkdir(exist_ok=True)
    made = Authority.create("lab", now_s)
    write_private(directory / "ca.key", made.key_pem())
    write_public(directory / "ca.crt", made.certificate_pem())
    return Authorities(directory, "lab")


class RpcHouse:
    """Ports, a CA, and channels for whoever a test wants to be."""

    def __init__(
        self,
        tmp_path: Path,
        loop: Control | None = None,
        web_may_act_for: tuple[str, ...] = ("user",),
        web_certificates_s: float = 0.0,
        group_grants: GroupGrants = NO_GRANTS,
        authority: Signs | None = None,
        lead: Lead | None = None,
        hooks: SubmitHooks | None = None,
    ) -> None:
        """`loop`: a real one behind the door instead of the fake. `web_...`: as in master.toml."""
        self.clock = SteadyClock()
        self.authority: Signs = authority or founded(tmp_path / "ca", self.clock.now_s())
        self.control = FakeControl(self.clock)
        self.foresight = FakeForesight()
        self.sessions = Sessions(CheckpointPlaces("/shared/checkpoints", b"seed"))
        self.audit_path = tmp_path / "audit.jsonl"
        self.audit = Audit(self.audit_path, self.clock)
        self.steps = KeptSteps()
        self.meter = Meter(0.05)
        self.server = MasterServer(
            ServerSettings(
                api_address="127.0.0.1:0",
                join_address="127.0.0.1:0",
                version="1.2.3",
                web_may_act_for=web_may_act_for,
                web_certificates_s=web_certificates_s,
                group_grants=group_grants,
            ),
            control=loop or self.control,
            sessions=self.sessions,
            authority=self.authority,
            audit=self.audit,
            clock=self.clock,
            ids=SeededIds(7),
            foresight=self.foresight,
            steps=self.steps.store,
            meter=self.meter,
            lead=lead,
            hooks=hooks,
        )
        self._channels: list[aio.Channel] = []
        for name, role, uid in (
            ("alice", "user", 1001),
            ("bob", "user", 1002),
            ("olga", "operator", 1003),
            ("root", "admin", 1004),
            ("prism", "inference", 1005),
            ("nina", "notifier", 1006),
            ("portal", "web", 1007),
        ):
            self.control.add_user(name, role, uid)
        for node_id in ("gpu01", "gpu02"):
            self.control.add_node(node_id)

    def certificate(
        self, name: str, role: Role, *, authority: Signs | None = None, now_s: float = 0.0
    ) -> tuple[bytes, bytes]:
        """Key and certificate of an identity, by our CA or another, from now or from another
        time.
        """
        made: KeyAndRequest = new_key_and_csr(name)
        signer, now_s = authority or self.authority, now_s or self.clock.now_s()
        sign = (
            signer.sign_node(made.request, name, now_s)
            if role is Role.NODE
            else signer.sign_user(made.request, name, role, now_s)
        )
        return made.key, sign

    def channel(self, key: bytes | None, certificate: bytes | None) -> aio.Channel:
        """A line to the API with this identity, or with none."""
        return self.dial(self.server.api_port, key, certificate)

    def channel_as(self, name: str, role: Role) -> aio.Channel:
        """A line to the API as somebody our CA has signed."""
        return self.channel(*self.certificate(name, role))

    def join_channel(self) -> aio.Channel:
        """A line to the join port, as somebody who knows only the CA."""
        return self.dial(self.server.join_port, None, None)

    def dial(self, port: int, key: bytes | None, certificate: bytes | None) -> aio.Channel:
        """A line to any port of this host; the server must pass for our master."""
        credentials = grpc.ssl_channel_credentials(
            self.authority.certificate_pem(), key, certificate
        )
        channel = aio.secure_channel(
            f"127.0.0.1:{port}",
            credentials,
            options=[("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.enable_retries", 0)],
        )
        self._channels.append(channel)
        return channel

    async def close(self) -> None:
        await asyncio.gather(*(channel.close() for channel in self._channels))
        await self.server.stop(0.1)
        self.audit.close()


@asynccontextmanager
async def rpc_house(
    tmp_path: Path,
    loop: Control | None = None,
    web_may_act_for: tuple[str, ...] = ("user",),
    web_certificates_s: float = 0.0,
    group_grants: GroupGrants = NO_GRANTS,
    hooks: SubmitHooks | None = None,
) -> AsyncIterator[RpcHouse]:
    """A running house; everything is gone afterwards."""
    house = RpcHouse(tmp_path, loop, web_may_act_for, web_certificates_s, group_grants, hooks=hooks)
    await house.server.start()
    try:
        yield house
    finally:
        await house.close()


async def ended(stream: Any) -> grpc.StatusCode:
    """How a stream ends, on which nobody says a word."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while await stream.read() is not aio.EOF:
                pass
            code: grpc.StatusCode = await stream.code()
    except aio.AioRpcError as error:
        code = error.code()
    return code


async def refusal(call: Any) -> grpc.StatusCode:
    """The status with which a call ends; OK when it was answered."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except aio.AioRpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


async def until(condition: Callable[[], Any], event: asyncio.Event) -> Any:
    """What `condition` returns once it is true; it is asked again whenever the event is set."""
    async with asyncio.timeout(DEADLINE_S):
        while not (found := condition()):
            event.clear()
            await event.wait()
    return found
