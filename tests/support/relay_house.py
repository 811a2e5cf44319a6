"""A relay in a thread of the test, its members' certificates, and lines to it."""

from __future__ import annotations

import json
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from dlq_client.inside.relay_line import GREETING, RelayLine, dial
from dlq_common.identity.files import StoredIdentity
from dlq_common.identity.pki import Authority, Role, fingerprint, new_key_and_csr, parse_identity
from dlq_master.relay import program
from dlq_master.relay.pairs import JoinedWay, TicketHolder
from support.fake_clock import FakeClock

CLUSTER = "lab"

Sent = Callable[[JoinedWay, memoryview], memoryview]
Lie = Callable[[JoinedWay, memoryview, Sent], memoryview]
"""What it does with a piece instead of sending it; the rest that waits."""
_NOTHING = memoryview(b"")


def changed(way: JoinedWay, piece: memoryview, sent: Sent) -> memoryview:
    """One bit of it."""
    piece[len(piece) - 1] ^= 1
    return sent(way, piece)


def dropped(_way: JoinedWay, _piece: memoryview, _sent: Sent) -> memoryview:
    """All of it; later ones pass."""
    return _NOTHING


def repeated(way: JoinedWay, piece: memoryview, sent: Sent) -> memoryview:
    """It comes twice."""
    return sent(way, memoryview(bytes(piece) * 2))


def swapped(way: JoinedWay, piece: memoryview, sent: Sent) -> memoryview:
    """Its halves, in the other order."""
    half = len(piece) // 2
    return sent(way, memoryview(bytes(piece[half:]) + bytes(piece[:half])))


def cut_short(way: JoinedWay, piece: memoryview, sent: Sent) -> memoryview:
    """Half of it, and then the end of the line."""
    sent(way, piece[: len(piece) // 2])
    return ended_early(way, piece, sent)


def ended_early(way: JoinedWay, _piece: memoryview, _sent: Sent) -> memoryview:
    """The end of the line instead, as if there were nothing more."""
    way._target.shutdown(socket.SHUT_WR)
    way.heard_end = True
    return _NOTHING


LIES: dict[str, Lie] = {
    each.__name__: each for each in (changed, dropped, repeated, swapped, cut_short, ended_early)
}


@dataclass
class PairTickets:
    """The words of one pair."""

    number: int
    caller: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    agent: str = field(default_factory=lambda: secrets.token_urlsafe(32))


class RelayHouse:
    """`tell` is what a master writes; `heard` what it reads."""

    def __init__(
        self, *, believes_all: bool = False, lie: Lie | None = None, greeting: bytes = GREETING
    ) -> None:
        """`believes_all`: it joins all holders of tickets. `lie`: see `lying`. `greeting`: the only
        one that it takes.
        """
        self.lying, self.has_lied = threading.Event(), threading.Event()
        """Once set, it lies about the next piece that it passes on; and then it has."""
        self._lies = ExitStack()
        if believes_all:
            self._lies.enter_context(patch.object(TicketHolder, "is_of", return_value=True))
        if lie is not None:
            told = self._told(lie, JoinedWay._sent)
            self._lies.enter_context(patch.object(JoinedWay, "_sent", told))
        self._lies.enter_context(patch.object(program, "GREETING", greeting))
        self.clock = FakeClock()
        self.authority = Authority.create(CLUSTER, time.time())
        self.heard: queue.Queue[dict[str, Any]] = queue.Queue()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._orders, self._words = os.pipe()
        self._lines: list[RelayLine] = []
        made = program.RelayProgram(self._listening, self._orders, self.heard.put, self.clock)
        self._thread = threading.Thread(target=made.run, daemon=True)
        self._number = 0
        self._pool = ThreadPoolExecutor(8)

    @contextmanager
    def up(self) -> Iterator[RelayHouse]:
        self._thread.start()
        self.show(self.authority, self.authority.certificate_pem())
        try:
            yield self
        finally:
            os.close(self._words)
            self._thread.join(60.0)
            self._pool.shutdown()
            self._lies.close()
            self.close()

    def _told(self, lie: Lie, sent: Sent) -> Any:
        def send(way: JoinedWay, piece: memoryview) -> memoryview:
            if not piece or not self.lying.is_set():
                return sent(way, piece)
            self.lying.clear()
            try:
                return lie(way, piece, sent)
            finally:
                self.has_lied.set()

        return send

    def close(self) -> None:
        """Let go of what it has opened."""
        os.close(self._orders)
        self._listening.close()
        for line in self._lines:
            line.end(cleanly=False)

    def show(self, authority: Authority, roots: bytes) -> None:
        """From now on it has a certificate of this CA, and takes those below these roots."""
        made = new_key_and_csr("master")
        chain = authority.sign_master(made.request, time.time())
        self.tell(do="keys", pem=(made.key + chain).decode(), roots=roots.decode())

    def tell(self, **order: Any) -> None:
        os.write(self._words, json.dumps(order).encode() + b"\n")

    @contextmanager
    def time_goes_on(self, step_s: float) -> Iterator[None]:
        """Its clock advances by steps meanwhile."""
        over = threading.Event()

        def go_on() -> None:
            while not over.wait(0.01):
                self.clock.advance(step_s)
                self.tell(do="end", pair=0)  # it wakes up

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(60.0)

    def person(self, name: str = "alice") -> StoredIdentity:
        made = new_key_and_csr(name)
        signed = self.authority.sign_user(made.request, name, Role.USER, time.time())
        return StoredIdentity(made.key, signed, self.authority.certificate_pem())

    def node(self, name: str = "gpu01") -> StoredIdentity:
        made = new_key_and_csr(name)
        signed = self.authority.sign_node(made.request, name, time.time())
        return StoredIdentity(made.key, signed, self.authority.certificate_pem())

    def expect(self, caller: StoredIdentity, node: str = "gpu01") -> PairTickets:
        """What a master tells of this caller and this node."""
        self._number += 1
        made, who = PairTickets(self._number), parse_identity(caller.certificate)
        self.tell(
            do="pair",
            pair=made.number,
            caller=(made.caller, f"dlq://{CLUSTER}/{who.role}/{who.name}", who.serial),
            agent=(made.agent, f"dlq://{CLUSTER}/node/{node}"),
        )
        return made

    def dialled(
        self, ticket: str, identity: StoredIdentity, expected: str | bytes
    ) -> Future[RelayLine]:
        """A line, once it is joined; or LineLost."""
        place = (f":{self.port}", "127.0.0.1:1", ticket, identity, expected)
        return self._pool.submit(lambda: self._kept(dial(*place)))

    def called(
        self, tickets: PairTickets, person: StoredIdentity, node: str = "gpu01"
    ) -> Future[RelayLine]:
        """The caller's line."""
        return self.dialled(tickets.caller, person, f"dlq://{CLUSTER}/node/{node}")

    def answered(
        self, tickets: PairTickets, node: StoredIdentity, caller: StoredIdentity
    ) -> Future[RelayLine]:
        """The agent's line."""
        shown = bytes.fromhex(fingerprint(caller.certificate))
        return self.dialled(tickets.agent, node, shown)

    def _kept(self, line: RelayLine) -> RelayLine:
        self._lines.append(line)
        return line

    def joined(self) -> tuple[PairTickets, RelayLine, RelayLine]:
        """The lines of a caller and an agent."""
        person, node = self.person(), self.node()
        tickets = self.expect(person)
        caller, agent = self.called(tickets, person), self.answered(tickets, node, person)
        return tickets, caller.result(60.0), agent.result(60.0)


def say(line: RelayLine, message: bytes) -> None:
    """All of it."""
    line.begin(message)
    while not line.write():
        line.await_ready(writing=True, timeout_s=60.0)


def hear(line: RelayLine) -> list[bytes]:
    """The next messages; raises at the end of the line."""
    while not (heard := line.read()):
        line.await_ready(writing=False, timeout_s=60.0)
    return heard
