"""Agents on the wire alone that follow a change of the CA as real ones do: each renews its
certificate when its master says so, hangs up, and dials anew with the ranks that it has.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from grpc import aio, ssl_channel_credentials

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import identity_service_pb2 as identity_wire
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub
from dlq_common.identity.facts import SERVER_NAME
from dlq_common.identity.files import StoredIdentity
from dlq_common.identity.pki import Authority, new_key_and_csr
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import Gpu, Node, NodeState

DEADLINE_S = 60.0
AGAIN_S = (0.2, 1.0)


def name_of(number: int) -> str:
    return f"n{number:04d}"


def joined(count: int) -> list[Node]:
    """The rows of nodes of one GPU that have joined before, and are not there yet."""
    gpus = (Gpu(index=0, gpu_type="h100"),)
    return [
        Node(NodeId(name_of(number)), gpus, virtual=True, state=NodeState.DOWN)
        for number in range(count)
    ]


@dataclass(slots=True)
class FollowingAgent:
    """One node of one GPU, on whose host nothing ever ends."""

    address: str
    name: str
    stored: StoredIdentity
    told: Counter[str]
    jitter_s: float
    connected: bool = False
    _reports: int = 0
    _ranks: dict[tuple[str, int], wire.RankReport] = field(default_factory=dict)

    async def live(self) -> None:
        """Session after session, until it is cancelled."""
        while True:
            with suppress(aio.AioRpcError, asyncio.InvalidStateError):
                await self._session()
            self.connected = False
            await asyncio.sleep(random.uniform(*AGAIN_S))

    async def _session(self) -> None:
        mine = self.stored
        credentials = ssl_channel_credentials(mine.ca, mine.key, mine.certificate)
        options = [
            ("grpc.ssl_target_name_override", SERVER_NAME),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        async with aio.secure_channel(self.address, credentials, options=options) as channel:
            call: Any = AgentServiceStub(channel).Session()
            await call.write(wire.SessionRequest(hello=self._hello()))
            first = await call.read()
            if first is aio.EOF:
                return
            self.connected = True
            self.told["sessions"] += 1
            beating = asyncio.create_task(self._beat(call, first.welcome))
            try:
                while (message := await call.read()) is not aio.EOF:
                    if await self._hear(call, message):
                        await asyncio.sleep(random.uniform(0.0, self.jitter_s))
                        await self._renew(channel)
                        return
            finally:
                beating.cancel()
                call.cancel()

    def _hello(self) -> wire.Hello:
        facts = wire.NodeFacts(hostname=self.name, boot_id="1", virtual_devices=True)
        facts.gpus.add(index=0, gpu_type="h100")
        return wire.Hello(facts=facts, ranks=self._ranks.values())

    async def _beat(self, call: Any, welcome: wire.Welcome) -> None:
        every_s = welcome.heartbeat_duration.ToNanoseconds() / 1e9
        for number in range(1, 1_000_000):
            await asyncio.sleep(every_s if number > 1 else random.uniform(0.0, every_s))
            await call.write(wire.SessionRequest(heartbeat=wire.Heartbeat(sequence=number)))

    async def _hear(self, call: Any, message: wire.SessionResponse) -> bool:
        """Obey; whether it is to renew its certificate."""
        body = message.WhichOneof("body")
        if body == "command" and message.command.WhichOneof("body") == "launch":
            launch = message.command.launch
            self._reports += 1
            report = wire.RankReport(
                sequence=self._reports, job_id=launch.job_id, node_rank=launch.node_rank,
                phase=wire.RANK_PHASE_STARTED, fence=launch.fence, gpu_indexes=launch.gpu_indexes,
            )  # fmt: skip
            self._ranks[launch.job_id, launch.fence.attempt] = report
            taken = wire.CommandResult(sequence=message.command.sequence)
            await call.write(wire.SessionRequest(command_result=taken))
            await call.write(wire.SessionRequest(report=report))
        if body != "heartbeat_reply":
            return False
        reply = message.heartbeat_reply
        other = reply.trust_digest not in ("", hashlib.sha256(self.stored.ca).hexdigest())
        return bool(reply.renewal_wanted or other)

    async def _renew(self, channel: aio.Channel) -> None:
        made = new_key_and_csr(self.name)
        request = identity_wire.RenewCertificateRequest(certificate_request=made.request)
        stub: Any = IdentityServiceStub(channel)
        answer = await stub.RenewCertificate(request, timeout=DEADLINE_S)
        self.stored = StoredIdentity(made.key, answer.certificate, answer.ca_certificates)
        self.told["renewals"] += 1


class FollowingCrowd:
    """Agents `n0000`, `n0001`, ... that the master knows."""

    def __init__(self, address: str, authority: Authority, count: int, jitter_s: float) -> None:
        self.told = Counter[str]()
        ca = authority.certificate_pem()
        self.agents: list[FollowingAgent] = []
        for number in range(count):
            made = new_key_and_csr(name_of(number))
            signed = authority.sign_node(made.request, name_of(number), time.time())
            stored = StoredIdentity(made.key, signed, ca)
            self.agents.append(
                FollowingAgent(address, name_of(number), stored, self.told, jitter_s)
            )
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """All of them dial."""
        self._tasks = [asyncio.create_task(one.live()) for one in self.agents]

    @property
    def connected(self) -> int:
        """So many have a session."""
        return sum(one.connected for one in self.agents)

    def trusting(self, roots: int) -> Sequence[str]:
        """Agents that know so many roots."""
        return [
            one.name for one in self.agents if one.stored.ca.count(b"BEGIN CERTIFICATE") == roots
        ]

    async def close(self) -> None:
        """Hang up. Raises the error that ended an agent."""
        failed = [task for task in self._tasks if task.done()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for task in failed:
            task.result()
