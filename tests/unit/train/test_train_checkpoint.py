"""Checkpoints are committed whole, verified, kept and never lost."""

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dlq_train import checkpoint
from dlq_train.checkpoint import Checkpoint, CheckpointUnusable

ORIGIN = {"job_id": "17", "attempt": "2", "fence": "3.2"}


def writes(text: str) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        (directory / "weights").write_text(text)
        (directory / "shards").mkdir()
        (directory / "shards" / "0").write_text(text[::-1])

    return write


def commit(directory: Path, step: int, *, keep: int = 2) -> Checkpoint:
    return checkpoint.commit(directory, step, writes(f"state {step}"), keep=keep, origin=ORIGIN)


def usable(directory: Path) -> list[int]:
    steps = []
    for found in checkpoint.committed(directory):
        checkpoint.verify(found)
        assert (found.path / "weights").read_text() == f"state {found.step}"
        steps.append(found.step)
    return steps


def test_a_commit_lists_every_file_with_size_hash_and_writer(tmp_path: Path) -> None:
    saved = commit(tmp_path / "17" / "2", 123)
    marker = json.loads((saved.path / "COMMITTED").read_text())
    assert saved.path == tmp_path / "17" / "2" / "step-000123"
    assert [entry["path"] for entry in marker["files"]] == ["shards/0", "weights"]
    assert [entry["size"] for entry in marker["files"]] == [9, 9]
    assert all(len(entry["sha256"]) == 64 for entry in marker["files"])
    assert marker["step"] == 123
    assert {name: marker[name] for name in ORIGIN} == ORIGIN
    checkpoint.verify(saved)


def test_only_the_newest_two_of_the_own_directory_are_kept(tmp_path: Path) -> None:
    commit(tmp_path / "1", 7)
    for step in (10, 20, 30):
        commit(tmp_path / "2", step)
    assert usable(tmp_path / "2") == [30, 20]
    assert usable(tmp_path / "1") == [7]


def test_foreign_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "step-by-step").mkdir()
    for step in (1, 2, 3):
        commit(tmp_path, step)
    assert (tmp_path / "notes.txt").exists()
    assert (tmp_path / "step-by-step").exists()


def test_a_full_disk_leaves_the_older_checkpoint_and_nothing_else(tmp_path: Path) -> None:
    commit(tmp_path, 1)

    def write(directory: Path) -> None:
        (directory / "weights").write_text("half")
        with Path("/dev/full").open("w") as full:
            full.write("the rest")

    with pytest.raises(OSError, match="No space") as failure:
        checkpoint.commit(tmp_path, 2, write, keep=2, origin=ORIGIN)
    assert failure.value.errno == errno.ENOSPC
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert usable(tmp_path) == [1]


def test_a_directory_without_marker_is_no_checkpoint(tmp_path: Path) -> None:
    saved = commit(tmp_path, 5)
    (saved.path / "COMMITTED").unlink()
    assert checkpoint.committed(tmp_path) == []


def test_the_same_step_again_is_the_same_checkpoint(tmp_path: Path) -> None:
    first = commit(tmp_path, 5)
    written = (first.path / "weights").stat().st_mtime_ns
    assert commit(tmp_path, 5) == first
    assert (first.path / "weights").stat().st_mtime_ns == written


def test_the_same_step_again_replaces_a_damaged_checkpoint(tmp_path: Path) -> None:
    (commit(tmp_path, 5).path / "weights").write_text("damaged")
    commit(tmp_path, 5)
    assert usable(tmp_path) == [5]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "weights").write_text("state X"),
        lambda path: (path / "weights").write_text("longer than it was"),
        lambda path: (path / "weights").unlink(),
        lambda path: (path / "COMMITTED").write_text(""),
        lambda path: (path / "COMMITTED").write_text("[]"),
        lambda path: (path / "COMMITTED").write_text('{"files": [{"path": "weights"}]}'),
        lambda path: (path / "COMMITTED").write_text(
            '{"files": [{"path": "../other", "size": 1, "sha256": ""}]}'
        ),
    ],
    ids=["byte", "length", "missing", "empty", "list", "short-entry", "outside"],
)
def test_damage_is_noticed(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    saved = commit(tmp_path, 5)
    damage(saved.path)
    with pytest.raises(CheckpointUnusable):
        checkpoint.verify(saved)


def test_candidates_are_the_promoted_one_then_its_attempt_then_earlier_attempts(
    tmp_path: Path,
) -> None:
    job = tmp_path / "17"
    for attempt, step in [("1", 10), ("1", 20), ("2", 30), ("2", 40), ("3", 50)]:
        commit(job / attempt, step)
    (job / "notes").mkdir()
    offered = checkpoint.candidates(job / "2" / "step-000030")
    assert [found.step for found in offered] == [30, 40, 20, 10]
    assert [found.step for found in checkpoint.candidates(job / "2")] == [40, 30, 20, 10]


def test_a_promoted_checkpoint_that_was_dropped_is_replaced_by_its_siblings(
    tmp_path: Path,
) -> None:
    for step in (10, 20, 30):
        commit(tmp_path / "1", step)
    offered = checkpoint.candidates(tmp_path / "1" / "step-000010")
    assert [found.step for found in offered] == [30, 20]


def test_a_crash_at_any_file_operation_never_loses_the_state(tmp_path: Path) -> None:
    crashes = 0
    while _commit_until_crash(tmp_path / str(crashes), at_operation=crashes):
        steps = usable(tmp_path / str(crashes))
        assert steps[0] in (2, 3), f"crash at operation {crashes} left {steps}"
        commit(tmp_path / str(crashes), 3)
        commit(tmp_path / str(crashes), 4)
        assert sorted(path.name for path in (tmp_path / str(crashes)).iterdir()) == [
            "step-000003",
            "step-000004",
        ]
        crashes += 1
    assert usable(tmp_path / str(crashes)) == [3, 2]
    assert crashes > 20


def _commit_until_crash(directory: Path, *, at_operation: int) -> bool:
    """Commit step 3 over 1 and 2 in a child that dies before its n-th file operation."""
    commit(directory, 1)
    commit(directory, 2)
    child = os.fork()
    if child == 0:
        left = at_operation

        def die(event: str, _: object) -> None:
            nonlocal left
            if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
                left -= 1
                if left < 0:
                    os._exit(9)

        sys.addaudithook(die)
        try:
            commit(directory, 3)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 9
