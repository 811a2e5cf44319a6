"""All-reduce over TCP for a handful of processes: a star around rank 0, the same bits every time.

Rank 0 adds the vectors in the order of the ranks, in any order of arrival, and sends one result to
all. A peer that dies closes its connection, and every rank that waits for it gets PeerLost at once.
A peer that vanishes with its host is missed after about 10 s.
"""

import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np

from digits import Floats

JOIN_S = 60.0  # nodes do not start at the same moment
HELLO_S = 5.0
SILENCE_S = 120.0  # a step, or a save, may take this long

HELLO_BYTES = 4096
WELCOME = b"welcome"

_LENGTH = struct.Struct("!Q")


class PeerLost(Exception):
    """Another rank died, or never came."""


@dataclass(slots=True)
class Group:
    """The processes of one attempt; every rank makes the same calls in the same order."""

    rank: int
    size: int
    peers: list[socket.socket] = field(default_factory=list)  # rank 0: all others; else: rank 0

    def sum(self, vector: Floats) -> Floats:
        """The sum of all ranks' vectors, to the last bit the same on each of them."""
        if self.rank != 0:
            self._send(self.peers[0], vector.tobytes())
            return np.frombuffer(self._receive(self.peers[0]), dtype=vector.dtype)
        total = vector.copy()
        for peer in self.peers:
            total += np.frombuffer(self._receive(peer), dtype=vector.dtype)
        self.broadcast(total.tobytes())
        return total

    def max(self, flag: int) -> int:
        """The largest of all ranks' small numbers."""
        if self.rank != 0:
            self._send(self.peers[0], _LENGTH.pack(flag))
            return _number(self._receive(self.peers[0]))
        largest = max([flag, *(_number(self._receive(peer)) for peer in self.peers)])
        self.broadcast(_LENGTH.pack(largest))
        return largest

    def broadcast(self, message: bytes) -> bytes:
        """Rank 0's message, on every rank; the arguments of the others are ignored."""
        if self.rank != 0:
            return self._receive(self.peers[0])
        for peer in self.peers:
            self._send(peer, message)
        return message

    def barrier(self) -> None:
        """Returns when every rank has come here."""
        self.max(0)

    def _send(self, peer: socket.socket, message: bytes) -> None:
        try:
            peer.sendall(_LENGTH.pack(len(message)))
            peer.sendall(message)
        except OSError as error:
            raise PeerLost(f"rank {self.rank} cannot send: {error}") from error

    def _receive(self, peer: socket.socket) -> bytes:
        try:
            return _read(peer, _number(_read(peer, _LENGTH.size)))
        except OSError as error:
            raise PeerLost(f"rank {self.rank} cannot receive: {error}") from error


@contextmanager
def join(name: str, *, rank: int, size: int, address: tuple[str, int]) -> Iterator[Group]:
    """Meet the other ranks at rank 0's `address`; raises PeerLost after a minute without them.

    `name` is the attempt, such as "17.2": a process left over from another one is turned away.
    """
    group = Group(rank, size)
    try:
        if size > 1:
            meet = _gather if rank == 0 else _connect
            group.peers = meet(name, rank, size, address)
        yield group
    finally:
        for peer in group.peers:
            peer.close()


def _gather(name: str, rank: int, size: int, address: tuple[str, int]) -> list[socket.socket]:
    deadline_s = time.monotonic() + JOIN_S
    came: dict[int, socket.socket] = {}
    with socket.create_server(address, backlog=size) as server:
        while len(came) < size - 1:
            server.settimeout(max(0.001, deadline_s - time.monotonic()))
            try:
                peer, _ = server.accept()
            except TimeoutError as error:
                missing = sorted(set(range(1, size)) - set(came))
                raise PeerLost(f"ranks {missing} did not come") from error
            number = _welcome(peer, name, size)
            if number is not None:
                came[number] = _ready(peer)
            else:
                peer.close()
    return [came[number] for number in sorted(came)]


def _welcome(peer: socket.socket, name: str, size: int) -> int | None:
    """The rank of a peer of this attempt, which gets an answer; None for any other."""
    peer.settimeout(HELLO_S)
    try:
        length = _number(_read(peer, _LENGTH.size))
        hello = json.loads(_read(peer, min(length, HELLO_BYTES)))
        if hello["name"] != name or hello["rank"] not in range(1, size):
            return None
        peer.sendall(WELCOME)
        return int(hello["rank"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a stranger, or a peer that has died: the right one may still come


def _connect(name: str, rank: int, size: int, address: tuple[str, int]) -> list[socket.socket]:
    hello = json.dumps({"name": name, "rank": rank}).encode()
    deadline_s = time.monotonic() + JOIN_S
    while time.monotonic() < deadline_s:
        with suppress(OSError):
            peer = socket.create_connection(address, timeout=HELLO_S)
            peer.sendall(_LENGTH.pack(len(hello)) + hello)
            if _read(peer, len(WELCOME)) == WELCOME:
                return [_ready(peer)]
            peer.close()
        time.sleep(0.1)  # rank 0 is not there yet, or the one there is not ours
    raise PeerLost(f"rank {rank} found no rank 0 of {name} at {address[0]}:{address[1]}")


def _ready(peer: socket.socket) -> socket.socket:
    """No delay for small messages, and a dead host noticed in about 10 s."""
    peer.settimeout(SILENCE_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 4)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10_000)
    return peer


def _number(packed: bytes) -> int:
    return int(_LENGTH.unpack(packed)[0])


def _read(peer: socket.socket, length: int) -> bytes:
    """Exactly `length` bytes; a connection that ends before raises ConnectionError."""
    message = bytearray(length)
    view = memoryview(message)
    while view:
        count = peer.recv_into(view)
        if count == 0:
            raise ConnectionError("the peer has gone")
        view = view[count:]
    return bytes(message)
