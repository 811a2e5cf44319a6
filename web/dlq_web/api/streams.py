"""Events and output as they come, for browsers (server-sent events) and for programs (JSON lines).

A stream of events ends after LONGEST_S, and earlier when its reader lags behind. The reader comes
back with the last number it has seen, and misses none. A stream that goes on says so every
ALIVE_S, also while the master is away. It ends with its session, and with the server.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dlq.v1 import job_service_pb2 as wire
from dlq_cli.facts.cluster import event_facts
from dlq_cli.facts.job import job_facts
from dlq_common.errors import DlqError, TryAgain
from dlq_web.api.params import fill
from dlq_web.api.refusals import body_of
from dlq_web.api.stream_reads import ATTEMPT, EVENTS, LAST_EVENT_ID, LINES, LOGS, OFFSET, PLAIN, SSE
from dlq_web.door.sessions import line_of, person_of, session_of
from dlq_web.line.common_feed import MemberFeed
from dlq_web.line.feed import EventFeed
from dlq_web.line.methods import named

ALIVE_S, LONGEST_S = 15.0, 600.0
FIRST_S = 1.0  # within which a refusal of the master has its status
RETRY_MS = 1_000
AWAY = "event: away\ndata: the master\n\n"
MOST_STREAMS, MOST_OF_ALL = 64, 4_000  # of one person, and of all
_READ_LOGS = named("JobService", "ReadLogs")


def routes() -> list[Route]:
    """The streams below `/v1`."""
    streams = Streams()
    return [
        Route(f"/v1{EVENTS.path}", streams.events, methods=["GET"]),
        Route(f"/v1{LOGS.path}", streams.logs, methods=["GET"]),
    ]


class OpenStream:
    """Messages of the master for one reader, until the source or the session ends."""

    def __init__(self, source: AsyncGenerator[Any], over: asyncio.Event) -> None:
        self._source = source
        self._coming = asyncio.ensure_future(anext(source))
        self._over = asyncio.ensure_future(over.wait())

    async def first(self, patience_s: float) -> Any:
        """The first message, still to be read; None when nothing came in that time. Raises the
        DlqError by which the master refuses.
        """
        await self._look(patience_s)
        ended = self._coming.done() and isinstance(self._coming.exception(), StopAsyncIteration)
        return self._coming.result() if self._coming.done() and not ended else None

    async def next(self, patience_s: float | None = None) -> Any:
        """The next message; None when nothing came in that time. Raises StopAsyncIteration at the
        end, and the DlqError of the source.
        """
        await self._look(patience_s)
        if self._over.done():
            raise StopAsyncIteration
        if not self._coming.done():
            return None
        message = self._coming.result()
        self._coming = asyncio.ensure_future(anext(self._source))
        return message

    async def close(self) -> None:
        """Leave the source."""
        for task in (self._over, self._coming):
            task.cancel()
        await asyncio.wait([self._over, self._coming])
        if not self._coming.cancelled():
            self._coming.exception()  # nobody reads it any more
        await self._source.aclose()

    async def _look(self, patience_s: float | None) -> None:
        await asyncio.wait(
            [self._coming, self._over], timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
        )


class _Told(NamedTuple):
    """The form of a stream's answer."""

    content: AsyncIterator[Any]
    kind: str
    headers: Mapping[str, str] = {}


class _Streamed(StreamingResponse):
    """An answer that tidies up in any case, also when its reader has gone before it begins."""

    def __init__(
        self, content: AsyncIterator[Any], leave: Callable[[], Awaitable[None]], kind: str
    ):
        super().__init__(content, media_type=kind)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._leave()


class EventTexts:
    """The last event as text: many streams of one feed are told of it, one right after another."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[wire.WatchEventsResponse, str]] = {}  # by content type

    def of(self, message: wire.WatchEventsResponse, kind: str) -> str:
        """The text in this content type."""
        last = self._last.get(kind)
        if last is None or last[0] is not message:
            last = self._last[kind] = message, _event_text(message, kind)
        return last[1]


class Streams:
    """The streams that are open."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._texts = EventTexts()

    async def events(self, http: Request) -> Response:
        """Events after `after`, or after the header Last-Event-ID; from now on without both."""
        given = dict(http.query_params)
        if last := http.headers.get(LAST_EVENT_ID):
            given["after"] = last
        request = wire.WatchEventsRequest(cursor=-1)
        fill(request, EVENTS.of_query(), given)
        kind = SSE if SSE in http.headers.get("accept", SSE) else LINES
        feed = person_of(http).feed

        def form(stream: OpenStream, _first: Any) -> _Told:
            return _Told(_events(stream, self._texts, kind, feed), kind)

        return await self._answer(http, feed.events(request.cursor), form)

    async def logs(self, http: Request) -> Response:
        """The output of one rank from an offset, as text; as JSON lines each piece has its
        offset.
        """
        request = wire.ReadLogsRequest()
        fill(request, LOGS.of_path(), http.path_params)
        fill(request, LOGS.of_query(), http.query_params)
        kind = LINES if LINES in http.headers.get("accept", "") else PLAIN

        def form(stream: OpenStream, first: wire.ReadLogsResponse | None) -> _Told:
            if first is None:
                return _Told(_pieces(stream, kind), kind)
            where = {ATTEMPT: str(first.attempt), OFFSET: str(first.offset)}
            return _Told(_pieces(stream, kind), kind, where)

        return await self._answer(http, line_of(http).stream(_READ_LOGS, request), form)

    async def _answer(
        self, http: Request, source: AsyncGenerator[Any], form: Callable[[OpenStream, Any], _Told]
    ) -> Response:
        name = person_of(http).name
        if self._open[name] >= MOST_STREAMS or self._open.total() >= MOST_OF_ALL:
            raise TryAgain("too many streams are open", limit="streams", retry_after_s=5)
        self._open[name] += 1
        stream = OpenStream(source, session_of(http).over)

        async def leave() -> None:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]
            await stream.close()

        try:
            told = form(stream, await stream.first(FIRST_S))
        except BaseException:
            await leave()
            raise
        if http.method == "HEAD":  # it has no body, and so nothing that would end it
            await leave()
            return Response(headers=told.headers, media_type=told.kind)
        answer = _Streamed(told.content, leave, told.kind)
        answer.headers.update(told.headers)
        return answer


async def _events(
    stream: OpenStream, told: EventTexts, kind: str, feed: EventFeed | MemberFeed
) -> AsyncIterator[str]:
    if kind == SSE:
        yield f"retry: {RETRY_MS}\n\n"
    loop = asyncio.get_running_loop()
    until_s = loop.time() + LONGEST_S
    while loop.time() < until_s:
        try:
            message = await stream.next(ALIVE_S)
        except (StopAsyncIteration, DlqError):
            return
        if message is None:
            yield "\n" if kind == LINES else AWAY if feed.away else ": alive\n\n"
        else:
            yield told.of(message, kind)


def _event_text(message: wire.WatchEventsResponse, kind: str) -> str:
    facts: dict[str, Any] = {"event": event_facts(message.event)}
    if message.HasField("job"):
        facts["job"] = job_facts(message.job)
    text = json.dumps(facts, separators=(",", ":"))
    if kind == LINES:
        return f"{text}\n"
    return f"id: {message.cursor}\ndata: {text}\n\n"


async def _pieces(stream: OpenStream, kind: str) -> AsyncIterator[bytes]:
    form = _as_line() if kind == LINES else lambda piece: bytes(piece.data)
    while True:
        try:
            piece = await stream.next()
        except StopAsyncIteration:
            return
        except DlqError as error:
            if kind == LINES:  # text has no place for it: it is read on by its offset
                yield json.dumps({"error": body_of(error)}).encode() + b"\n"
            return
        yield form(piece)


def _as_line() -> Any:
    """The form of a piece as a line of JSON. A character may begin in one piece and end in the
    next. A reader who comes back at `next_offset` has the whole of it.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def form(piece: wire.ReadLogsResponse) -> bytes:
        text = decoder.decode(piece.data, piece.end)
        told = {
            "attempt": piece.attempt,
            "offset": piece.offset,
            "next_offset": piece.offset + len(piece.data) - len(decoder.getstate()[0]),
            "text": text,
            "end": piece.end,
        }
        return json.dumps(told, separators=(",", ":")).encode() + b"\n"

    return form
