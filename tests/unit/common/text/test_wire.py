"""Seconds survive the wire to the microsecond."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_common.text.wire import from_duration, from_timestamp, to_duration, to_timestamp


@given(st.floats(0, 4e9))
def test_an_instant_survives_to_the_microsecond(epoch_s: float) -> None:
    assert from_timestamp(to_timestamp(epoch_s)) == pytest.approx(epoch_s, abs=1e-6)


@given(st.floats(-1e9, 1e9))
def test_a_duration_survives_to_the_microsecond(seconds: float) -> None:
    wire = to_duration(seconds)
    assert from_duration(wire) == pytest.approx(seconds, abs=1e-6)
    assert wire.seconds * wire.nanos >= 0


@given(st.integers(-(10**9), 10**9))
def test_rounding_never_carries_a_whole_second_in_the_nanoseconds(micros: int) -> None:
    assert to_timestamp(micros / 1e6 + 0.9999999).nanos < 1_000_000_000
    assert abs(to_duration(micros / 1e6 + 0.9999999).nanos) < 1_000_000_000
