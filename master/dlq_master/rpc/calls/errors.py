"""Errors on the wire: each DlqError as a status with details, everything else as an incident."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from grpc_status import rpc_status

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import (
    DOMAIN,
    AlreadyExists,
    Conflict,
    CursorExpired,
    DlqError,
    IllegalTransition,
    InternalError,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    StaleFence,
    TryAgain,
    Unauthenticated,
    Unavailable,
    Unsatisfiable,
)
from dlq_common.ids import Ids
from dlq_common.text.names import printable
from dlq_master.rpc.calls.call import Call

# A status travels in the trailers, of which clients accept 8 KiB; details double what is in it.
LONGEST_TEXT = 1000
LONGEST_FACT = 200
MOST_FACTS = 12
RETRY_AFTER_S = 1

CODES: Mapping[type[DlqError], grpc.StatusCode] = {
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    NotFound: grpc.StatusCode.NOT_FOUND,
    AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    Conflict: grpc.StatusCode.ABORTED,
    IllegalTransition: grpc.StatusCode.FAILED_PRECONDITION,
    StaleFence: grpc.StatusCode.FAILED_PRECONDITION,
    QuotaExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unsatisfiable: grpc.StatusCode.FAILED_PRECONDITION,
    CursorExpired: grpc.StatusCode.OUT_OF_RANGE,
    TryAgain: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    InternalError: grpc.StatusCode.INTERNAL,
}


class HiddenFromCaller(NotFound):
    """It exists, but not for this caller: NOT_FOUND on the wire, a denial in the audit."""


class Errors:
    """The outermost step: it turns every exception of a call into a status."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._log = get_logger("master.rpc")

    async def abort(self, call: Call, error: BaseException) -> None:
        """End the call with the status of its exception.

        Returns without doing so if the call has a status already, or its caller has left.
        """
        if isinstance(error, aio.AbortError) or not isinstance(error, Exception):
            return
        told = error if isinstance(error, DlqError) else self._incident(call, error)
        await call.context.abort_with_status(rpc_status.to_status(status_of(told)))

    def _incident(self, call: Call, error: Exception) -> InternalError:
        incident = self._ids.request_id()
        self._log.error(
            "rpc_failed",
            method=call.path,
            caller=call.identity.name if call.identity else "",
            incident=incident,
            exc_info=error,
        )
        return InternalError(
            f"a fault of the master; its log has more under incident {incident}",
            incident=incident,
        )


def status_of(error: DlqError) -> status_pb2.Status:
    """The error as google.rpc.Status: code, message, ErrorInfo, and the details of its kind."""
    facts = {key: _cut(value, LONGEST_FACT) for key, value in error.metadata.items() if value}
    if error.hint:
        facts = {"hint": _cut(error.hint, LONGEST_FACT), **facts}
    info = error_details_pb2.ErrorInfo(
        reason=error.reason, domain=DOMAIN, metadata=dict(list(facts.items())[:MOST_FACTS])
    )
    status = status_pb2.Status(code=_code(error).value[0], message=_cut(error.what, LONGEST_TEXT))
    for detail in (info, *_more(error)):
        packed = Packed()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def _more(error: DlqError) -> Iterator[Message]:
    what = _cut(error.what, LONGEST_TEXT)
    match error:
        case InvalidRequest():
            violation = error_details_pb2.BadRequest.FieldViolation(
                field=_cut(error.field, LONGEST_FACT), description=what
            )
            yield error_details_pb2.BadRequest(field_violations=[violation])
        case NotFound() | AlreadyExists():
            yield error_details_pb2.ResourceInfo(
                resource_type=_cut(error.metadata.get("kind", ""), LONGEST_FACT),
                resource_name=_cut(error.metadata.get("id", ""), LONGEST_FACT),
            )
        case IllegalTransition() | Unsatisfiable():
            violations = error_details_pb2.PreconditionFailure.Violation(
                type=error.reason, description=what
            )
            yield error_details_pb2.PreconditionFailure(violations=[violations])
        case QuotaExceeded():
            quota = error_details_pb2.QuotaFailure.Violation(
                subject=_cut(error.metadata.get("limit", ""), LONGEST_FACT), description=what
            )
            yield error_details_pb2.QuotaFailure(violations=[quota])
        case TryAgain() | Unavailable():
            yield error_details_pb2.RetryInfo(retry_delay=Duration(seconds=_retry_after_s(error)))


def _retry_after_s(error: DlqError) -> int:
    """The delay that the error names, or a short one."""
    text = error.metadata.get("retry_after_s", "")
    return int(text) if text.isdecimal() else RETRY_AFTER_S


def _code(error: DlqError) -> grpc.StatusCode:
    return next(
        (CODES[kind] for kind in type(error).__mro__ if kind in CODES), grpc.StatusCode.INTERNAL
    )


def code_name(error: BaseException | None) -> str:
    """The name of the status with which a call ends."""
    if error is None:
        return grpc.StatusCode.OK.name
    if isinstance(error, DlqError):
        return _code(error).name
    if not isinstance(error, Exception):  # its caller has left
        return grpc.StatusCode.CANCELLED.name
    if isinstance(error, aio.AbortError):
        return grpc.StatusCode.UNKNOWN.name
    return grpc.StatusCode.INTERNAL.name


def forget_frames(end: BaseException) -> None:
    """Drop the frames of an ended call's exception, and the exceptions behind it.

    gRPC keeps the exception with its call, and its frames hold the call. So they would keep each
    other until the garbage collector looks at old objects, once an hour (daemon/collector.py).
    """
    behind: list[BaseException | None] = [end]
    while behind:
        error = behind.pop()
        if error is not None:
            behind += error.__cause__, error.__context__
            error.__traceback__ = error.__cause__ = error.__context__ = None


def _cut(text: str, most: int) -> str:
    return printable(text if len(text) <= most else f"{text[: most - 3]}...")
