"""Teams over real mutual TLS: set, listed by whom they concern, refused with the field that is
wrong.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from dlq.v1 import team_pb2
from dlq.v1 import team_service_pb2 as wire
from dlq.v1.team_service_pb2_grpc import TeamServiceStub
from dlq_common.identity.pki import Role
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


def vision() -> team_pb2.Team:
    members = [team_pb2.TeamMember(user="alice", rules=team_pb2.TeamRules(gpu_limit=4))]
    rules = team_pb2.TeamRules(gpu_quota=8, share=2.0)
    return team_pb2.Team(name="vision", rules=rules, guaranteed_gpu_quota=0, members=members)


async def test_who_is_in_no_team_sees_none_and_operators_see_all(house: RpcHouse) -> None:
    admins = TeamServiceStub(house.channel_as("root", Role.ADMIN))
    asked = wire.SetTeamRequest(request_id="t1", team=vision())
    stored = (await admins.SetTeam(asked, timeout=DEADLINE_S)).team
    assert (stored.rules.gpu_quota, stored.rules.HasField("gpu_limit")) == (8, False)
    assert stored.HasField("guaranteed_gpu_quota"), "0 is not the same as nothing"
    for name, role, seen in (
        ("alice", Role.USER, ["vision"]),
        ("bob", Role.USER, []),
        ("olga", Role.OPERATOR, ["vision"]),
    ):
        users = TeamServiceStub(house.channel_as(name, role))
        answer = await users.ListTeams(wire.ListTeamsRequest(), timeout=DEADLINE_S)
        assert [team.name for team in answer.teams] == seen
    users = TeamServiceStub(house.channel_as("bob", Role.USER))
    call = users.ListTeams(wire.ListTeamsRequest(name="vision"), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    "wrong",
    [
        team_pb2.Team(name="Vision!"),
        team_pb2.Team(name="v", rules=team_pb2.TeamRules(gpu_quota=-1)),
        team_pb2.Team(name="v", rules=team_pb2.TeamRules(gpu_quota=8, gpu_limit=4)),
        team_pb2.Team(name="v", rules=team_pb2.TeamRules(share=0.0)),
        team_pb2.Team(name="v", members=[team_pb2.TeamMember(user="a/b")]),
        team_pb2.Team(name="v", members=[team_pb2.TeamMember(user="ann")] * 2),
    ],
)
async def test_what_makes_no_sense_is_refused(house: RpcHouse, wrong: team_pb2.Team) -> None:
    admins = TeamServiceStub(house.channel_as("root", Role.ADMIN))
    call = admins.SetTeam(wire.SetTeamRequest(request_id="t1", team=wrong), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT
    assert not house.control.published.all_teams


async def test_only_admins_change_teams(house: RpcHouse) -> None:
    operators = TeamServiceStub(house.channel_as("olga", Role.OPERATOR))
    asked = wire.SetTeamRequest(request_id="t1", team=vision())
    call = operators.SetTeam(asked, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED
