"""The two TLS servers: the API for callers with a certificate, and the join port for new nodes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpc import aio
from grpc_health.v1 import health, health_pb2

from dlq_common.clock import Clock
from dlq_common.daemon.profiles import OwnProfiles
from dlq_common.identity.pki import Role
from dlq_common.ids import Ids
from dlq_master.control.loop.meter import Meter
from dlq_master.control.read_model.job_blocks import BlockNotes
from dlq_master.control.read_model.ports import Control, Foresight
from dlq_master.rpc.agents.exec_relay import ExecRelay
from dlq_master.rpc.agents.logs_relay import LogsRelay
from dlq_master.rpc.agents.sessions import Sessions
from dlq_master.rpc.agents.step_keeper import StepKeeper, StepStore
from dlq_master.rpc.audit.audit import Audit
from dlq_master.rpc.calls.auth import Door
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.call_times import CallTimes
from dlq_master.rpc.calls.certificate import MasterCertificate
from dlq_master.rpc.calls.errors import Errors
from dlq_master.rpc.calls.limits import CallLimits, check_deadline
from dlq_master.rpc.calls.open_calls import OpenCalls
from dlq_master.rpc.calls.parts import Lead, MasterParts
from dlq_master.rpc.calls.passage import Passage
from dlq_master.rpc.calls.reads import Slices
from dlq_master.rpc.calls.roles import GroupGrants
from dlq_master.rpc.calls.surround import Stumble, served
from dlq_master.rpc.links import SignInLinks
from dlq_master.rpc.methods import JOIN_METHODS, JOIN_SERVICE, SERVICES
from dlq_master.rpc.views.event_rows import EventRows
from dlq_master.rpc.views.job_rows import JobRows
from dlq_master.rpc.views.shared_maps import SharedMaps

if TYPE_CHECKING:
    from dlq_master.control.loop.failpoints import Failpoints
    from dlq_master.relay.child import RelayChild
    from dlq_master.rpc.calls.signs import Signs
    from dlq_master.rpc.specs.hooked import SubmitHooks

LARGEST_REQUEST_BYTES = 5 * 1024 * 1024  # a script of 4 MiB, and all else of a spec
LARGEST_JOIN_BYTES = 64 * 1024
LARGEST_ANSWER_BYTES = 512 * 1024 * 1024  # of a welcome: an agent hears of all its jobs
STREAMS_PER_CONNECTION = 256
MOST_JOINS_AT_ONCE = 16

# A connection that has not finished its TLS hello by then is closed.
HANDSHAKE_TIMEOUT_MS = 10_000

# A peer that died without a word is noticed after 5 + 3 s; peers may ask as often about us.
KEEPALIVE: tuple[tuple[str, Any], ...] = (
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    # Also for the pings that measure the line: while one is out, no keepalive ping is sent.
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 4_000),
    ("grpc.http2.max_ping_strikes", 10),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    # Two masters must never share a port.
    ("grpc.so_reuseport", 0),
)
API_OPTIONS = (
    *KEEPALIVE,
    ("grpc.max_receive_message_length", LARGEST_REQUEST_BYTES),
    ("grpc.max_send_message_length", LARGEST_ANSWER_BYTES),
    ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
)
JOIN_OPTIONS = (
    *KEEPALIVE,
    ("grpc.max_receive_message_length", LARGEST_JOIN_BYTES),
    ("grpc.max_concurrent_streams", 1),
)
EVERYWHERE = ("0.0.0.0", "[::]", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Addresses as HOST:PORT; port 0 takes a free one. `advertise` "": the API's own address."""

    api_address: str
    join_address: str
    advertise: str = ""
    masters: tuple[str, ...] = ()  # others dial all of them, where a standby is
    version: str
    web_may_act_for: tuple[str, ...] = (Role.USER.value,)
    web_address: str = ""
    web_certificates_s: float = 0.0
    relay_address: str = ""  # HOST:PORT; "" = beside the API
    relay_advertise: str = ""  # HOST:PORT that others dial; port 0 = the relay's own
    group_grants: GroupGrants = GroupGrants()  # noqa: RUF009 - it is a value


class MasterServer:
    """The gRPC ports of the master. `sessions` is also the loop's transport, so it is
    made before.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        control: Control,
        sessions: Sessions,
        authority: Signs,
        audit: Audit,
        clock: Clock,
        ids: Ids,
        foresight: Foresight,
        steps: StepStore,
        meter: Meter,
        lead: Lead | None = None,
        hooks: SubmitHooks | None = None,
        relay: type[RelayChild] | None = None,
        failpoints: Failpoints | None = None,
    ) -> None:
        """Bind both ports; nothing is served before `start`. OSError: a port is taken."""
        stumble = failpoints.stumble if failpoints and failpoints.staggers else None
        self._settings = settings
        self._sessions = sessions
        self.lead, self.hooks = lead, hooks
        self._health = health.aio.HealthServicer()
        self._profiles = OwnProfiles(clock)
        certificate = MasterCertificate(authority, clock)
        self._execs = ExecRelay(sessions, ids, self._relay_beside(relay, certificate))
        door = Door(
            authority.cluster,
            lambda: control.published,
            clock,
            settings.web_may_act_for,
            certificates=settings.web_certificates_s > 0,
            grants=settings.group_grants,
        )
        door.signs = authority
        self.door, self.check_member = door, door.check_member
        self._api = aio.server(options=API_OPTIONS)
        self._join = aio.server(options=JOIN_OPTIONS, maximum_concurrent_rpcs=MOST_JOINS_AT_ONCE)
        self.api_port = bind(self._api, settings.api_address, certificate, mutual=True)
        self.join_port = bind(self._join, settings.join_address, certificate, mutual=False)
        self.open_calls = OpenCalls(door.check_member, lambda: control.published.note_lost_rights())
        self.links = SignInLinks(clock)
        rows, slices = JobRows(), Slices()
        parts = MasterParts(
            control=control,
            clock=clock,
            ids=ids,
            authority=authority,
            foresight=foresight,
            sessions=sessions,
            logs=LogsRelay(sessions, ids),
            execs=self._execs,
            profiles=self._profiles,
            meter=meter,
            steps=StepKeeper(steps),
            slices=slices,
            rows=rows,
            notes=BlockNotes(),
            events=EventRows(rows),
            maps=SharedMaps(clock),
            links=self.links,
            check_member=door.check_member,
            open_calls=self.open_calls,
            record=audit.recorded,
            audit=audit.search,
            health=self._health,
            lead=lead,
            hooks=hooks,
            version=settings.version,
            web_address=settings.web_address,
            web_certificates_s=settings.web_certificates_s,
            api_address=self.advertised,
            join_address=self.advertised_join,
        )
        self.times = CallTimes(clock.boottime_s)
        self._serve_methods(parts, audit, slices, stumble)

    def _serve_methods(
        self, parts: MasterParts, audit: Audit, slices: Slices, stumble: Stumble | None
    ) -> None:
        """Register the methods of both ports, each with the steps around it (`passage`)."""
        door, errors, limits = self.door, Errors(parts.ids), CallLimits(slices)
        around = (self.times, self.open_calls)
        passage = Passage(
            errors, audit, door.let_in, limits.enter, limits.leave, *around, door.account_due
        )
        self._api.add_generic_rpc_handlers(
            [
                served(service, methods, passage, parts, stumble)
                for service, methods in SERVICES.items()
            ]
        )
        # A joining node has no certificate yet; its calls need a deadline all the same.
        passage = Passage(errors, audit, _let_anyone_in, _with_deadline, _let_anyone_in, *around)
        self._join.add_generic_rpc_handlers([served(JOIN_SERVICE, JOIN_METHODS, passage, parts)])

    @property
    def advertised(self) -> str:
        """HOST:PORT at which others dial the API; those of all masters, separated by commas."""
        if self._settings.masters:
            return ",".join(self._settings.masters)
        return self._settings.advertise or dialled(self._settings.api_address, self.api_port)

    @property
    def advertised_join(self) -> str:
        """HOST:PORT at which new nodes dial the join port."""
        told = self._settings.advertise or self._settings.join_address
        return dialled(told, self.join_port)

    def _relay_beside(
        self, kind: type[RelayChild] | None, certificate: MasterCertificate
    ) -> Callable[[], RelayChild] | None:
        """A function that makes the keeper of the relay; None: there is no relay."""
        if kind is None:
            return None
        settings = self._settings
        host, _, port = settings.api_address.rpartition(":")
        # Behind the ports of the API, of joins, and mostly of the metrics.
        own = f"{host}:{int(port) and int(port) + 3}"
        advertise = settings.relay_advertise
        if not advertise and settings.masters:
            advertise = dialled(settings.advertise or settings.api_address, 0)
        return lambda: kind(settings.relay_address or own, advertise, certificate.shown)

    async def start(self) -> None:
        """Begin to serve."""
        await self._api.start()
        await self._join.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, end the agents' sessions, and give other calls `grace_s` seconds to
        end.
        """
        await self._health.enter_graceful_shutdown()
        self._execs.leave()
        self._profiles.leave()
        self._sessions.close_all()
        await asyncio.gather(self._api.stop(grace_s), self._join.stop(grace_s))
        await self._execs.close()


def _let_anyone_in(_call: Call) -> None:
    """A joining node has no identity yet."""


async def _with_deadline(call: Call) -> None:
    check_deadline(call)


def dialled(address: str, port: int) -> str:
    """HOST:PORT for others. A server that listens at all addresses is reached by its
    host's name.
    """
    host = address.rpartition(":")[0]
    return f"{socket.gethostname() if host in EVERYWHERE else host}:{port}"


def bind(server: aio.Server, address: str, certificate: MasterCertificate, *, mutual: bool) -> int:
    """Take the port and return its number. OSError: it is taken already."""
    try:
        return server.add_secure_port(address, certificate.credentials(mutual=mutual))
    except RuntimeError as error:
        raise OSError(f"cannot listen at {address}: {error}") from None
