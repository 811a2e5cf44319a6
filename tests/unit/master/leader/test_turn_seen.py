"""The turn that a master remembers, in memory and in its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dlq_master.leader.turn_seen import NAME, TurnSeen
from dlq_master.store.port import DatabaseDamaged


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / NAME


def test_the_highest_turn_of_a_system_is_remembered(path: Path) -> None:
    turns = TurnSeen(path)
    assert turns.of("71") == 0
    for number in (9, 10, 8):
        turns.note(number, "71")
    assert (turns.of("71"), TurnSeen(path).of("71")) == (10, 10)


def test_another_system_is_another_count_once_its_masters_are_obeyed(path: Path) -> None:
    turns = TurnSeen(path)
    turns.note(815, "7391001122334455667")
    turns.note(900, "72")  # a database that nobody leads in
    assert (turns.of("7391001122334455667"), turns.of("72")) == (815, 0)
    turns.follow("72")
    turns.note(3, "72")
    again = TurnSeen(path)
    assert (again.of("72"), again.of("7391001122334455667")) == (3, 0)


def test_a_file_of_a_former_release_counts_for_the_first_system(path: Path) -> None:
    path.write_text("815\n")
    turns = TurnSeen(path)
    assert turns.of("71") == 815
    turns.follow("71")
    again = TurnSeen(path)
    assert (again.of("71"), again.of("72")) == (815, 0)


def test_a_file_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    turns = TurnSeen(tmp_path / "missing" / NAME)
    turns.note(7, "71")
    assert turns.of("71") == 7
    turns.close()


def test_a_file_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    turns = TurnSeen(tmp_path / "missing" / NAME)
    with capture_logs() as told:
        for number in (7, 8, 9):
            turns.note(number, "71")
    assert [line["event"] for line in told] == ["turn_not_kept"]


@pytest.mark.parametrize("left", [b"", b"\0" * 51])
def test_what_a_loss_of_power_leaves_is_no_turn(path: Path, left: bytes) -> None:
    path.write_bytes(left)
    turns = TurnSeen(path)
    assert turns.of("71") == 0
    turns.note(7, "71")
    assert TurnSeen(path).of("71") == 7


def test_each_flipped_bit_is_refused_by_the_name_of_the_file(path: Path) -> None:
    turns = TurnSeen(path)
    turns.note(815, "7391001122334455667")
    whole = path.read_bytes()
    for place in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(DatabaseDamaged, match=f"{NAME} is damaged") as refused:
            TurnSeen(path)
        assert "delete the file" in refused.value.hint


def test_a_file_that_was_replaced_by_something_else_is_refused(path: Path) -> None:
    path.write_text("eight hundred\n")
    with pytest.raises(DatabaseDamaged, match="is damaged"):
        TurnSeen(path)
