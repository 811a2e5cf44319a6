"""The ports of a standby: it refuses every call with the leader's address, and changes nothing.

The refusal is NOT_LEADER. Clients then repeat the call at the leader, with the same key. So do
nodes that want to join. One call is answered: GetLeader tells operators what this standby has read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc
from grpc import aio
from grpc_status import rpc_status

from dlq.v1 import admin_service_pb2 as wire
from dlq_common.clock import Clock, SteadyClock
from dlq_common.errors import DlqError, NotLeader, PermissionDenied
from dlq_master.leader.lease import MasterPart
from dlq_master.rpc.calls.auth import Door, identity_of
from dlq_master.rpc.calls.call import Context
from dlq_master.rpc.calls.certificate import MasterCertificate
from dlq_master.rpc.calls.errors import status_of
from dlq_master.rpc.calls.roles import OPERATORS
from dlq_master.rpc.server import API_OPTIONS, JOIN_OPTIONS, bind
from dlq_master.rpc.views.convert import part_message

if TYPE_CHECKING:
    from dlq_master.rpc.calls.signs import Signs


_ANSWERED: Final = "/dlq.v1.AdminService/GetLeader"


class StandbyFacts(NamedTuple):
    """The answer to GetLeader. `door` knows the users whose rows this standby has read."""

    door: Door
    part: Callable[[], MasterPart]

    async def answer(self, request: object, context: Context) -> wire.GetLeaderResponse:
        """The answer. PermissionDenied or Unauthenticated, as at a leader."""
        del request
        identity = identity_of(context)
        self.door.check_member(identity)
        if identity.role not in OPERATORS:
            raise PermissionDenied(f"the role {identity.role} may not call GetLeader")
        now_s = SteadyClock().now_s()
        return wire.GetLeaderResponse(master=part_message(self.part(), now_s))


class StandbyServer:
    """Listens where the master will serve. `leader` returns its address; "": unknown."""

    def __init__(
        self,
        api_address: str,
        join_address: str,
        authority: Signs,
        clock: Clock,
        leader: Callable[[], str],
        facts: StandbyFacts | None = None,
    ) -> None:
        """Bind both ports. OSError: one is taken."""
        certificate = MasterCertificate(authority, clock)
        self._servers = (aio.server(options=API_OPTIONS), aio.server(options=JOIN_OPTIONS))
        api, join = self._servers
        api.add_generic_rpc_handlers([_Refusing(leader, facts)])
        join.add_generic_rpc_handlers([_Refusing(leader)])
        self.api_port = bind(api, api_address, certificate, mutual=True)
        self.join_port = bind(join, join_address, certificate, mutual=False)

    async def start(self) -> None:
        """Begin to refuse calls."""
        for server in self._servers:
            await server.start()

    async def stop(self) -> None:
        """Free the ports at once: no call waits for an answer."""
        await asyncio.gather(*(server.stop(None) for server in self._servers))


def not_leader(leader: str) -> NotLeader:
    """The refusal, with the leader's address as a fact."""
    if leader:
        return NotLeader(f"the master at {leader} leads, and this one stands by", leader=leader)
    return NotLeader("this master stands by, and no master leads yet")


class _Refusing(grpc.GenericRpcHandler):
    """Refuses every method of every service; it handles them as streams, which fits all four kinds
    of calls.
    """

    def __init__(self, leader: Callable[[], str], facts: StandbyFacts | None = None) -> None:
        self._leader, self._facts = leader, facts

    def service(self, handler_call_details: Any) -> Any:
        if self._facts is not None and handler_call_details.method == _ANSWERED:
            return grpc.unary_unary_rpc_method_handler(
                self._answer,
                request_deserializer=wire.GetLeaderRequest.FromString,
                response_serializer=wire.GetLeaderResponse.SerializeToString,
            )
        return grpc.stream_stream_rpc_method_handler(self._refuse)

    async def _refuse(self, requests: object, context: aio.ServicerContext[bytes, bytes]) -> None:
        del requests
        await context.abort_with_status(rpc_status.to_status(status_of(not_leader(self._leader()))))

    async def _answer(self, request: object, context: Context) -> wire.GetLeaderResponse:
        assert self._facts is not None
        try:
            return await self._facts.answer(request, context)
        except DlqError as error:
            await context.abort_with_status(rpc_status.to_status(status_of(error)))
            raise
