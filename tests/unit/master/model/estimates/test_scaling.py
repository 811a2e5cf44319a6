"""Speeds of sizes from the steps that were made on some of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.estimates.scaling import SizePace, speeds, with_pace
from dlq_master.model.jobs.reward import strict
from dlq_master.model.resources import Request
from support.builders import a_job

SIZES = (1, 2, 4, 8)


def paces(**step_s: float) -> tuple[SizePace, ...]:
    """`on2=0.5`: half a second for a step on 2 GPUs."""
    return tuple(sorted(SizePace(int(name[2:]), each) for name, each in step_s.items()))


@pytest.mark.parametrize(
    ("told", "asked", "expected"),
    [
        (paces(), 2, ()),
        (paces(on2=1.0), 2, ()),
        (paces(on2=1.0, on4=0.5), 2, (0.5, 1.0, 2.0, 4.0)),
        (paces(on2=1.0, on8=0.25), 2, (0.5, 1.0, 2.0, 4.0)),
        (paces(on1=1.0, on4=0.5), 1, (1.0, 2**0.5, 2.0, 8**0.5)),
        (paces(on1=1.0, on4=0.5), 4, (0.5, 2**-0.5, 1.0, 2**0.5)),
        (paces(on2=1.0, on4=0.2), 2, (0.5, 1.0, 5.0, 10.0)),  # more than fair, where it was seen
        (paces(on2=1.0, on4=2.0), 2, (1.0, 1.0, 0.5, 0.5)),  # slower, where it was seen
        (paces(on2=1.0, on4=0.5, on8=0.5), 2, (0.5, 1.0, 2.0, 2.0)),
    ],
)
def test_what_was_not_measured_follows_what_was(
    told: tuple[SizePace, ...], asked: int, expected: tuple[float, ...]
) -> None:
    assert speeds(SIZES, asked, told) == pytest.approx(expected)


@given(
    st.dictionaries(st.integers(1, 64), st.floats(0.01, 100.0), min_size=2, max_size=6),
    st.sets(st.integers(1, 64), min_size=1, max_size=8),
)
def test_measured_sizes_keep_their_ratio_and_all_others_are_finite(
    told: dict[int, float], sizes: set[int]
) -> None:
    rising = sorted(sizes | told.keys())
    asked = rising[len(rising) // 2]
    known = tuple(SizePace(gpus, told[gpus]) for gpus in sorted(told))
    found = dict(zip(rising, speeds(rising, asked, known), strict=True))
    assert found[asked] == 1.0
    assert all(speed > 0.0 for speed in found.values())
    first, last = known[0], known[-1]
    assert found[first.gpus] / found[last.gpus] == pytest.approx(last.step_s / first.step_s)


def test_another_type_of_gpu_begins_anew() -> None:
    known = with_pace(with_pace((), SizePace(4, 0.5, "h100")), SizePace(2, 1.0, "h100"))
    assert [pace.gpus for pace in known] == [2, 4]
    assert with_pace(known, SizePace(4, 0.6, "h100"))[1].step_s == 0.6
    assert with_pace(known, SizePace(2, 3.0, "a100")) == (SizePace(2, 3.0, "a100"),)


def test_a_promise_goes_by_sizes_that_were_measured_and_by_no_others() -> None:
    request = Request(gpus=1, sizes=SIZES)
    told = paces(on1=1.0, on4=0.5)
    job = a_job(request=request, steps=strict(100.0), paces=told, speeds=speeds(SIZES, 1, told))
    assert [job.sure_speed_on(size) for size in SIZES] == [1.0, 1.0, 1.8, 1.0], "less a tenth"
    assert job.speed_on(8) == pytest.approx(8**0.5)


@pytest.mark.parametrize(
    ("told", "sure"),
    [
        ({"on4": 0.5, "on8": 0.3}, 1.0),  # how fast it is on its base is only guessed
        ({"on1": 1.0, "on8": 0.1}, 7.2),  # more than linear is a flaw of a measurement
        ({"on1": 1.0, "on8": 0.95}, 1.0),
        ({"on1": 1.0, "on8": 2.0}, 0.5),
    ],
)
def test_a_promise_goes_by_no_more_than_is_sure(told: dict[str, float], sure: float) -> None:
    request, known = Request(gpus=1, sizes=SIZES), paces(**told)
    job = a_job(request=request, steps=strict(100.0), paces=known, speeds=speeds(SIZES, 1, known))
    assert job.sure_speed_on(8) == pytest.approx(sure)
