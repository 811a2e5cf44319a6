"""Retries: growing pauses with jitter, an end, and a new beginning after good news."""

from __future__ import annotations

import random

from dlq_client.line.connection import LONGEST_DELAY_S, STANDBY_DELAY_S, TAKEOVER_S, Patience
from support.fake_clock import FakeClock


def a_patience(limit_s: float, pauses: list[float], *, has_standby: bool = False) -> Patience:
    clock = FakeClock()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds + 0.05)

    return Patience(limit_s, clock, random.Random(1), pause=pause, has_standby=has_standby)


def test_it_gives_up_when_the_limit_is_reached_and_not_much_before() -> None:
    pauses: list[float] = []
    patience = a_patience(10.0, pauses)
    while patience.wait():
        pass
    assert 10.0 - LONGEST_DELAY_S <= sum(pauses) + 0.05 * len(pauses) <= 10.0


def test_pauses_grow_to_a_bound_and_are_jittered() -> None:
    pauses: list[float] = []
    patience = a_patience(60.0, pauses)
    while patience.wait():
        pass
    assert max(pauses) <= LONGEST_DELAY_S
    assert max(pauses[:3]) < max(pauses)
    assert len(set(pauses)) == len(pauses)


def test_without_patience_there_is_no_second_try() -> None:
    pauses: list[float] = []
    assert not a_patience(0.0, pauses).wait()
    assert pauses == []


def test_good_news_starts_the_count_anew() -> None:
    pauses: list[float] = []
    patience = a_patience(3.0, pauses)
    while patience.wait():
        pass
    patience.restored()
    assert patience.wait()
    assert pauses[-1] <= 0.1


def test_pauses_after_the_refusal_of_a_standby_stay_short() -> None:
    pauses: list[float] = []
    patience = a_patience(60.0, pauses)
    while patience.wait(standby=True):
        pass
    assert len(pauses) > 100
    assert max(pauses) <= STANDBY_DELAY_S
    patience.restored()
    patience.wait()
    assert pauses[-1] <= 0.1, "they count for no line that was lost"


def test_where_another_master_will_lead_pauses_stay_short_for_the_time_of_a_takeover() -> None:
    pauses: list[float] = []
    patience = a_patience(60.0, pauses, has_standby=True)
    while patience.wait():
        pass
    passed_s, early = 0.0, []
    for pause in pauses:
        if passed_s < TAKEOVER_S - LONGEST_DELAY_S:
            early.append(pause)
        passed_s += pause + 0.05
    assert max(early) <= STANDBY_DELAY_S
    assert max(pauses) > STANDBY_DELAY_S, "then somebody is needed, and it asks less often"
