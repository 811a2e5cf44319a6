"""Priced pools over real mutual TLS, with the real loop behind: who may ask, what is told, and that
it is done once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlq.v1 import pool_service_pb2 as wire
from dlq.v1.pool_service_pb2_grpc import PoolServiceStub
from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import Seconds
from dlq_common.identity.pki import Role
from dlq_master.control.composition.starting import start
from dlq_master.control.composition.wiring import WIRING
from dlq_master.control.config import NodesConfig
from dlq_master.control.loop.failpoints import Failpoints
from dlq_master.control.loop.loop import Loop
from dlq_master.control.pool_config import PoolConfig, RentingConfig
from dlq_master.model.machines.rented import Machine, MachineState
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.sessions import Sessions
from dlq_master.rpc.cluster.pool_service import MOST_MACHINES
from dlq_master.store.batch import Batch, User
from dlq_master.store.stored_tables import MACHINES, USERS
from dlq_master.store.tables.table import put
from support.fake_provider import FAKE
from support.master_harness import config_of
from support.memory_store import MemoryStore
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house
from support.stored_values import a_machine, a_node

pytestmark = pytest.mark.integration
POOLS = (
    PoolConfig(
        "spot", FAKE, "H100", 4, 10.0, most=3, give_up=1e3, available_until="2100-01-01T00:00:00Z"
    ),
    PoolConfig("campus", FAKE, "A100", 8, 20.0, give_up=1e3),
)
REFUSED = grpc.StatusCode.INVALID_ARGUMENT


@dataclass
class Site:
    """A house with a real loop."""

    house: RpcHouse
    store: MemoryStore

    def stub(self, name: str = "olga", role: Role = Role.OPERATOR) -> Any:
        return PoolServiceStub(self.house.channel_as(name, role))

    async def listed(self, name: str = "") -> wire.ListPoolsResponse:
        request = wire.ListPoolsRequest(name=name)
        answer: wire.ListPoolsResponse = await self.stub().ListPools(request, timeout=DEADLINE_S)
        return answer

    async def stop(self, request_id: str, *names: str, pool: str = "") -> dict[str, str]:
        """Their states, by name."""
        request = wire.StopMachinesRequest(request_id=request_id, machine_ids=names, pool=pool)
        answer = await self.stub().StopMachines(request, timeout=DEADLINE_S)
        return {one.request_id: one.state for one in answer.machines}

    def words(self) -> Counter[str]:
        """What was told of machines."""
        return Counter(event.kind for event in self.store.events(0, 1_000_000))


def machines(now_s: float) -> list[Machine]:
    """Two that are coming, one that is gone, and one of the other pool."""
    asked = {"asked_s": now_s - 1800.0, "since_s": now_s - 1800.0}
    gone = {**asked, "end_s": now_s - 900.0, "state": MachineState.AWAY}
    return [
        a_machine("spot-1-1", price_per_hour=10.0, instance_id="i-1", **asked),
        a_machine("spot-1-2", price_per_hour=10.0, **asked),
        a_machine("spot-1-3", price_per_hour=10.0, **gone),
        a_machine("campus-1-4", pool="campus", price_per_hour=20.0, **asked),
    ]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Machines are asked for, their providers say nothing, and a node has not come back: nothing
    happens by itself.
    """
    clock, store = SteadyClock(), MemoryStore()
    people = [
        User(name, role, uid, uid, (), 0.0)
        for uid, (name, role) in enumerate(
            (("alice", "user"), ("olga", "operator"), ("root", "admin"), ("prism", "inference"))
        )
    ]
    rows = machines(clock.now_s())
    store.write(
        Batch(
            changes={**put(USERS, people), **put(MACHINES, rows)},
            nodes=[a_node()],
            meta={"epoch": "0"},
        )
    )
    config = replace(
        config_of(),
        pools=POOLS,
        renting=RentingConfig(most_per_hour=100.0),
        nodes=NodesConfig(start_grace=Seconds(36_000.0)),
    )
    state, first = start(config, store.load(), clock.now_s())
    store.write(first)
    loop = Loop(
        state=state,
        wiring=WIRING,
        clock=clock,
        store=store,
        records=store,
        transport=Sessions(CheckpointPlaces("/ckpt", b"seed")),
        failpoints=Failpoints(),
        state_dir=Path("/"),
    )
    turning = asyncio.create_task(loop.run())
    async with rpc_house(tmp_path, loop) as house:
        yield Site(house, store)
    loop.stop()
    await turning


@pytest.mark.parametrize(
    ("name", "role", "may"),
    [
        ("olga", Role.OPERATOR, True),
        ("root", Role.ADMIN, True),
        ("alice", Role.USER, False),
        ("prism", Role.INFERENCE, False),
    ],
)
async def test_operators_see_and_stop_machines_and_nobody_else_does(
    site: Site, name: str, role: Role, may: bool
) -> None:
    stub = site.stub(name, role)
    stop = wire.StopMachinesRequest(request_id="s1", machine_ids=["spot-1-1"])
    expected = grpc.StatusCode.OK if may else grpc.StatusCode.PERMISSION_DENIED
    listing = stub.ListPools(wire.ListPoolsRequest(), timeout=DEADLINE_S)
    assert await refusal(listing) is expected
    assert await refusal(stub.StopMachines(stop, timeout=DEADLINE_S)) is expected
    assert site.words()["machine_stopping"] == may
    site.house.audit.close()
    decided = "StopMachines" in site.house.audit_path.read_text()
    assert decided, "who was let in and who was not"


async def test_pools_are_listed_with_what_they_cost_and_their_machines(site: Site) -> None:
    told = await site.listed()
    assert [pool.name for pool in told.pools] == ["spot", "campus"]
    spot, campus = told.pools
    assert (spot.gpu_type, spot.gpu_count, spot.price_per_hour, spot.most_count) == (
        "H100",
        4,
        10.0,
        3,
    )
    assert spot.HasField("available_until_time")
    assert not campus.HasField("available_until_time")
    states = {one.request_id: one.state for one in spot.machines}
    assert states == {"spot-1-1": "starting", "spot-1-2": "starting", "spot-1-3": "away"}
    assert [one.instance_id for one in spot.machines] == ["i-1", "", ""]
    assert (told.cost_per_hour, told.most_per_hour) == (40.0, 100.0)
    assert not told.HasField("most_per_day")
    ended = next(one for one in spot.machines if one.HasField("end_time"))
    assert ended.cost == pytest.approx(2.5), "15 minutes"
    assert told.day_cost == pytest.approx(5.0 + 5.0 + 2.5 + 10.0, rel=0.1), "it goes on"
    (only,) = (await site.listed("campus")).pools
    assert [one.request_id for one in only.machines] == ["campus-1-4"]


async def test_a_stop_is_done_once_however_often_it_is_asked_for(site: Site) -> None:
    assert await site.stop("s1", "spot-1-1") == {"spot-1-1": "stopping"}
    assert await site.stop("s1", "spot-1-1") == {"spot-1-1": "stopping"}, "its answer was lost"
    assert await site.stop("s2", "spot-1-1") == {"spot-1-1": "stopping"}, "it goes on so"
    assert await site.stop("s3", "spot-1-3") == {"spot-1-3": "away"}, "it is gone"
    assert site.words()["machine_stopping"] == 1
    other = wire.StopMachinesRequest(request_id="s1", machine_ids=["spot-1-2"])
    call = site.stub().StopMachines(other, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.ALREADY_EXISTS, "the id of another request"
    assert site.words()["machine_stopping"] == 1


async def test_all_machines_of_a_pool_are_stopped_and_no_other(site: Site) -> None:
    both = {"spot-1-1": "stopping", "spot-1-2": "stopping"}
    assert await site.stop("s1", pool="spot") == both
    assert await site.stop("s1", pool="spot") == both
    assert site.words()["machine_stopping"] == 2
    (campus,) = (await site.listed("campus")).pools
    assert [one.state for one in campus.machines] == ["starting"]


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        (wire.StopMachinesRequest(request_id="s"), REFUSED),
        (wire.StopMachinesRequest(request_id="s", machine_ids=["spot-1-1"], pool="spot"), REFUSED),
        (wire.StopMachinesRequest(machine_ids=["spot-1-1"]), REFUSED),
        (wire.StopMachinesRequest(request_id="s", machine_ids=["x" * 501]), REFUSED),
        (wire.StopMachinesRequest(request_id="s", pool="x" * 501), REFUSED),
        (wire.StopMachinesRequest(request_id="s", machine_ids=["a"] * (MOST_MACHINES + 1)), REFUSED),  # noqa: E501
        (wire.StopMachinesRequest(request_id="s", machine_ids=["spot-9-9"]), grpc.StatusCode.NOT_FOUND),  # noqa: E501
        (wire.StopMachinesRequest(request_id="s", machine_ids=["../x\n"]), grpc.StatusCode.NOT_FOUND),  # noqa: E501
        (wire.StopMachinesRequest(request_id="s", pool="moon"), grpc.StatusCode.NOT_FOUND),
        (
            wire.StopMachinesRequest(request_id="s", machine_ids=["spot-1-1", "spot-9-9"]),
            grpc.StatusCode.NOT_FOUND,
        ),
        (wire.ListPoolsRequest(name="moon"), grpc.StatusCode.NOT_FOUND),
        (wire.ListPoolsRequest(name="x" * 501), REFUSED),
    ],
)  # fmt: skip
async def test_what_names_nothing_or_makes_no_sense_is_refused_and_stops_nobody(
    site: Site, wrong: wire.StopMachinesRequest | wire.ListPoolsRequest, status: grpc.StatusCode
) -> None:
    stub = site.stub()
    call = stub.ListPools if isinstance(wrong, wire.ListPoolsRequest) else stub.StopMachines
    assert await refusal(call(wrong, timeout=DEADLINE_S)) is status
    assert not site.words()["machine_stopping"]
