"""`GET /metrics` for Prometheus, in the text format or as OpenMetrics, as the scraper asks.

And `GET /readyz`: whether this master serves calls. The door decides who may read (access.py). A
slow or hostile scraper costs the master little. Few connections are open at a time, each for a few
seconds and after a short header. A new one is accepted every PACE_S, and the page is made once in
FRESH_S. A new connection replaces the oldest one of the host with the most. Further ones wait in
the kernel's short queue.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.text.addresses import split_address
from dlq_master.rpc.metrics.access import MetricsDoor
from dlq_master.rpc.metrics.exposition import (
    OPENMETRICS,
    TEXT,
    MetricFamily,
    openmetrics_page,
    text_page,
    wanted_format,
)

_log = get_logger("master.metrics")
PATIENCE_S: Final = 5.0  # for a request to come, and for its answer to be taken
LONGEST_REQUEST: Final = 8192
MOST_AT_ONCE: Final = 8
WAITING: Final = 16  # connections in the kernel's queue
PACE_S: Final = 0.05  # between two connections
FRESH_S: Final = 1.0  # for this time the same page is served again
PLAIN: Final = "text/plain; charset=utf-8"
READY: Final = "/readyz"
Source = Callable[[], Iterable[MetricFamily]]


class Readiness(NamedTuple):
    """Whether this master serves calls, and its part in words."""

    serves: bool
    words: str


class MetricsServer:
    """Serves pages over HTTP/1.0. Every connection is closed after its answer."""

    def __init__(
        self,
        address: str,
        pages: Mapping[str, Source],
        clock: Clock,
        door: MetricsDoor,
        patience_s: float = PATIENCE_S,
        *,
        ready: Callable[[], Readiness] = lambda: Readiness(True, "serves"),
    ) -> None:
        """`pages`: the metrics of each path. `patience_s`: the time for a connection. `ready`
        answers READY.
        """
        self._ready = ready
        self._door = door
        self._patience_s = patience_s
        self._address = address
        self._pages = pages
        self._clock = clock
        self._made: dict[tuple[str, str], tuple[float, bytes]] = {}
        self._listening: list[socket.socket] = []
        self._serving: dict[asyncio.Task[None], str] = {}  # the oldest first, with their hosts
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port, once it listens."""
        port: int = self._listening[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listen at every address of the host's name. OSError: one is taken."""
        host, port = split_address(self._address)
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, address in dict.fromkeys((one[0], one[4]) for one in found):
            listening = socket.create_server(address[:2], family=family, backlog=WAITING)
            self._listening.append(listening)
            listening.setblocking(False)
            self._begin(self._accept(listening))

    async def stop(self) -> None:
        """Stop listening; open connections go on."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for listening in self._listening:
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listening)
            except OSError as error:  # no file descriptor is free: later one is
                _log.warning("scrape_refused", error=str(error))
                await asyncio.sleep(FRESH_S)
                continue
            self._make_room()
            task = self._begin(self._serve(connection))
            self._serving[task] = peer[0]
            task.add_done_callback(lambda ended: self._serving.pop(ended, None))
            await asyncio.sleep(PACE_S)

    def _make_room(self) -> None:
        """Close the oldest connection of the host with the most, so that no host blocks
        the others.
        """
        if len(self._serving) >= MOST_AT_ONCE:
            ((host, _),) = Counter(self._serving.values()).most_common(1)
            oldest = next(task for task, of in self._serving.items() if of == host)
            del self._serving[oldest]
            oldest.cancel()

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, connection: socket.socket) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await self._answer(connection)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            _log.debug("scrape_broken")
        finally:
            connection.close()

    async def _answer(self, connection: socket.socket) -> None:
        reader, writer = await self._opened(connection)
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            tls = writer.get_extra_info("ssl_object")
            certificate = None if tls is None else tls.getpeercert(binary_form=True)
            writer.write(self._reply(request, certificate))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        finally:
            with suppress(RuntimeError):
                writer.transport.abort()

    async def _opened(
        self, connection: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The streams of a connection, after the TLS handshake if there is one."""
        loop, tls = asyncio.get_running_loop(), self._door.tls
        reader = asyncio.StreamReader(limit=LONGEST_REQUEST)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, connection, ssl=None if tls is None else tls.context()
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def _reply(self, request: str, certificate: bytes | None) -> bytes:
        first, *rest = request.split("\r\n")
        method, _, target = first.partition(" ")
        path = target.partition(" ")[0].partition("?")[0]
        if path not in (*self._pages, READY):
            known = f"there is {' and '.join((*self._pages, READY))}\n"
            return _http("404 Not Found", PLAIN, known.encode())
        if method != "GET":
            return _http("405 Method Not Allowed", PLAIN, b"GET it\n")
        headers = headers_of(rest)
        refusal = self._door.refusal(certificate, headers.get("authorization", ""))
        if refusal:
            return _http("401 Unauthorized", PLAIN, f"{refusal}\n".encode(), _CHALLENGE)
        if path == READY:
            serves, words = self._ready()
            status = "200 OK" if serves else "503 Service Unavailable"
            return _http(status, PLAIN, f"{words}\n".encode())
        wanted = wanted_format(headers.get("accept", ""))
        try:
            return _http("200 OK", wanted, self._page(path, wanted))
        except Exception as fault:  # noqa: BLE001 - a fault of a page ends nothing but this answer
            _log.error("scrape_failed", path=path, exc_info=fault)
            return _http("500 Internal Server Error", PLAIN, b"the master's log says why\n")

    def _page(self, path: str, wanted: str) -> bytes:
        """The page, at most FRESH_S old."""
        now_s = self._clock.boottime_s()
        made_s, page = self._made.get((path, wanted), (-FRESH_S, b""))
        if now_s - made_s >= FRESH_S:
            make = {OPENMETRICS: openmetrics_page, TEXT: text_page}[wanted]
            page = make(self._pages[path]()).encode()
            self._made[path, wanted] = now_s, page
        return page


def headers_of(lines: Iterable[str]) -> dict[str, str]:
    """The headers of a request by name in small letters; the last one of a name counts."""
    rows = (line.partition(":") for line in lines if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in rows}


_CHALLENGE = 'WWW-Authenticate: Bearer realm="dlq metrics"\r\n'


def _http(status: str, content_type: str, content: bytes, more: str = "") -> bytes:
    head = (
        f"HTTP/1.0 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(content)}\r\nVary: Accept\r\n{more}\r\n"
    )
    return head.encode() + content
