"""A uid that another person has got ends the rights of its former owner, also on open streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.errors import PermissionDenied
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.pki import Role
from dlq_master.rpc.people import groups as module
from dlq_master.rpc.people.groups import Groups
from dlq_master.rpc.people.host_accounts import HostAccount
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration
OK, OUT = grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED


class Accounts:
    """The host's accounts; one that is missing is as one that the directory cannot find."""

    def __init__(self) -> None:
        self.names = {1001: "alice", 1002: "bob"}
        self.groups = (7, 9)

    async def find(self, uid: int) -> HostAccount:
        if uid not in self.names:
            raise PermissionDenied(f"uid {uid} has no account here with a usable name")
        return HostAccount(self.names[uid], uid, uid, self.groups, "/bin/sh")

    def close(self) -> None:
        """Nothing is open."""


class Host:
    """A house whose users have accounts."""

    def __init__(self, house: RpcHouse, passwd: Path) -> None:
        self.house, self.passwd, self.accounts = house, passwd, Accounts()
        accounts: Any = self.accounts
        cut = house.server.open_calls.look
        self.groups = Groups(house.control, accounts, cut, (passwd,))
        house.server.door.refusal = self.groups.refusal

    def listing(self, name: str, *metadata: tuple[str, str], role: Role = Role.USER) -> Any:
        stub: Any = JobServiceStub(self.house.channel_as(name, role))
        request = wire.ListJobsRequest(page_size=1)
        return stub.ListJobs(request, timeout=DEADLINE_S, metadata=metadata)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with rpc_house(tmp_path) as house:
        yield Host(house, tmp_path / "passwd")


async def test_the_former_owner_is_refused_at_the_next_call_and_nobody_else(host: Host) -> None:
    await host.groups.refresh_all()
    assert await refusal(host.listing("alice")) is OK
    host.accounts.names[1001] = "eve"
    await host.groups.refresh_all()
    assert await refusal(host.listing("alice")) is OUT
    through_a_page = ActsFor("alice").metadata()
    assert await refusal(host.listing("portal", *through_a_page, role=Role.WEB)) is OUT
    assert await refusal(host.listing("bob")) is OK


async def test_an_open_stream_ends_at_once(host: Host) -> None:
    stub: Any = JobServiceStub(host.house.channel_as("alice", Role.USER))
    request = wire.SubmitJobRequest(request_id="one")
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 1
    await stub.SubmitJob(request, timeout=DEADLINE_S)
    watch = stub.WatchEvents(wire.WatchEventsRequest(), timeout=DEADLINE_S)
    await watch.read()
    host.accounts.names[1001] = "eve"
    await host.groups.refresh_all()
    assert await watch.code() is OUT


async def test_a_directory_that_is_away_ends_nothing(host: Host) -> None:
    host.accounts.names.clear()
    await host.groups.refresh_all()
    assert await refusal(host.listing("alice")) is OK


async def test_the_right_comes_back_with_the_account(host: Host) -> None:
    host.accounts.names[1001] = "eve"
    await host.groups.refresh_all()
    host.accounts.names[1001] = "alice"
    await host.groups.refresh_all()
    assert await refusal(host.listing("alice")) is OK


async def test_a_change_of_the_hosts_files_is_seen_before_the_minute_is_over(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    looks = asyncio.Queue[None]()
    refresh_all = host.groups.refresh_all

    async def counted() -> None:
        await refresh_all()
        looks.put_nowait(None)

    monkeypatch.setattr(host.groups, "refresh_all", counted)
    host.passwd.write_text("alice")
    running = asyncio.create_task(host.groups.run())
    async with asyncio.timeout(DEADLINE_S):
        await looks.get()  # at the start
        host.accounts.names[1001] = "eve"
        host.passwd.write_text("eve took it")
        await looks.get()
    running.cancel()
    await asyncio.wait([running])
    assert await refusal(host.listing("alice")) is OUT
