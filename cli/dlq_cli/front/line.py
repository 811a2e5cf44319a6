"""One connection to the master for all commands of a server: a TLS handshake costs more than a
command.

The keeper is a process of its own, because gRPC and fork do not go together. A spare sends it the
identity in the caller's environment; the keeper has one channel for each identity. Bytes pass
through it unread, those of streams too (front/streams.py).
"""

from __future__ import annotations

import hashlib
import marshal
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import grpc

from dlq_cli.front.frames import RelayedError, failure_of, lost, receive, send
from dlq_cli.front.request import peer_uid
from dlq_cli.front.streams import STREAM_STREAM, UNARY_STREAM, RelayedStream, relay
from dlq_client.line import connection
from dlq_client.line.identity import Identity

_MOST_CHANNELS = 4
_MOST_WAITING = 4
MOST_STREAMS = 100
"""The master takes 256 calls at once on one channel. Spares open channels for further streams."""
_PEMS = ("key", "certificate", "ca", "address")


class KeptLine:
    """The server's hold on its keeper; without it the keeper ends once it is unused."""

    def __init__(self, held: int) -> None:
        self._held = held

    def close(self) -> None:
        """Release the keeper."""
        os.close(self._held)


def start_keeper(path: Path, *not_its: int) -> KeptLine:
    """Fork the keeper, reachable at `path`; it closes the descriptors `not_its`."""
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
        self._streams = 0

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
            channel = self._channel(receive(line))
            while True:
                kind, method, request, timeout_s = receive(line)
                if kind:
                    self._serve_stream(line, channel, kind, method, request, timeout_s)
                    return
                send(line, _answer(channel, method, request, timeout_s))

    def _serve_stream(
        self, line: socket.socket, channel: grpc.Channel, kind: str, method: str, request: bytes,
        timeout_s: float | None,
    ) -> None:  # fmt: skip
        with self._lock:
            has_room = self._streams < MOST_STREAMS
            self._streams += has_room
        try:
            send(line, has_room)
            if has_room:
                relay(line, channel, kind, method, request, timeout_s)
        finally:
            with self._lock:
                self._streams -= has_room

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
    """(bytes,) or a failure."""
    try:
        ask: Any = channel.unary_unary(method)
        return (ask(request, timeout=timeout_s),)
    except grpc.RpcError as error:
        return failure_of(error)


# --- in a spare -------------------------------------------------------------------------------


def use(path: Path) -> None:
    """From now on connections of this process go through the keeper at `path`."""
    connection.Connection.opener = partial(RelayedChannel, path)
    connection.Connection.asking = staticmethod(_ask_here)


def _ask_here(call: Callable[[], Any]) -> Any:
    """Ask the keeper in this thread, so that Ctrl-C may interrupt it: gRPC is not involved."""
    return call()


class RelayedChannel(grpc.Channel):
    """A channel whose calls go through the keeper.

    It opens a real channel if the keeper takes no more calls, and for calls with much data.
    """

    def __init__(self, path: Path, identity: Identity) -> None:
        self._path, self._identity = path, identity
        self._own: grpc.Channel | None = None
        self._streams: WeakSet[RelayedStream] = WeakSet()
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        with suppress(OSError):
            self._line = self._to_keeper()

    def _to_keeper(self) -> socket.socket:
        line = socket.socket(socket.AF_UNIX)
        try:
            line.connect(str(self._path))
            if peer_uid(line) != os.geteuid():
                raise PermissionError(1, "not ours")
            send(line, tuple(getattr(self._identity, name) for name in _PEMS))
        except OSError:
            line.close()
            raise
        return line

    @property
    def masters(self) -> Any:
        """The masters of the real channel, once there is one."""
        return getattr(self._own, "masters", None)

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None,
        *rest: Any, **more: Any,
    ) -> Any:  # fmt: skip
        """A callable for gRPC's stubs."""

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
                send(line, ("", method, request, timeout_s))
                answer = receive(line)
            except (OSError, EOFError, ValueError):
                raise lost() from None
            finally:
                if answer is None:
                    self._let_go()  # the next try goes over a channel of our own
        if len(answer) == 1:
            return bytes(answer[0])
        raise RelayedError(*answer)

    def unary_stream(self, method: str, *rest: Any, **more: Any) -> Any:
        """Likewise, for a stream of answers."""
        return self._streaming(UNARY_STREAM, method, *rest, **more)

    def stream_stream(self, method: str, *rest: Any, **more: Any) -> Any:
        """Likewise, for a stream in both directions."""
        return self._streaming(STREAM_STREAM, method, *rest, **more)

    def _streaming(
        self, kind: str, method: str, request_serializer: Any = None,
        response_deserializer: Any = None, *rest: Any, **more: Any,
    ) -> Any:  # fmt: skip
        def call(asked: Any, timeout: float | None = None, **options: Any) -> Any:
            line = None
            if not options:
                request = b"" if kind == STREAM_STREAM else request_serializer(asked)
                line = self._begun(kind, method, request, timeout)
            if line is None:
                own = getattr(self._real(), kind)
                real = own(method, request_serializer, response_deserializer, *rest, **more)
                return real(asked, timeout=timeout, **options)
            stream = RelayedStream(line, request_serializer, response_deserializer)
            self._streams.add(stream)
            if kind == STREAM_STREAM:
                stream.ask_each(asked)
            return stream

        return call

    def _begun(
        self, kind: str, method: str, request: bytes, timeout_s: float | None
    ) -> socket.socket | None:
        """A line on which the keeper has begun such a stream. None: it takes none."""
        if self._line is None:
            return None
        with suppress(OSError, EOFError, ValueError):
            line = self._to_keeper()
            try:
                send(line, (kind, method, request, timeout_s))
                if receive(line):
                    return line
            except BaseException:
                line.close()
                raise
            line.close()
        return None

    def stream_unary(self, *rest: Any, **more: Any) -> Any:
        return lambda *given, **named: self._real().stream_unary(*rest, **more)(*given, **named)

    def subscribe(self, *rest: Any, **more: Any) -> None:
        self._real().subscribe(*rest, **more)

    def unsubscribe(self, callback: Any) -> None:
        self._real().unsubscribe(callback)

    def direct(self) -> grpc.Channel:
        """The real channel, for streams with much data: each byte would pass here."""
        return self._real()

    def close(self) -> None:
        """End all lines; open streams are cancelled."""
        for stream in list(self._streams):
            stream.cancel()
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
