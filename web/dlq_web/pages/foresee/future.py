"""The page of the next hours, and the one bounded read of its picture.

Of running and of waiting jobs the first MOST_JOBS are asked for, by their numbers. The answers
serve all pictures of a person for KEPT_S: panning and zooming ask the master for nothing. While
the master is away the page says so, and the picture stays as it was.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlq.v1 import forecast_service_pb2 as forecasts
from dlq.v1 import job_service_pb2, reservation_service_pb2
from dlq_cli.commands.admin.estimates import quality_pairs
from dlq_cli.output.render import OutputLook, moment
from dlq_client.jobs import SEE_ALL
from dlq_common.clock import Clock
from dlq_common.errors import InvalidRequest
from dlq_common.text.units import DAY, HOUR, MINUTE
from dlq_web.api.params import whole_number
from dlq_web.door.sessions import line_of, person_of
from dlq_web.line.calls import Asking
from dlq_web.line.methods import named
from dlq_web.pages.foresee.hours import (
    BY_JOBS,
    BY_NODES,
    NEVER_S,
    STARTS,
    FutureLane,
    FutureSeen,
    lanes_of,
    of_team,
)
from dlq_web.pages.foresee.thinned import FutureView, picture, seen_lanes
from dlq_web.pages.kept import KeptAnswers, tagged
from dlq_web.pages.page import page
from dlq_web.pages.views import RUNNING, look_at

MOST_JOBS, MOST_ROWS = 1_000, 200
KEPT_S, MOST_KEPT = 10.0, 64
BEFORE_S, AHEAD_S = HOUR, 12 * HOUR
WAITS = ("pending", "queued")
_LIST = named("JobService", "ListJobs")
_RESERVED = named("ReservationService", "ListReservations")
_QUALITY = named("ForecastService", "GetForecastQuality")


class WantedHours(NamedTuple):
    """The part of the cluster's future that is asked for."""

    user: str
    team: str
    by: str
    view: FutureView


class FutureRow(NamedTuple):
    """A bar as a line of the table."""

    lane: str
    words: str
    job_id: str
    kind: str
    begins: str
    ends: str
    earliest: str
    latest: str


def routes(clock: Clock) -> list[Route]:
    """The page; with `as=json` its picture."""
    return [Route("/future", Future(clock).show, methods=["GET"])]


class Future:
    """The next hours, by the time of one clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: KeptAnswers[FutureSeen] = KeptAnswers(clock, KEPT_S, MOST_KEPT)

    async def show(self, http: Request) -> Response:
        """The page, or its picture."""
        now_s = self._clock.now_s()
        wanted = wanted_of(http, now_s)
        if http.query_params.get("as") == "json":
            return await self._picture(http, wanted, now_s)
        ask = forecasts.GetForecastQualityRequest()
        seen, quality = await asyncio.gather(
            self._seen(http, wanted.user), line_of(http).call(_QUALITY, ask)
        )
        look = look_at(now_s)
        lanes = seen_lanes(lanes_of(of_team(seen, wanted.team), wanted.by), wanted.view)
        rows = [row for lane in lanes for row in rows_of(lane, look)]
        return page(
            http, "future", "The next hours", rows=rows[:MOST_ROWS], left_out=len(rows[MOST_ROWS:]),
            asked=wanted, more=seen.more, most=MOST_JOBS, after=-1,
            quality=[pair for pair in quality_pairs(quality, look) if pair[1]],
        )  # fmt: skip

    async def _picture(self, http: Request, wanted: WantedHours, now_s: float) -> Response:
        seen = of_team(await self._seen(http, wanted.user), wanted.team)
        told = picture(seen_lanes(lanes_of(seen, wanted.by), wanted.view), wanted.view, now_s)
        body = json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()
        return tagged(http, body)

    async def _seen(self, http: Request, user: str) -> FutureSeen:
        """The master's answers, or those of a moment ago."""
        # Of other users' waiting jobs a user learns no start: they would only be in the way.
        waits_of = "" if user == "*" and person_of(http).role not in SEE_ALL else user
        return await self._kept.of(http, user, lambda line: self._asked(line, user, waits_of))

    async def _asked(self, line: Asking, user: str, waits_of: str) -> FutureSeen:
        call = line.call

        def listed(states: Sequence[str], user: str) -> job_service_pb2.ListJobsRequest:
            return job_service_pb2.ListJobsRequest(user=user, states=states, page_size=MOST_JOBS)

        running, waiting, reserved = await asyncio.gather(
            call(_LIST, listed(RUNNING, user)),
            call(_LIST, listed(WAITS, waits_of)),
            call(_RESERVED, reservation_service_pb2.ListReservationsRequest()),
        )
        more = bool(running.next_page_token or waiting.next_page_token)
        at_s = self._clock.now_s()
        return FutureSeen(at_s, running.jobs, waiting.jobs, reserved.reservations, more)


def wanted_of(http: Request, now_s: float) -> WantedHours:
    """The query of the page and of its picture. Raises InvalidRequest."""
    query = http.query_params
    begins = int(now_s - BEFORE_S) // MINUTE * MINUTE
    by = query.get("by", BY_JOBS)
    if by not in (BY_JOBS, BY_NODES):
        raise InvalidRequest(f"`by` is {BY_JOBS} or {BY_NODES}", field="by")
    view = FutureView(
        whole_number("from", query.get("from", str(int(begins))), 0, int(NEVER_S)),
        whole_number("span", query.get("span", str(BEFORE_S + AHEAD_S)), 10 * MINUTE, 7 * DAY),
        whole_number("pixels", query.get("pixels", "1200"), 100, 4_000),
    )
    return WantedHours(query.get("user", "") or "*", query.get("team", ""), by, view)


def rows_of(lane: FutureLane, look: OutputLook) -> list[FutureRow]:
    """The bars of a lane in words."""

    def at(at_s: float) -> str:
        return moment(at_s, look) if 0 < at_s < NEVER_S else ""

    return [
        FutureRow(
            lane.name, bar.words, bar.job_id, bar.kind, at(bar.begin_s), at(bar.end_s) or "unknown",
            at(bar.early_s) if bar.kind == STARTS else "",
            (at(bar.late_s) or "much later") if bar.kind == STARTS else "",
        )
        for bar in lane.bars
    ]  # fmt: skip
