"""When the record of a start is looked for: after a word of a shim, and a few times a second."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.port import Handle, Started
from dlq_nodeagent.runtimes.process import layout, records
from dlq_nodeagent.runtimes.process.attempts import LOOK_AGAIN_S, OpenAttempt
from dlq_nodeagent.runtimes.process.shim_process import Ends
from support.fake_clock import FakeClock

STARTED = dict.fromkeys(records._STARTED, 7) | {"boot_id": "b"}


@pytest.fixture
def ends() -> Iterator[Ends]:
    one = Ends()
    yield one
    one.close()


@pytest.fixture
def attempt(ends: Ends, tmp_path: Path) -> Iterator[OpenAttempt]:
    """One whose shim, this process, has just been started, and has written its record."""
    os.mkfifo(tmp_path / layout.CTL)
    (tmp_path / layout.STARTED).write_text(json.dumps({"v": 1, **STARTED}))
    at = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    handle = Handle(RankKey("1", 1, 0), 1)
    one = OpenAttempt(handle, at, uid=0, gid=0, boot_id="b", ends=ends)
    one.watch(os.pidfd_open(os.getpid()), FakeClock())
    yield one
    one.close()


def looked(attempt: OpenAttempt, ends: Ends, clock: FakeClock) -> Started | None:
    ends.taken()
    return attempt.started_as_told(clock)


def test_it_is_looked_for_after_a_word_of_a_shim(attempt: OpenAttempt, ends: Ends) -> None:
    clock = FakeClock()
    assert looked(attempt, ends, clock) is None
    os.write(ends.news, b"s")
    found = looked(attempt, ends, clock)
    assert found is not None
    assert found.boot_id == "b"


def test_a_word_that_was_lost_costs_a_moment(attempt: OpenAttempt, ends: Ends) -> None:
    clock = FakeClock()
    assert looked(attempt, ends, clock) is None
    clock.advance(LOOK_AGAIN_S)
    assert looked(attempt, ends, clock) is not None


def test_nobody_who_does_not_listen_waits_for_a_word(attempt: OpenAttempt) -> None:
    assert attempt.started_as_told(FakeClock()) is not None


def test_an_adopted_shim_tells_nothing_and_is_looked_at(
    ends: Ends, attempt: OpenAttempt, tmp_path: Path
) -> None:
    at = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    adopted = OpenAttempt(attempt.handle, at, uid=0, gid=0, boot_id="b", ends=ends)
    assert looked(adopted, ends, FakeClock()) is not None
    adopted.close()


def test_a_small_record_is_read_with_a_small_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buffers of the whole limit, 8 MiB, were mapped and unmapped for each record."""
    asked: list[int] = []
    read = os.read

    def note(descriptor: int, size: int) -> bytes:
        asked.append(size)
        return read(descriptor, size)

    (tmp_path / "small").write_bytes(b"x" * 300)
    (tmp_path / "large").write_bytes(bytes(range(256)) * 400)
    at = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    monkeypatch.setattr(os, "read", note)
    assert layout.read(at, "small") == b"x" * 300
    assert len(asked) == 2
    assert layout.read(at, "large") == bytes(range(256)) * 400
    assert layout.read(at, "large", limit=20_000) == (bytes(range(256)) * 400)[:20_000]
    assert layout.read(at, "absent") is None
    assert max(asked) <= 1 << 14
    os.close(at)
