"""Errors as HTTP: the words of the command line, in the form of Connect.

The body of an error is the same everywhere: `code`, `message` and `details` as Connect wants them,
and beside them `reason`, `hint`, `field` and `facts` as dlq tells them.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from google.protobuf.message import Message
from google.rpc import error_details_pb2
from starlette.responses import JSONResponse

from dlq_common.errors import (
    DOMAIN,
    AlreadyExists,
    Conflict,
    CursorExpired,
    DlqError,
    IllegalTransition,
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
from dlq_web.line.calls import Overdue


class HttpOutcome(NamedTuple):
    """A word of Connect, and its HTTP status."""

    code: str
    status: int


INTERNAL = HttpOutcome("internal", 500)
_OUTCOMES: Mapping[type[DlqError], HttpOutcome] = {
    InvalidRequest: HttpOutcome("invalid_argument", 400),
    Unauthenticated: HttpOutcome("unauthenticated", 401),
    PermissionDenied: HttpOutcome("permission_denied", 403),
    NotFound: HttpOutcome("not_found", 404),
    AlreadyExists: HttpOutcome("already_exists", 409),
    Conflict: HttpOutcome("aborted", 409),
    IllegalTransition: HttpOutcome("failed_precondition", 400),
    StaleFence: HttpOutcome("failed_precondition", 400),
    Unsatisfiable: HttpOutcome("failed_precondition", 400),
    QuotaExceeded: HttpOutcome("resource_exhausted", 429),
    TryAgain: HttpOutcome("resource_exhausted", 429),
    CursorExpired: HttpOutcome("out_of_range", 410),
    Unavailable: HttpOutcome("unavailable", 503),
    Overdue: HttpOutcome("deadline_exceeded", 504),
}
RETRY_AFTER_S = 1


def outcome_of(error: DlqError) -> HttpOutcome:
    """The code and the status of an error."""
    found = (_OUTCOMES[kind] for kind in type(error).__mro__ if kind in _OUTCOMES)
    return next(found, INTERNAL)


def refusal(error: DlqError) -> JSONResponse:
    """An error as an answer."""
    outcome, headers = outcome_of(error), {}
    if outcome.status in (429, 503):
        headers["Retry-After"] = _retry_after(error)
    return JSONResponse(body_of(error), outcome.status, headers)


def body_of(error: DlqError) -> dict[str, Any]:
    """The form of an error in JSON, also at the end of a stream."""
    facts = {key: value for key, value in error.metadata.items() if key != "hint" and value}
    field = error.field if isinstance(error, InvalidRequest) else ""
    told = {"reason": error.reason, "hint": error.hint, "field": field, "facts": facts}
    return {
        "code": outcome_of(error).code,
        "message": error.what,
        **{key: value for key, value in told.items() if value},
        "details": [_packed(one) for one in _details(error, field)],
    }


def _details(error: DlqError, field: str) -> list[Message]:
    metadata = dict(error.metadata)
    if error.hint:
        metadata["hint"] = error.hint
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    if not field:
        return [info]
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field=field, description=error.what)
    return [info, bad]


def _packed(detail: Message) -> dict[str, str]:
    """By Connect: the name of the type, and base64 without padding."""
    raw = base64.b64encode(detail.SerializeToString()).rstrip(b"=")
    return {"type": detail.DESCRIPTOR.full_name, "value": raw.decode()}


def _retry_after(error: DlqError) -> str:
    try:
        wished_s = float(error.metadata.get("retry_after_s", RETRY_AFTER_S))
    except ValueError:
        wished_s = RETRY_AFTER_S
    return str(max(1, math.ceil(wished_s)) if math.isfinite(wished_s) else RETRY_AFTER_S)
