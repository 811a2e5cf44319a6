"""The lender: back at once, lent with patience."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlq_master.policy.reclaim.controller import Lender, Lending, follow


def lent(lender: Lender, *loads: float, step_s: float = 300.0) -> list[int]:
    """How many are lent after each of these loads, one every `step_s`."""
    state, found = Lending(), []
    for number, busy in enumerate(loads):
        state = follow(state, lender, number * step_s, busy)
        found.append(state.lent)
    return found


def test_without_patience_what_the_load_leaves_beyond_the_headroom_is_lent() -> None:
    lender = Lender(servers=20, headroom=0.05)
    assert lent(lender, 0.5, 0.96, 0.7, 0.2) == [9, 0, 5, 15]
    assert lent(Lender(servers=10, headroom=0.0), 0.3) == [7], "10 x 0.7, not a hair less"


def test_servers_are_lent_once_they_have_been_idle_for_long_enough_and_back_at_once() -> None:
    lender = Lender(servers=10, headroom=0.0, settle_s=600.0)
    #               0    300  600  900  1200 1500 1800 2100
    loads = (0.5, 0.4, 0.4, 0.6, 0.2, 0.2, 0.2, 0.9)
    assert lent(lender, *loads) == [0, 0, 5, 4, 4, 4, 8, 1]


def test_a_load_that_wavers_lends_its_least() -> None:
    lender = Lender(servers=10, headroom=0.0, settle_s=600.0)
    assert set(lent(lender, *[0.5, 0.6] * 10)[3:]) == {4}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.sampled_from([0.0, 300.0, 900.0]))
def test_never_more_than_is_idle_and_never_more_than_without_patience(
    loads: list[float], settle_s: float
) -> None:
    lender = Lender(servers=40, headroom=0.1, settle_s=settle_s)
    patient, at_once = lent(lender, *loads), lent(lender._replace(settle_s=0.0), *loads)
    for servers, most, busy in zip(patient, at_once, loads, strict=True):
        assert 0 <= servers <= most == lender.idle(busy)
