"""Teams: their members, their rules, and their use."""

from __future__ import annotations

from dlq.v1 import team_service_pb2 as wire
from dlq.v1.team_service_pb2_grpc import TeamServiceServicer
from dlq_common.clock import Clock
from dlq_common.errors import NotFound
from dlq_master.control.loop.ports import Control
from dlq_master.control.stimuli import DeleteTeam, SetTeam, TeamSet
from dlq_master.model.jobs.accounts import account_of
from dlq_master.rpc.calls.auth import caller_of
from dlq_master.rpc.calls.call import Context
from dlq_master.rpc.specs.intake import team_name_of
from dlq_master.rpc.specs.spec import check_request_id
from dlq_master.rpc.views.team_view import member_message, team_message, team_of_message
from dlq_master.store.tables.tenants import Member


class TeamService(TeamServiceServicer):
    """dlq.v1.TeamService. The door has looked at the role; here at what is asked."""

    def __init__(self, control: Control, clock: Clock) -> None:
        self._control = control
        self._clock = clock

    async def ListTeams(
        self, request: wire.ListTeamsRequest, context: Context
    ) -> wire.ListTeamsResponse:
        read, caller = self._control.published, caller_of(context)
        teams = [
            team
            for team in read.teams()
            if (caller.sees_all or team.member(caller.name) is not None)
            and request.name in ("", team.name)
        ]
        if request.name and not teams:
            raise NotFound(f"there is no team {request.name}", kind="team", id=request.name)
        uses = read.team_uses(self._clock.now_s())
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

    async def SetTeam(self, request: wire.SetTeamRequest, context: Context) -> wire.SetTeamResponse:
        answer = await self._control.ask(
            SetTeam(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                team=team_of_message(request.team),
                force=request.force,
            )
        )
        assert isinstance(answer, TeamSet)
        uses = self._control.published.team_uses(self._clock.now_s())
        return wire.SetTeamResponse(team=team_message(answer.team, uses), notices=answer.notices)

    async def DeleteTeam(
        self, request: wire.DeleteTeamRequest, context: Context
    ) -> wire.DeleteTeamResponse:
        left = await self._control.ask(
            DeleteTeam(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                name=team_name_of(request.name, "name"),
            )
        )
        return wire.DeleteTeamResponse(job_count=left)
