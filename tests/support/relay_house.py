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

from dlq_client.inside.relay_line import RelayLine, dial
from dlq_common.identity.files import StoredIdentity
from dlq_common.identity.pki import Authority, Role, fingerprint, new_key_and_csr, parse_identity
from dlq_master.relay.pairs import JoinedWay, TicketHolder
from dlq_master.relay.program import RelayProgram
from support.fake_clock import FakeClock

CLUSTER = "lab"


@dataclass
class PairTickets:
    """The words of one pair."""

    number: int
    caller: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    agent: str = field(default_factory=lambda: secrets.token_urlsafe(32))


class RelayHouse:
    """`tell` is what a master writes; `heard` what it reads."""

    def __init__(self, *, believes_all: bool = False, spoils: bool = False) -> None:
        """`believes_all`: it joins all holders of tickets. `spoils`: see `spoiling`."""
        self.spoiling = threading.Event()
        """Once set, it changes the bytes that it passes on."""
        self._lies = ExitStack()
        if believes_all:
            self._lies.enter_context(patch.object(TicketHolder, "is_of", return_value=True))
        if spoils:
            self._lies.enter_context(
                patch.object(JoinedWay, "_sent", self._spoilt(JoinedWay._sent))
            )
        self.clock = FakeClock()
        self.authority = Authority.create(CLUSTER, time.time())
        self.heard: queue.Queue[dict[str, Any]] = queue.Queue()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._orders, self._words = os.pipe()
        self._lines: list[RelayLine] = []
        program = RelayProgram(self._listening, self._orders, self.heard.put, self.clock)
        self._thread = threading.Thread(target=program.run, daemon=True)
        self._number = 0
        self._pool = ThreadPoolExecutor(8)

    @contextmanager
    def up(self) -> Iterator[RelayHouse]:
        self._thread.start()
        made = new_key_and_csr("master")
        chain = self.authority.sign_master(made.request, time.time())
        roots = self.authority.certificate_pem().decode()
        self.tell(do="keys", pem=(made.key + chain).decode(), roots=roots)
        try:
            yield self
        finally:
            os.close(self._words)
            self._thread.join(60.0)
            self._pool.shutdown()
            self._lies.close()
            self.close()

    def _spoilt(self, sent: Callable[[Any, memoryview], memoryview]) -> Any:
        def change(way: JoinedWay, piece: memoryview) -> memoryview:
            if piece and self.spoiling.is_set():
                piece[len(piece) - 1] ^= 1
            return sent(way, piece)

        return change

    def close(self) -> None:
        """Let go of what it has opened."""
        os.close(self._orders)
        self._listening.close()
        for line in self._lines:
            line.end(cleanly=False)

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
