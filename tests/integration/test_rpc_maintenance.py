"""An announced absence over the wire: who may announce, what every heartbeat's answer says of
it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import job_service_pb2 as jobs
from dlq.v1 import node_service_pb2 as nodes
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq.v1.node_service_pb2_grpc import NodeServiceStub
from dlq_common.identity.pki import Role
from dlq_common.text.wire import from_duration, from_timestamp, to_duration
from dlq_master.control import stimuli as say
from dlq_master.model.ids import NodeId
from integration.test_rpc_sessions import Agent, place_job
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


def announcement(seconds: float, request_id: str = "m") -> wire.AnnounceMaintenanceRequest:
    return wire.AnnounceMaintenanceRequest(
        request_id=request_id, maintenance_duration=to_duration(seconds)
    )


async def announce(agent: Agent, seconds: float) -> Any:
    return await agent.stub.AnnounceMaintenance(announcement(seconds), timeout=DEADLINE_S)


async def test_a_node_announces_for_itself_whoever_it_may_name(house: RpcHouse) -> None:
    agent = Agent(house, "gpu02")
    answer = await announce(agent, 7200.0)
    stimulus = house.control.asked[-1]
    assert isinstance(stimulus, say.AnnounceMaintenance)
    assert (stimulus.node_id, stimulus.maintenance_s) == ("gpu02", 7200.0)
    assert stimulus.caller.actor == "node:gpu02"
    assert (from_duration(answer.left_duration), answer.in_force) == (7200.0, False)
    assert not answer.HasField("hold_duration")


@pytest.mark.parametrize("seconds", [-1.0, 31 * 86_400.0])
async def test_a_span_that_cannot_be_meant_is_refused(house: RpcHouse, seconds: float) -> None:
    request = announcement(0.0)
    request.maintenance_duration.seconds = int(seconds)
    call = Agent(house).stub.AnnounceMaintenance(request, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT
    assert not any(isinstance(each, say.AnnounceMaintenance) for each in house.control.asked)


async def test_an_announcement_needs_a_request_id(house: RpcHouse) -> None:
    call = Agent(house).stub.AnnounceMaintenance(announcement(60.0, ""), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT


async def test_every_answer_to_a_heartbeat_says_what_holds_now(house: RpcHouse) -> None:
    agent = Agent(house)
    await agent.hello()
    await agent.say(heartbeat=wire.Heartbeat(sequence=1))
    before = (await agent.hear()).heartbeat_reply
    assert (before.hold_revision, before.HasField("hold_extension_duration")) == (0, False)
    await announce(agent, 7200.0)
    await agent.say(heartbeat=wire.Heartbeat(sequence=2, hold_revision=0))
    after = (await agent.hear()).heartbeat_reply
    assert (after.hold_revision, from_duration(after.hold_extension_duration)) == (1, 7200.0)
    await agent.say(heartbeat=wire.Heartbeat(sequence=3, hold_revision=1))
    await agent.hear()
    told = [each for each in house.control.told if isinstance(each, say.Heartbeat)]
    assert [each.hold_revision for each in told] == [0, 0, 1]


async def test_a_welcome_says_it_too(house: RpcHouse) -> None:
    house.control.welcome = {"hold_extension_s": 600.0, "hold_revision": 4}
    welcome = await Agent(house).hello()
    assert (welcome.hold_revision, from_duration(welcome.hold_extension_duration)) == (4, 600.0)


async def test_people_see_until_when_and_how_long_the_jobs_hold_out(house: RpcHouse) -> None:
    await place_job(house, "gpu01")
    alice = JobServiceStub(house.channel_as("alice", Role.USER))

    async def hold_until_s() -> float:
        answer = await alice.GetJob(jobs.GetJobRequest(job_id="1"), timeout=DEADLINE_S)
        return from_timestamp(answer.attempts[0].lease.hold_until_time)

    before_s = await hold_until_s()
    node = house.control.published.all_nodes[NodeId("gpu01")]
    house.control.published.all_nodes[NodeId("gpu01")] = node._replace(
        maintenance_s=7200.0, maintenance_end_s=house.clock.now_s() + 7200.0, withheld=0b1
    )
    assert await hold_until_s() == pytest.approx(before_s + 7200.0, abs=5.0)
    stub = NodeServiceStub(house.channel_as("alice", Role.USER))
    shown = (await stub.GetNode(nodes.GetNodeRequest(node_id="gpu01"), timeout=DEADLINE_S)).node
    assert from_timestamp(shown.maintenance_end_time) > house.clock.now_s() + 7000.0
    assert list(shown.withheld_gpu_indexes) == [0]
