"""Events and output as they come, for browsers (server-sent events) and for programs (JSON lines).

A stream of events ends after LONGEST_S, and earlier when its reader lags behind. The reader comes
back with the last number it has seen, and misses none. A stream that goes on says so every
ALIVE_S, also while the master is away.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from dlq.v1 import job_service_pb2 as wire
from dlq_cli.facts.cluster import event_facts
from dlq_cli.facts.job import job_facts
from dlq_common.errors import CursorExpired, DlqError, InvalidRequest, TryAgain
from dlq_web.api.params import whole_number
from dlq_web.api.refusals import body_of
from dlq_web.door.sessions import line_of, person_of
from dlq_web.line.methods import named

ALIVE_S, LONGEST_S = 15.0, 600.0
RETRY_MS = 1_000
MOST_STREAMS = 64
SSE, LINES, PLAIN = "text/event-stream", "application/x-ndjson", "text/plain"
_READ_LOGS = named("JobService", "ReadLogs")
_MOST = 2**63 - 1


def routes() -> list[Route]:
    """The streams below `/v1`."""
    return [
        Route("/v1/events", Streams().events, methods=["GET"]),
        Route("/v1/jobs/{job}/logs", logs, methods=["GET"]),
    ]


class Streams:
    """The streams of events that are open."""

    def __init__(self) -> None:
        self._open = 0

    async def events(self, http: Request) -> Response:
        """Events after `after`, or after the header Last-Event-ID; from now on without both."""
        told = http.headers.get("last-event-id") or http.query_params.get("after", "-1")
        after = whole_number("after", told, -1, _MOST)
        if self._open >= MOST_STREAMS:
            raise TryAgain("too many streams are open", limit="streams", retry_after_s=5)
        kind = SSE if SSE in http.headers.get("accept", SSE) else LINES
        listening = person_of(http).feed.events(after)
        try:
            first = await _first(listening)
        except CursorExpired:
            await listening.aclose()
            raise
        return StreamingResponse(self._told(first, listening, kind), media_type=kind)

    async def _told(
        self,
        first: asyncio.Task[wire.WatchEventsResponse],
        listening: AsyncGenerator[wire.WatchEventsResponse],
        kind: str,
    ) -> AsyncIterator[str]:
        self._open += 1
        try:
            if kind == SSE:
                yield f"retry: {RETRY_MS}\n\n"
            loop = asyncio.get_running_loop()
            until_s, coming = loop.time() + LONGEST_S, first
            while loop.time() < until_s:
                done, _ = await asyncio.wait([coming], timeout=ALIVE_S)
                if not done:
                    yield ": alive\n\n" if kind == SSE else "\n"
                    continue
                try:
                    message = coming.result()
                except (StopAsyncIteration, DlqError):
                    return
                yield _event_text(message, kind)
                coming = asyncio.ensure_future(anext(listening))
        finally:
            self._open -= 1
            await _stopped(coming)
            await listening.aclose()


async def _first(
    listening: AsyncGenerator[wire.WatchEventsResponse],
) -> asyncio.Task[wire.WatchEventsResponse]:
    """The next event, on its way. Raises CursorExpired where that is known at once."""
    coming = asyncio.ensure_future(anext(listening))
    await asyncio.wait([coming], timeout=1.0)
    if coming.done() and isinstance(coming.exception(), CursorExpired):
        coming.result()
    return coming


async def _stopped(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _event_text(message: wire.WatchEventsResponse, kind: str) -> str:
    facts: dict[str, Any] = {"event": event_facts(message.event)}
    if message.HasField("job"):
        facts["job"] = job_facts(message.job)
    text = json.dumps(facts, separators=(",", ":"))
    if kind == LINES:
        return f"{text}\n"
    return f"id: {message.cursor}\ndata: {text}\n\n"


async def logs(http: Request) -> Response:
    """The output of one rank from an offset, as text; as JSON lines each piece has its offset."""
    given = dict(http.query_params)
    request = wire.ReadLogsRequest(
        job_id=http.path_params["job"],
        attempt=whole_number("attempt", given.pop("attempt", "0"), 0, 2**31 - 1),
        node_rank=whole_number("rank", given.pop("rank", "0"), 0, 2**31 - 1),
        offset=whole_number("offset", given.pop("offset", "0"), -_MOST, _MOST),
        follow=_flag("follow", given.pop("follow", "false")),
    )
    if given:
        name = next(iter(given))
        raise InvalidRequest(
            f"there is no parameter {name[:64]!r}",
            field=name[:64],
            hint="parameters: attempt, rank, offset, follow",
        )
    reading = aiter(line_of(http).stream(_READ_LOGS, request))
    first = await anext(reading)  # a refusal has its status
    kind = LINES if LINES in http.headers.get("accept", "") else PLAIN
    headers = {"Dlq-Attempt": str(first.attempt), "Dlq-Offset": str(first.offset)}
    return StreamingResponse(_pieces(first, reading, kind), media_type=kind, headers=headers)


async def _pieces(
    first: wire.ReadLogsResponse, reading: AsyncIterator[wire.ReadLogsResponse], kind: str
) -> AsyncIterator[bytes]:
    form = _as_line() if kind == LINES else lambda piece: bytes(piece.data)
    try:
        yield form(first)
        async for piece in reading:
            yield form(piece)
    except DlqError as error:
        if kind == LINES:  # text has no place for it: it ends early, and is read on by offset
            yield json.dumps({"error": body_of(error)}).encode() + b"\n"
    finally:
        closing: Any = reading
        async with aclosing(closing):
            pass


def _as_line() -> Any:
    """The form of a piece as a line of JSON. A character may begin in one piece and end in the
    next.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def form(piece: wire.ReadLogsResponse) -> bytes:
        told = {
            "attempt": piece.attempt,
            "offset": piece.offset,
            "next_offset": piece.offset + len(piece.data),
            "text": decode(piece.data, piece.end),
            "end": piece.end,
        }
        return json.dumps(told, separators=(",", ":")).encode() + b"\n"

    return form


def _flag(name: str, told: str) -> bool:
    if told not in ("true", "false", "1", "0"):
        raise InvalidRequest(f"{name} is true or false", field=name)
    return told in ("true", "1")
