"""Messages between a spare and the keeper of the line: Python values, each behind its size.

The failure of a call is a tuple, and becomes an error of gRPC again at the other end.
"""

from __future__ import annotations

import marshal
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from dlq_client.line import connection

_SIZE = struct.Struct("=I")
_LARGEST = connection.LARGEST_ANSWER_BYTES + (1 << 20)
_CODES = {code.value[0]: code for code in grpc.StatusCode}

Failure = tuple[Any, ...]
"""Its code, its words, and its trailing metadata."""


def send(line: socket.socket, value: Any) -> None:
    """Send one value. OSError: nobody reads."""
    raw = marshal.dumps(value)
    line.sendall(_SIZE.pack(len(raw)) + raw)


def receive(line: socket.socket) -> Any:
    """The next value. EOFError: the end of the line. ValueError: it is too large."""
    (size,) = _SIZE.unpack(_exactly(line, _SIZE.size))
    if size > _LARGEST:
        raise ValueError("too large")
    return marshal.loads(_exactly(line, size))


def _exactly(line: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = line.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def failure_of(error: grpc.RpcError) -> Failure:
    """An error of gRPC as a value."""
    failed: Any = error  # it is a grpc.Call too, as the stubs do not say
    trailing = [tuple(pair) for pair in failed.trailing_metadata() or ()]
    return (failed.code().value[0], failed.details() or "", trailing)


class RelayedError(grpc.RpcError, grpc.Call):
    """The master's refusal, or the loss of the line, as gRPC would raise it."""

    def __init__(
        self, code: int, details: str, trailing: Sequence[tuple[str, str | bytes]] = ()
    ) -> None:
        super().__init__(details)
        self._code, self._details, self._trailing = _CODES[code], details, tuple(trailing)

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Any:
        return self._trailing

    def initial_metadata(self) -> Any:
        return ()

    def is_active(self) -> bool:
        return False

    def time_remaining(self) -> float:
        return 0.0

    def cancel(self) -> bool:
        return False

    def add_callback(self, callback: Callable[[], None]) -> bool:
        del callback
        return False


def lost() -> RelayedError:
    """The keeper has ended: the caller may try again, over a channel of its own."""
    return RelayedError(grpc.StatusCode.UNAVAILABLE.value[0], "the process with the line has ended")
