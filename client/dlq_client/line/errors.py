"""The failed call as one of our own errors.

Decided by the reason word in google.rpc.ErrorInfo, else by the status code; never by the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc

from dlq_common.clock import clock_doubt
from dlq_common.errors import (
    DOMAIN,
    AlreadyExists,
    AuditUnavailable,
    Conflict,
    DlqError,
    IllegalTransition,
    InternalError,
    InvalidRequest,
    NotFound,
    NotLeader,
    PermissionDenied,
    TryAgain,
    Unauthenticated,
    Unavailable,
    error_from,
)

_DETAILS_KEY = "grpc-status-details-bin"

# The line broke, the answer got lost, or a master that stops has cut it off: the same request may
# be repeated. The one call that is cancelled here, a command in a job that is left, is never
# repeated.
LOST = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
    }
)

# Limits on what one user may have on its way at a time (the master's rpc/calls/limits.py).
CROWDED = frozenset({"reads", "forecasts", "changes"})

_BY_CODE: Mapping[grpc.StatusCode, type[DlqError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.ABORTED: Conflict,
    grpc.StatusCode.FAILED_PRECONDITION: IllegalTransition,
    grpc.StatusCode.RESOURCE_EXHAUSTED: TryAgain,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: Unavailable,
    grpc.StatusCode.CANCELLED: Unavailable,
}

# The words of gRPC where no connection was made, so that no byte of the call was sent.
_NO_CONNECTION = "failed to connect to all addresses"

_Failed: TypeAlias = "grpc.Call | grpc.aio.AioRpcError"


@dataclass(slots=True)
class _Details:
    reason: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    violations: list[tuple[str, str]] = field(default_factory=list)


def is_lost(error: grpc.RpcError) -> bool:
    """Whether the master may not have seen the request, or its answer did not arrive."""
    call = _call(error)
    if call is None or call.code() not in LOST:
        return False
    return _details(call).reason != AuditUnavailable.reason  # its word: a repeat finds the same


def did_nothing(error: grpc.RpcError) -> bool:
    """Whether a lost call cannot have begun anything: it never left this host, or its master does
    not lead, or says so. A repeat is then no second time.
    """
    call = _call(error)
    if call is None or call.code() is not grpc.StatusCode.UNAVAILABLE:
        return False
    details = _details(call)
    if not details.reason:
        return (call.details() or "").startswith(_NO_CONNECTION)
    return details.reason == NotLeader.reason or details.facts.get("command") == "not begun"


def is_crowded(error: DlqError) -> bool:
    """Whether it was refused, and nothing done, only because others of the same user were on their
    way.
    """
    return isinstance(error, TryAgain) and error.metadata.get("limit") in CROWDED


def is_deadline(error: grpc.RpcError) -> bool:
    """Whether the call ended because its own time was over."""
    call = _call(error)
    return call is not None and call.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def from_rpc_error(error: grpc.RpcError, address: str) -> DlqError:
    """The failure as a DlqError; `address` names the master in words about the line."""
    call = _call(error)
    if call is None:
        return Unavailable(f"the call to the master at {address} failed: {error}")
    code, message = call.code(), call.details() or ""
    details = _details(call)
    if details.reason:
        hint = details.facts.pop("hint", "")
        failure = error_from(details.reason, message, details.facts, hint)
        return _with_field(failure, details.violations)
    if code in LOST:
        return _lost(code, message, address)
    kind = _BY_CODE.get(code, InternalError)
    failure = kind(message or code.name.lower())
    return _with_field(failure, details.violations)


def _call(error: grpc.RpcError) -> _Failed | None:
    """The error as the call that failed, which it is in fact (the stubs do not say so)."""
    candidate: object = error
    return candidate if isinstance(candidate, (grpc.Call, grpc.aio.AioRpcError)) else None


def _lost(code: grpc.StatusCode, message: str, address: str) -> Unavailable:
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Unavailable(f"the master at {address} does not answer")
    words = f"the master at {address} cannot be reached: {message}"
    return Unavailable(words, hint=clock_doubt(message), address=address)


def _with_field(failure: DlqError, violations: list[tuple[str, str]]) -> DlqError:
    if isinstance(failure, InvalidRequest) and violations and not failure.field:
        failure.field = violations[0][0]
    return failure


def _details(error: _Failed) -> _Details:
    """The rich part of a status. Imported late: only failures pay for these messages."""
    details = _Details()
    raw = dict(error.trailing_metadata() or ()).get(_DETAILS_KEY)
    if not isinstance(raw, bytes):
        return details
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2

    try:
        status = status_pb2.Status.FromString(raw)
        for packed in status.details:
            info = error_details_pb2.ErrorInfo()
            bad = error_details_pb2.BadRequest()
            if packed.Unpack(info) and info.domain == DOMAIN:
                details.reason, details.facts = info.reason, dict(info.metadata)
            elif packed.Unpack(bad):
                details.violations += [(v.field, v.description) for v in bad.field_violations]
    except DecodeError:
        return details
    return details
