"""The page of the audit: changes with their authors and times, and denied calls. For operators.

The master looks for the lines, and a bounded part of the audit at a time. So a page says how far
back it has looked, and leads on to older lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlq.v1 import admin_service_pb2 as wire
from dlq_cli.commands.admin.audit import columns
from dlq_cli.output.render import when
from dlq_common.clock import Clock
from dlq_common.text.units import DAY
from dlq_common.text.wire import from_timestamp, to_timestamp
from dlq_web.door.sessions import line_of
from dlq_web.line.methods import named
from dlq_web.pages.page import page
from dlq_web.pages.sheets import sheet_of
from dlq_web.pages.views import REPORTED_DAYS, days_of, look_at

LINES: Final = 200
FIELDS: Final[Mapping[str, str]] = {
    "q": "text", "user": "user", "method": "method", "object": "object", "decision": "decision",
}  # fmt: skip
_LIST = named("AdminService", "ListAuditLines")


def routes(clock: Clock) -> list[Route]:
    """The page."""

    async def audit(http: Request) -> Response:
        return await _audit(http, clock)

    return [Route("/audit", audit, methods=["GET"])]


async def _audit(http: Request, clock: Clock) -> Response:
    look, days = look_at(clock.now_s()), days_of(http)
    given = {name: http.query_params.get(name, "") for name in FIELDS}
    asked = wire.ListAuditLinesRequest(
        page_size=LINES,
        page_token=http.query_params.get("cursor", ""),
        from_time=to_timestamp(look.now_s - days * DAY),
        **{field: given[name].strip() for name, field in FIELDS.items()},  # type: ignore[arg-type]
    )
    found = await line_of(http).call(_LIST, asked)
    older = http.url.include_query_params(cursor=found.next_page_token)
    return page(
        http, "audit", "Audit", asked=given, days=days, all_days=REPORTED_DAYS, after=-1,
        lines=sheet_of(columns(look), found.lines),
        looked_from=when(from_timestamp(found.looked_from_time), look)
        if found.HasField("looked_from_time") else "",
        older=f"{older.path}?{older.query}" if found.next_page_token else "",
    )  # fmt: skip
