"""The login broker: the kernel says who is calling, whatever the caller says."""

from __future__ import annotations

import asyncio
import grp
import json
import os
import pwd
import shutil
import socket
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlq.v1 import queue_service_pb2 as queues
from dlq.v1.queue_service_pb2_grpc import QueueServiceStub
from dlq_common.identity.pki import Role, new_key_and_csr, parse_identity
from dlq_master.rpc.people.groups import Groups
from dlq_master.rpc.people.host_accounts import HostAccounts
from dlq_master.rpc.people.login_broker import (
    MOST_OF_AN_ACCOUNT,
    BrokerSettings,
    LoginBroker,
)
from support.host_account import (
    CAN_MAKE_ACCOUNTS,
    free_name,
    host_account,
    host_group,
    leave_group,
)
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration

MY_UID = os.getuid()
MY_NAME = pwd.getpwuid(MY_UID).pw_name
NOBODY = 65534
# The system's own interpreter: other users may not look into the home of root.
SYSTEM_PYTHON = next(
    (path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if Path(path).exists()), ""
)
ASK_AS_ANOTHER = """
import json, os, socket, sys
path, csr, uid = sys.argv[1], sys.stdin.read(), int(sys.argv[2])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
line = socket.socket(socket.AF_UNIX); line.connect(path)
line.sendall(json.dumps({"v": 1, "csr": csr, "uid": 0, "user": "root"}).encode() + b"\\n")
print(line.makefile().readline())
"""
with_accounts = pytest.mark.skipif(
    not CAN_MAKE_ACCOUNTS, reason="only root can make accounts, with useradd"
)
as_root = pytest.mark.skipif(MY_UID != 0, reason="only root can become somebody else")


class Desk:
    """A broker behind a socket that every user of the host can reach."""

    def __init__(self, house: RpcHouse, directory: Path) -> None:
        self.house = house
        self.path = directory / "login.sock"
        self.brokers: list[LoginBroker] = []

    async def open(
        self, *, auto_users: bool = True, listening: socket.socket | None = None
    ) -> LoginBroker:
        settings = BrokerSettings(self.path, self.house.server.advertised, auto_users)
        house = self.house
        groups = Groups(house.control, HostAccounts())
        broker = LoginBroker(
            settings, house.control, house.authority, house.clock, house.audit, groups, listening
        )
        await broker.start()
        self.brokers.append(broker)
        return broker

    async def say(self, raw: bytes) -> dict[str, Any]:
        """Send raw bytes as ourselves; the answer."""
        reader, writer = await asyncio.open_unix_connection(self.path)
        writer.write(raw)
        answer = await asyncio.wait_for(reader.readline(), DEADLINE_S)
        writer.close()
        await writer.wait_closed()
        return dict(json.loads(answer))

    async def login(self, csr: bytes, **more: object) -> dict[str, Any]:
        return await self.say(json.dumps({"v": 1, "csr": csr.decode(), **more}).encode() + b"\n")

    async def login_as(self, uid: int, csr: bytes) -> dict[str, Any]:
        """Ask as another user of this host, from a process of theirs."""
        process = await asyncio.create_subprocess_exec(
            SYSTEM_PYTHON or sys.executable,
            "-I",
            "-c",
            ASK_AS_ANOTHER,
            str(self.path),
            str(uid),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await asyncio.wait_for(process.communicate(csr), DEADLINE_S)
        return dict(json.loads(out))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    # Below /tmp itself, because pytest's own directories are closed to other users.
    directory = Path("/tmp") / f"dlq-login-{os.getpid()}"
    directory.mkdir(mode=0o755)
    async with rpc_house(tmp_path) as house:
        desk = Desk(house, directory)
        try:
            yield desk
        finally:
            for broker in desk.brokers:
                await broker.stop()
                broker.groups.close()
            shutil.rmtree(directory)


async def test_a_known_uid_gets_a_certificate_that_opens_the_api(desk: Desk) -> None:
    desk.house.control.add_user(MY_NAME, "operator", MY_UID)
    await desk.open()
    made = new_key_and_csr("somebody-else")
    answer = await desk.login(made.request)
    assert (answer["user"], answer["role"], answer["cluster"]) == (MY_NAME, "operator", "lab")
    assert answer["address"] == desk.house.server.advertised
    channel = desk.house.channel(made.key, answer["certificate"].encode())
    cluster = await QueueServiceStub(channel).GetCluster(
        queues.GetClusterRequest(), timeout=DEADLINE_S
    )
    assert (cluster.caller, cluster.role) == (MY_NAME, "operator")


async def test_what_the_caller_says_of_themselves_is_not_believed(desk: Desk) -> None:
    desk.house.control.add_user(MY_NAME, "user", MY_UID)
    await desk.open()
    answer = await desk.login(
        new_key_and_csr("root").request, uid=1004, user="root", role="admin", name="root"
    )
    assert parse_identity(answer["certificate"].encode()).role is Role.USER
    assert answer["user"] == MY_NAME


@with_accounts
async def test_another_users_process_gets_that_users_certificate(desk: Desk) -> None:
    with host_account(free_name()) as worker:
        desk.house.control.add_user(worker.pw_name, "operator", worker.pw_uid)
        await desk.open()
        answer = await desk.login_as(worker.pw_uid, new_key_and_csr("boss").request)
    assert (answer["user"], answer["role"]) == (worker.pw_name, "operator")


@with_accounts
async def test_an_account_without_a_row_becomes_a_user(desk: Desk) -> None:
    with host_account(free_name()) as worker:
        await desk.open()
        answer = await desk.login_as(worker.pw_uid, new_key_and_csr("root").request)
        assert (answer["user"], answer["role"]) == (worker.pw_name, "user")
        made = desk.house.control.published.user(worker.pw_name)
    assert made is not None
    assert made.uid == worker.pw_uid


@with_accounts
async def test_without_auto_users_an_account_without_a_row_is_refused(desk: Desk) -> None:
    await desk.open(auto_users=False)
    with host_account(free_name()) as worker:
        answer = await desk.login_as(worker.pw_uid, new_key_and_csr("x").request)
    assert answer["reason"] == "PERMISSION_DENIED"
    assert "certificate" not in answer


@as_root
async def test_nobody_is_refused_with_and_without_a_row(desk: Desk) -> None:
    await desk.open()
    answer = await desk.login_as(NOBODY, new_key_and_csr("x").request)
    assert "stands for nobody" in answer["error"]
    assert all(user.uid != NOBODY for user in desk.house.control.published.users())
    desk.house.control.add_user(pwd.getpwuid(NOBODY).pw_name, "user", NOBODY)
    answer = await desk.login_as(NOBODY, new_key_and_csr("x").request)
    assert "stands for nobody" in answer["error"]


@with_accounts
@pytest.mark.parametrize("role", ["user", "notifier"])
async def test_a_system_account_gets_a_row_only_from_an_admin(desk: Desk, role: str) -> None:
    await desk.open()
    with host_account(free_name(), shell="/usr/sbin/nologin") as service:
        answer = await desk.login_as(service.pw_uid, new_key_and_csr("x").request)
        assert "nobody logs in with" in answer["error"]
        assert "dlq admin user set" in answer["hint"]
        desk.house.control.add_user(service.pw_name, role, service.pw_uid)
        answer = await desk.login_as(service.pw_uid, new_key_and_csr("x").request)
    assert answer["user"] == service.pw_name
    assert parse_identity(answer["certificate"].encode()).role == role


@as_root
async def test_a_row_gives_nothing_to_a_uid_whose_account_is_gone(desk: Desk) -> None:
    desk.house.control.add_user("left", "operator", 54321)
    await desk.open()
    answer = await desk.login_as(54321, new_key_and_csr("x").request)
    assert answer["reason"] == "PERMISSION_DENIED"
    assert "no account" in answer["error"]


@with_accounts
async def test_who_has_an_old_uid_does_not_get_the_row_of_the_one_before(desk: Desk) -> None:
    with host_account(free_name()) as new:
        desk.house.control.add_user("before", "operator", new.pw_uid)
        await desk.open()
        answer = await desk.login_as(new.pw_uid, new_key_and_csr("x").request)
    assert answer["reason"] == "PERMISSION_DENIED"
    assert "before in the cluster" in answer["error"]


@with_accounts
async def test_groups_are_read_at_each_login(desk: Desk) -> None:
    group = free_name("g")
    with host_group(group), host_account(free_name(), groups=(group,)) as worker:
        gid = grp.getgrnam(group).gr_gid
        await desk.open()
        await desk.login_as(worker.pw_uid, new_key_and_csr("x").request)
        first = desk.house.control.published.user(worker.pw_name)
        leave_group(worker.pw_name, group)
        await desk.login_as(worker.pw_uid, new_key_and_csr("x").request)
        second = desk.house.control.published.user(worker.pw_name)
    assert first is not None
    assert second is not None
    assert gid in first.groups
    assert gid not in second.groups


@with_accounts
async def test_groups_follow_the_account_between_logins(desk: Desk) -> None:
    group = free_name("g")
    with host_group(group), host_account(free_name(), groups=(group,)) as worker:
        broker = await desk.open()
        await desk.login_as(worker.pw_uid, new_key_and_csr("x").request)
        desk.house.control.add_user("elsewhere", "user", 54321)
        leave_group(worker.pw_name, group)
        await broker.groups.refresh_all()
        after = desk.house.control.published.user(worker.pw_name)
    assert after is not None
    assert after.groups == ()
    assert desk.house.control.published.user("elsewhere") is not None, "no look-up removes users"


@as_root
async def test_a_uid_without_an_account_is_refused(desk: Desk) -> None:
    await desk.open()
    answer = await desk.login_as(54321, new_key_and_csr("x").request)
    assert answer["reason"] == "PERMISSION_DENIED"


@as_root
async def test_root_never_becomes_a_user_by_itself(desk: Desk) -> None:
    await desk.open()
    answer = await desk.login(new_key_and_csr("root").request)
    assert answer["reason"] == "PERMISSION_DENIED"
    assert all(user.uid != 0 for user in desk.house.control.published.users())


@with_accounts
async def test_an_account_cannot_take_over_a_row_of_its_name(desk: Desk) -> None:
    with host_account(free_name()) as new:
        desk.house.control.add_user(new.pw_name, "admin", new.pw_uid + 1)
        await desk.open()
        answer = await desk.login_as(new.pw_uid, new_key_and_csr("x").request)
    assert answer["reason"] == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    "raw",
    [
        b"\n",
        b"null\n",
        b"[]\n",
        b'{"v": 1}\n',
        b'{"v": 2, "csr": "x"}\n',
        b'{"v": 1, "csr": 7}\n',
        b'{"v": 1, "csr": "-----BEGIN"}\n',
        b'{"v": 1, "csr": "\\ud800"}\n',
        b"[" * 20_000 + b"\n",
        b"\xff\xfe\n",
        b"x" * 100_000 + b"\n",
    ],
)
async def test_junk_is_answered_with_a_refusal(desk: Desk, raw: bytes) -> None:
    desk.house.control.add_user(MY_NAME, "user", MY_UID)
    await desk.open()
    answer = await desk.say(raw)
    assert answer["reason"] == "INVALID_REQUEST"
    good = await desk.login(new_key_and_csr("x").request)
    assert good["user"] == MY_NAME, "the broker goes on"


async def test_everybody_may_ask_and_nobody_may_replace_the_socket(desk: Desk) -> None:
    await desk.open()
    assert stat.S_IMODE(desk.path.stat().st_mode) == 0o666
    assert stat.S_IMODE(desk.path.parent.stat().st_mode) == 0o755


async def test_a_second_master_does_not_take_the_socket_of_a_living_one(desk: Desk) -> None:
    await desk.open()
    with pytest.raises(OSError, match="another master"):
        await desk.open()


async def test_the_socket_of_a_dead_master_is_replaced(desk: Desk) -> None:
    import socket

    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(desk.path))
    dead.close()
    desk.house.control.add_user(MY_NAME, "user", MY_UID)
    await desk.open()
    assert (await desk.login(new_key_and_csr("x").request))["user"] == MY_NAME


async def test_a_file_in_the_sockets_place_is_left_alone(desk: Desk) -> None:
    desk.path.write_text("precious")
    with pytest.raises(OSError, match="not a socket"):
        await desk.open()
    assert desk.path.read_text() == "precious"


async def test_at_a_socket_that_systemd_holds_callers_wait_for_the_next_master(desk: Desk) -> None:
    desk.house.control.add_user(MY_NAME, "operator", MY_UID)
    held = socket.socket(socket.AF_UNIX)
    held.bind(str(desk.path))
    held.listen()
    first = await desk.open(listening=held.dup())
    assert (await desk.login(new_key_and_csr("x").request))["user"] == MY_NAME
    await first.stop()

    waiting = asyncio.create_task(desk.login(new_key_and_csr("x").request))
    await asyncio.sleep(0)
    await desk.open(listening=held.dup())
    assert (await waiting)["user"] == MY_NAME
    held.close()


async def test_logins_are_in_the_audit(desk: Desk) -> None:
    desk.house.control.add_user(MY_NAME, "user", MY_UID)
    await desk.open()
    await desk.login(new_key_and_csr("x").request)
    await desk.login(b"junk")
    desk.house.audit.close()
    text = desk.house.audit_path.read_text()
    assert '"method":"login"' in text
    assert '"decision":"INVALID_REQUEST"' in text


async def test_a_user_who_was_deleted_is_refused_by_the_api_at_once(desk: Desk) -> None:
    control = desk.house.control
    control.add_user(MY_NAME, "user", MY_UID)
    await desk.open()
    made = new_key_and_csr("x")
    answer = await desk.login(made.request)
    del control.published.all_users[MY_NAME]
    stub = QueueServiceStub(desk.house.channel(made.key, answer["certificate"].encode()))
    call = stub.GetCluster(queues.GetClusterRequest(), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.UNAUTHENTICATED


async def test_an_account_has_few_connections_at_once(desk: Desk) -> None:
    """Each is a file of the master for some seconds, and anybody on the host may open them."""
    desk.house.control.add_user(MY_NAME, "user", MY_UID)
    await desk.open()
    silent = [await asyncio.open_unix_connection(desk.path) for _ in range(MOST_OF_AN_ACCOUNT)]
    answer = await desk.login(new_key_and_csr("x").request)
    assert answer["reason"] == "TRY_AGAIN"
    for _, writer in silent:
        writer.close()
        await writer.wait_closed()
    async with asyncio.timeout(DEADLINE_S):
        while "user" not in (answer := await desk.login(new_key_and_csr("x").request)):
            assert answer["reason"] == "TRY_AGAIN"
    assert answer["user"] == MY_NAME
