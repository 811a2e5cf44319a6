"""Rules among offers: the order, and the reason for each place."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from dlq_broker.choosing import RULES, Ranking, ranked
from dlq_broker.offers import ClusterOffer, NoOffer, TimeSpan, answer_facts, answer_from
from support.fake_clusters import NOW_S, an_offer


def order(*offers: ClusterOffer, rule: str = "soonest") -> list[str]:
    return [offer.cluster for offer in by(*offers, rule=rule).order]


def by(*offers: ClusterOffer, rule: str = "soonest") -> Ranking:
    return ranked(offers, RULES[rule])


def test_the_earlier_end_comes_first_and_both_places_have_a_reason() -> None:
    found = by(an_offer("a", 7_200.0), an_offer("b", 3_600.0))
    assert [offer.cluster for offer in found.order] == ["b", "a"]
    assert found.reasons == {
        "b": "would end first, 01:00:00 before a",
        "a": "would end 01:00:00 later",
    }


def test_a_promise_comes_before_an_earlier_end() -> None:
    sure = an_offer("sure", 7_200.0, promise="guaranteed")
    soon = an_offer("soon", 60.0, promise="unguaranteed")
    silent = an_offer("mute", 30.0)
    found = by(soon, silent, sure)
    assert [offer.cluster for offer in found.order] == ["sure", "mute", "soon"]
    assert found.reasons["sure"] == "its deadline would be promised"
    assert found.reasons["mute"] == "no verdict on its deadline"
    assert found.reasons["soon"] == "its deadline would not be promised"


def test_the_cost_decides_between_equal_ends_and_first_of_all_under_cheapest() -> None:
    dear = an_offer("dear", 3_600.0, price=2.0)
    fair = an_offer("fair", 3_630.0, price=1.0)
    slow = an_offer("slow", 7_200.0, price=0.1)
    assert order(dear, fair, slow) == ["fair", "dear", "slow"]
    assert order(dear, fair, slow, rule="cheapest") == ["slow", "fair", "dear"]
    found = by(dear, slow, rule="cheapest")
    assert found.reasons == {"slow": "costs 14.40 less than dear", "dear": "costs 14.40 more"}


def test_a_cluster_without_a_forecast_comes_last_and_says_why() -> None:
    blind = ClusterOffer("blind", unknown="the forecasting process fails")
    late = an_offer("late", end=TimeSpan(NOW_S, inf, inf))
    found = by(blind, late)
    assert [offer.cluster for offer in found.order] == ["late", "blind"]
    assert found.reasons["blind"] == "no forecast: the forecasting process fails"
    assert by(late, an_offer("a")).reasons == {
        "a": "would end first",
        "late": "would end later than its forecast reaches",
    }


def test_equal_offers_stand_in_the_order_of_the_list() -> None:
    assert order(an_offer("b"), an_offer("a")) == ["b", "a"]
    assert by(an_offer("b"), an_offer("a")).reasons == {
        "b": "first in the list",
        "a": "later in the list",
    }
    assert by(an_offer("b")).reasons == {"b": "the only offer"}
    assert by() == Ranking((), {})


@pytest.mark.parametrize(
    "answer",
    [
        an_offer("a", price=0.5, promise="guaranteed", promised_s=NOW_S),
        an_offer("a", end=TimeSpan(NOW_S, NOW_S, inf)),
        ClusterOffer("a", unknown="off"),
        NoOffer("a", "full", "QUOTA_EXCEEDED"),
        NoOffer("a", "no answer", "UNAVAILABLE", silent=True),
    ],
)
def test_an_answer_survives_its_record(answer: Any) -> None:
    assert answer_from(answer_facts(answer)) == answer
