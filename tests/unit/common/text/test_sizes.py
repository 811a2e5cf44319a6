"""Numbers of GPUs of an elastic job, as people write them."""

from __future__ import annotations

import pytest

from dlq_common.text.sizes import SizeRange, expanded, format_sizes, parse_range, parse_sizes


@pytest.mark.parametrize(
    ("text", "each", "sizes"),
    [
        ("2:8", None, (2, 3, 4, 5, 6, 7, 8)),
        ("2:8:2", None, (2, 4, 6, 8)),
        ("8:32", 8, (8, 16, 24, 32)),
        (" 1:2 ", None, (1, 2)),
    ],
)
def test_a_range_has_every_step_or_whole_nodes(
    text: str, each: int | None, sizes: tuple[int, ...]
) -> None:
    assert expanded(parse_range(text), each) == sizes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("8:2", "upside down: write 2:8"),
        ("0:4", "at least one"),
        ("4", "not a range"),
        ("2:8:0", "leads nowhere"),
        ("-2:8", "not a range"),
        ("2-8", "not a range"),
    ],
)
def test_what_is_no_range_says_why(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_range(text)


@pytest.mark.parametrize(
    ("asked", "each", "words"),
    [
        (SizeRange(4, 4), None, "one size is no choice"),
        (SizeRange(2, 8), 4, "multiples of 4"),
        (SizeRange(4, 8, 2), 4, "multiples of 4"),
        (SizeRange(1, 4096), None, "more than 1024"),
        (SizeRange(2, 8, 5), None, "lead to 7 or 12, not to 8"),
        (SizeRange(4, 10), 4, "lead to 8 or 12, not to 10"),
    ],
)
def test_what_a_job_could_not_have_says_why(asked: SizeRange, each: int | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        expanded(asked, each)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [(["4", "2"], "rise"), (["2", "2"], "rise"), ([2], "one size"), (["x"], "'x'")],
)
def test_a_list_rises(sizes: list[object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_sizes(sizes)


@pytest.mark.parametrize("text", ["2:8", "2:8:2", "2,4,8", "1,2", "2:8:3"])
def test_sizes_are_told_as_they_are_written(text: str) -> None:
    sizes = expanded(parse_range(text), None) if ":" in text else parse_sizes(text.split(","))
    assert format_sizes(sizes) == text
