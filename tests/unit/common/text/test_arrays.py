"""Indexes of array jobs as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_common.text import arrays
from dlq_common.text.arrays import (
    LARGEST_INDEX,
    ArrayText,
    IndexRange,
    TasksText,
    expand,
    format_indexes,
    parse_array,
    parse_ranges,
    parse_tasks,
    read_tasks,
    slurm_array,
)


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("0-15", ArrayText((IndexRange(0, 15),), 0)),
        ("1,3,7", ArrayText((IndexRange(1, 1), IndexRange(3, 3), IndexRange(7, 7)), 0)),
        ("0-100:10", ArrayText((IndexRange(0, 100, 10),), 0)),
        ("0-99%4", ArrayText((IndexRange(0, 99),), 4)),
        ("[0-3,9]%2", ArrayText((IndexRange(0, 3), IndexRange(9, 9)), 2)),
        (" 5 ", ArrayText((IndexRange(5, 5),), 0)),
    ],
)
def test_slurms_forms_are_read(text: str, array: ArrayText) -> None:
    assert parse_array(text) == array


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no indexes"),
        ("a", "no indexes"),
        ("3-1", "3-1 is empty"),
        ("0-9:0", "empty"),
        ("0-3,2", "twice"),
        ("1--3", "no indexes"),
        ("-1", "no indexes"),
        ("0,,1", "no indexes"),
        ("\u0663", "no indexes"),
        ("0-999999", "more than"),
        (f"{LARGEST_INDEX + 1}", "indexes go"),
    ],
)
def test_what_is_no_array_is_told_in_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_array(text)


def test_tasks_are_named_by_their_arrays_number() -> None:
    assert parse_tasks("12_4") == TasksText("12", (4,))
    assert parse_tasks("12_[0-2,7]") == TasksText("12", (0, 1, 2, 7))
    assert parse_tasks("12_[4-6%2]") == TasksText("12", (4, 5, 6))
    assert parse_tasks("12") is None
    assert parse_tasks("train_4") is None
    with pytest.raises(ValueError, match="no indexes"):
        parse_tasks("12_[]")


@given(st.sets(st.integers(0, 300), min_size=1, max_size=60))
def test_what_is_written_is_read_back(indexes: set[int]) -> None:
    rising = sorted(indexes)
    assert expand(parse_ranges(format_indexes(rising))) == tuple(rising)


@pytest.mark.parametrize(
    ("indexes", "text"),
    [
        ([4], "4"),
        ([0, 1, 2, 3], "0-3"),
        ([0, 10, 20, 30], "0-30:10"),
        ([1, 3], "1,3"),
        ([1, 2], "1-2"),
        ([0, 1, 2, 7, 9, 10], "0-2,7,9-10"),
    ],
)
def test_it_is_as_short_as_a_person_would_write_it(indexes: list[int], text: str) -> None:
    assert format_indexes(indexes) == text


def test_tasks_can_be_counted_without_being_listed() -> None:
    named = read_tasks("12_[0-99999,5-9:2]")
    assert named is not None
    assert (named.array_id, named.task_count) == ("12", 100_003)
    assert read_tasks("12") is None
    with pytest.raises(ValueError, match="empty"):
        read_tasks("12_[3-1]")


def test_odd_parts_of_an_array_are_counted_together_before_they_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert slurm_array("0-49999,50000-99999,") == "0-99999"
    listed: list[object] = []
    monkeypatch.setattr(arrays, "format_indexes", listed.append)
    many = ",".join(f"{first}-{first + 99_999}" for first in range(0, 3_000_000, 100_000))
    assert slurm_array(many) == many
    assert slurm_array("0-99999,5,") == "0-99999,5,"
    assert listed == []
