"""When who waits would be done on the own nodes, if it may have more GPUs than it asks for."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.policy.rent.line import LineEntry, list_schedule_ends_s

# An hour on one GPU, and as much less on more.
SIZED = LineEntry(1, 1, 3600.0, ((2, 1800.0), (4, 900.0), (8, 450.0)))


@pytest.mark.parametrize(
    ("free", "running", "widest", "end_s"),
    [
        (8, [], 8, 450.0),
        (8, [], 4, 900.0),  # nodes of four
        (8, [], 0, 3600.0),
        (3, [], 8, 1800.0),
        # Four at 600 and not one at once, nor eight at 2000
        (1, [(600.0, 3), (2000.0, 4)], 8, 1500.0),
        (0, [(inf, 8)], 8, inf),
        (1, [(inf, 7)], 8, 3600.0),
    ],
)  # fmt: skip
def test_it_takes_as_many_as_it_is_done_first_with(
    free: int, running: list[tuple[float, int]], widest: int, end_s: float
) -> None:
    assert list_schedule_ends_s(0.0, free, running, [SIZED], widest) == {1: end_s}


def test_who_stands_behind_gets_what_is_left() -> None:
    behind = [SIZED._replace(job=2), LineEntry(3, 1, 10.0)]
    assert list_schedule_ends_s(0.0, 8, [], [SIZED, *behind], 8) == {1: 450.0, 2: 900.0, 3: 910.0}


SIZES = st.integers(1, 16)
TIMES = st.floats(0.0, 1e5)


@given(
    free=st.integers(0, 16),
    running=st.lists(st.tuples(TIMES, SIZES), max_size=5),
    base=st.integers(1, 4),
    lasts=st.lists(TIMES, min_size=3, max_size=3),
    widest=st.integers(0, 16),
)
def test_it_is_done_no_later_than_on_any_one_of_its_sizes(
    free: int,
    running: list[tuple[float, int]],
    base: int,
    lasts: list[float],
    widest: int,
) -> None:
    sizes = [(base * factor, lasts_s) for factor, lasts_s in zip((1, 2, 4), lasts, strict=True)]
    (gpus, lasts_s), *more = sizes
    told = list_schedule_ends_s(
        0.0, free, running, [LineEntry(1, gpus, lasts_s, tuple(more))], widest
    )
    alone = [
        list_schedule_ends_s(0.0, free, running, [LineEntry(1, gpus, lasts_s)])[1]
        for gpus, lasts_s in sizes
        if gpus <= max(widest, base)
    ]
    assert told == {1: min(alone)}
