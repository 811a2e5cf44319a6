"""Loans over real mutual TLS: who may ask, what is refused, and that a choice that takes long is
made outside.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from dlq.v1 import loan_service_pb2 as wire
from dlq.v1.loan_service_pb2_grpc import LoanServiceStub
from dlq_common.identity.pki import Role
from dlq_master.control.stimuli.loans import Found, LendServers, Reclaimed, ReclaimServers, ToChoose
from dlq_master.model.ids import NodeId
from dlq_master.policy.reclaim.demand import Choice, Demand
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration

DONE = Reclaimed("", (NodeId("inf02"),), (), 60.0, True)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


@pytest.mark.parametrize(
    ("name", "role", "may"),
    [
        ("prism", Role.INFERENCE, True),
        ("olga", Role.OPERATOR, True),
        ("root", Role.ADMIN, True),
        ("alice", Role.USER, False),
    ],
)
async def test_the_inference_side_and_operators_lend_and_users_do_not(
    house: RpcHouse, name: str, role: Role, may: bool
) -> None:
    house.control.answers[LendServers] = lambda _ask: ()
    stub = LoanServiceStub(house.channel_as(name, role))
    call = stub.LendServers(wire.LendServersRequest(request_id="l1", count=2), timeout=DEADLINE_S)
    if not may:
        assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED
        return
    await call
    asked = house.control.asked[-1]
    assert isinstance(asked, LendServers)
    assert (asked.caller.name, asked.caller.role, asked.count) == (name, role.value, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        wire.ReclaimServersRequest(request_id="r"),
        wire.ReclaimServersRequest(request_id="r", node_ids=["inf01"], count=1),
        wire.ReclaimServersRequest(request_id="r", count=-1),
        wire.ReclaimServersRequest(request_id="r", count=5_000),
        wire.ReclaimServersRequest(request_id="r", node_ids=["../inf"]),
        wire.ReclaimServersRequest(request_id="r", count=1, force=True),
        wire.ReclaimServersRequest(request_id="r", force=True, token="3f2a9c417d60"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    house: RpcHouse, wrong: wire.ReclaimServersRequest
) -> None:
    stub = LoanServiceStub(house.channel_as("prism", Role.INFERENCE))
    call = stub.ReclaimServers(wrong, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT
    assert not house.control.asked


async def test_a_choice_that_takes_long_is_asked_again_with_what_was_found(house: RpcHouse) -> None:
    choice = Choice((NodeId("inf02"),), 1.0, 1.0)
    demand = Demand({NodeId("inf01"): 8, NodeId("inf02"): 8}, (), 1)
    answers = iter([ToChoose(demand, lambda _demand: choice, "b"), DONE])
    house.control.answers[ReclaimServers] = lambda _ask: next(answers)
    stub = LoanServiceStub(house.channel_as("prism", Role.INFERENCE))
    request = wire.ReclaimServersRequest(request_id="r1", count=1)
    told = await stub.ReclaimServers(request, timeout=DEADLINE_S)
    assert (list(told.plan.node_ids), told.plan.proven) == (["inf02"], True)
    first, second = house.control.asked
    assert isinstance(second, ReclaimServers)
    assert second.found == Found(choice, "b")
    assert isinstance(first, ReclaimServers)
    assert first.found is None
