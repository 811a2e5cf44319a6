"""Connections to ports of a job, many over one command inside it.

The command is the node's own (nodeagent shim/init/forward.c, which lists the frames). Each
connection has a window in each direction, so a slow one never stops the others. A cut line is taken
up again as for every kept command, and no byte is lost or repeated.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from dlq.v1 import exec_pb2
from dlq_client.inside.command import CommandInside
from dlq_client.line.connection import Connection
from dlq_common.errors import DlqError, IllegalTransition, InvalidRequest, Unavailable

COMMAND = "dlq-forward"
MOST_CONNECTIONS = 240
LOOPBACK = "127.0.0.1"
_HEAD = struct.Struct("!cII")
_MOST_BYTES = 120 * 1024  # of one frame
_MOST_QUEUED_BYTES = 1 << 20  # read from our side, and not on the line yet
_LARGE_BYTES = 4096  # of a frame that is not copied
_MOST_ARRIVED = 1024  # frames that wait for the thread of the sockets
_WITH_BYTES = (b"d", b"r")
_NOT_FOUND = 127
_LINGER = struct.Struct("ii")


class Frame(NamedTuple):
    """A letter, the number of a connection, a number, and bytes."""

    letter: bytes
    stream: int
    number: int
    data: bytes | memoryview = b""


class Frames:
    """Takes a line of bytes apart."""

    def __init__(self) -> None:
        self._rest = b""  # of a frame that is not whole

    def of(self, data: bytes | memoryview) -> list[Frame]:
        """The whole frames up to here; ValueError where these are none. Large ones are not copied:
        they are views of `data`.
        """
        found: list[Frame] = []
        if self._rest:
            missing = self._missing(data)
            self._rest += data[:missing]
            data = data[missing:]
            end = _end_of(self._rest, 0)
            if end is None or end > len(self._rest):
                return found
            found.append(_frame(memoryview(self._rest), 0, end))
        view, at = memoryview(data), 0
        while (end := _end_of(view, at)) is not None and end <= len(data):
            found.append(_frame(view, at, end))
            at = end
        self._rest = bytes(view[at:])
        return found

    def _missing(self, data: bytes | memoryview) -> int:
        """So many of these bytes end the frame that is not whole."""
        head = self._rest + data[: _HEAD.size]
        end = _end_of(head, 0)
        return len(data) if end is None else end - len(self._rest)


def _end_of(line: bytes | memoryview, at: int) -> int | None:
    """Where the frame that begins here ends. None: its head is not whole. Raises ValueError."""
    if len(line) - at < _HEAD.size:
        return None
    letter, _, number = _HEAD.unpack_from(line, at)
    length = number if letter in _WITH_BYTES else 0
    if length > _MOST_BYTES or letter not in b"hkrdwex":
        raise ValueError("the node does not speak as a forward does")
    return at + _HEAD.size + int(length)


def _frame(line: memoryview, at: int, end: int) -> Frame:
    letter, stream, number = _HEAD.unpack_from(line, at)
    data = line[at + _HEAD.size : end]
    # A small frame would keep all of the bytes that came with it.
    large = len(data) >= _LARGE_BYTES and 4 * len(data) > len(line)
    return Frame(letter, stream, number, data if large else bytes(data))


@dataclass(slots=True, eq=False)
class _Local:
    """One connection at our side."""

    line: socket.socket
    stream: int
    credit: int
    waiting: deque[bytes | memoryview] = field(default_factory=deque)
    held: int = 0
    """Bytes that came and are not credited: at most a window."""
    owed: int = 0
    read_all: bool = False
    heard_end: bool = False
    shut: bool = False


class Forward:
    """Serves local ports until the job, the line or the caller ends it."""

    def __init__(
        self,
        connection: Connection,
        job_id: str,
        *,
        node_rank: int = 0,
        tell: Callable[[str], object] = lambda _: None,
        tell_more: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`tell` gets words for people: a line that is lost, and connections that are refused.
        `tell_more` hears which way the bytes go.
        """
        self._tell = tell
        self._inside = CommandInside(
            *(connection, job_id, [COMMAND]),
            node_rank=node_rank,
            kept=True,
            comes_back=True,
            forward=True,
            tell=tell,
            bulky=True,
            tell_more=tell_more,
        )
        self._selector = selectors.DefaultSelector()
        self._listening: dict[socket.socket, int] = {}
        self._locals: dict[int, _Local] = {}
        self._arrived: deque[Frame] = deque()
        self._taken = threading.Condition()
        self._serving = True
        self._line = _Line(self._inside, self._wake)
        self._ended: exec_pb2.ExecEnded | None = None
        self._failure: DlqError | None = None
        self._window = self._next = 0
        self._told: set[str] = set()
        self._is_woken = False
        self._woken, self._wakes = os.pipe()
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def listen(self, port: int, local_port: int) -> int:
        """Serve this port of the job on our loopback; the local port (0: any that is free)."""
        made = socket.socket()
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((LOOPBACK, local_port))
            made.listen(128)
        except OSError as error:
            made.close()
            raise InvalidRequest(
                f"port {local_port} of this host cannot be used: {error.strerror}",
                hint=f"take any free one: {port}:0",
            ) from None
        made.setblocking(False)
        self._listening[made] = port
        own: int = made.getsockname()[1]
        return own

    def serve(self, ready: Callable[[], object] = lambda: None) -> None:
        """Until it is over; `ready` is called once the job can be reached. Raises the DlqError for
        which it ended.
        """
        threading.Thread(target=self._hear, daemon=True, name="forward").start()
        try:
            while self._ended is None and self._failure is None:
                self._step(ready)
            self._take_arrived(ready)  # its last words came before its end
            self._say_end()
        finally:
            self.close()

    def close(self) -> None:
        """End all connections, and the command in the job."""
        with self._taken:
            self._serving = False
            self._taken.notify()
        self._inside.kill()
        self._line.close()
        for each in list(self._locals.values()):
            self._forget(each)
        for made in self._listening:
            made.close()

    # ---- the line

    def _hear(self) -> None:
        """A thread of its own, which always reads: the windows bound the waiting bytes."""
        frames = Frames()
        try:
            for piece in self._inside.pieces():
                if isinstance(piece, memoryview):
                    self._put_arrived(frames.of(piece))
                elif piece.HasField("ended"):
                    self._ended = piece.ended
                elif stdout := piece.stdout:  # each use of the field copies it
                    self._put_arrived(frames.of(stdout))
        except DlqError as error:
            self._failure = error
        except ValueError as error:
            self._failure = Unavailable(str(error))
        if self._ended is None and self._failure is None:
            self._ended = exec_pb2.ExecEnded()
        self._wake()

    def _put_arrived(self, frames: list[Frame]) -> None:
        """The other thread always takes them, so a node that sends faster waits."""
        with self._taken:
            while len(self._arrived) >= _MOST_ARRIVED and self._serving:
                self._taken.wait()
        self._arrived.extend(frames)
        self._wake()

    def _wake(self) -> None:
        if self._is_woken:
            return
        self._is_woken = True
        with suppress(BlockingIOError):
            os.write(self._wakes, b"w")

    def _say_end(self) -> None:
        if self._failure is not None:
            raise self._failure
        ended = self._ended or exec_pb2.ExecEnded()
        if ended.rank_ended:
            raise IllegalTransition("the job's rank has ended, and the forward with it")
        if ended.exit_code == _NOT_FOUND:
            raise Unavailable("the agent of the job's node is older than `dlq forward`")
        raise Unavailable(f"the forward has ended: {ended.error or 'its node gives no reason'}")

    # ---- one round

    def _step(self, ready: Callable[[], object]) -> None:
        for key, events in self._selector.select():
            if key.fileobj == self._woken:
                with suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                self._is_woken = False  # before what has come is looked at
            elif isinstance(key.data, _Local):
                self._serve_local(key.data, events)
            elif isinstance(key.fileobj, socket.socket):
                self._accept(key.fileobj)
        self._take_arrived(ready)
        with self._taken:
            self._taken.notify()
        for each in list(self._locals.values()):
            self._watch(each)
        self._watch_listening()

    def _take_arrived(self, ready: Callable[[], object]) -> None:
        while self._arrived:
            self._take(self._arrived.popleft(), ready)

    def _take(self, frame: Frame, ready: Callable[[], object]) -> None:
        local = self._locals.get(frame.stream)
        if frame.letter == b"h":
            self._window = frame.number
            ready()
        elif local is None:
            pass  # it has ended at our side meanwhile
        elif frame.letter == b"d":
            local.held += len(frame.data)
            if local.held > self._window:
                self._failure = Unavailable("the node sends more than it may")
                return
            local.waiting.append(frame.data)
            self._write(local)
        elif frame.letter == b"w":
            local.credit += frame.number
        elif frame.letter == b"e":
            local.heard_end = True
            self._write(local)
        elif frame.letter == b"r":
            self._tell_once(bytes(frame.data).decode("utf-8", "replace"))
            self._forget(local)
        elif frame.letter == b"x":
            self._forget(local)

    def _tell_once(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self._tell(f"a connection was refused: {words}")

    def _accept(self, made: socket.socket) -> None:
        try:
            line, _ = made.accept()
        except OSError:
            return  # it has gone again
        line.setblocking(False)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _close_as(line, broken=True)
        self._next += 1
        self._locals[self._next] = _Local(line, self._next, self._window)
        self._line.put(_HEAD.pack(b"o", self._next, self._listening[made]))

    # ---- one connection

    def _serve_local(self, local: _Local, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write(local)
        if events & selectors.EVENT_READ and local.stream in self._locals:
            self._read(local)

    def _read(self, local: _Local) -> None:
        try:
            data = local.line.recv(min(local.credit, _MOST_BYTES))
        except BlockingIOError:
            return
        except OSError:
            self._break_off(local)
            return
        if data:
            local.credit -= len(data)
            self._line.put(_HEAD.pack(b"d", local.stream, len(data)), data)
        else:
            local.read_all = True
            self._line.put(_HEAD.pack(b"e", local.stream, 0))
            self._forget_if_over(local)

    def _write(self, local: _Local) -> None:
        while local.waiting:
            data = local.waiting.popleft()
            try:
                done = local.line.send(data)
            except BlockingIOError:
                done = 0
            except OSError:
                self._break_off(local)
                return
            local.owed += done
            if done < len(data):
                local.waiting.appendleft(data[done:])
                break
        if local.owed >= self._window // 2:
            self._line.put(_HEAD.pack(b"w", local.stream, local.owed))
            local.held -= local.owed
            local.owed = 0
        if local.heard_end and not local.waiting and not local.shut:
            local.shut = True
            with suppress(OSError):
                local.line.shutdown(socket.SHUT_WR)
                _close_as(local.line, broken=False)
            self._forget_if_over(local)

    def _forget_if_over(self, local: _Local) -> None:
        if local.read_all and local.shut:
            self._forget(local)

    def _break_off(self, local: _Local) -> None:
        self._line.put(_HEAD.pack(b"x", local.stream, 0))
        self._forget(local)

    def _forget(self, local: _Local) -> None:
        if self._locals.pop(local.stream, None) is not None:
            self._register(local.line, 0, None)
            local.line.close()

    # ---- what is waited for

    def _watch(self, local: _Local) -> None:
        events = selectors.EVENT_WRITE if local.waiting else 0
        if not local.read_all and local.credit and self._line.has_room:
            events |= selectors.EVENT_READ
        self._register(local.line, events, local)

    def _watch_listening(self) -> None:
        open_ = self._window and len(self._locals) < MOST_CONNECTIONS
        for made in self._listening:
            self._register(made, selectors.EVENT_READ if open_ else 0, None)

    def _register(self, line: socket.socket, events: int, data: _Local | None) -> None:
        known = self._selector.get_map().get(line)
        if known is None:
            if events:
                self._selector.register(line, events, data)
        elif not events:
            self._selector.unregister(line)
        elif known.events != events:
            self._selector.modify(line, events, data)


def _close_as(line: socket.socket, *, broken: bool) -> None:
    """How it closes, also where this process is killed. `broken`: by a reset. Then the program at
    our side never takes half an answer for a whole one.
    """
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER.pack(broken, 0))


class _Line:
    """Frames on their way into the command, brought by a thread of its own."""

    def __init__(self, inside: CommandInside, wake: Callable[[], None]) -> None:
        self._inside, self._wake = inside, wake
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._closed = False
        threading.Thread(target=self._bring, daemon=True, name="forward-out").start()

    @property
    def has_room(self) -> bool:
        """Whether more should be read from our side."""
        return self._bytes < _MOST_QUEUED_BYTES

    def put(self, *pieces: bytes) -> None:
        """Add a frame; never waits."""
        with self._changed:
            self._waiting.extend(pieces)
            self._bytes += sum(map(len, pieces))
            self._changed.notify()

    def close(self) -> None:
        """No more will be brought."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _bring(self) -> None:
        while data := self._next():
            size = self._inside.piece_bytes
            for at in range(0, len(data), size):
                self._inside.stdin(data[at : at + size])
            self._wake()

    def _next(self) -> bytes:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if self._closed:
                return b""
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._bytes = 0
            return data
