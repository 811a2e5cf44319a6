"""One line to the master for all commands of a server: a TLS handshake costs more than a command.

The keeper is a process of its own, because gRPC and fork do not go together. A spare gives it the
identity that the caller's environment names; the keeper has one channel for each identity. Bytes
pass through it unread. For streams a spare opens a channel of its own.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from dlq_cli.front.request import peer_uid
from dlq_client.line import connection
from dlq_client.line.identity import Identity

_SIZE = struct.Struct("=I")
_LARGEST = connection.LARGEST_ANSWER_BYTES + (1 << 20)
_MOST_CHANNELS = 4
_MOST_WAITING = 4
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_PEMS = ("key", "certificate", "ca", "address")


class KeptLine:
    """The server's hold on its keeper: closing it ends the keeper once nobody uses it."""

    def __init__(self, held: int) -> None:
        self._held = held

    def close(self) -> None:
        """Let go."""
        os.close(self._held)


def start_keeper(path: Path, *not_its: int) -> KeptLine:
    """Fork the process that keeps the line, reachable at `path`; `not_its` are descriptors that it
    closes.
    """
    with suppress(FileNotFoundError):
        path.unlink()
    listening = socket.socket(socket.AF_UNIX)
    umask = os.umask(0o177)
    listening.bind(str(path))
    os.umask(umask)
    listening.listen(512)
    watched, held = os.pipe()
    if os.fork() == 0:
        try:
            for descriptor in (held, *not_its):
                os.close(descriptor)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _Keeper(path).run(listening, watched)
        finally:
            os._exit(0)
    os.close(watched)
    listening.close()
    return KeptLine(held)


class _Keeper:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._channels: dict[bytes, grpc.Channel] = {}
        self._lock = threading.Lock()
        self._waiting = 0  # threads that wait for a line

    def run(self, listening: socket.socket, watched: int) -> None:
        self._start_thread(listening)
        with suppress(OSError):
            os.read(watched, 1)  # until the server lets go
        with suppress(OSError):
            self._path.unlink()

    def _start_thread(self, listening: socket.socket) -> None:
        self._waiting += 1
        threading.Thread(target=self._accept, args=(listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        """Serve one line after another. There is always a thread that waits for the next one."""
        while True:
            line, _ = listening.accept()
            with self._lock:
                self._waiting -= 1
                if not self._waiting:
                    self._start_thread(listening)
            self._serve(line)
            with self._lock:
                if self._waiting == _MOST_WAITING:
                    return
                self._waiting += 1

    def _serve(self, line: socket.socket) -> None:
        with line, suppress(OSError, EOFError, ValueError, TypeError):
            if peer_uid(line) != os.geteuid():
                return
            channel = self._channel(_receive(line))
            while True:
                method, request, timeout_s = _receive(line)
                _send(line, _answer(channel, method, request, timeout_s))

    def _channel(self, pems: Sequence[Any]) -> grpc.Channel:
        name = hashlib.sha256(marshal.dumps(tuple(pems))).digest()
        with self._lock:
            channel = self._channels.pop(name, None)
            if channel is None:
                channel = connection.open_channel(_identity(pems))
            self._channels[name] = channel
            while len(self._channels) > _MOST_CHANNELS:
                del self._channels[next(iter(self._channels))]  # ends with its last call
            return channel


def _identity(pems: Sequence[Any]) -> Identity:
    key, certificate, ca, address = pems
    return Identity(
        key=key, certificate=certificate, ca=ca, address=address, cluster="", user="", role="",
        issued_s=0.0, expires_s=0.0,
    )  # fmt: skip


def _answer(
    channel: grpc.Channel, method: str, request: bytes, timeout_s: float | None
) -> tuple[Any, ...]:
    """(bytes,) or (code, details, metadata)."""
    try:
        relay: Any = channel.unary_unary(method)
        return (relay(request, timeout=timeout_s),)
    except grpc.RpcError as error:
        failed: Any = error  # it is a grpc.Call too, as the stubs do not say
        trailing = [tuple(pair) for pair in failed.trailing_metadata() or ()]
        return (failed.code().value[0], failed.details() or "", trailing)


def _send(line: socket.socket, value: Any) -> None:
    raw = marshal.dumps(value)
    line.sendall(_SIZE.pack(len(raw)) + raw)


def _receive(line: socket.socket) -> Any:
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


# --- in a spare -------------------------------------------------------------------------------


def use(path: Path) -> None:
    """From now on connections of this process go through the keeper at `path`."""
    connection.Connection.opener = partial(RelayedChannel, path)
    connection.Connection.asking = staticmethod(_ask_here)


def _ask_here(call: Callable[[], Any]) -> Any:
    """Ctrl-C may break off what the keeper is asked: gRPC is not in it."""
    return call()


class RelayedError(grpc.RpcError, grpc.Call):
    """The master's refusal, or the loss of the line, as gRPC would raise it."""

    def __init__(
        self, code: int, details: str, trailing: Sequence[tuple[str, str | bytes]]
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


class RelayedChannel(grpc.Channel):
    """A channel whose single requests go through the keeper; for all else it opens a real one."""

    def __init__(self, path: Path, identity: Identity) -> None:
        self._identity = identity
        self._own: grpc.Channel | None = None
        self._line: socket.socket | None = socket.socket(socket.AF_UNIX)
        self._lock = threading.Lock()
        try:
            self._line.connect(str(path))
            if peer_uid(self._line) != os.geteuid():
                raise PermissionError(1, "not ours")
            _send(self._line, tuple(getattr(identity, name) for name in _PEMS))
        except OSError:
            self._let_go()

    @property
    def masters(self) -> Any:
        """Those of a real channel, once there is one."""
        return getattr(self._own, "masters", None)

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None,
        *rest: Any, **more: Any,
    ) -> Any:  # fmt: skip
        """A callable, as gRPC's stubs want it."""

        def call(request: Any, timeout: float | None = None, **options: Any) -> Any:
            if self._line is None or options:
                own = self._real().unary_unary(
                    method, request_serializer, response_deserializer, *rest, **more
                )
                return connection.apart(partial(own, request, timeout=timeout, **options))
            return response_deserializer(self._ask(method, request_serializer(request), timeout))

        return call

    def _ask(self, method: str, request: bytes, timeout_s: float | None) -> bytes:
        with self._lock:
            line, answer = self._line, None
            try:
                if line is None:
                    raise EOFError
                _send(line, (method, request, timeout_s))
                answer = _receive(line)
            except (OSError, EOFError, ValueError):
                lost = grpc.StatusCode.UNAVAILABLE.value[0]
                raise RelayedError(lost, "the process with the line has ended", ()) from None
            finally:
                if answer is None:
                    self._let_go()  # the next try goes over a channel of our own
        if len(answer) == 1:
            return bytes(answer[0])
        raise RelayedError(*answer)

    def unary_stream(self, *rest: Any, **more: Any) -> Any:
        return lambda *given, **named: self._real().unary_stream(*rest, **more)(*given, **named)

    def stream_unary(self, *rest: Any, **more: Any) -> Any:
        return lambda *given, **named: self._real().stream_unary(*rest, **more)(*given, **named)

    def stream_stream(self, *rest: Any, **more: Any) -> Any:
        return lambda *given, **named: self._real().stream_stream(*rest, **more)(*given, **named)

    def subscribe(self, *rest: Any, **more: Any) -> None:
        self._real().subscribe(*rest, **more)

    def unsubscribe(self, callback: Any) -> None:
        self._real().unsubscribe(callback)

    def close(self) -> None:
        """End both."""
        if self._own is not None:
            self._own.close()
        self._let_go()

    def _let_go(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None

    def __enter__(self) -> RelayedChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _real(self) -> grpc.Channel:
        if self._own is None:
            self._own = connection.open_channel(self._identity)
        return self._own
