"""A uid that another person has got ends the rights of its former owner, also on open streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
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
from dlq_master.rpc.people.host_accounts import AccountGone, HostAccount
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration
OK, OUT = grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED


class Accounts:
    """The host's accounts; one that is missing is as one that the directory cannot find."""

    def __init__(self) -> None:
        self.names = {1001: "alice", 1002: "bob"}
        self.groups: tuple[int, ...] = (7, 9)
        self.local = False
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = 0

    async def find(self, uid: int) -> HostAccount:
        self.asked += 1
        await self.answers.wait()
        if uid not in self.names:
            gone = AccountGone if self.names else PermissionDenied
            raise gone(f"uid {uid} has no account here with a usable name")
        return HostAccount(self.names[uid], uid, uid, self.groups, "/bin/sh", self.local)

    def close(self) -> None:
        """Nothing is open."""


class Host:
    """A house whose users have accounts."""

    def __init__(self, house: RpcHouse, passwd: Path) -> None:
        self.house, self.passwd, self.accounts = house, passwd, Accounts()
        accounts: Any = self.accounts
        cut = house.server.open_calls.look
        self.groups = Groups(house.control, accounts, cut, (passwd,), passwd.parent)
        house.server.door.refusal = self.groups.refusal
        house.server.door.looks = self.groups.due

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


async def test_a_guest_of_a_reused_account_is_refused_too(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their name is not that of their account."""
    published = host.house.control.published
    alice = published.user("alice")
    assert alice is not None
    guest = replace(alice, name="ann@orga", account="alice")
    monkeypatch.setattr(published, "users", lambda: iter([guest]))
    await host.groups.refresh_all()
    assert not host.groups.refusal(guest)
    host.accounts.names[1001] = "eve"
    await host.groups.refresh_all()
    assert "is eve" in host.groups.refusal(guest)


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


# --- at the call itself: nobody refreshes by hand -------------------------------------------------


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call looks: else a test would wait for two seconds to pass."""
    monkeypatch.setattr(module, "FRESH_S", 0.0)


def groups_of(host: Host, name: str = "alice") -> tuple[int, ...]:
    return tuple(host.house.control.published.all_users[name].groups)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("local", [False, True], ids=["of a directory", "of the files"])
async def test_a_call_shows_what_the_host_says_now(host: Host, local: bool) -> None:
    host.accounts.local = local
    assert await refusal(host.listing("alice")) is OK
    assert await refusal(host.listing("bob")) is OK
    assert groups_of(host) == (7, 9)
    host.accounts.groups = (7,)
    assert await refusal(host.listing("alice")) is OK
    assert groups_of(host) == (7,), "a lost group"
    host.accounts.names[1001] = "eve"
    assert await refusal(host.listing("alice")) is OUT, "a uid that another person has"


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("local", [False, True], ids=["of a directory", "of the files"])
async def test_a_deleted_account_ends_the_rights_at_the_next_call(host: Host, local: bool) -> None:
    host.accounts.local = local
    assert await refusal(host.listing("alice")) is OK
    assert await refusal(host.listing("bob")) is OK
    del host.accounts.names[1001]
    assert await refusal(host.listing("alice")) is OUT
    assert await refusal(host.listing("bob")) is OK
    after_a_restart = Host(host.house, host.passwd)
    del after_a_restart.accounts.names[1001]
    assert await refusal(after_a_restart.listing("alice")) is OUT, "the master restarts"


@pytest.mark.usefixtures("fresh")
async def test_a_directory_that_finds_nobody_ends_nobodys_rights(host: Host) -> None:
    for name in ("alice", "bob"):
        assert await refusal(host.listing(name)) is OK
    host.accounts.names = {4242: "not one of ours"}
    assert await refusal(host.listing("alice")) is OK
    assert await refusal(host.listing("bob")) is OK


@pytest.mark.usefixtures("fresh")
async def test_a_user_who_never_had_an_account_here_keeps_what_an_admin_gave(host: Host) -> None:
    assert await refusal(host.listing("root", role=Role.ADMIN)) is OK
    assert await refusal(host.listing("root", role=Role.ADMIN)) is OK


@pytest.mark.usefixtures("fresh")
async def test_a_directory_that_hangs_holds_up_a_call_for_a_moment_and_then_ends_groups(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.01)
    assert await refusal(host.listing("alice")) is OK
    host.accounts.answers.clear()
    asked = host.accounts.asked
    for _ in range(5):
        assert await refusal(host.listing("alice")) is OK
    assert host.accounts.asked == asked + 1, "one look-up is under way, and no more"
    assert groups_of(host) == (7, 9), "what was known counts"
    monkeypatch.setattr(module, "KNOWN_S", 0.0)
    host.accounts.answers.set()
    await asyncio.wait([*host.groups._looking.values()])
    host.accounts.answers.clear()
    assert await refusal(host.listing("alice")) is OK
    async with asyncio.timeout(DEADLINE_S):
        while groups_of(host):  # noqa: ASYNC110 - the loop behind it tells nobody
            await asyncio.sleep(0)
    host.accounts.answers.set()
    await asyncio.wait([*host.groups._looking.values()])
    assert groups_of(host) == (7, 9), "and they are back with the answer"


async def test_calls_within_two_seconds_ask_the_host_once(host: Host) -> None:
    for _ in range(5):
        assert await refusal(host.listing("alice")) is OK
    assert host.accounts.asked == 1
