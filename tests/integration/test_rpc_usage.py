"""Usage over real mutual TLS: who sees whose, in which groups, and what makes no sense."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from dlq.v1 import usage_service_pb2 as wire
from dlq.v1.usage_service_pb2_grpc import UsageServiceStub
from dlq_common.identity.pki import Role
from dlq_common.text.wire import to_timestamp
from dlq_master.model.usage.accounting import DAY_S, Account, Level, UseClass, Used
from dlq_master.store.tables.tenants import Member, Team
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        today = int(house.clock.now_s() // DAY_S)
        for user, team, day, used in (
            ("alice", "", today, Used(10.0, 1.0, 2.0, 3.0)),
            ("alice", "vision", today - 1, Used(useful=20.0)),
            ("bob", "vision", today, Used(useful=40.0)),
            ("carol", "", today, Used(useful=80.0)),
            ("carol", "", today - 9, Used(useful=500.0)),
        ):
            account = Account(day, user, team, UseClass.BEST_EFFORT, "training")
            house.control.published.uses[account] = used
        for day in (today - 1, today):
            house.control.published.pool_uses[day, "training"] = Level(100.0, 20.0, 3.0)
        members = (Member("alice"), Member("bob"))
        house.control.published.all_teams["vision"] = Team("vision", 0.0, members=members)
        yield house


async def ask(
    house: RpcHouse, name: str, role: Role, *by: str, back: int = 1, user: str = ""
) -> wire.GetUsageResponse:
    from_time = to_timestamp(house.clock.now_s() - back * DAY_S)
    request = wire.GetUsageRequest(from_time=from_time, by=by, user=user)
    stub = UsageServiceStub(house.channel_as(name, role))
    answer: wire.GetUsageResponse = await stub.GetUsage(request, timeout=DEADLINE_S)
    return answer


async def test_users_see_themselves_and_their_teams_and_operators_all(house: RpcHouse) -> None:
    seen = {}
    for name, role in (("alice", Role.USER), ("bob", Role.USER), ("olga", Role.OPERATOR)):
        answer = await ask(house, name, role, "user", "team")
        seen[name] = {(one.user, one.team): one.useful_gpu_seconds for one in answer.usages}
        assert bool(answer.pools) == (name == "olga")
    assert seen["alice"] == {("alice", ""): 10, ("alice", "vision"): 20, ("bob", "vision"): 40}
    assert seen["bob"] == {("alice", "vision"): 20, ("bob", "vision"): 40}
    assert seen["olga"] == {**seen["alice"], ("carol", ""): 80}


async def test_groups_are_made_by_what_is_asked_for(house: RpcHouse) -> None:
    (whole,) = (await ask(house, "olga", Role.OPERATOR)).usages
    assert (whole.user, whole.day, whole.useful_gpu_seconds) == ("", "", 150.0)
    spent = whole.preempted_gpu_seconds, whole.failed_gpu_seconds, whole.transit_gpu_seconds
    assert spent == (1.0, 2.0, 3.0)
    answer = await ask(house, "olga", Role.OPERATOR, "day", back=9)
    assert [one.useful_gpu_seconds for one in answer.usages] == [500.0, 20.0, 130.0]
    assert [pool.idle_gpu_seconds for pool in answer.pools] == [20.0, 20.0]
    (pool,) = (await ask(house, "olga", Role.OPERATOR)).pools
    assert (pool.used_gpu_seconds, pool.withheld_gpu_seconds) == (200.0, 6.0)
    answer = await ask(house, "olga", Role.OPERATOR, user="carol")
    assert [one.useful_gpu_seconds for one in answer.usages] == [80.0]
    assert not answer.pools, "nobody's share of what lay idle"


async def test_what_makes_no_sense_is_refused(house: RpcHouse) -> None:
    stub = UsageServiceStub(house.channel_as("alice", Role.USER))
    tomorrow = to_timestamp(house.clock.now_s() + 2 * DAY_S)
    for wrong in (wire.GetUsageRequest(by=["moon"]), wire.GetUsageRequest(from_time=tomorrow)):
        call = stub.GetUsage(wrong, timeout=DEADLINE_S)
        assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT
    stub = UsageServiceStub(house.channel_as("prism", Role.INFERENCE))
    call = stub.GetUsage(wire.GetUsageRequest(), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED
