"""The login broker: the kernel says who is calling, whatever the caller says."""

from __future__ import annotations

import asyncio
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
from dlq_common.pki import Role, new_key_and_csr, parse_identity
from dlq_master.rpc.login_broker import BrokerSettings, LoginBroker
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration

MY_UID = os.getuid()
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
        broker = LoginBroker(
            settings, house.control, house.authority, house.clock, house.audit, listening
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
            shutil.rmtree(directory)


async def test_a_known_uid_gets_a_certificate_that_opens_the_api(desk: Desk) -> None:
    desk.house.control.add_user("boss", "operator", MY_UID)
    await desk.open()
    made = new_key_and_csr("somebody-else")
    answer = await desk.login(made.request)
    assert (answer["user"], answer["role"], answer["cluster"]) == ("boss", "operator", "lab")
    assert answer["address"] == desk.house.server.advertised
    channel = desk.house.channel(made.key, answer["certificate"].encode())
    cluster = await QueueServiceStub(channel).GetCluster(
        queues.GetClusterRequest(), timeout=DEADLINE_S
    )
    assert (cluster.caller, cluster.role) == ("boss", "operator")


async def test_what_the_caller_says_of_themselves_is_not_believed(desk: Desk) -> None:
    desk.house.control.add_user("boss", "user", MY_UID)
    await desk.open()
    answer = await desk.login(
        new_key_and_csr("root").request, uid=1004, user="root", role="admin", name="root"
    )
    assert parse_identity(answer["certificate"].encode()).role is Role.USER
    assert answer["user"] == "boss"


@as_root
async def test_another_users_process_gets_that_users_certificate(desk: Desk) -> None:
    desk.house.control.add_user("boss", "admin", MY_UID)
    desk.house.control.add_user("worker", "user", 65533)
    await desk.open()
    answer = await desk.login_as(65533, new_key_and_csr("boss").request)
    assert (answer["user"], answer["role"]) == ("worker", "user")


@as_root
async def test_an_account_without_a_row_becomes_a_user(desk: Desk) -> None:
    account = pwd.getpwuid(NOBODY).pw_name
    await desk.open()
    answer = await desk.login_as(NOBODY, new_key_and_csr("root").request)
    assert (answer["user"], answer["role"]) == (account, "user")
    made = desk.house.control.published.user(account)
    assert made is not None
    assert made.uid == NOBODY


@as_root
async def test_without_auto_users_an_account_without_a_row_is_refused(desk: Desk) -> None:
    await desk.open(auto_users=False)
    answer = await desk.login_as(NOBODY, new_key_and_csr("nobody").request)
    assert answer["reason"] == "PERMISSION_DENIED"
    assert "certificate" not in answer


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


@as_root
async def test_an_account_cannot_take_over_a_row_of_its_name(desk: Desk) -> None:
    desk.house.control.add_user(pwd.getpwuid(NOBODY).pw_name, "admin", 4242)
    await desk.open()
    answer = await desk.login_as(NOBODY, new_key_and_csr("x").request)
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
    desk.house.control.add_user("boss", "user", MY_UID)
    await desk.open()
    answer = await desk.say(raw)
    assert answer["reason"] == "INVALID_REQUEST"
    good = await desk.login(new_key_and_csr("x").request)
    assert good["user"] == "boss", "the broker goes on"


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
    desk.house.control.add_user("boss", "user", MY_UID)
    await desk.open()
    assert (await desk.login(new_key_and_csr("x").request))["user"] == "boss"


async def test_a_file_in_the_sockets_place_is_left_alone(desk: Desk) -> None:
    desk.path.write_text("precious")
    with pytest.raises(OSError, match="not a socket"):
        await desk.open()
    assert desk.path.read_text() == "precious"


async def test_at_a_socket_that_systemd_holds_callers_wait_for_the_next_master(desk: Desk) -> None:
    desk.house.control.add_user("boss", "operator", MY_UID)
    held = socket.socket(socket.AF_UNIX)
    held.bind(str(desk.path))
    held.listen()
    first = await desk.open(listening=held.dup())
    assert (await desk.login(new_key_and_csr("x").request))["user"] == "boss"
    await first.stop()

    waiting = asyncio.create_task(desk.login(new_key_and_csr("x").request))
    await asyncio.sleep(0)
    await desk.open(listening=held.dup())
    assert (await waiting)["user"] == "boss"
    held.close()


async def test_logins_are_in_the_audit(desk: Desk) -> None:
    desk.house.control.add_user("boss", "user", MY_UID)
    await desk.open()
    await desk.login(new_key_and_csr("x").request)
    await desk.login(b"junk")
    desk.house.audit.close()
    text = desk.house.audit_path.read_text()
    assert '"method":"login"' in text
    assert '"decision":"INVALID_REQUEST"' in text


async def test_a_user_who_was_deleted_is_refused_by_the_api_at_once(desk: Desk) -> None:
    control = desk.house.control
    control.add_user("boss", "user", MY_UID)
    await desk.open()
    made = new_key_and_csr("x")
    answer = await desk.login(made.request)
    del control.published.all_users["boss"]
    stub = QueueServiceStub(desk.house.channel(made.key, answer["certificate"].encode()))
    call = stub.GetCluster(queues.GetClusterRequest(), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.UNAUTHENTICATED
