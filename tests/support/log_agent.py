"""An agent before the master's real door that answers OpenLog with the pieces it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq_common.identity.pki import Role
from support.rpc_house import DEADLINE_S, RpcHouse, refusal


class LogAgent:
    """The agent of one node."""

    def __init__(self, house: RpcHouse, node_id: str = "gpu01") -> None:
        self.stub = AgentServiceStub(house.channel_as(node_id, Role.NODE))
        self.session: Any = self.stub.Session()

    async def connect(self) -> None:
        facts = wire.NodeFacts(boot_id="b")
        await self.session.write(wire.SessionRequest(hello=wire.Hello(facts=facts)))
        await self.session.read()

    async def asked(self, patience_s: float | None = DEADLINE_S) -> wire.OpenLogCommand:
        message = await asyncio.wait_for(self.session.read(), patience_s)
        assert message.command.sequence == 0, "answered by PushLog, not by CommandResult"
        command = message.command.open_log
        assert isinstance(command, wire.OpenLogCommand)
        return command

    async def push(self, relay_id: str, *pieces: wire.PushLogRequest) -> grpc.StatusCode:
        async def requests() -> AsyncIterator[wire.PushLogRequest]:
            for piece in pieces:
                piece.relay_id = relay_id
                yield piece

        return await refusal(self.stub.PushLog(requests(), timeout=DEADLINE_S))


def piece(offset: int, data: bytes, *, end: bool = False) -> wire.PushLogRequest:
    """A piece of output."""
    return wire.PushLogRequest(offset=offset, data=data, end=end)
