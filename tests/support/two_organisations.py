"""Two clusters of two organisations on loopback, each a real loop behind real mutual TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpc import aio

from dlq.v1 import admin_service_pb2 as admin
from dlq.v1 import identity_service_pb2 as identity
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub, JoinServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.clock import SteadyClock
from dlq_common.identity.pki import (
    KeyAndRequest,
    Role,
    new_key_and_csr,
    requested_key_fingerprint,
)
from dlq_common.text.wire import to_duration
from dlq_master.control.composition.starting import start
from dlq_master.control.composition.wiring import WIRING
from dlq_master.control.loop.failpoints import Failpoints
from dlq_master.control.loop.loop import Loop
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.sessions import Sessions
from dlq_master.store.batch import Batch, User
from dlq_master.store.stored_tables import USERS
from dlq_master.store.tables.table import put
from support.master_harness import config_of
from support.memory_store import MemoryStore
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house

PEOPLE = (("ann", "user", 1001), ("bob", "user", 1002), ("olga", "operator", 1003),
          ("root", "admin", 1004))  # fmt: skip
ACCOUNTS = ("games", "daemon")  # of the host that runs the tests; nobody runs anything in them


@dataclass(frozen=True, slots=True)
class Guest:
    """A guest's certificate with its key, and the line with it."""

    key: bytes
    certificate: bytes
    channel: aio.Channel
    serial: str  # of the grant and the introduction

    @property
    def jobs(self) -> Any:
        return JobServiceStub(self.channel)


@dataclass(frozen=True, slots=True)
class Organisation:
    """One of the two."""

    house: RpcHouse
    loop: Loop

    def admins(self, name: str = "root", role: Role = Role.ADMIN) -> Any:
        return AdminServiceStub(self.house.channel_as(name, role))

    @property
    def ca(self) -> bytes:
        return self.house.authority.certificate_pem()

    async def grant(self, to: Organisation, **told: Any) -> admin.Grant:
        """GPUs that this one lends to the other, called orga here."""
        limits = {"gpu_count": 4, **told.pop("limits", {})}
        lifetime_s = told.pop("lifetime_s", 86_400.0)
        request = admin.MakeGrantRequest(
            request_id=told.pop("request_id", "make"),
            organisation="orga",
            ca_certificates=told.pop("ca", to.ca),
            accounts=told.pop("accounts", ACCOUNTS),
            limits=admin.GrantLimits(**limits),
            lifetime_duration=to_duration(lifetime_s),
            **told,
        )
        made: admin.MakeGrantResponse = await self.admins().MakeGrant(request, timeout=DEADLINE_S)
        return made.grant

    async def document(self, serial: str, kind: str) -> str:
        request = admin.SignDocumentRequest(serial=serial, kind=kind)
        told = await self.admins().SignDocument(request, timeout=DEADLINE_S)
        return str(told.document)

    async def take(self, document: str, **told: Any) -> admin.Grant:
        request = admin.TakeDocumentRequest(
            request_id=str(abs(hash(document)))[:40], document=document, **told
        )
        taken = await self.admins().TakeDocument(request, timeout=DEADLINE_S)
        return taken.grant  # type: ignore[no-any-return] # of an untyped stub

    async def introduce(self, name: str, key: KeyAndRequest, grant: str = "roof") -> str:
        """What this one says of a user of its own."""
        stub: Any = IdentityServiceStub(self.house.channel_as(name, Role.USER))
        request = identity.IntroduceRequest(
            grant=grant, key_fingerprint=requested_key_fingerprint(key.request)
        )
        return str((await stub.Introduce(request, timeout=DEADLINE_S)).introduction)

    async def let_in(self, introduction: str, key: KeyAndRequest) -> Guest:
        """The guest with this introduction."""
        stub: Any = JoinServiceStub(self.house.join_channel())
        request = identity.EnterAsGuestRequest(
            introduction=introduction, certificate_request=key.request
        )
        told = await stub.EnterAsGuest(request, timeout=DEADLINE_S)
        channel = self.house.channel(key.key, told.certificate)
        return Guest(key.key, told.certificate, channel, told.serial)


@dataclass(frozen=True, slots=True)
class TwoOrganisations:
    """`a` has users who go to `b`."""

    a: Organisation
    b: Organisation

    async def agreed(self, **told: Any) -> admin.Grant:
        """B has lent GPUs to A, and A has taken the grant."""
        users = told.pop("users", ())
        grant = await self.b.grant(self.a, **told)
        document = await self.b.document(grant.serial, "grant")
        await self.a.take(document, organisation="roof", users=users)
        return grant

    async def guest(self, name: str = "ann") -> Guest:
        """A user of A at B."""
        key = new_key_and_csr(name)
        return await self.b.let_in(await self.a.introduce(name, key), key)


@asynccontextmanager
async def two_organisations(place: Path) -> AsyncIterator[TwoOrganisations]:
    """Both run until the end."""
    async with AsyncExitStack() as stack:
        yield TwoOrganisations(
            await stack.enter_async_context(_organisation(place / "a")),
            await stack.enter_async_context(_organisation(place / "b")),
        )


@asynccontextmanager
async def _organisation(place: Path) -> AsyncIterator[Organisation]:
    place.mkdir()  # noqa: ASYNC240 - nobody waits for it
    clock, store = SteadyClock(), MemoryStore()
    people = [User(name, role, uid, uid, (), 0.0) for name, role, uid in PEOPLE]
    store.write(Batch(changes=put(USERS, people), meta={"epoch": "0"}))
    state, first = start(config_of("dlq"), store.load(), clock.now_s())
    store.write(first)
    loop = Loop(
        state=state,
        wiring=WIRING,
        clock=clock,
        store=store,
        records=store,
        transport=Sessions(CheckpointPlaces("/ckpt", b"seed")),
        failpoints=Failpoints(),
        state_dir=place,
    )
    turning = asyncio.create_task(loop.run())
    async with rpc_house(place, loop) as house:
        yield Organisation(house, loop)
    loop.stop()
    await turning
