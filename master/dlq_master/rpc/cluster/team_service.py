"""Teams: their members, their rules, and their use."""

from __future__ import annotations

from dlq.v1 import team_service_pb2 as wire
from dlq_common.errors import NotFound
from dlq_master.control.stimuli import DeleteTeam, SetTeam
from dlq_master.model.jobs.accounts import account_of
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.specs.intake import team_name_of
from dlq_master.rpc.views.team_view import member_message, team_message, team_of_message
from dlq_master.store.tables.tenants import Member


async def list_teams(call: Call, request: wire.ListTeamsRequest) -> wire.ListTeamsResponse:
    read, caller = call.read, call.caller
    teams = [
        team
        for team in read.teams()
        if (caller.sees_all or team.member(caller.name) or caller.is_given(team.name))
        and request.name in ("", team.name)
    ]
    if request.name and not teams:
        raise NotFound(f"there is no team {request.name}", kind="team", id=request.name)
    uses = read.team_uses(call.now_s)
    answer = wire.ListTeamsResponse(
        teams=[team_message(team, uses) for team in teams], notice=read.team_notice()
    )
    if caller.sees_all and not request.name:
        alone = sorted(name for name in uses if "/" not in name)
        alone = [name for name in alone if account_of("", name) in uses]
        known = {team.name for team in teams}
        answer.others.extend(
            member_message(name, Member(name), uses) for name in alone if name not in known
        )
    return answer


async def set_team(call: Call, request: wire.SetTeamRequest) -> wire.SetTeamResponse:
    answer = await call.ask(
        SetTeam(**call.signed(request), team=team_of_message(request.team), force=request.force)
    )
    uses = call.read.team_uses(call.now_s)
    return wire.SetTeamResponse(team=team_message(answer.team, uses), notices=answer.notices)


async def delete_team(call: Call, request: wire.DeleteTeamRequest) -> wire.DeleteTeamResponse:
    left = await call.ask(
        DeleteTeam(**call.signed(request), name=team_name_of(request.name, "name"))
    )
    return wire.DeleteTeamResponse(job_count=left)
