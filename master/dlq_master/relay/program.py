"""The relay as a process of its own, so that no byte of a forward crosses the master's loop.

    python -m dlq_master.relay.program LISTEN

The master tells it tickets on its standard input, one line of JSON for each. A caller and an agent
come with a certificate of the cluster and their ticket, and the two lines are joined. A ticket
opens one line, once, to one holder, within seconds. Unknown connections are few and have little
time. Joined lines carry TLS between their ends, which this process cannot read. It ends with its
master.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import ssl
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from dlq_client.inside.relay_line import GREETING, JOINED, TICKET_LENGTH, keep_alive
from dlq_common.clock import Clock, SteadyClock
from dlq_common.identity.private_files import load_chain
from dlq_common.text.addresses import split_address
from dlq_master.planner.modest import be_modest
from dlq_master.relay.pairs import (
    SIDES,
    JoinedPair,
    TargetLost,
    TicketHolder,
)

TICKET_S: Final = 15.0
STRANGER_S: Final = 5.0
MOST_STRANGERS: Final = 64
MOST_PAIRS: Final = 1024
LAST_S: Final = 12.0  # for the second line of a pair, after the end of the first one
IDLE_S: Final = 600.0
MOST_ACCEPTED: Final = 8  # in one round
_LONGEST_ORDER: Final = 1 << 20

Serve = Callable[[int], None]


class Stranger:
    """A connection that has not shown its ticket yet."""

    def __init__(self, line: ssl.SSLSocket, until_s: float) -> None:
        self.line, self.until_s = line, until_s
        self._shaken = False
        self._said = b""

    def step(self) -> str | None:
        """Its ticket, once it is here; "" for one that says something else. Raises OSError for a
        connection that is no good, and for one that is not ready.
        """
        if not self._shaken:
            self.line.do_handshake()
            self._shaken = True
        length = len(GREETING) + TICKET_LENGTH
        piece = self.line.recv(length - len(self._said))
        self._said += piece
        if not piece or not GREETING.startswith(self._said[: len(GREETING)]):
            return ""
        return (
            self._said[len(GREETING) :].decode("ascii", "replace")
            if (len(self._said) == length)
            else None
        )


class RelayProgram:
    """Serves one port until its master ends."""

    def __init__(
        self,
        listening: socket.socket,
        orders: int,
        tell: Callable[[Any], object],
        clock: Clock,
    ) -> None:
        """`orders`: the descriptor with the master's words. `tell` brings it ours."""
        self._clock = clock
        self._listening, self._orders, self._tell = listening, orders, tell
        self._context: ssl.SSLContext | None = None
        self._rest, self._is_over = b"", False
        self._strangers: dict[int, Stranger] = {}  # the oldest first
        self._tickets: dict[str, tuple[JoinedPair, int]] = {}
        self._pairs: dict[int, JoinedPair] = {}
        self._used_s = self._clock.boottime_s()
        self._selector = selectors.DefaultSelector()
        listening.setblocking(False)
        os.set_blocking(orders, False)
        self._watch(orders, selectors.EVENT_READ, self._hear)
        self._watch(listening, selectors.EVENT_READ, self._accept)

    def run(self) -> None:
        """Until the master ends, or nobody has come for long."""
        try:
            while self._round():
                pass
        finally:
            self._close()

    def _close(self) -> None:
        """The lines are lost, and not ended: their holders go on through a master."""
        for stranger in self._strangers.values():
            stranger.line.close()
        for pair in self._pairs.values():
            pair.end()
        self._selector.close()

    def _round(self) -> bool:
        ready = self._selector.select(self._patience_s())
        # A ticket is told before its holder can come: orders are first.
        ready.sort(key=lambda it: it[0].fileobj is not self._orders)
        for key, events in ready:
            # It may have been closed a moment ago, and another line may have its number.
            present = self._selector.get_map().get(key.fd)
            if present is not None and present.fileobj is key.fileobj:
                serve: Serve = present.data
                serve(events)
        self._expire()
        now_s = self._clock.boottime_s()
        if self._pairs or self._strangers:
            self._used_s = now_s
        return not self._is_over and now_s < self._used_s + IDLE_S

    # ---- the master

    def _hear(self, _events: int) -> None:
        try:
            said = os.read(self._orders, 1 << 16)
        except BlockingIOError:
            return
        *lines, self._rest = (self._rest + said).split(b"\n")
        if not said or len(self._rest) > _LONGEST_ORDER:
            self._is_over = True  # the master has ended
            return
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, order: Mapping[str, Any]) -> None:
        match order["do"]:
            case "keys":
                self._context = context_of(order["pem"], order["roots"])
            case "pair":
                self._expect(order)
            case "end":
                if (pair := self._pairs.get(order["pair"])) is not None:
                    self._end(pair)

    def _expect(self, order: Mapping[str, Any]) -> None:
        caller, agent = (TicketHolder(*order[side]) for side in ("caller", "agent"))
        pair = JoinedPair(order["pair"], (caller, agent), self._clock.boottime_s() + TICKET_S)
        if len(self._pairs) >= MOST_PAIRS:
            self._tell({"over": pair.number, "why": "the relay has as many lines as it may"})
            return
        self._pairs[pair.number] = pair
        for side in SIDES:
            self._tickets[pair.expected[side].ticket] = pair, side

    # ---- strangers

    def _accept(self, _events: int) -> None:
        for _ in range(MOST_ACCEPTED):
            try:
                raw, _peer = self._listening.accept()
            except OSError:
                return
            if self._context is None:
                raw.close()
                continue
            if len(self._strangers) >= MOST_STRANGERS:
                self._refuse(next(iter(self._strangers)))
            self._greet(raw)

    def _greet(self, raw: socket.socket) -> None:
        assert self._context is not None
        try:
            raw.setblocking(False)
            keep_alive(raw)
            line = self._context.wrap_socket(
                raw, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False
            )
        except OSError:
            raw.close()
            return
        self._strangers[line.fileno()] = Stranger(line, self._clock.boottime_s() + STRANGER_S)
        self._watch(line, selectors.EVENT_READ, partial(self._listen, line.fileno()))

    def _listen(self, number: int, _events: int) -> None:
        stranger = self._strangers[number]
        try:
            ticket = stranger.step()
        except ssl.SSLWantReadError:
            self._watch(stranger.line, selectors.EVENT_READ, partial(self._listen, number))
            return
        except ssl.SSLWantWriteError:
            self._watch(stranger.line, selectors.EVENT_WRITE, partial(self._listen, number))
            return
        except (OSError, ValueError):
            ticket = ""
        if ticket is None:
            return
        pair, side = self._tickets.pop(ticket, (None, 0))
        if pair is None:
            self._refuse(number)
        elif not pair.expected[side].is_of(stranger.line):
            # Somebody else has the ticket: it is worth nothing any more.
            self._refuse(number)
            self._end(pair, why="a ticket came with another certificate")
        else:
            del self._strangers[number]
            self._arrived(pair, side, stranger.line)

    def _refuse(self, number: int) -> None:
        stranger = self._strangers.pop(number)
        self._unwatch(stranger.line)
        stranger.line.close()

    # ---- pairs

    def _arrived(self, pair: JoinedPair, side: int, line: ssl.SSLSocket) -> None:
        pair.lines[side] = line
        self._unwatch(line)
        if len(pair.lines) < len(SIDES):
            return
        try:
            for joined in pair.lines.values():
                joined.send(JOINED)
        except OSError:
            self._end(pair, why="a line broke at once")
            return
        for each in SIDES:
            self._part(pair, each, 0)

    def _part(self, pair: JoinedPair, side: int, _events: int) -> None:
        """TLS with us ends on this line; its word is all that we read of it."""
        line = pair.lines.get(side)
        if line is None:
            return  # the other one broke just now
        try:
            both = pair.part(side)
        except ssl.SSLWantReadError:
            self._watch(line, selectors.EVENT_READ, partial(self._part, pair, side))
            return
        except OSError:
            self._end(pair, why="a line broke at once")
            return
        self._unwatch(line)
        if both:
            self._watch_pair(pair)

    def _serve(self, pair: JoinedPair, side: int, events: int) -> None:
        readable, writable = (
            bool(events & selectors.EVENT_READ),
            bool(events & selectors.EVENT_WRITE),
        )
        try:
            ended = pair.move(side, readable=readable, writable=writable)
        except TargetLost:
            ended = len(SIDES)
        if ended == len(SIDES):
            self._end(pair)
            return
        if ended and pair.until_s is None:
            pair.until_s = self._clock.boottime_s() + LAST_S
        self._watch_pair(pair)

    def _watch_pair(self, pair: JoinedPair) -> None:
        for each in SIDES:
            reads, writes = pair.wants(each)
            wanted = reads * selectors.EVENT_READ | writes * selectors.EVENT_WRITE
            self._watch(pair.lines[each], wanted, partial(self._serve, pair, each))

    def _end(self, pair: JoinedPair, why: str = "") -> None:
        if self._pairs.pop(pair.number, None) is None:
            return
        for line in pair.lines.values():
            self._unwatch(line)
        pair.end()
        for expected in pair.expected:
            self._tickets.pop(expected.ticket, None)
        self._tell({"over": pair.number, "why": why})

    # ---- time, and what is waited for

    def _expire(self) -> None:
        now_s = self._clock.boottime_s()
        for number in [it for it, one in self._strangers.items() if one.until_s <= now_s]:
            self._refuse(number)
        late = [it for it in self._pairs.values() if it.until_s is not None and it.until_s <= now_s]
        for pair in late:
            self._end(pair, "" if pair.is_joined else "one of the two did not come")

    def _patience_s(self) -> float:
        ends = [one.until_s for one in self._strangers.values()]
        ends += [one.until_s for one in self._pairs.values() if one.until_s is not None]
        now_s = self._clock.boottime_s()
        return max(0.0, min(ends, default=now_s + IDLE_S) - now_s) + 0.01

    def _watch(self, line: Any, events: int, serve: Serve) -> None:
        known = self._selector.get_map().get(line)
        if known is None:
            if events:
                self._selector.register(line, events, serve)
        elif not events:
            self._selector.unregister(line)
        elif known.events != events:
            self._selector.modify(line, events, serve)

    def _unwatch(self, line: socket.socket) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(line)


def context_of(pem: str, roots: str) -> ssl.SSLContext:
    """Mutual TLS with this certificate, for members of these roots."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # of TLS: nobody comes back with one
    load_chain(context, pem.encode())
    context.load_verify_locations(cadata=roots)
    return context


def main() -> None:
    """Serve one master."""
    be_modest(0)
    host, port = split_address(sys.argv[1])
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=128)
    said = sys.stdout.buffer

    def tell(words: Any) -> None:
        said.write(json.dumps(words).encode() + b"\n")
        said.flush()

    tell({"port": listening.getsockname()[1]})
    RelayProgram(listening, sys.stdin.fileno(), tell, SteadyClock()).run()


if __name__ == "__main__":
    main()
