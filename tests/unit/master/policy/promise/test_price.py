"""The bid price: what a GPU for one slot earns at least where more is asked for than there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.policy.promise.solver.price import bid_price

ASKED = st.lists(st.tuples(st.integers(1, 200).map(float), st.integers(2, 100).map(float)))


def test_what_fits_costs_nothing() -> None:
    assert bid_price([(4.0, 100.0), (6.0, 100.0)], 10.0) == 0.0


def test_the_price_is_what_the_last_of_it_earns() -> None:
    # By density: 100 for 2, 100 for 5, 50 for 5; 2 + 5 are within 10 GPU-slots, the third is not.
    assert bid_price([(5.0, 50.0), (2.0, 100.0), (5.0, 100.0)], 10.0) == pytest.approx(10.0)


def test_nothing_is_free_where_there_is_nothing() -> None:
    assert bid_price([(5.0, 50.0), (1.0, 100.0)], 0.0) == pytest.approx(100.0)


@given(asked=ASKED, room=st.integers(0, 2000).map(float))
def test_who_earns_more_than_the_price_fits_together(
    asked: list[tuple[float, float]], room: float
) -> None:
    price = bid_price(asked, room)
    above = sum(amount for amount, reward in asked if reward / amount > price)
    assert above <= room
    if price:  # and with those who earn just as much it is too much
        at_least = sum(amount for amount, reward in asked if reward / amount >= price)
        assert at_least > room


@given(asked=ASKED, room=st.integers(1, 2000).map(float))
def test_more_room_never_raises_it(asked: list[tuple[float, float]], room: float) -> None:
    assert bid_price(asked, room + 50.0) <= bid_price(asked, room)
