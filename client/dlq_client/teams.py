"""Teams over the wire."""

from __future__ import annotations

from dlq.v1 import team_pb2
from dlq.v1 import team_service_pb2 as wire
from dlq.v1.team_service_pb2_grpc import TeamServiceStub
from dlq_client.line.connection import Connection


class Teams:
    """Each method raises a DlqError when the master refuses."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.stub = TeamServiceStub(connection.channel)

    def list(self, name: str = "") -> wire.ListTeamsResponse:
        """The teams that the caller may see, or that one."""
        return self._connection.call(self.stub.ListTeams, wire.ListTeamsRequest(name=name))

    def set(self, team: team_pb2.Team, *, force: bool = False) -> wire.SetTeamResponse:
        """Add or change a team, the whole of it."""
        request_id = self._connection.ids.request_id()
        request = wire.SetTeamRequest(request_id=request_id, team=team, force=force)
        return self._connection.call(self.stub.SetTeam, request)

    def delete(self, name: str) -> int:
        """Remove a team; how many of its jobs have not ended."""
        request = wire.DeleteTeamRequest(request_id=self._connection.ids.request_id(), name=name)
        return self._connection.call(self.stub.DeleteTeam, request).job_count
