"""Lines through the relay that an agent dials, and whose callers never come."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlq.v1 import exec_pb2
from dlq_client.inside.relay_line import LineOver
from dlq_common.identity.files import StoredIdentity
from dlq_common.identity.pki import Authority, fingerprint, new_key_and_csr
from dlq_nodeagent.execs.serving import MOST_DIALLED_OF_JOB, ExecServer
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Fence, OpenExec
from support.relay_house import RelayHouse, hear, say

LONG_S = 60.0


def a_node() -> StoredIdentity:
    authority, made = Authority.create("lab", time.time()), new_key_and_csr("gpu01")
    signed = authority.sign_node(made.request, "gpu01", time.time())
    return StoredIdentity(made.key, signed, authority.certificate_pem())


def an_order(job_id: str, relay: socket.socket) -> OpenExec:
    host, port = relay.getsockname()
    return OpenExec(
        relay_id="", key=RankKey(job_id, 1, 0), fence=Fence(1, 1),
        relay_address=f"{host}:{port}", relay_ticket="x" * 43,
    )  # fmt: skip


def accepted(relay: socket.socket, count: int) -> list[socket.socket]:
    relay.settimeout(LONG_S)
    return [relay.accept()[0] for _ in range(count)]


def first_ready(*relays: socket.socket) -> list[socket.socket]:
    """Those to which somebody has come."""
    return select.select(relays, [], [], LONG_S)[0]


async def test_a_job_whose_callers_never_come_leaves_threads_to_others() -> None:
    loop = asyncio.get_running_loop()
    dialling = ThreadPoolExecutor(MOST_DIALLED_OF_JOB + 1)
    loop.set_default_executor(dialling)
    identity, runtime = a_node(), cast(Any, None)
    masters = SimpleNamespace(address="127.0.0.1:1")
    channels: Any = SimpleNamespace(masters=masters, identity=lambda: identity)
    server = ExecServer(channels, runtime, None)
    with (
        ThreadPoolExecutor(1) as own,
        socket.create_server(("127.0.0.1", 0)) as silent,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        for _ in range(MOST_DIALLED_OF_JOB + 2):
            server.run(an_order("1", silent), None)
        held = await loop.run_in_executor(own, accepted, silent, MOST_DIALLED_OF_JOB)
        server.run(an_order("2", other), None)
        assert other in await loop.run_in_executor(own, first_ready, silent, other)
        for line in held:
            line.close()
    await server.close()


class KnownCommand:
    """A kept command, of which only its end is of interest."""

    def __init__(self, ticket: str) -> None:
        self.ticket, self.has_ended = ticket, False
        self.handle = SimpleNamespace(key=RankKey("1", 1, 0))

    async def end(self) -> None:
        self.has_ended = True


async def test_a_caller_who_does_not_come_back_ends_the_command_of_that_line_alone() -> None:
    nothing = cast(Any, None)
    server = ExecServer(nothing, nothing, None)
    commands = [KnownCommand(ticket) for ticket in ("left", "other", "")]
    for number, command in enumerate(commands):
        server._kept[str(number)] = cast(Any, command)
        server._commands.add(cast(Any, command))
    order = OpenExec(
        relay_id="", key=RankKey("1", 1, 0), fence=Fence(1, 1),
        relay_ticket="left", relay_over=True,
    )  # fmt: skip
    server.run(replace(order, relay_ticket=""), None)  # those through the master have none
    await asyncio.gather(*server._tasks)
    assert not any(command.has_ended for command in commands)
    for _ in range(2):  # the word may come twice
        server.run(order, None)
        await asyncio.gather(*server._tasks)
        assert [command.has_ended for command in commands] == [True, False, False]


async def test_a_relay_that_swaps_the_lines_of_one_caller_joins_no_other_command() -> None:
    """Both ends are the right ones, and each line is told for which command it is."""
    person_asks = exec_pb2.RelayedInput(spec=exec_pb2.ExecSpec(resumed=True, resume_key="hers"))
    with RelayHouse().up() as house:
        person, node = house.person(), house.node()
        channels: Any = SimpleNamespace(
            masters=SimpleNamespace(address="127.0.0.1:1"), identity=lambda: node
        )
        server = ExecServer(channels, cast(Any, None), None)
        command = KnownCommand("")
        server._kept["hers"] = cast(Any, command)
        tickets = house.expect(person)
        order = OpenExec(
            relay_id="", key=RankKey("1", 1, 0), fence=Fence(1, 1),
            relay_address=f"127.0.0.1:{house.port}", relay_ticket=tickets.agent,
            relay_caller=fingerprint(person.certificate), relay_key="of another command",
        )  # fmt: skip
        server.run(order, None)
        caller = await asyncio.wrap_future(house.called(tickets, person))
        say(caller, person_asks.SerializeToString())
        with pytest.raises(LineOver):
            await asyncio.to_thread(hear, caller)
        await server.close()
        assert not command.ticket
        assert not command.has_ended
