"""The shortest part whose repetition a sequence ends with."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dlq_profiler.transports.repeats import (
    MOST_SYMBOLS,
    Repeat,
    phase_after_the_longest_pause,
    shortest_repeat,
)


def repeat_of(text: str) -> Repeat | None:
    return shortest_repeat(np.frombuffer(text.encode(), np.uint8))


@pytest.mark.parametrize(
    ("sequence", "found"),
    [
        ("abcabcabc", Repeat(3, 0, 3)),
        ("xyabcabcabc", Repeat(3, 2, 3)),
        ("abbbabbbabbb", Repeat(4, 0, 3)),  # not `b`, three times at the end
        ("abcabcabcab", Repeat(3, 0, 3)),  # cut off in the middle
        ("aaaa", Repeat(1, 0, 4)),
        ("abab", None),  # twice is chance
        ("abcdefghijklabab", None),
        ("pqrstuvwxyzaaa", None),  # what repeats itself is not half of it
        ("", None),
    ],
)
def test_examples(sequence: str, found: Repeat | None) -> None:
    assert repeat_of(sequence) == found


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.integers(3, 8),
    st.lists(st.integers(4, 9), max_size=8),
    st.integers(0, 11),
)
def test_what_was_repeated_is_found_after_any_warm_up(
    part: list[int], times: int, warm_up: list[int], more: int
) -> None:
    assume(len(warm_up) <= len(part) * times)
    sequence = warm_up + part * times + part[: more % len(part)]
    found = shortest_repeat(np.array(sequence))
    assert found is not None
    assert len(part) % found.period == 0  # the part may repeat itself inside
    assert found.first <= len(warm_up)
    tail = sequence[found.first :]
    assert all(tail[i] == tail[i + found.period] for i in range(len(tail) - found.period))


def test_of_a_very_long_sequence_the_end_counts() -> None:
    part = np.arange(1000)
    sequence = np.concatenate([np.arange(10**6), np.tile(part, 300)])
    assert shortest_repeat(sequence) == Repeat(1000, len(sequence) - MOST_SYMBOLS, 262)


def test_an_iteration_begins_after_its_longest_pause() -> None:
    starts = np.array([10, 12, 50, 52, 54, 90, 92, 94, 130, 132, 134], np.int64)
    sizes = np.array([2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3])
    found = shortest_repeat(sizes)
    assert found == Repeat(3, 0, 3)
    assert phase_after_the_longest_pause(starts, starts + 1, found) == 2
