"""The GPU map over a real socket: the lease of each GPU, and no more than the caller may know."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from dlq.v1 import job_service_pb2 as jobs
from dlq.v1 import lease_pb2, node_pb2
from dlq.v1 import node_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq.v1.node_service_pb2_grpc import NodeServiceStub
from dlq_common.identity.pki import Role
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.nodes.gpu_health import Figures
from dlq_master.model.nodes.node import Gpu, NodeFlag
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration
GPU01, GPU02 = NodeId("gpu01"), NodeId("gpu02")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    """Two nodes of two GPUs; a job of alice holds the first GPU of each."""
    async with rpc_house(tmp_path) as house:
        nodes = house.control.published.all_nodes
        gpus = (Gpu(index=0, gpu_type="h100"), Gpu(index=1, gpu_type="h100"))
        nodes[GPU01] = nodes[GPU01]._replace(gpus=gpus)
        nodes[GPU02] = nodes[GPU02]._replace(gpus=gpus, flags=frozenset({NodeFlag.CORDONED}))
        house.control.published.all_figures[GPU01] = {0: Figures(50, 87, 10)}
        request = jobs.SubmitJobRequest(request_id="r")
        request.spec.command.append("/bin/true")
        request.spec.resources.gpu_count = 2
        stub = JobServiceStub(house.channel_as("alice", Role.USER))
        await stub.SubmitJob(request, timeout=DEADLINE_S)
        house.control.place(JobId(1), GPU01, GPU02)
        yield house


async def map_of(house: RpcHouse, name: str, role: Role, **page: object) -> wire.GetGpuMapResponse:
    request = wire.GetGpuMapRequest(**page)  # type: ignore[arg-type]  # by the names of its fields
    stub = NodeServiceStub(house.channel_as(name, role))
    return await stub.GetGpuMap(request, timeout=DEADLINE_S)


async def test_a_gpu_has_its_lease_and_its_use(house: RpcHouse) -> None:
    told = await map_of(house, "alice", Role.USER)
    first, second = told.nodes
    assert (first.node_id, first.open, second.open) == ("gpu01", True, False)
    assert list(second.flags) == ["cordoned"]
    assert (list(first.gpu_types), list(first.gpu_indexes)) == (["h100"], [0, 1])
    assert (list(first.lease_places), list(first.utilization_percents)) == ([0, -1], [87, -1])
    assert list(second.lease_places) == [0, -1]
    (lease,) = told.leases
    assert (lease.job_id, lease.user, lease.gpu_count) == ("1", "alice", 2)
    assert lease.kind == lease_pb2.LEASE_KIND_BE
    term_s = lease.term_end_time.ToSeconds() - lease.assign_time.ToSeconds()
    assert term_s in (299, 300, 301)
    assert lease.hold_until_time.ToSeconds() > 0


@pytest.mark.parametrize(("shown", "user"), [("named", "alice"), ("nameless", ""), ("hidden", "")])
async def test_of_others_it_tells_what_their_cluster_shows(
    house: RpcHouse, shown: str, user: str
) -> None:
    house.control.published.others_shown = shown
    (lease,) = (await map_of(house, "bob", Role.USER)).leases
    assert (lease.job_id, lease.user, lease.team) == ("1", user, "")
    assert lease.kind == lease_pb2.LEASE_KIND_UNSPECIFIED
    assert lease.HasField("term_end_time") is (shown != "hidden")
    (lease,) = (await map_of(house, "olga", Role.OPERATOR)).leases
    assert lease.user == "alice"


@pytest.mark.parametrize("order", [("alice", "bob", "olga"), ("olga", "bob", "alice")])
async def test_readers_that_share_a_page_see_no_more_than_alone(
    house: RpcHouse, order: tuple[str, ...]
) -> None:
    house.control.published.others_shown = "nameless"
    jobs = house.control.published.all_jobs
    jobs[JobId(1)] = jobs[JobId(1)]._replace(team="vision")
    seen = {}
    for name in order:
        role = Role.OPERATOR if name == "olga" else Role.USER
        (lease,) = (await map_of(house, name, role)).leases
        seen[name] = (lease.user, lease.team, lease.kind != lease_pb2.LEASE_KIND_UNSPECIFIED)
    whole = ("alice", "vision", True)
    assert seen == {"alice": whole, "olga": whole, "bob": ("", "", False)}


async def test_an_attempt_without_a_job_is_an_orphan_that_breaks_nothing(house: RpcHouse) -> None:
    house.control.published.all_jobs.clear()
    for name, role in (("bob", Role.USER), ("olga", Role.OPERATOR)):
        told = await map_of(house, name, role)
        assert list(told.nodes[0].lease_places) == [0, -1]
        assert [(one.job_id, one.user) for one in told.leases] == [("1", "")]


async def test_its_pages_go_on_by_node(house: RpcHouse) -> None:
    first = await map_of(house, "alice", Role.USER, page_size=1)
    second = await map_of(house, "alice", Role.USER, page_size=1, page_token=first.next_page_token)
    assert [one.node_id for page in (first, second) for one in page.nodes] == ["gpu01", "gpu02"]
    assert second.next_page_token == ""
    assert [one.job_id for one in second.leases] == ["1"]  # a page stands alone


async def test_a_token_that_is_no_node_is_refused_since_pages_are_kept_by_it(
    house: RpcHouse,
) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="not a page token"):
        await map_of(house, "alice", Role.USER, page_token="x" * 257)


async def test_a_node_that_is_down_and_without_gpus_is_there(house: RpcHouse) -> None:
    house.control.add_node("gpu03")
    told = await map_of(house, "alice", Role.USER)
    assert told.nodes[2].state == node_pb2.NODE_STATE_UP
    assert list(told.nodes[2].gpu_types) == []


async def test_nodes_do_not_look_at_it(house: RpcHouse) -> None:
    stub = NodeServiceStub(house.channel_as("gpu01", Role.NODE))
    call = stub.GetGpuMap(wire.GetGpuMapRequest(), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED
