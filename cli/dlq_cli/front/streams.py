"""Streams through the keeper: a TLS handshake costs more than most commands that need a stream.

Each stream has a socket of its own between its spare and the keeper, and bytes pass unread. A
stream ends with this socket: when its spare has ended, the keeper cancels the call. A keeper ends
after its spares. If it is killed, its streams are lost. Watches go on over a channel of their own,
and a command ends, as with any line of a client that is lost.

Each end hands over one message at a time. So a reader that stalls holds its sender up.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

import grpc

from dlq_cli.front.frames import Failure, RelayedError, failure_of, lost, receive, send

T = TypeVar("T")
UNARY_STREAM, STREAM_STREAM = "unary_stream", "stream_stream"  # as gRPC's channels name them
_CUT = (OSError, EOFError, ValueError)


class _HandOver(Generic[T]):
    """One value at a time from one thread to another."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._values: list[T] = []
        self._over = False

    def put(self, value: T) -> None:
        """Leave it once the one before was taken. No effect once it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or not self._values)
            if not self._over:
                self._values.append(value)
                self._changed.notify_all()

    def end(self) -> None:
        """No more values come. Twice is once."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._changed:
            self._changed.wait_for(lambda: self._over or bool(self._values))
            if not self._values:
                raise StopIteration
            self._changed.notify_all()
            return self._values.pop()


# --- in the keeper ----------------------------------------------------------------------------


def relay(
    line: socket.socket, channel: grpc.Channel, kind: str, method: str, request: bytes,
    timeout_s: float | None,
) -> None:  # fmt: skip
    """Serve one stream of a spare to its end; a unary one has one `request`. OSError, EOFError,
    ValueError: the spare has ended, and the call is cancelled.
    """
    requests: _HandOver[bytes] = _HandOver()
    asked = requests if kind == STREAM_STREAM else request
    call: Any = getattr(channel, kind)(method)(asked, timeout=timeout_s)
    hearing = threading.Thread(target=_hear_requests, args=(line, requests, call), daemon=True)
    hearing.start()
    try:
        send(line, _answers(line, call))
    finally:
        requests.end()
        call.cancel()
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
        hearing.join()


def _answers(line: socket.socket, call: Any) -> Failure:
    """Send all answers; the failure, or () at a good end."""
    try:
        for answer in call:
            send(line, answer)
    except grpc.RpcError as error:
        return failure_of(error)
    return ()


def _hear_requests(line: socket.socket, requests: _HandOver[bytes], call: Any) -> None:
    """Until the spare has ended, or the call."""
    with suppress(*_CUT):
        while (request := receive(line)) is not None:
            requests.put(request)
        requests.end()
        receive(line)  # nothing comes any more: it waits for the end
    requests.end()
    call.cancel()


# --- in a spare -------------------------------------------------------------------------------


class RelayedStream:
    """A stream that has begun, as gRPC's stubs return it. One thread takes its messages; any may
    cancel it.
    """

    def __init__(
        self, line: socket.socket, write: Callable[[Any], bytes], read: Callable[[bytes], Any]
    ) -> None:
        """`line`: to the keeper, which has accepted the stream."""
        self._line, self._write, self._read = line, write, read
        self._answers: _HandOver[bytes] = _HandOver()
        self._failure: Failure | None = None
        self._cancelled = False
        self._hearing = threading.Thread(target=self._hear, daemon=True)
        self._hearing.start()

    def ask_each(self, requests: Iterator[Any]) -> None:
        """Send the requests as they come, by a thread of its own."""
        threading.Thread(target=self._say, args=(requests,), daemon=True).start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """The next message, once it is there. Raises RelayedError as gRPC would."""
        for answer in self._answers:
            return self._read(answer)
        raise self._end() or StopIteration

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait for its end, and take no message any more. FutureTimeoutError: it goes on."""
        self._answers.end()
        return self._end(timeout)

    def cancel(self) -> None:
        """End it here and at the master. No effect once it has ended."""
        self._cancelled |= self._hearing.is_alive()
        self._answers.end()
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)

    def _end(self, timeout_s: float | None = None) -> Exception | None:
        """Wait for its end: the error, or None at a good end. FutureTimeoutError: it goes on."""
        self._hearing.join(timeout_s)
        if self._hearing.is_alive():
            raise grpc.FutureTimeoutError
        if self._cancelled:
            return RelayedError(grpc.StatusCode.CANCELLED.value[0], "cancelled here")
        if self._failure is None:
            return lost()
        return RelayedError(*self._failure) if self._failure else None

    def _hear(self) -> None:
        with self._line, suppress(*_CUT):
            while isinstance(answer := receive(self._line), bytes):
                self._answers.put(answer)
            self._failure = answer
        self._answers.end()

    def _say(self, requests: Iterator[Any]) -> None:
        try:
            for request in requests:
                raw = self._write(request)
                if not self._is_sent(raw):
                    return
        except BaseException:
            self.cancel()  # as gRPC: nobody else would end it
            raise
        self._is_sent(None)

    def _is_sent(self, raw: bytes | None) -> bool:
        """Whether the line took it. A lost line is told by the end of the stream."""
        with suppress(OSError):
            send(self._line, raw)
            return True
        return False
