"""ListAuditLines: lines of the audit for operators, from its files.

The files are the truth, and lines are sent as they stand there. So a line that was changed on the
disk is shown as changed. `dlq-master verify-audit` verifies the chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from dlq.v1 import admin_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_common.text.instants import format_instant
from dlq_common.text.wire import from_timestamp, to_timestamp
from dlq_master.rpc.audit.search import AuditWanted
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.specs.intake import search_words

USUAL_PAGE: Final = 100
LARGEST_PAGE: Final = 1_000
_TEXTS: Final = ("role", "by", "through", "certificate", "peer", "method", "object", "decision")


async def list_audit_lines(
    call: Call, request: wire.ListAuditLinesRequest
) -> wire.ListAuditLinesResponse:
    if request.page_size < 0:
        raise InvalidRequest("page_size is negative", field="page_size")
    most = min(request.page_size or USUAL_PAGE, LARGEST_PAGE)
    found = await call.parts.audit.find(_wanted(request), request.page_token, most)
    return wire.ListAuditLinesResponse(
        lines=map(_message, found.lines),
        next_page_token=found.following,
        looked_from_time=_instant(found.back_to),
    )


def _wanted(request: wire.ListAuditLinesRequest) -> AuditWanted:
    return AuditWanted(
        from_time=_written(request, "from_time"),
        until_time=_written(request, "until_time"),
        user=request.user,
        method=request.method,
        about=request.object,
        decision=request.decision,
        words=search_words(request.text),
    )


def _written(request: wire.ListAuditLinesRequest, field: str) -> str:
    """An instant as lines write theirs; "": none."""
    if not request.HasField(field):  # type: ignore[arg-type]  # one of two names
        return ""
    try:
        return format_instant(from_timestamp(getattr(request, field)))
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest(f"{field} is not an instant", field=field) from None


def _message(line: Mapping[str, Any]) -> wire.AuditLine:
    told = {name: str(line.get(name, "")) for name in _TEXTS}
    return wire.AuditLine(
        call_time=_instant(str(line.get("time", ""))), user=str(line.get("who", "")), **told
    )


def _instant(text: str) -> Timestamp | None:
    try:
        return to_timestamp(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return None
