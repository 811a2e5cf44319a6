"""Costs over real mutual TLS: who sees whose, in which groups, and what makes no sense."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from dlq.v1 import usage_service_pb2 as wire
from dlq.v1.usage_service_pb2_grpc import UsageServiceStub
from dlq_common.identity.pki import Role
from dlq_common.text.wire import to_timestamp
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Foretold, Lateness
from dlq_master.model.machines.rented import MachineState
from dlq_master.model.usage.accounting import DAY_S
from dlq_master.model.usage.cost import Stay
from dlq_master.store.tables.tenants import Member, Team
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house
from support.stored_values import a_job, a_machine

pytestmark = pytest.mark.integration


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    """A machine for 3600 an hour was there for the first 100 s of today; yesterday somebody was
    late for 50 s.
    """
    async with rpc_house(tmp_path) as house:
        read, today_s = house.control.published, house.clock.now_s() // DAY_S * DAY_S
        read.rented = [
            a_machine(
                state=MachineState.AWAY, price_per_hour=3600.0, asked_s=today_s,
                up_s=today_s + 10.0, end_s=today_s + 100.0, foretold=90.0,
            )
        ]  # fmt: skip
        late = Lateness(today_s - 100.0, 0.2)
        told = Foretold(today_s, 30.0, "spot", 25.0, 1.0)
        for job in (
            a_job(1, user="alice", name="train", foretold=told),
            a_job(2, user="bob", team="vision", lateness=late, end_time_s=today_s - 50.0),
            a_job(10, user="carol"),
        ):
            read.all_jobs[job.job_id] = job
        read.stays = [
            Stay("spot-3-1", AttemptKey(JobId(job), 1), 0.5, today_s + 20.0, today_s + until_s)
            for job, until_s in ((1, 60.0), (10, 100.0))
        ]
        read.all_teams["vision"] = Team("vision", 0.0, members=(Member("alice"),))
        yield house


async def ask(
    house: RpcHouse, name: str, role: Role, *by: str, user: str = ""
) -> wire.GetCostsResponse:
    from_time = to_timestamp(house.clock.now_s() - DAY_S)
    request = wire.GetCostsRequest(from_time=from_time, by=by, user=user)
    stub = UsageServiceStub(house.channel_as(name, role))
    answer: wire.GetCostsResponse = await stub.GetCosts(request, timeout=DEADLINE_S)
    return answer


async def test_users_see_their_own_and_their_teams_jobs_and_operators_all(house: RpcHouse) -> None:
    seen = {}
    for name, role in (("alice", Role.USER), ("bob", Role.USER), ("olga", Role.OPERATOR)):
        answer = await ask(house, name, role, "job")
        seen[name] = [(one.job_id, one.name) for one in answer.costs]
        assert bool(answer.pools) == (name == "olga"), "what others did with it is not theirs"
    assert seen["alice"] == [("1", "train"), ("2", "job 2")]
    assert seen["bob"] == [("2", "job 2")]
    assert seen["olga"] == [("1", "train"), ("2", "job 2"), ("10", "job 10")]


async def test_groups_are_made_by_what_is_asked_for(house: RpcHouse) -> None:
    (whole,) = (await ask(house, "olga", Role.OPERATOR)).costs
    assert (whole.running_cost, whole.lateness_cost) == pytest.approx((20.0 + 40.0, 10.0))
    told = whole.foretold_running_cost, whole.foretold_lateness_cost, whole.own_lateness_cost
    assert told == (25.0, 1.0, 30.0)
    by_pool = (await ask(house, "olga", Role.OPERATOR, "pool")).costs
    assert [(one.pool, one.lateness_cost) for one in by_pool] == [("", 10.0), ("spot", 0.0)]
    by_day = await ask(house, "olga", Role.OPERATOR, "day", "user")
    assert [one.user for one in by_day.costs] == ["bob", "alice", "carol"]
    (pool,) = by_day.pools
    paid = pool.boot_cost, pool.job_cost, pool.idle_cost, pool.foretold_cost
    assert paid == pytest.approx((10.0, 60.0, 30.0, 90.0))
    assert pool.day == by_day.costs[1].day > by_day.costs[0].day
    answer = await ask(house, "olga", Role.OPERATOR, user="carol")
    assert [one.running_cost for one in answer.costs] == pytest.approx([40.0])
    assert not answer.pools


async def test_what_makes_no_sense_is_refused(house: RpcHouse) -> None:
    stub = UsageServiceStub(house.channel_as("alice", Role.USER))
    tomorrow = to_timestamp(house.clock.now_s() + 2 * DAY_S)
    for wrong in (wire.GetCostsRequest(by=["class"]), wire.GetCostsRequest(from_time=tomorrow)):
        call = stub.GetCosts(wrong, timeout=DEADLINE_S)
        assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT
    stub = UsageServiceStub(house.channel_as("prism", Role.INFERENCE))
    call = stub.GetCosts(wire.GetCostsRequest(), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED
