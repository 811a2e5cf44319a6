"""The policy over real mutual TLS: shown, set, set twice, refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from dlq.v1 import admin_service_pb2 as wire
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq_common.identity.pki import Role
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


async def test_it_is_shown_with_what_could_be_and_the_planner(house: RpcHouse) -> None:
    admins = AdminServiceStub(house.channel_as("olga", Role.OPERATOR))
    told = await admins.GetPolicy(wire.GetPolicyRequest(), timeout=DEADLINE_S)
    assert (told.policy.policy, told.file_policy.policy) == ("fifo", "fifo")
    assert "tiresias-las" in {preset.policy for preset in told.presets}
    assert (told.planner.state, told.planner.failure_count) == ("resting", 1)
    assert told.planner.rest_duration.seconds == 1


async def test_it_is_set_and_stands_in_the_audit(house: RpcHouse) -> None:
    admins = AdminServiceStub(house.channel_as("root", Role.ADMIN))
    asked = wire.SetPolicyRequest(request_id="p1", policy="srtf", settings={"place": "spread"})
    answer = await admins.SetPolicy(asked, timeout=DEADLINE_S)
    assert (answer.policy.policy, dict(answer.policy.settings)) == ("srtf", {"place": "spread"})
    assert answer.policy.set_by == "root"
    house.audit.close()
    assert '"object":"srtf"' in house.audit_path.read_text().replace(" ", "")


@pytest.mark.parametrize(
    "asked",
    [
        wire.SetPolicyRequest(request_id="p1"),
        wire.SetPolicyRequest(request_id="p1", policy="fifo", from_file=True),
        wire.SetPolicyRequest(request_id="p1", policy="fifo", settings={"k": "v" * 5_000}),
        wire.SetPolicyRequest(
            request_id="p1", policy="fifo", settings={str(number): "" for number in range(65)}
        ),
    ],
)
async def test_what_makes_no_sense_is_refused(
    house: RpcHouse, asked: wire.SetPolicyRequest
) -> None:
    admins = AdminServiceStub(house.channel_as("root", Role.ADMIN))
    assert (
        await refusal(admins.SetPolicy(asked, timeout=DEADLINE_S))
        is grpc.StatusCode.INVALID_ARGUMENT
    )
    assert house.control.published.policy == "fifo"
