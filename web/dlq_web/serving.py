"""Runs the server of one person on loopback, until Ctrl-C or SIGTERM.

Nothing is kept: after a restart of this server everybody signs in anew. While the master is away,
pages say so and come back by themselves. Where this server ends, no job notices.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from dlq.v1 import queue_service_pb2
from dlq_client.line.identity import Identity
from dlq_common.clock import Clock
from dlq_common.errors import ConfigError
from dlq_common.identity.files import write_private
from dlq_common.ids import Ids
from dlq_web.app import build_app
from dlq_web.door.guard import STRANGER
from dlq_web.door.peers import is_stranger
from dlq_web.door.sessions import Person, WebSessions
from dlq_web.door.wall import WallToken
from dlq_web.line.calls import Asking, MasterLine
from dlq_web.line.feed import AWAY, EventFeed
from dlq_web.line.methods import named
from dlq_web.orderly import OrderlyServer

HOST, USUAL_PORT = "127.0.0.1", 7330
TOKEN_FILE = "web.json"
MOST_STRANGERS = 16  # connections of other users of this host
AGAIN_S = 2.0  # until a master that is away is asked again
TERMINAL_S = 2.0  # until a terminal that is not ours now is tried again
# Only of a socket that is said to be TCP does asyncio send what is small at once.
_TCP = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
Say = Callable[[str], None]


async def serve(
    identity: Identity,
    home: Path,
    port: int | None,
    clock: Clock,
    ids: Ids,
    say: Say,
    *,
    wall: bool | None = None,
) -> None:
    """Serve this person. `port` None: the usual one, or any where that is taken. `wall`: with a
    wall, or without from now on; None: as it was. It waits for a master that is away. Raises a
    DlqError when the master refuses at the start, and ConfigError when the port is taken.
    """
    async with AsyncExitStack() as leaving:
        line = MasterLine(identity, clock)
        leaving.push_async_callback(line.close)
        told = await cluster_told(line, say)
        feed = EventFeed(line)
        leaving.push_async_callback(feed.close)
        person = Person(told.caller, told.role, told.cluster_name, line, feed)
        listening = leaving.enter_context(bound(port))
        number = listening.getsockname()[1]
        sessions = WebSessions(clock)
        hosts = (f"{HOST}:{number}", f"localhost:{number}")
        app = build_app(person, sessions, hosts, clock, ids, f"dlq_{number}", home)
        leaving.enter_context(token_file(home, hosts[0], sessions))
        renewing = asyncio.create_task(line.keep_renewed())
        leaving.callback(renewing.cancel)
        server = OrderlyServer(app, _Protocol, sessions)

        def invite() -> None:
            say(f"open http://{hosts[0]}/enter?link={sessions.new_link()}")

        invite()
        if wall:
            say(f"the wall: http://{hosts[0]}/wall#{WallToken(home).made()}")
        if wall is False:
            WallToken(home).revoke()
        say(f"from another machine first: ssh -L {number}:{hosts[0]} THIS-HOST")
        # `dlq up --page`, where no terminal is ours.
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, invite)
        _invite_again(invite)
        await server.serve(sockets=[listening])


async def cluster_told(
    line: Asking, say: Say, pause: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> queue_service_pb2.GetClusterResponse:
    """The master's word on the cluster and the caller. While the master is away this waits for it,
    and says so once. Raises a DlqError when the master refuses.
    """
    told = False
    while True:
        try:
            answer: queue_service_pb2.GetClusterResponse = await line.call(
                named("QueueService", "GetCluster"), queue_service_pb2.GetClusterRequest()
            )
            return answer
        except AWAY as error:
            if not told:
                say(f"{error.what}; the page comes when the master answers")
            told = True
            await pause(AGAIN_S)


class _Protocol(H11Protocol):
    """A connection, of which it is known whether another user of this host has opened it. Strangers
    have few: idle ones without end would leave its user none.
    """

    strangers: ClassVar[set[H11Protocol]] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        app, stranger = self.app, is_stranger(self.client, self.server)
        if stranger and len(self.strangers) >= MOST_STRANGERS:
            transport.abort()
        elif stranger:
            self.strangers.add(self)

        async def marked(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, STRANGER: stranger}, receive, send)

        self.app = marked

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.strangers.discard(self)


@contextmanager
def bound(port: int | None) -> Iterator[socket.socket]:
    """A socket that listens on loopback. ConfigError when a named port is taken."""
    with socket.socket(*_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, USUAL_PORT if port is None else port))
            listening.listen(128)
        except OSError as error:
            if port is not None:
                raise ConfigError(
                    f"port {port} of {HOST} cannot be used: {error.strerror}",
                    hint="--port names another one",
                ) from None
            listening.close()
        else:
            yield listening
            return
    with socket.socket(*_TCP) as listening:
        listening.bind((HOST, 0))
        listening.listen(128)
        yield listening


@contextmanager
def token_file(home: Path, address: str, sessions: WebSessions) -> Iterator[None]:
    """A file that only its owner can read, with a token for programs of theirs. It goes with the
    server, and so does the right of its token.
    """
    path, token = home / TOKEN_FILE, sessions.begin(by_cookie=False)
    told = json.dumps({"address": f"http://{address}", "token": token})
    write_private(path, told.encode() + b"\n")
    try:
        yield
    finally:
        with suppress(OSError, ValueError, KeyError):
            if json.loads(path.read_text())["token"] == token:  # not that of a newer server
                path.unlink()


def _invite_again(invite: Callable[[], None]) -> None:
    """A new link for each press of Enter, where there is a terminal. A process in the
    background that reads its terminal is stopped, unless it ignores SIGTTIN.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        return
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    signal.signal(signal.SIGTTIN, signal.SIG_IGN)

    def listen() -> None:
        loop.add_reader(terminal, pressed)

    def pressed() -> None:
        try:
            said = os.read(terminal, 4096)
        except OSError:  # in the background
            loop.remove_reader(terminal)
            loop.call_later(TERMINAL_S, listen)
            return
        if not said:
            loop.remove_reader(terminal)
        for _ in said.splitlines():
            invite()

    listen()
