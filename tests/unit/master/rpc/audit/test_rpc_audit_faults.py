"""The audit on a disk that is full or broken: every line whole, in order, once, and nothing told
that is not there.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dlq_common.errors import AuditUnavailable
from dlq_master.rpc.audit.audit import Audit
from dlq_master.rpc.audit.chain import Chain, Head
from dlq_master.rpc.audit.verify import check_end, verify_all
from dlq_master.rpc.audit.writer import KnownHead
from support.fake_clock import FakeClock
from support.faulty_file import FaultyDisk
from support.waiting import wait_until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def audit(path: Path, disk: FaultyDisk) -> Iterator[Audit]:
    audit = Audit(path, FakeClock(), open_file=disk.open)
    yield audit
    audit.close()


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def objects_of(path: Path) -> list[str]:
    return [line["object"] if "object" in line else line["decision"] for line in lines_of(path)]


def record(audit: Audit, about: str) -> None:
    """Put a line in and wait for it, as a service does."""
    asyncio.run(audit.recorded(None, "method", about, "OK"))


@pytest.mark.parametrize("room", [1, 40, 150])
def test_a_short_write_is_cut_off_and_its_line_is_whole_once_there_is_room(
    path: Path, disk: FaultyDisk, audit: Audit, room: int
) -> None:
    record(audit, "before")
    disk.room = room
    with pytest.raises(AuditUnavailable, match="No space left on device"):
        record(audit, "while full")
    assert objects_of(path) == ["before"], "nothing is left of the half line"
    with pytest.raises(AuditUnavailable, match="changes are refused"):
        audit.writer.check()
    disk.room = None
    wait_until(lambda: not audit.writer.failure, what="lines are written again")
    record(audit, "after")

    lines = lines_of(path)
    assert [line["object"] for line in lines] == ["before", "while full", "after"]
    assert lines[1]["decision"] == "AUDIT_UNAVAILABLE", "its caller was told that it is not there"
    assert verify_all(path).broken == ()


@pytest.mark.parametrize(
    "broken", [{"append"}, {"sync"}, {"append", "truncate"}, {"sync", "truncate"}]
)
@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS])
def test_a_broken_disk_refuses_changes_and_mended_has_every_line_once(
    path: Path, disk: FaultyDisk, audit: Audit, broken: set[str], error: int
) -> None:
    record(audit, "1")
    disk.broken, disk.error = broken, error
    audit.record(None, "method", "2", "PERMISSION_DENIED")
    with pytest.raises(AuditUnavailable):
        record(audit, "3")
    audit.record(None, "method", "4", "PERMISSION_DENIED")
    disk.broken = set()
    wait_until(lambda: not audit.writer.failure, what="lines are written again")
    record(audit, "5")
    # The third was refused at once if the failure was known by then, and has no line.
    assert [one for one in objects_of(path) if one != "3"] == ["1", "2", "4", "5"]
    assert verify_all(path).broken == ()


def test_a_write_that_could_not_be_cut_off_is_cut_off_by_the_next_start(
    path: Path, disk: FaultyDisk, audit: Audit
) -> None:
    record(audit, "1")
    disk.room, disk.broken = 20, {"truncate"}
    with pytest.raises(AuditUnavailable):
        record(audit, "2")
    audit.close()
    assert not path.read_bytes().endswith(b"\n")
    assert verify_all(path).torn
    assert verify_all(path).broken == (), "a crash may leave that, and no hand is needed for it"

    again = Audit(path, FakeClock())
    record(again, "3")
    again.close()
    healed = lines_of(path)[1]
    assert objects_of(path) == ["1", "HEALED", "3"]
    assert healed["torn_bytes"] == 20
    assert verify_all(path).broken == ()


def test_a_line_that_was_tampered_with_after_healing_is_found(path: Path) -> None:
    _write(path, 3)
    path.write_bytes(path.read_bytes()[:-5])
    again = Audit(path, FakeClock())
    record(again, "last")
    again.close()
    text = path.read_text()
    assert verify_all(path).broken == ()
    path.write_text(text.replace('"torn_bytes":', '"torn_bytes":1'))
    assert [broken.line for broken in verify_all(path).broken] == [4]


def test_a_file_that_cannot_be_opened_refuses_changes_until_it_can(
    path: Path, disk: FaultyDisk
) -> None:
    disk.broken, disk.error = {"open"}, errno.ENOSPC
    owed = (("a1", json.dumps({"id": "a1", "object": "owed"})),)
    audit = Audit(path, FakeClock(), known=KnownHead(Head(), owed), open_file=disk.open)
    with pytest.raises(AuditUnavailable):
        audit.writer.check()
    disk.broken = set()
    wait_until(lambda: not audit.writer.failure, what="the file is there")
    record(audit, "new")
    audit.close()
    assert objects_of(path) == ["owed", "new"]


def test_too_many_lines_that_wait_are_refused_and_none_of_those_taken_is_lost(
    path: Path, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq_master.rpc.audit.writer.MOST_WAITING", 50)
    disk.room = 0
    audit = Audit(path, FakeClock(), open_file=disk.open)
    taken = 0
    with suppress(AuditUnavailable):
        for taken in range(200):
            audit.record(None, "method", str(taken), "PERMISSION_DENIED")
    assert 0 < taken < 199
    disk.room = None
    wait_until(lambda: audit.writer.waiting == 0, what="all is written")
    audit.close()
    assert objects_of(path) == [str(number) for number in range(taken)]


# --- what the database knows
#   ------------------------------------------------------------------------


def _write(path: Path, count: int, segment_bytes: int = 1 << 20) -> Head:
    chain = Chain(path, segment_bytes)
    for number in range(count):
        chain.append({"object": str(number)})
    chain.sync()
    chain.close()
    return chain.head


def test_the_head_counts_all_lines_of_all_files(path: Path) -> None:
    head = _write(path, 20, 400)
    assert head.lines == verify_all(path).lines
    assert Head.read(head.text()) == head
    assert (Head.read(None), Head.read("")) == (Head(), Head())
    chain = Chain(path, 400)
    assert chain.head == head, "also when it is opened again"
    chain.close()


@pytest.mark.parametrize("segment_bytes", [400, 1 << 20])
def test_lines_that_are_cut_off_at_the_end_are_missed(path: Path, segment_bytes: int) -> None:
    known = _write(path, 20, segment_bytes)
    assert verify_all(path, known).broken == ()
    assert check_end(path, known) == ""
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    assert verify_all(path).broken == (), "the files themselves cannot tell"
    (broken,) = verify_all(path, known).broken
    assert "1 lines are lost" in broken.what
    assert "1 lines are lost" in check_end(path, known)


def test_a_file_that_is_gone_is_an_error_and_not_an_empty_audit(path: Path) -> None:
    known = _write(path, 7)
    path.unlink()
    (broken,) = verify_all(path, known).broken
    assert "7 lines are lost" in broken.what
    path.touch()
    (broken,) = verify_all(path, known).broken
    assert "7 lines are lost" in broken.what


def test_an_audit_written_anew_is_not_the_one_that_the_database_knows(path: Path) -> None:
    known = _write(path, 7)
    path.unlink()
    chain = Chain(path)
    for number in range(9):
        chain.append({"object": f"forged {number}"})
    chain.close()
    (broken,) = verify_all(path, known).broken
    assert (broken.line, broken.what) == (7, "is not the line that the database knows")
    assert "line 7" in check_end(path, known)


def test_lines_after_those_that_the_database_knows_are_as_it_should_be(path: Path) -> None:
    known = _write(path, 3)
    _write(path, 4)
    assert verify_all(path, known).broken == ()
    assert check_end(path, known) == ""


@pytest.mark.parametrize("taken", [1, 2, 4])
def test_old_files_may_be_taken_away_also_with_the_line_that_the_database_knows(
    path: Path, taken: int
) -> None:
    known = _write(path, 5, 400)
    _write(path, 20, 400)
    for number in range(1, taken + 1):
        path.with_name(f"audit.{number:06d}.jsonl").unlink()
    assert verify_all(path, known).broken == ()
    assert check_end(path, known) == ""


def test_a_start_that_finds_lines_missing_says_so_in_the_audit_for_good(path: Path) -> None:
    known = _write(path, 5)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    audit = Audit(path, FakeClock(), known=KnownHead(known))
    assert "2 lines are lost" in audit.writer.loss
    record(audit, "later")
    head = Head.read(audit.writer.written()[0])
    audit.close()
    (broken,) = verify_all(path, head).broken
    assert broken.what == "a start found 3 lines where the database knew 5"


def test_what_the_database_is_owed_is_written_once_by_the_next_start(path: Path) -> None:
    first = Audit(path, FakeClock())
    record(first, "1")
    known = Head.read(first.writer.written()[0])
    first.writer.put({"id": "there", "object": "2"}, "there")
    first.close()
    texts = [(name, json.dumps({"id": name, "object": name})) for name in ("there", "not there")]

    again = Audit(path, FakeClock(), known=KnownHead(known, tuple(texts)))
    wait_until(lambda: not again.writer.waiting, what="what was owed is written")
    assert set(again.writer.written()[1]) == {"there", "not there"}, "neither is kept any longer"
    again.close()
    assert objects_of(path) == ["1", "2", "not there"]
    assert lines_of(path)[-1]["recovered"] is True
    assert verify_all(path, known).broken == ()


def test_a_waiter_whose_loop_has_ended_does_not_stop_the_thread(path: Path) -> None:
    audit = Audit(path, FakeClock())

    async def leave() -> None:
        asyncio.ensure_future(audit.recorded(None, "method", "left", "OK"))  # noqa: RUF006 - left alone on purpose
        await asyncio.sleep(0)

    asyncio.run(leave())
    audit.record(None, "method", "next", "OK")
    audit.close()
    assert objects_of(path) == ["left", "next"]
