"""PACKLIMIT learned from runs: a linear classifier of one feature, against brute force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.estimates.slowdowns import KEPT, Slowdowns, TimedRun
from dlq_master.model.estimates.traffic import TrafficProfile
from dlq_master.policy.sensitivity.packing import DEFAULT, LEAST_RUNS, Cut, classify, learn

SAMPLES = st.lists(st.tuples(st.integers(0, 20).map(lambda n: n / 20), st.booleans()), max_size=30)


def a_run(skew: float | None, slowdown: float, *, spread: bool = True) -> TimedRun:
    return TimedRun(TrafficProfile(skew=skew), spread, slowdown)


def _cut(limit: float, errors: int) -> object:
    return pytest.approx(Cut(limit, errors))


def errors_of(limit: float, rows: list[tuple[float, bool]]) -> int:
    return sum((skew > limit) != hurt for skew, hurt in rows)


@given(rows=SAMPLES)
def test_no_limit_makes_fewer_errors(rows: list[tuple[float, bool]]) -> None:
    cut = classify([skew for skew, _ in rows], [hurt for _, hurt in rows])
    every = [-1.0, *(skew for skew, _ in rows), *(skew - 0.01 for skew, _ in rows), 2.0]
    assert errors_of(cut.limit, rows) == cut.errors
    assert cut.errors == min(errors_of(limit, rows) for limit in every)


def test_what_can_be_separated_is_cut_half_way() -> None:
    assert classify([0.1, 0.2, 0.6, 0.9], [False, False, True, True]) == _cut(0.4, 0)


def test_table_6_teaches_the_default() -> None:
    skews = [0.715, 0.743, 0.773, 0.610, 0.039, 0.053, 0.092, 0.036, 0.086, 0.146]
    assert classify(skews, [skew > 0.5 for skew in skews]).limit == pytest.approx(DEFAULT)


def test_noise_moves_the_cut_only_as_far_as_it_must() -> None:
    skews = [0.1, 0.2, 0.3, 0.6, 0.7, 0.8]
    assert classify(skews, [False, True, False, True, True, True]) == _cut(0.45, 1)
    assert classify(skews, [False, False, False, True, False, True]) == _cut(0.45, 1)


def test_equally_good_cuts_are_decided_by_their_margin_and_then_downwards() -> None:
    # One error either between .1 and .2 or between .3 and .7.
    assert classify([0.1, 0.2, 0.3, 0.7], [False, True, False, True]).limit == pytest.approx(0.5)
    # Margins of .125 (exact in binary) on both sides of the same skew: the lower.
    skews, hurt = [0.25, 0.5, 0.5, 0.75], [False, True, False, True]
    assert classify(skews, hurt) == (0.375, 1)


def test_if_all_or_none_suffered_the_default_stays_unless_it_is_contradicted() -> None:
    assert classify([0.5, 0.7], [True, True]).limit == DEFAULT
    assert classify([0.1, 0.2], [False, False]).limit == DEFAULT
    low = classify([0.2, 0.7], [True, True])
    assert low.errors == 0
    assert 0.1999 < low.limit < 0.2
    assert classify([0.1, 0.6], [False, False]).limit == 0.6
    assert classify([], []) == (DEFAULT, 0)


def test_too_few_runs_teach_nothing_and_those_on_few_nodes_do_not_count() -> None:
    rows = [a_run(0.1, 1.0), a_run(0.9, 2.0)] * (LEAST_RUNS // 2)
    assert learn(rows[:-1]) is None
    assert learn([*rows[:-1], a_run(0.5, 1.0, spread=False), a_run(None, 3.0)]) is None
    assert learn(rows) == pytest.approx(0.5)


def test_what_counts_as_suffering_is_what_is_not_tolerated() -> None:
    rows = [a_run(0.1, 1.04), a_run(0.5, 1.2), a_run(0.9, 2.0)] * 10
    assert learn(rows) == pytest.approx(0.3)
    assert learn(rows, tolerated=1.5) == pytest.approx(0.7)


def test_the_newest_runs_are_kept_and_told_in_tenths() -> None:
    known = Slowdowns()
    for number in range(2 * KEPT):
        known.add(a_run(0.5, 1.0 + number))
    assert len(known.learned) == KEPT
    before = known.learned
    known.add(a_run(0.5, 9.0))
    assert known.learned is before
    with pytest.raises(ValueError, match="a slowdown is a positive number, not nan"):
        known.add(a_run(0.5, float("nan")))
