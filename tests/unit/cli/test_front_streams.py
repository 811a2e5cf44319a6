"""Streams of a command through the process that keeps the line, to a server of gRPC and back."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlq_cli.front import frames, line
from dlq_cli.front.streams import RelayedStream
from dlq_client.line import connection
from support.waiting import wait_until
from unit.cli.test_front_line import WHO

WAIT_S = 60.0


class Server:
    """Answers streams, and notes which of them have ended."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        self.read = 0
        self.may_read = threading.Event()
        self.may_read.set()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        kinds: dict[str, Any] = {
            "/echo": grpc.stream_stream_rpc_method_handler(self.echo),
            "/count": grpc.unary_stream_rpc_method_handler(self.count),
            "/wait": grpc.unary_stream_rpc_method_handler(self.wait),
        }
        return kinds[details.method]

    def echo(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(self.ended.set)
        self.begun.set()
        self.may_read.wait(WAIT_S)
        for request in requests:
            self.read += 1
            yield request.upper()

    def count(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from (b"%d" % number for number in range(int(request)))
        context.set_trailing_metadata((("why", "enough"),))
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no more")

    def wait(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(self.ended.set)
        yield b"waiting"
        self.ended.wait(WAIT_S)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server()
    handler: Any = made
    serving = grpc.server(futures.ThreadPoolExecutor(8), handlers=[handler])
    port = serving.add_insecure_port("127.0.0.1:0")
    serving.start()
    monkeypatch.setattr(
        connection, "open_channel", lambda _: grpc.insecure_channel(f"127.0.0.1:{port}")
    )
    yield made
    made.ended.set()
    serving.stop(None).wait()


@pytest.fixture
def channel(server: Server) -> Iterator[line.RelayedChannel]:
    del server
    root = Path(tempfile.mkdtemp(prefix="dlqfs", dir="/tmp"))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(root / "line"))
    listening.listen()
    line._Keeper(root / "line")._start_thread(listening)
    with line.RelayedChannel(root / "line", WHO) as opened:
        yield opened
    shutil.rmtree(root)


def test_bytes_go_both_ways_and_the_stream_ends_as_the_masters(
    channel: line.RelayedChannel,
) -> None:
    said = [bytes([97 + number]) for number in range(20)]
    assert list(channel.stream_stream("/echo", bytes, bytes)(iter(said))) == [
        word.upper() for word in said
    ]
    assert channel._own is None


def test_a_refusal_comes_behind_the_messages_with_all_that_it_says(
    channel: line.RelayedChannel,
) -> None:
    stream, found = channel.unary_stream("/count", bytes, bytes)(b"3", timeout=WAIT_S), []
    with pytest.raises(grpc.RpcError) as refused:
        found.extend(stream)
    error: Any = refused.value
    assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "no more")
    assert ("why", "enough") in error.trailing_metadata()
    assert channel._own is None


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_stream_that_its_command_leaves_ends_at_the_master(
    channel: line.RelayedChannel, server: Server, how: str
) -> None:
    stream = channel.unary_stream("/wait", bytes, bytes)(b"")
    assert next(stream) == b"waiting"
    with pytest.raises(grpc.FutureTimeoutError):
        stream.exception(timeout=0.01)
    if how == "cancel":
        stream.cancel()
    else:  # as when its process is killed
        stream._line.shutdown(socket.SHUT_RDWR)
    assert server.ended.wait(WAIT_S)
    with pytest.raises(grpc.RpcError) as ended:
        next(stream)
    error: Any = ended.value
    lost = grpc.StatusCode.CANCELLED if how == "cancel" else grpc.StatusCode.UNAVAILABLE
    assert error.code() is lost


def test_a_command_that_ends_its_requests_is_still_watched(
    channel: line.RelayedChannel, server: Server
) -> None:
    server.may_read.clear()
    stream = channel.stream_stream("/echo", bytes, bytes)(iter((b"a",)))
    assert server.begun.wait(WAIT_S)
    channel.close()
    assert server.ended.wait(WAIT_S)
    server.may_read.set()
    with pytest.raises(grpc.RpcError):
        next(stream)


def test_a_stream_that_nobody_reads_holds_its_sender_up(
    channel: line.RelayedChannel, server: Server
) -> None:
    server.may_read.clear()
    asked = 0

    def requests() -> Iterator[bytes]:
        nonlocal asked
        for asked in range(1, 101):  # noqa: B007 - it is counted
            yield bytes(1 << 20)

    stream = channel.stream_stream("/echo", bytes, bytes)(requests())
    wait_until(lambda: asked > 1, what="the first requests", timeout_s=WAIT_S)
    assert asked < 100
    server.may_read.set()
    assert sum(1 for _ in stream) == 100


def test_more_streams_than_the_line_takes_have_a_channel_of_their_own(
    channel: line.RelayedChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "MOST_STREAMS", 1)
    first = channel.unary_stream("/wait", bytes, bytes)(b"")
    assert next(first) == b"waiting"
    assert channel._own is None
    assert list(channel.stream_stream("/echo", bytes, bytes)(iter((b"a",)))) == [b"A"]
    assert channel._own is not None


def test_the_end_of_the_keeper_is_a_lost_line() -> None:
    ours, its = socket.socketpair()
    stream = RelayedStream(ours, bytes, bytes)
    its.close()
    with pytest.raises(grpc.RpcError) as lost:
        next(stream)
    error: Any = lost.value
    assert error.code() is grpc.StatusCode.UNAVAILABLE


def test_a_stream_that_is_cancelled_twice_was_cancelled(channel: line.RelayedChannel) -> None:
    stream = channel.unary_stream("/wait", bytes, bytes)(b"")
    assert next(stream) == b"waiting"
    stream.cancel()
    stream._hearing.join(WAIT_S)
    stream.cancel()
    for error in (stream.exception(), *refusals(stream)):
        assert error.code() is grpc.StatusCode.CANCELLED


def refusals(stream: RelayedStream) -> list[Any]:
    """The error that its reader gets."""
    with pytest.raises(grpc.RpcError) as ended:
        next(stream)
    return [ended.value]


def test_a_reader_hears_the_true_end_while_another_thread_waits_for_it() -> None:
    ours, its = socket.socketpair()
    stream = RelayedStream(ours, bytes, bytes)
    found: list[Any] = []
    reading = threading.Thread(target=lambda: found.extend(stream))
    with pytest.raises(grpc.FutureTimeoutError):
        stream.exception(timeout=0.0)
    reading.start()
    reading.join(0.2)
    assert reading.is_alive(), "it waits for the end"
    frames.send(its, ())
    reading.join(WAIT_S)
    assert (reading.is_alive(), found, stream.exception()) == (False, [], None)
    its.close()


@pytest.mark.parametrize("where", ["iterator", "serializer", "file"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_of_the_requests_ends_the_stream(
    channel: line.RelayedChannel, server: Server, where: str
) -> None:
    def requests() -> Iterator[bytes]:
        yield b"a"
        assert server.begun.wait(WAIT_S)
        if where != "serializer":
            raise OSError("gone") if where == "file" else RuntimeError("wrong")
        yield b"wrong"

    def write(request: bytes) -> bytes:
        if request == b"wrong":
            raise ValueError
        return request

    stream = channel.stream_stream("/echo", write, bytes)(requests())
    assert server.ended.wait(WAIT_S)
    assert stream.exception(WAIT_S).code() is grpc.StatusCode.CANCELLED


def test_the_only_request_of_a_stream_comes_with_its_opening() -> None:
    with tempfile.TemporaryDirectory(prefix="dlqfs", dir="/tmp") as root:
        listening = socket.create_server(f"{root}/line", family=socket.AF_UNIX)
        opened: list[Any] = []

        def keeper() -> None:
            of_the_channel, _ = listening.accept()
            its, _ = listening.accept()
            with of_the_channel, its:
                opened.extend((frames.receive(its), frames.receive(its)))
                frames.send(its, True)
                frames.send(its, ())

        serving = threading.Thread(target=keeper)
        serving.start()
        with line.RelayedChannel(Path(root) / "line", WHO) as channel:
            stream = channel.unary_stream("/count", bytes, bytes)(b"3", timeout=WAIT_S)
            assert list(stream) == []
        serving.join()
        listening.close()
    assert opened[1] == ("unary_stream", "/count", b"3", WAIT_S)
