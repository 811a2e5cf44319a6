"""A question to the master's twin: jobs and deadlines as they are, and as they would be.

Each person has one question on its way at most. It ends with the browser's line, or after a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlq.v1 import forecast_service_pb2 as wire
from dlq_cli.output.render import OutputLook, clean_line
from dlq_cli.text.compared import MOVED, OtherWorld, command_of, moved_rows, question, summary
from dlq_cli.text.foreseen import BASES, long_range
from dlq_common.clock import Clock
from dlq_common.errors import DlqError, InvalidRequest, PermissionDenied, TryAgain
from dlq_web.door.sessions import line_of, person_of
from dlq_web.line.methods import named
from dlq_web.pages.page import page
from dlq_web.pages.sheets import Sheet, sheet
from dlq_web.pages.views import look_at

LONGEST_S = 65.0  # the master waits for its twin for a minute
LOOK_S = 0.5  # so often it is asked whether the browser is still there
MOST_ROWS = 100
LISTS = ("add_nodes", "drain", "lose", "add_job")
_COMPARE = named("ForecastService", "CompareForecasts")
_ESTIMATE = named("ForecastService", "EstimateJob")


class ToldWhatIf(NamedTuple):
    """The answer, or why there is none."""

    command: str
    pairs: Sequence[tuple[str, str]] = ()
    rows: Sheet | None = None
    refused: str = ""
    hint: str = ""


class BrowserGone(Exception):
    """Nobody waits for the answer any more."""


def routes(clock: Clock) -> list[Route]:
    """The page."""
    return [Route("/what-if", WhatIfPage(clock).show, methods=["GET"])]


class WhatIfPage:
    """The page, by the time of one clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asking: set[str] = set()  # people with a question on its way

    async def show(self, http: Request) -> Response:
        """The form, and below it the answer to what it asks."""
        look = look_at(self._clock.now_s())
        given = {name: http.query_params.get(name, "").strip() for name in (*LISTS, "policy")}
        add_nodes, drain, lose, add_job = (tuple(given[name].split()) for name in LISTS)
        asked = OtherWorld(add_nodes, drain, lose, add_job, given["policy"])
        told = None
        if any(given.values()):
            try:
                told = await self._told(http, asked, look)
            except BrowserGone:
                return Response(status_code=204)
        return page(http, "what_if", "What if", after=-1, given=given, told=told)

    async def _told(self, http: Request, asked: OtherWorld, look: OutputLook) -> ToldWhatIf:
        name, command = person_of(http).name, command_of(asked)
        try:
            request = question(asked)
            if name in self._asking:
                raise TryAgain(
                    "your last question is on its way still", hint="one at a time; cancel it first"
                )
            self._asking.add(name)
            try:
                return await _until_gone(http, _answered(http, request, command, look))
            finally:
                self._asking.discard(name)
        except DlqError as error:
            return ToldWhatIf(command, refused=error.what, hint=error.hint)


async def _answered(
    http: Request, request: wire.CompareForecastsRequest, command: str, look: OutputLook
) -> ToldWhatIf:
    try:
        answer = await line_of(http).call(_COMPARE, request, LONGEST_S)
    except PermissionDenied:
        if not request.added_jobs:
            raise
        return await _estimated(http, request, command, look)
    pairs = [(name, words) for name, words in summary(answer) if words]
    return ToldWhatIf(command, pairs, sheet(MOVED, moved_rows(answer, look), MOST_ROWS))


async def _estimated(
    http: Request, request: wire.CompareForecastsRequest, command: str, look: OutputLook
) -> ToldWhatIf:
    """For those who may not compare: when a job of theirs would start and end, as things are."""
    if len(request.added_jobs) > 1:
        raise InvalidRequest("more than one job is for operators", hint="ask for one job")
    asked = wire.EstimateJobRequest(spec=request.added_jobs[0])
    told = await line_of(http).call(_ESTIMATE, asked, LONGEST_S)
    if told.missing:
        return ToldWhatIf(command, refused=f"no forecast: {clean_line(told.missing)}")
    pairs = [
        ("would start", long_range(told.start, look) if told.HasField("start") else "never"),
        ("would end", long_range(told.end, look) if told.HasField("end") else "not foreseen"),
        ("run time from", BASES.get(told.basis, told.basis)),
    ]
    return ToldWhatIf(command, pairs)


async def _until_gone(http: Request, asked: Coroutine[Any, Any, ToldWhatIf]) -> ToldWhatIf:
    """The answer. BrowserGone ends the question when the browser leaves before."""
    answer = asyncio.ensure_future(asked)
    try:
        while not answer.done():
            await asyncio.wait({answer}, timeout=LOOK_S)
            if not answer.done() and await http.is_disconnected():
                raise BrowserGone
        return answer.result()
    finally:
        answer.cancel()
