"""One incoming call, as its handler and the steps around it see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypedDict, TypeVar

from google.protobuf.message import Message
from grpc import aio

from dlq_common.errors import DlqError, InvalidRequest
from dlq_common.identity.pki import CertifiedIdentity
from dlq_common.text.names import shown
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Answered, Caller
from dlq_master.control.stimuli.audit_note import AuditNote
from dlq_master.rpc.calls.parts import MasterParts
from dlq_master.rpc.calls.reads import Breathe
from dlq_master.rpc.calls.roles import RpcMethod
from dlq_master.rpc.specs.spec import check_request_id

# Requests and responses differ from method to method; here they are only passed on.
Context: TypeAlias = "aio.ServicerContext[Any, Any]"
A = TypeVar("A")
# Pages of long lists.
DEFAULT_PAGE = 1_000
LARGEST_PAGE = 10_000
LARGEST_POSITION = 2**63 - 2  # the one after it is still an integer of the database


class Signed(TypedDict):
    """The checked fields of every request for a change."""

    caller: Caller
    request_id: str


class _Signed(Protocol):
    request_id: str


@dataclass(slots=True)
class Call:
    """A call. The steps around it fill in its fields."""

    path: str  # "/dlq.v1.JobService/SubmitJob"
    method: RpcMethod
    context: Context
    streaming: bool  # in either direction
    parts: MasterParts
    request: Message | None = None  # of a client that streams the first, once it has come
    response: Message | None = None  # set when one answer was made
    identity: CertifiedIdentity | None = None  # set once the certificate has been read
    let_in: Caller | None = None  # set once the door has looked the identity up
    note: AuditNote | None = None  # of a change, from its first moment
    hook: str = ""  # what a hook has done to the job that is submitted
    cut: DlqError | None = None  # why it was ended from outside (open_calls.py)
    writing: bool = False  # gRPC has an answer of its stream, and has not come back for the next

    @property
    def caller(self) -> Caller:
        """The caller by the certificate. Only for calls that the door has let in."""
        assert self.let_in is not None
        return self.let_in

    @property
    def read(self) -> Published:
        """The state of the last commit. Unavailable: this master may not lead any more."""
        return self.parts.control.current()

    @property
    def now_s(self) -> float:
        """The time on the master's axis."""
        return self.parts.clock.now_s()

    def signed(self, request: _Signed) -> Signed:
        """The caller, and the checked request id of a change."""
        return {"caller": self.caller, "request_id": check_request_id(request.request_id)}

    async def ask(self, stimulus: Answered[A]) -> A:
        """Send a stimulus to the loop, and wait for its answer."""
        return await self.parts.control.ask(stimulus)

    def check_member(self) -> None:
        """Unauthenticated once the caller is removed. Long streams call it from time to time."""
        assert self.identity is not None
        self.parts.check_member(self.identity)

    def breathe(self) -> Breathe:
        """A function that lets other callers run while a long answer is made (`reads`)."""
        return self.parts.slices.of(self.caller.name)


def page_size_of(asked: int) -> int:
    """The size of a page: 0 means the default, and the maximum is the limit."""
    if asked < 0:
        raise InvalidRequest("page_size is negative", field="page_size")
    return min(asked or DEFAULT_PAGE, LARGEST_PAGE)


def position_of(token: str) -> int:
    """The page token of a list by number: the last number shown, or 0."""
    if not token:
        return 0
    if not (token.isascii() and token.isdecimal() and len(token) <= 19) or (
        int(token) > LARGEST_POSITION
    ):
        raise InvalidRequest(f"{shown(token)} is not a page token", field="page_token")
    return int(token)
