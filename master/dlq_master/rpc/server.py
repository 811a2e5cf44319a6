"""The two TLS servers: the API for those who have a certificate, the join port for new nodes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from dlq.v1.admin_service_pb2_grpc import add_AdminServiceServicer_to_server
from dlq.v1.agent_service_pb2_grpc import add_AgentServiceServicer_to_server
from dlq.v1.forecast_service_pb2_grpc import add_ForecastServiceServicer_to_server
from dlq.v1.identity_service_pb2_grpc import (
    add_IdentityServiceServicer_to_server,
    add_JoinServiceServicer_to_server,
)
from dlq.v1.job_service_pb2_grpc import add_JobServiceServicer_to_server
from dlq.v1.loan_service_pb2_grpc import add_LoanServiceServicer_to_server
from dlq.v1.node_service_pb2_grpc import add_NodeServiceServicer_to_server
from dlq.v1.pool_service_pb2_grpc import add_PoolServiceServicer_to_server
from dlq.v1.queue_service_pb2_grpc import add_QueueServiceServicer_to_server
from dlq.v1.reservation_service_pb2_grpc import add_ReservationServiceServicer_to_server
from dlq.v1.team_service_pb2_grpc import add_TeamServiceServicer_to_server
from dlq.v1.usage_service_pb2_grpc import add_UsageServiceServicer_to_server
from dlq_common.clock import Clock
from dlq_common.identity.pki import Authority, fingerprint
from dlq_common.ids import Ids
from dlq_master.control.loop.ports import Control, Foresight
from dlq_master.rpc.agents.agent_service import AgentService
from dlq_master.rpc.agents.exec_relay import ExecRelay
from dlq_master.rpc.agents.logs_relay import LogsRelay
from dlq_master.rpc.agents.sessions import Sessions
from dlq_master.rpc.audit.audit import Audit
from dlq_master.rpc.calls.auth import Door
from dlq_master.rpc.calls.call import Call, Surround
from dlq_master.rpc.calls.certificate import MasterCertificate
from dlq_master.rpc.calls.errors import Errors
from dlq_master.rpc.calls.limits import CallLimits, check_deadline
from dlq_master.rpc.calls.reads import Slices
from dlq_master.rpc.cluster.admin_service import AdminService
from dlq_master.rpc.cluster.loan_service import LoanService
from dlq_master.rpc.cluster.node_service import NodeService
from dlq_master.rpc.cluster.pool_service import PoolService
from dlq_master.rpc.cluster.queue_service import QueueService
from dlq_master.rpc.cluster.reservation_service import ReservationService
from dlq_master.rpc.cluster.team_service import TeamService
from dlq_master.rpc.cluster.usage_service import UsageService
from dlq_master.rpc.jobs.execs import Execs
from dlq_master.rpc.jobs.forecast_service import ForecastService
from dlq_master.rpc.jobs.job_service import JobService
from dlq_master.rpc.jobs.logs import Logs
from dlq_master.rpc.jobs.watch import Watch
from dlq_master.rpc.people.identity_service import IdentityService
from dlq_master.rpc.people.join_service import JoinService

LARGEST_REQUEST_BYTES = 1024 * 1024
LARGEST_JOIN_BYTES = 64 * 1024
LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
STREAMS_PER_CONNECTION = 256
MOST_JOINS_AT_ONCE = 16

# A connection that has not finished its TLS hello by then is closed.
HANDSHAKE_TIMEOUT_MS = 10_000

# A peer that died without a word is noticed after 5 + 3 s; peers may ask as often about us.
KEEPALIVE: tuple[tuple[str, Any], ...] = (
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    # And so for the pings that measure the line: while one of them is out, none is sent for this.
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 4_000),
    ("grpc.http2.max_ping_strikes", 10),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    # Two masters must never share a port.
    ("grpc.so_reuseport", 0),
)
EVERYWHERE = ("0.0.0.0", "[::]", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Addresses as HOST:PORT; port 0 takes a free one. `advertise` "" = the API's own address."""

    api_address: str
    join_address: str
    advertise: str = ""
    version: str


class MasterServer:
    """Everything that listens for gRPC. `sessions` is the loop's transport: made first, shared."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        control: Control,
        sessions: Sessions,
        authority: Authority,
        audit: Audit,
        clock: Clock,
        ids: Ids,
        foresight: Foresight,
    ) -> None:
        """Bind both ports; nothing is served before `start`. OSError when a port is taken."""
        self._settings = settings
        self._sessions = sessions
        self._health = health.aio.HealthServicer()
        certificate = MasterCertificate(authority, clock)
        door = Door(authority.cluster, lambda: control.published, clock)
        self._api = _api_server(Errors(ids), audit, door)
        self._join = _join_server(Errors(ids), audit)
        self.api_port = bind(self._api, settings.api_address, certificate, mutual=True)
        self.join_port = bind(self._join, settings.join_address, certificate, mutual=False)

        api, relay = self._api, LogsRelay(sessions, ids)
        watch, logs = Watch(control, clock, door), Logs(control, door, relay)
        exec_relay = ExecRelay(sessions, ids)
        execs = Execs(control, door, exec_relay, audit.recorded)
        slices = Slices()
        add_JobServiceServicer_to_server(
            JobService(control, clock, watch, logs, execs, slices), api
        )
        add_NodeServiceServicer_to_server(NodeService(control, slices), api)
        add_QueueServiceServicer_to_server(QueueService(control, clock, settings.version), api)
        add_ForecastServiceServicer_to_server(ForecastService(control, foresight, clock), api)
        add_AdminServiceServicer_to_server(
            AdminService(
                control, clock, ids, fingerprint(authority.certificate_pem()), self.advertised_join
            ),
            api,
        )
        add_ReservationServiceServicer_to_server(ReservationService(control), api)
        add_LoanServiceServicer_to_server(LoanService(control), api)
        add_PoolServiceServicer_to_server(PoolService(control, clock), api)
        add_TeamServiceServicer_to_server(TeamService(control, clock), api)
        add_UsageServiceServicer_to_server(UsageService(control, clock), api)
        add_IdentityServiceServicer_to_server(IdentityService(authority, clock), api)
        add_AgentServiceServicer_to_server(
            AgentService(control, door, sessions, relay, exec_relay), api
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, api)
        add_JoinServiceServicer_to_server(
            JoinService(control, authority, clock, self.advertised), self._join
        )

    @property
    def advertised(self) -> str:
        """HOST:PORT at which others dial the API."""
        return self._settings.advertise or dialled(self._settings.api_address, self.api_port)

    @property
    def advertised_join(self) -> str:
        """HOST:PORT at which new nodes dial the join port: the API's host, where that is told."""
        told = self._settings.advertise or self._settings.join_address
        return dialled(told, self.join_port)

    async def start(self) -> None:
        """Serve."""
        await self._api.start()
        await self._join.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, end the lines to the agents, let other calls end within the grace."""
        await self._health.enter_graceful_shutdown()
        self._sessions.close_all()
        await asyncio.gather(self._api.stop(grace_s), self._join.stop(grace_s))


def _api_server(errors: Errors, audit: Audit, door: Door) -> aio.Server:
    limits = CallLimits()

    @asynccontextmanager
    async def around(call: Call) -> AsyncIterator[None]:
        async with (
            errors.around(call),
            audit.around(call),
            door.around(call),
            audit.accepting(call),
            limits.around(call),
        ):
            yield

    return aio.server(
        interceptors=[Surround(around)],
        options=[
            *KEEPALIVE,
            ("grpc.max_receive_message_length", LARGEST_REQUEST_BYTES),
            ("grpc.max_send_message_length", LARGEST_ANSWER_BYTES),
            ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
        ],
    )


def _join_server(errors: Errors, audit: Audit) -> aio.Server:
    @asynccontextmanager
    async def around(call: Call) -> AsyncIterator[None]:
        async with errors.around(call), audit.around(call), audit.accepting(call):
            check_deadline(call)
            yield

    return aio.server(
        interceptors=[Surround(around)],
        options=[
            *KEEPALIVE,
            ("grpc.max_receive_message_length", LARGEST_JOIN_BYTES),
            ("grpc.max_concurrent_streams", 1),
        ],
        maximum_concurrent_rpcs=MOST_JOINS_AT_ONCE,
    )


def dialled(address: str, port: int) -> str:
    """HOST:PORT for others; a server that listens everywhere is reached by its host's name."""
    host = address.rpartition(":")[0]
    return f"{socket.gethostname() if host in EVERYWHERE else host}:{port}"


def bind(server: aio.Server, address: str, certificate: MasterCertificate, *, mutual: bool) -> int:
    """Take the port and return its number; OSError when it is taken already."""
    try:
        return server.add_secure_port(address, certificate.credentials(mutual=mutual))
    except RuntimeError as error:
        raise OSError(f"cannot listen at {address}: {error}") from None
