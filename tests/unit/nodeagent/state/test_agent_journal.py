"""The agent's own memory: one contract for the files and the fake, and what only files can do."""

import contextlib
import errno
import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dlq_common.fence import LeaderFence
from dlq_nodeagent.model.errands import ReadOrder
from dlq_nodeagent.model.messages import ProfileOrder
from dlq_nodeagent.model.rank import RankState, Stopping
from dlq_nodeagent.state.journal import (
    FileJournal,
    Journal,
    JournalDamaged,
    NodeRecord,
    RankRecord,
    Sequences,
)
from support.agent_bench import a_found, a_launch
from support.agent_fakes import MemoryJournal

RECORD = RankRecord(
    launch=a_launch(
        environment={"A": "b=c\n", "ü": "…"},
        soft_limits={"STACK": 2**64 - 1, "CPU": 0},
        groups=(4, 24),
        cpu_limit=2.5,
        memory_limit_bytes=2**40,
        time_left_s=60.0,
        fields={"threads": 8, "note": "x", "share": 0.5},
        script="#!/bin/sh\ntrue\n",
        profile=ProfileOrder(60.0),
    ),
    state=RankState.STOPPING,
    floor_mtime_ns=1_763_635_200_123_456_789,
    stopping=Stopping(cause="preempt", grace_s=60.0, due_s=1.5, noticed_s=2.5, delivered=True),
    error="the command is empty",
    exit_code=126,
    recorded_s=1.8e9,
    found=a_found(ReadOrder(launch=a_launch(), window_s=60.0), 1.8e9),
)


@pytest.fixture(params=["files", "memory"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    return FileJournal(tmp_path / "journal") if request.param == "files" else MemoryJournal()


def test_an_empty_journal_knows_nothing(journal: Journal) -> None:
    assert journal.load() == (NodeRecord(), ())


def test_what_was_saved_is_loaded_as_it_was(journal: Journal) -> None:
    journal.save_node(NodeRecord(highest_epoch=9, sequence_limit=2000))
    journal.save_rank(RECORD)
    assert journal.load() == (NodeRecord(highest_epoch=9, sequence_limit=2000), (RECORD,))


def test_a_rank_is_replaced_and_dropped(journal: Journal) -> None:
    journal.save_rank(RECORD)
    kept = replace(RECORD, state=RankState.KEPT, stopping=None)
    journal.save_rank(kept)
    assert journal.load()[1] == (kept,)
    journal.drop_rank(RECORD.launch.key)
    journal.drop_rank(RECORD.launch.key)
    assert journal.load()[1] == ()


def test_ranks_come_in_the_order_of_their_numbers(journal: Journal) -> None:
    for job in (10, 9, 100):
        journal.save_rank(RankRecord(launch=a_launch(job), state=RankState.PREPARING))
    assert [record.launch.key.job_id for record in journal.load()[1]] == ["9", "10", "100"]


def test_sequences_rise_over_lives_and_spare_the_disk(journal: Journal) -> None:
    first = Sequences(journal, journal.load()[0])
    given = [first.next() for _ in range(3)]
    second = Sequences(journal, journal.load()[0])
    assert second.next() > max(given)
    assert second.node.sequence_limit == 2000


def test_a_raised_epoch_is_on_disk_before_anything_else(journal: Journal) -> None:
    sequences = Sequences(journal, journal.load()[0])
    sequences.raise_fence(LeaderFence("71", 2, 5))
    assert journal.load()[0].fence == LeaderFence("71", 2, 5)


def test_nobody_else_can_read_the_journal(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.save_rank(RECORD)
    journal.save_node(NodeRecord())
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "journal").rglob("*")}
    assert modes == {0}


def log_of(tmp_path: Path) -> Path:
    return tmp_path / "journal" / "ranks.log"


@pytest.mark.parametrize("left", [b"", bytes(4096)], ids=["cut", "zeros"])
def test_a_line_that_was_cut_short_is_no_record(tmp_path: Path, left: bytes) -> None:
    """A power cut does so, and so does a disk that loses a sector: people can look at the file."""
    journal = FileJournal(tmp_path / "journal")
    journal.save_rank(RECORD)
    journal.save_rank(replace(RECORD, state=RankState.KEPT))
    written = log_of(tmp_path).read_bytes().rstrip(b"\0")
    log_of(tmp_path).write_bytes(written[:-20] + left)
    again = FileJournal(tmp_path / "journal")
    assert again.load()[1] == (RECORD,)
    assert [aside.name for aside in again.damaged()] == ["ranks.log.1.damaged"]


def test_a_log_that_was_cut_between_two_lines_is_put_aside(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.save_rank(RECORD)
    journal.save_rank(replace(RECORD, state=RankState.KEPT))
    journal.save_node(NodeRecord())
    lines = log_of(tmp_path).read_bytes().rstrip(b"\0").splitlines(keepends=True)
    for left in range(len(lines)):
        log_of(tmp_path).write_bytes(b"".join(lines[:left]))
        again = FileJournal(tmp_path / "journal")
        again.load()
        assert len(again.damaged()) == left + 1, left
        again.save_node(NodeRecord())


def test_a_log_of_an_older_agent_ends_with_a_line_and_is_whole(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.save_rank(RECORD)
    lines = log_of(tmp_path).read_bytes().rstrip(b"\0").splitlines(keepends=True)
    log_of(tmp_path).write_bytes(b"".join(lines[1:]))
    again = FileJournal(tmp_path / "journal")
    assert again.load()[1] == (RECORD,)
    assert again.damaged() == ()


def test_after_a_sync_that_failed_the_log_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel calls pages clean that it could not write, and the next sync says nothing."""
    journal = FileJournal(tmp_path / "journal")
    journal.save_rank(RECORD)
    before = log_of(tmp_path).stat().st_ino

    def fails(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fails)
        with pytest.raises(OSError, match="Input/output"):
            journal.sync()
    journal.sync()
    assert log_of(tmp_path).stat().st_ino != before
    assert FileJournal(tmp_path / "journal").load()[1] == (RECORD,)


def test_a_log_with_a_damaged_line_is_put_aside_and_named(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    other = RankRecord(launch=a_launch(18), state=RankState.PREPARING)
    journal.save_rank(RECORD)
    journal.save_rank(other)
    written = log_of(tmp_path).read_bytes()
    log_of(tmp_path).write_bytes(written[:30] + b"?" + written[31:])
    again = FileJournal(tmp_path / "journal")
    assert again.load()[1] == (other,)
    assert [aside.name for aside in again.damaged()] == ["ranks.log.1.damaged"]


def test_a_record_of_another_version_is_put_aside_and_named(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.save_rank(RECORD)
    journal._log.add("18.1.0", b"{}", b'{"v": 2}')
    again = FileJournal(tmp_path / "journal")
    assert again.load()[1] == (RECORD,)
    assert [aside.name for aside in again.damaged()] == ["ranks.log.1.damaged"]


def test_files_of_an_earlier_agent_are_taken_over(tmp_path: Path) -> None:
    before = tmp_path / "journal" / "ranks"
    before.mkdir(parents=True)
    launch = {"key": ["17", 1, 0], "fence": [7, 1], "command": ["true"]}
    told = {"v": 1, "launch": launch, "state": "running", "ports": [4000], "recorded_s": 9.0}
    (before / "17.1.0.json").write_text(json.dumps(told))
    (before / "18.1.0.json").write_text("{")
    journal = FileJournal(tmp_path / "journal")
    (record,) = journal.load()[1]
    assert (record.launch.command, record.state, record.ports) == (
        ("true",), RankState.RUNNING, (4000,)
    )  # fmt: skip
    assert [aside.name for aside in journal.damaged()] == ["18.1.0.damaged"]
    assert FileJournal(tmp_path / "journal").load()[1] == (record,)
    assert not list(before.glob("*.json"))


def test_many_records_wait_for_the_disk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.save_rank(RECORD)
    waits: list[int] = []  # of this thread: an earlier test may have left another one
    monkeypatch.setattr(os, "fdatasync", lambda _: waits.append(threading.get_ident()))
    monkeypatch.setattr(os, "fsync", lambda _: waits.append(threading.get_ident()))
    for job in range(100):
        journal.save_rank(RankRecord(launch=a_launch(job), state=RankState.PREPARING))
    journal.sync()
    journal.sync()
    assert waits.count(threading.get_ident()) == 1


def test_the_log_does_not_grow_with_its_past(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    for number in range(3000):
        journal.save_rank(replace(RECORD, error="x" * 2000, recorded_s=float(number)))
    assert log_of(tmp_path).stat().st_size < 6 << 20
    assert FileJournal(tmp_path / "journal").load()[1][0].recorded_s == 2999.0


@pytest.mark.parametrize("content", ["", "{}", '{"v": 2}', "[]", '{"v": 1, "highest_epoch": "x"}'])
def test_a_damaged_node_record_stops_the_agent_rather_than_forget_an_epoch(
    tmp_path: Path, content: str
) -> None:
    journal = FileJournal(tmp_path / "journal")
    (tmp_path / "journal" / "node.json").write_text(content)
    with pytest.raises(JournalDamaged):
        journal.load()


def test_a_crash_at_every_step_of_a_save_leaves_the_old_or_the_new_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.save_node(NodeRecord(highest_epoch=1))
    seen = set()
    for crash_at in range(1, 6):
        calls = 0

        def crash_or(name: str, real: object, at: int = crash_at) -> object:
            def call(*args: object, **kwargs: object) -> object:
                nonlocal calls
                calls += 1
                if calls == at:
                    raise OSError(f"crash at {name}")
                return real(*args, **kwargs)  # type: ignore[operator]

            return call

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", crash_or("fsync", os.fsync))
            patch.setattr(Path, "rename", crash_or("rename", Path.rename))
            with contextlib.suppress(OSError):
                journal.save_node(NodeRecord(highest_epoch=2))
        seen.add(journal.load()[0].highest_epoch)
        assert json.loads((tmp_path / "journal" / "node.json").read_text())["v"] == 1
        journal.save_node(NodeRecord(highest_epoch=1))
    assert seen == {1, 2}


def test_no_turned_bit_of_the_nodes_record_is_believed(tmp_path: Path) -> None:
    """A lower epoch would let a former master give orders."""
    node = NodeRecord(highest_epoch=1005, sequence_limit=2000)
    FileJournal(tmp_path).save_node(node)
    path = tmp_path / "node.json"
    data = path.read_bytes()
    for at in range(len(data)):
        for bit in range(8):
            other = bytearray(data)
            other[at] ^= 1 << bit
            path.write_bytes(bytes(other))
            try:
                found, _ = FileJournal(tmp_path).load()
            except JournalDamaged:
                continue
            assert found == node, (at, bit)


def test_a_damaged_record_of_the_node_names_its_file_and_the_remedy(tmp_path: Path) -> None:
    FileJournal(tmp_path).save_node(NodeRecord(highest_epoch=1005))
    path = tmp_path / "node.json"
    path.write_bytes(path.read_bytes().replace(b"1005", b"1004"))
    with pytest.raises(JournalDamaged, match=r"node.json is damaged: .* move the file away"):
        FileJournal(tmp_path).load()


def test_the_nodes_record_of_an_older_agent_has_no_sum_and_is_read(tmp_path: Path) -> None:
    FileJournal(tmp_path)
    (tmp_path / "node.json").write_text('{"v": 1, "highest_epoch": 9, "sequence_limit": 2000}')
    found, _ = FileJournal(tmp_path).load()
    assert found == NodeRecord(highest_epoch=9, sequence_limit=2000)
