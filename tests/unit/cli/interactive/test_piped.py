"""What `dlq run` reads of its stdin, keeps until it is taken, and forgets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dlq_cli.interactive.piped import MOST_KEPT_BYTES, Kept
from dlq_cli.interactive.rank_stdin import first_piece, piped_stdin
from dlq_cli.interactive.stdin_reader import StdinReader
from support.waiting import wait_until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends; the test may close the second."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def test_bytes_are_kept_until_they_are_taken() -> None:
    kept = Kept(b"ab")
    kept.add(b"cdef")
    kept.end()
    assert (kept.read_bytes, kept.at_end, kept.at(1)) == (6, True, b"bcdef")
    kept.forget(4)
    kept.forget(4)
    assert (kept.read_bytes, kept.at(4), kept.at(6)) == (6, b"ef", b"")


def test_the_bytes_of_a_second_writer_follow_those_of_the_first() -> None:
    kept = Kept(b"ab")
    kept.begin_at(10)
    assert (kept.read_bytes, kept.at(10)) == (12, b"ab")
    kept.forget(11)
    assert kept.at(11) == b"b"


def test_a_rank_that_begins_anew_behind_forgotten_bytes_is_a_fault() -> None:
    kept = Kept(b"abc")
    kept.forget(2)
    with pytest.raises(ValueError, match="run again"):
        kept.forget(0)


def test_no_more_is_read_ahead_than_is_kept(pipe: tuple[int, int]) -> None:
    kept = Kept(b"x" * MOST_KEPT_BYTES)
    reader = StdinReader(pipe[0], take=kept.add, at_end=kept.end)
    reader.start()
    os.write(pipe[1], b"more")
    os.close(pipe[1])
    assert kept.read_bytes == MOST_KEPT_BYTES
    kept.forget(MOST_KEPT_BYTES)
    wait_until(lambda: kept.at_end, what="the end", timeout_s=60.0)
    assert kept.at(MOST_KEPT_BYTES) == b"more"
    reader.stop()


def test_a_stopped_reader_leaves_the_next_bytes_and_tells_no_end(pipe: tuple[int, int]) -> None:
    heard: list[bytes] = []
    reader = StdinReader(pipe[0], take=heard.append, at_end=lambda: heard.append(b"end"))
    reader.start()
    os.write(pipe[1], b"keys")
    wait_until(lambda: heard == [b"keys"], what="the first piece", timeout_s=60.0)
    reader.stop()
    os.write(pipe[1], b"next")
    assert os.read(pipe[0], 100) == b"next"
    assert heard == [b"keys"]


def test_bytes_of_no_use_are_not_waited_for() -> None:
    kept = Kept(b"x" * MOST_KEPT_BYTES)
    kept.close()
    kept.add(b"more")
    assert kept.read_bytes == MOST_KEPT_BYTES + 4


def test_a_reader_that_never_began_is_stopped(pipe: tuple[int, int]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    StdinReader(pipe[0], take=print).stop()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_terminal_and_dev_null_are_no_stdin_for_a_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pipe: tuple[int, int]
) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    master, slave = os.openpty()
    for path, is_one in ((file, True), ("/dev/null", False), (os.ttyname(slave), False)):
        with open(path) as opened:
            monkeypatch.setattr(sys, "stdin", opened)
            assert (piped_stdin() is not None) == is_one
    os.close(master)
    os.close(slave)
    with open(pipe[0], closefd=False) as opened:
        monkeypatch.setattr(sys, "stdin", opened)
        assert piped_stdin() == pipe[0]
    monkeypatch.setattr(sys, "stdin", None)
    assert piped_stdin() is None


def test_what_is_there_at_once_tells_an_empty_stdin(pipe: tuple[int, int]) -> None:
    assert first_piece(pipe[0]) is None
    os.write(pipe[1], b"x")
    assert first_piece(pipe[0]) == b"x"
    os.close(pipe[1])
    assert first_piece(pipe[0]) == b""
