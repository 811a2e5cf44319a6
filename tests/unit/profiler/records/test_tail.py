"""The work times of steps among the times between sends."""

from __future__ import annotations

from math import exp, log

import pytest

from dlq_profiler.records.tail import long_gaps


def test_the_longest_kind_of_times_between_sends_is_the_work_of_a_step() -> None:
    work = [0.9 + 0.01 * step for step in range(20)]
    found = long_gaps([*work, *[0.1] * 60, *[0.001] * 500, 0.0, -0.5])
    assert found is not None
    assert found.steps == 20
    assert found.logs == pytest.approx(sum(map(log, work)))
    assert found.squares == pytest.approx(sum(log(gap) ** 2 for gap in work))


def test_a_few_very_long_ones_are_no_kind_of_their_own() -> None:
    found = long_gaps([30.0, 12.0, *[1.0] * 40, *[0.01] * 100])
    assert found is not None
    assert found.steps == 42
    assert exp(found.logs / found.steps) < 1.2


def test_of_too_few_nothing_is_said() -> None:
    assert long_gaps([]) is None
    assert long_gaps([1.0] * 9) is None
