"""The profile of the master over real mutual TLS: its contents, its refusals, its early ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlq.v1 import admin_service_pb2 as wire
from dlq.v1 import master_profile_pb2
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq_client.admin import Admin
from dlq_client.line.connection import Connection
from dlq_client.line.errors import from_rpc_error
from dlq_common.daemon.profiles import STOPPING
from dlq_common.errors import TryAgain, Unavailable
from dlq_common.identity.pki import Role
from dlq_common.text.wire import to_duration
from dlq_master.control.loop.slow_turns import SlowTurn
from support.harness import Daemons
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house
from support.waiting import wait_until

pytestmark = pytest.mark.integration
LONG_S = 300.0


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


def _asked(house: RpcHouse, name: str, role: Role, seconds: float) -> Any:
    stub = AdminServiceStub(house.channel_as(name, role))
    request = wire.ProfileMasterRequest(sample_duration=to_duration(seconds))
    return stub.ProfileMaster(request, timeout=DEADLINE_S)


def _burn_for_the_profile() -> int:
    return sum(number * number for number in range(2_000))


async def test_it_names_the_busy_function_turns_and_slow_turns(house: RpcHouse) -> None:
    spent = {"decide": 0.25, "plan": 0.5, "persist": 0.125, "publish": 0.0}
    house.meter.slow.kept.append(SlowTurn(1.8e9, spent, {"SubmitJob": 64}, 64, 1, 2, 65, 3))
    house.meter.slow.count = 7
    call = _asked(house, "olga", Role.OPERATOR, 1.2)
    first = asyncio.ensure_future(call.read())
    while not first.done():
        _burn_for_the_profile()
        await asyncio.sleep(0)
    assert not first.result().HasField("profile")  # a sign of life before the end
    house.meter.turned(0.3)
    last = await call.read()
    assert await call.read() is aio.EOF
    profile = last.profile
    assert profile.threads[0].name == "loop"
    names = {profile.functions[one].name for stack in profile.stacks
             for one in stack.function_indexes if stack.thread_index == 0}  # fmt: skip
    assert "_burn_for_the_profile" in names
    assert sum(stack.sample_count for stack in profile.stacks) > 0
    assert [(one.longest_duration.seconds, one.turn_count) for one in profile.turns][-3] == (1, 1)
    (slow,) = profile.slow_turns
    assert (profile.slow_count, dict(slow.stimuli), slow.job_count) == (7, {"SubmitJob": 64}, 64)
    assert slow.plan_duration.nanos == 500_000_000
    assert profile.ended_early == ""


@pytest.mark.parametrize(("name", "role"), [("alice", Role.USER), ("prism", Role.INFERENCE)])
async def test_it_is_for_operators(house: RpcHouse, name: str, role: Role) -> None:
    code = await refusal(_asked(house, name, role, 5.0))
    assert code is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("seconds", [0.5, 301.0, -1.0])
async def test_its_length_is_bounded(house: RpcHouse, seconds: float) -> None:
    code = await refusal(_asked(house, "olga", Role.OPERATOR, seconds))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_second_is_refused_with_the_name_of_the_first_until_that_goes_away(
    house: RpcHouse,
) -> None:
    first = _asked(house, "olga", Role.OPERATOR, LONG_S)
    await first.read()
    with pytest.raises(aio.AioRpcError) as refused:
        await _asked(house, "root", Role.ADMIN, LONG_S).read()
    error = from_rpc_error(refused.value, "lab")
    assert isinstance(error, TryAgain)
    assert error.what == "olga takes a profile of 300 s at the moment"
    first.cancel()  # the caller is gone, or the line was silent: gRPC ends the call
    async with asyncio.timeout(DEADLINE_S):
        while await refusal(_asked(house, "root", Role.ADMIN, 1.0)) is not grpc.StatusCode.OK:
            pass


async def test_a_master_that_stops_tells_its_samples_so_far(house: RpcHouse) -> None:
    call = _asked(house, "olga", Role.OPERATOR, LONG_S)
    last = await call.read()
    stopping = asyncio.ensure_future(house.server.stop(DEADLINE_S))
    while (answer := await call.read()) is not aio.EOF:
        last = answer
    await stopping
    assert last.profile.ended_early == STOPPING
    assert last.profile.sample_count > 0


@pytest.fixture
def daemons(tmp_path: Path) -> Daemons:
    return Daemons(tmp_path, ("n1",), settings='[log]\nslow_turn = "1ms"\n')


def test_a_real_master_names_its_work_and_its_slow_turns_and_begins_anew(daemons: Daemons) -> None:
    with daemons.up(), daemons.connect() as line:
        over = threading.Event()
        asking = threading.Thread(target=_ask_until, args=(daemons, over))
        asking.start()
        try:
            found = wait_until(lambda: _with_labels(Admin(line)), what="the work in a profile")
        finally:
            over.set()
            asking.join()
        assert found is not None
        assert "dlq_master/control/loop/loop.py" in {one.file for one in found.functions}
        assert not any(one.file.startswith("/") for one in found.functions)
        assert found.slow_count > 0
        assert '"slow_turn"' in daemons.log("master")

        agent = threading.Thread(target=_restart, args=(daemons, "n1"))
        agent.start()
        Admin(line).profile(1.0)  # the restart of an agent changes nothing
        agent.join()

        beginning = threading.Thread(target=_kill_when_heard, args=(daemons,))
        beginning.start()
        with pytest.raises(Unavailable):
            Admin(line).profile(LONG_S)
        beginning.join()
        daemons.start("master")
        daemons.wait_for("master")
        assert Admin(line).profile(1.0).slow_count < found.slow_count + 1_000  # it serves again


def _with_labels(admin: Admin) -> master_profile_pb2.MasterProfile | None:
    """A profile of two seconds, if it has met the handler. On a busy machine it may miss it."""
    found = admin.profile(2.0)
    names = {one.name for one in found.functions}
    return found if {"Loop.turn", "set_node_labels"} <= names else None


def test_a_silent_line_ends_it_for_both_sides(daemons: Daemons) -> None:
    with daemons.up(), daemons.connect() as line:
        silencing = threading.Thread(target=_silence_when_heard, args=(daemons,))
        silencing.start()
        with pytest.raises(Unavailable):
            Admin(line).profile(LONG_S)
        silencing.join()
        daemons.thaw("master")
        wait_until(lambda: _profiled(line), what="the master takes another profile")


def _profiled(line: Connection) -> bool:
    try:
        return Admin(line).profile(1.0).sample_count > 0
    except (TryAgain, Unavailable):  # the master has not noticed yet, or the line is not back
        return False


def _silence_when_heard(daemons: Daemons) -> None:
    wait_until(lambda: "profile_begun" in daemons.log("master"), what="a profile has begun")
    daemons.freeze("master")


def _ask_until(daemons: Daemons, over: threading.Event) -> None:
    with daemons.connect() as line:
        number = 0
        while not over.is_set():
            number += 1
            Admin(line).set_node_labels("n1", set_labels={"number": str(number)})


def _restart(daemons: Daemons, name: str) -> None:
    daemons.kill(name)
    daemons.start(name)
    daemons.wait_for(name)


def _kill_when_heard(daemons: Daemons) -> None:
    """Once the third profile has begun."""
    wait_until(
        lambda: daemons.log("master").count("profile_begun") == 3, what="a profile has begun"
    )
    daemons.kill("master")
