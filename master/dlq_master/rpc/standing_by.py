"""The ports of a master that does not lead: every call is refused with the leader's address.

It does nothing, knows nobody and reads nothing. The refusal is NOT_LEADER, of the class that
clients repeat: they dial the named master, with the same key. A node that wants to join hears the
same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio
from grpc_status import rpc_status

from dlq_common.clock import Clock
from dlq_common.errors import NotLeader
from dlq_master.rpc.calls.certificate import MasterCertificate
from dlq_master.rpc.calls.errors import status_of
from dlq_master.rpc.server import API_OPTIONS, JOIN_OPTIONS, bind

if TYPE_CHECKING:
    from dlq_master.rpc.calls.signs import Signs


class StandbyServer:
    """Listens where the master will serve. `leader` tells its address, "" when it is unknown."""

    def __init__(
        self,
        api_address: str,
        join_address: str,
        authority: Signs,
        clock: Clock,
        leader: Callable[[], str],
    ) -> None:
        """Bind both ports. OSError when one is taken."""
        certificate = MasterCertificate(authority, clock)
        self._servers = (aio.server(options=API_OPTIONS), aio.server(options=JOIN_OPTIONS))
        for server in self._servers:
            server.add_generic_rpc_handlers([_Refusing(leader)])
        api, join = self._servers
        self.api_port = bind(api, api_address, certificate, mutual=True)
        self.join_port = bind(join, join_address, certificate, mutual=False)

    async def start(self) -> None:
        """Refuse from now on."""
        for server in self._servers:
            await server.start()

    async def stop(self) -> None:
        """Free the ports at once: nobody waits for an answer."""
        await asyncio.gather(*(server.stop(None) for server in self._servers))


def not_leader(leader: str) -> NotLeader:
    """The refusal, with the leader's address as a fact."""
    if leader:
        return NotLeader(f"the master at {leader} leads, and this one stands by", leader=leader)
    return NotLeader("this master stands by, and no master leads yet")


class _Refusing(grpc.GenericRpcHandler):
    """Every method of every service, as a stream: that fits calls of all four kinds."""

    def __init__(self, leader: Callable[[], str]) -> None:
        self._leader = leader

    def service(self, handler_call_details: Any) -> Any:
        del handler_call_details
        return grpc.stream_stream_rpc_method_handler(self._refuse)

    async def _refuse(self, requests: object, context: aio.ServicerContext[bytes, bytes]) -> None:
        del requests
        await context.abort_with_status(rpc_status.to_status(status_of(not_leader(self._leader()))))
