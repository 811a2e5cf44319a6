"""Teams over the wire."""

from __future__ import annotations

from dlq.v1 import team_pb2
from dlq.v1 import team_service_pb2 as wire
from dlq.v1.team_service_pb2_grpc import TeamServiceStub
from dlq_client.line.connection import ServiceCalls


class Teams(ServiceCalls[TeamServiceStub]):
    """Teams, their limits and their members."""

    stub_kind = TeamServiceStub

    def list(self, name: str = "") -> wire.ListTeamsResponse:
        """The teams that the caller may see, or that one."""
        return self._connection.call(self.stub.ListTeams, wire.ListTeamsRequest(name=name))

    def set(self, team: team_pb2.Team, *, force: bool = False) -> wire.SetTeamResponse:
        """Add or change a team, the whole of it."""
        return self._change(self.stub.SetTeam, wire.SetTeamRequest(team=team, force=force))

    def delete(self, name: str) -> int:
        """Remove a team; how many of its jobs have not ended."""
        return self._change(self.stub.DeleteTeam, wire.DeleteTeamRequest(name=name)).job_count
