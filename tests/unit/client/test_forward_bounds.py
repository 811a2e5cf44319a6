"""A node that keeps no rule of a forward: the client's memory is bounded all the same."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dlq.v1 import exec_pb2
from dlq_client.inside import forward as module
from dlq_client.inside.forward import Forward, Frames
from dlq_common.errors import IllegalTransition, Unavailable

HEAD = struct.Struct("!cII")
WINDOW = 64 * 1024
PIECE = bytes(16 * 1024)
ANSWER = bytes(50_000)


class BoldInside:
    """A command that sends for ever, whatever its client takes."""

    piece_bytes = 64 * 1024

    def __init__(self, *_: object, **__: object) -> None:
        self.asked, self.over = threading.Event(), threading.Event()
        self.sent = 0

    def pieces(self) -> Iterator[exec_pb2.ExecOutput]:
        yield exec_pb2.ExecOutput(stdout=HEAD.pack(b"h", 0, WINDOW))
        assert self.asked.wait(60.0)
        while not self.over.is_set():
            self.sent += len(PIECE)
            yield exec_pb2.ExecOutput(stdout=HEAD.pack(b"d", 1, len(PIECE)) + PIECE)

    def stdin(self, data: bytes) -> None:
        if data[:1] == b"o":
            self.asked.set()

    def kill(self) -> None:
        self.over.set()


def test_more_than_a_window_ends_the_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CommandInside", BoldInside)
    nobody: Any = None
    made = Forward(nobody, "1")
    local = made.listen(80, 0)
    lines: list[socket.socket] = []

    def connect() -> None:
        line = socket.create_connection(("127.0.0.1", local))
        lines.append(line)  # and it never reads

    with pytest.raises(Unavailable, match="more than it may"):
        made.serve(connect)
    for line in lines:
        line.close()


class AnsweringInside(BoldInside):
    """A command that answers its first connection, and ends it before its own end, or does not."""

    ends = False

    def pieces(self) -> Iterator[exec_pb2.ExecOutput]:
        yield exec_pb2.ExecOutput(stdout=HEAD.pack(b"h", 0, WINDOW))
        assert self.asked.wait(60.0)
        yield exec_pb2.ExecOutput(stdout=HEAD.pack(b"d", 1, len(ANSWER)) + ANSWER)
        if self.ends:
            yield exec_pb2.ExecOutput(stdout=HEAD.pack(b"e", 1, 0))
        yield exec_pb2.ExecOutput(ended=exec_pb2.ExecEnded(signal=9, rank_ended=True))


@pytest.mark.parametrize("ends", [True, False])
def test_an_answer_is_whole_only_where_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    monkeypatch.setattr(module, "CommandInside", AnsweringInside)
    monkeypatch.setattr(AnsweringInside, "ends", ends)
    nobody: Any = None
    made = Forward(nobody, "1")
    local = made.listen(80, 0)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the kernel keeps most of it
        with pytest.raises(IllegalTransition, match="rank has ended"):
            made.serve(lambda: line.connect(("127.0.0.1", local)))
        if ends:
            assert read_all(line) == ANSWER
        else:
            with pytest.raises(ConnectionResetError):
                read_all(line)


def read_all(line: socket.socket) -> bytes:
    """To the end of a connection."""
    said = b""
    while piece := line.recv(65_536):
        said += piece
    return said


def test_a_small_frame_does_not_keep_the_bytes_that_came_with_it() -> None:
    large = HEAD.pack(b"d", 1, 100_000) + bytes(100_000)
    small = HEAD.pack(b"d", 2, 5_000) + bytes(5_000)
    found = Frames().of(large + small)
    assert [type(frame.data) for frame in found] == [memoryview, bytes]
    assert [len(frame.data) for frame in found] == [100_000, 5_000]
