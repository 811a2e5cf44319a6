"""The parts of the master that handlers of calls use. The server makes them once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dlq_common.clock import Clock
from dlq_common.daemon.profiles import OwnProfiles
from dlq_common.identity.pki import CertifiedIdentity
from dlq_common.ids import Ids
from dlq_master.control.loop.meter import Meter
from dlq_master.control.read_model.job_blocks import BlockNotes
from dlq_master.control.read_model.ports import Control, Foresight
from dlq_master.rpc.agents.exec_relay import ExecRelay
from dlq_master.rpc.agents.logs_relay import LogsRelay
from dlq_master.rpc.agents.sessions import Sessions
from dlq_master.rpc.agents.step_keeper import StepKeeper
from dlq_master.rpc.calls.open_calls import OpenCalls
from dlq_master.rpc.calls.reads import Slices
from dlq_master.rpc.links import SignInLinks
from dlq_master.rpc.views.event_rows import EventRows
from dlq_master.rpc.views.job_rows import JobRows
from dlq_master.rpc.views.shared_maps import SharedMaps

if TYPE_CHECKING:
    from dlq_master.leader.lease import MasterPart
    from dlq_master.rpc.calls.signs import Signs
    from dlq_master.rpc.specs.hooked import SubmitHooks


class Record(Protocol):
    """Writes a line into the audit, and waits until it is on disk (audit.py)."""

    def __call__(
        self, who: CertifiedIdentity | None, method: str, about: str, decision: str, peer: str = ""
    ) -> Awaitable[None]: ...


class AuditReader(Protocol):
    """Finds lines of the audit (audit/search.py)."""

    def find(self, wanted: Any, place: str, most: int) -> Awaitable[Any]: ...


class Lead(Protocol):
    """The part of this master among several (taking_part.py)."""

    def part(self) -> MasterPart:
        """Its present part."""
        ...

    async def ready(self) -> Sequence[str]:
        """The standbys that have read all turns. Unavailable: there is none."""
        ...

    def step_down(self, epoch: int) -> None:
        """Let another master lead once the answer is sent, if this is still the epoch."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterParts:
    """Everything but the request on which the answer to a call depends."""

    control: Control
    clock: Clock
    ids: Ids
    authority: Signs
    foresight: Foresight
    sessions: Sessions
    logs: LogsRelay
    execs: ExecRelay
    profiles: OwnProfiles
    meter: Meter
    steps: StepKeeper
    slices: Slices
    rows: JobRows
    notes: BlockNotes
    events: EventRows
    maps: SharedMaps
    links: SignInLinks
    check_member: Callable[[CertifiedIdentity], object]  # Door.check_member, for long streams
    open_calls: OpenCalls
    record: Record
    audit: AuditReader
    health: Any  # gRPC's own servicer
    lead: Lead | None  # None: there is no other master
    hooks: SubmitHooks | None  # None: the operator has none
    version: str
    web_address: str  # of the web server for all; "": there is none
    web_certificates_s: float  # the life of certificates that it may give to users; 0: none
    api_address: str  # HOST:PORT, as others dial it
    join_address: str
