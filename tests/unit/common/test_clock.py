"""The steady time axis and its fake."""

import time

import pytest

from dlq_common.clock import Clock, SteadyClock
from support.fake_clock import FakeClock


def test_the_axis_starts_at_the_wall_and_never_below_its_floor() -> None:
    tomorrow = time.time() + 86_400
    assert abs(SteadyClock().now_s() - time.time()) < 3_600
    assert SteadyClock(floor_s=tomorrow).now_s() >= tomorrow


def test_a_wall_clock_that_is_set_does_not_move_the_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteadyClock()
    before_s = clock.now_s()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert clock.now_s() >= before_s


def test_the_axis_counts_the_boot_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteadyClock()
    now_s, boottime_s = clock.now_s(), clock.boottime_s()
    monkeypatch.setattr(time, "clock_gettime", lambda _: boottime_s + 3_600.0)
    assert clock.now_s() == pytest.approx(now_s + 3_600.0, abs=60.0)


def test_a_fake_clock_moves_both_axes_and_only_forwards() -> None:
    clock = FakeClock(now_s=100.0, boottime_s=7.0)
    clock.advance(2.5)
    assert (clock.now_s(), clock.boottime_s()) == (102.5, 9.5)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1.0)


@pytest.mark.parametrize("clock", [SteadyClock(), FakeClock()], ids=["steady", "fake"])
def test_every_clock_never_goes_back(clock: Clock) -> None:
    readings = [clock.now_s() for _ in range(100)]
    assert readings == sorted(readings)
    boots = [clock.boottime_s() for _ in range(100)]
    assert boots == sorted(boots)
