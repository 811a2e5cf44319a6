"""Rules among offers: the order, and the reason for each place."""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random
from typing import Any

import pytest

from dlq_broker.choosing import DEFAULT_RULE, RULES, Ranking, is_better, ranked
from dlq_broker.offers import ClusterOffer, NoOffer, TimeSpan, answer_facts, answer_from
from support.fake_clusters import NOW_S, an_offer


def order(*offers: ClusterOffer, rule: str = "soonest") -> list[str]:
    return [offer.cluster for offer in by(*offers, rule=rule).order]


def by(*offers: ClusterOffer, rule: str = "soonest") -> Ranking:
    return ranked(offers, RULES[rule], Random(1))


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


def starting(cluster: str, wait_s: float, range_s: float, **more: object) -> ClusterOffer:
    """Its likely start and end are so long after now; its start may be as much earlier or later."""
    at_s = NOW_S + wait_s
    start = TimeSpan(at_s - range_s, at_s, at_s + range_s)
    return an_offer(cluster, 3_600.0 + wait_s, start=start, **more)


def winners(*offers: ClusterOffer, rule: str = DEFAULT_RULE, draws: int = 400) -> Counter[str]:
    """Of many choices, how often each cluster got the job."""
    chance = Random(7)
    found = (ranked(offers, RULES[rule], chance) for _ in range(draws))
    return Counter(one.order[0].cluster for one in found)


def test_offers_that_forecasts_cannot_tell_apart_share_the_jobs() -> None:
    near = starting("a", 3_600.0, 1_800.0), starting("b", 3_900.0, 1_800.0)
    found = winners(*near)
    assert 80 < found["b"] < found["a"]
    assert winners(*near, rule="soonest") == {"a": 400}


def test_an_offer_beyond_the_error_of_forecasts_never_wins() -> None:
    far = starting("a", 600.0, 60.0), starting("b", 3_600.0, 600.0)
    assert winners(*far) == {"a": 400}
    sure = starting("a", 600.0, 0.0), starting("b", 720.0, 0.0)
    assert winners(*sure) == {"a": 400}


def test_a_cluster_that_is_unsure_wins_less_often_than_it_would_as_the_first() -> None:
    """Both start after an hour by their words, and one of them hardly knows."""
    found = winners(starting("sure", 3_600.0, 60.0), starting("unsure", 3_600.0, 3_600.0))
    assert 120 < found["unsure"] < 280


def test_equal_offers_share_the_jobs_and_a_cost_decides_first() -> None:
    found = winners(an_offer("a"), an_offer("b"), an_offer("c"), an_offer("d", 7_200.0))
    assert min(found[name] for name in "abc") > 90
    assert found["d"] == 0
    assert winners(an_offer("a", price=2.0), an_offer("b", price=1.0)) == {"b": 400}
    promised = an_offer("a", 9_000.0, promise="guaranteed")
    assert winners(promised, an_offer("b", promise="unguaranteed")) == {"a": 400}


def test_a_lot_is_named_in_the_reasons() -> None:
    equal = ranked([an_offer("a"), an_offer("b")], RULES["spread"], Random(1))
    first, other = (offer.cluster for offer in equal.order)
    assert equal.reasons == {
        first: "by lot among equal offers",
        other: "as good, and lost the lot",
    }
    near = starting("a", 3_600.0, 1_800.0), starting("b", 3_900.0, 1_800.0)
    chance = Random(7)
    told = {tuple(ranked(near, RULES["spread"], chance).reasons.items()) for _ in range(40)}
    assert {frozenset(one) for one in told} == {
        frozenset({("a", "would end first, 00:05:00 before b"), ("b", "would end 00:05:00 later")}),
        frozenset(
            {
                ("b", "by lot: a would end 00:05:00 earlier, and forecasts err by more"),
                ("a", "lost the lot: would end 00:05:00 earlier, and forecasts err by more"),
            }
        ),
    }


def test_the_same_generator_makes_the_same_choice() -> None:
    offers = [starting(name, 3_600.0, 1_800.0) for name in "abcdef"]
    assert ranked(offers, RULES["spread"], Random(3)) == ranked(offers, RULES["spread"], Random(3))


def test_no_draw_changes_what_is_better_and_a_start_that_is_unknown_is_not_drawn() -> None:
    rule = RULES["spread"]
    soon, late = starting("a", 3_600.0, 1_800.0), starting("b", 3_900.0, 1_800.0)
    assert (is_better(soon, late, rule), is_better(late, soon, rule)) == (True, False)
    never = TimeSpan(NOW_S, inf, inf)
    blind = starting("b", 3_660.0, 0.0)._replace(start=None)
    assert winners(starting("a", 3_600.0, 0.0)._replace(start=None), blind) == {"a": 400}
    lost = an_offer("c", start=never, end=never)
    assert winners(blind, lost) == {"b": 400}


def test_a_draw_leaves_the_offers_as_their_clusters_made_them() -> None:
    near = starting("a", 3_600.0, 1_800.0), starting("b", 3_900.0, 1_800.0)
    assert set(ranked(near, RULES["spread"], Random(1)).order) == set(near)


def test_soonest_is_spread_without_its_draws() -> None:
    assert RULES["soonest"] == RULES["spread"]._replace(draws=False)


def test_the_record_of_an_answer_has_no_draw_and_one_of_before_is_still_read() -> None:
    facts = answer_facts(an_offer("a"))
    assert "drawn_s" not in facts
    assert answer_from(facts | {"drawn_s": -30.0}) == an_offer("a")


@pytest.mark.parametrize(
    "answer",
    [
        an_offer("a"),
        an_offer("a", price=0.5, promise="guaranteed", promised_s=NOW_S),
        an_offer("a", end=TimeSpan(NOW_S, NOW_S, inf)),
        ClusterOffer("a", unknown="off"),
        NoOffer("a", "full", "QUOTA_EXCEEDED"),
        NoOffer("a", "no answer", "UNAVAILABLE", silent=True),
    ],
)
def test_an_answer_survives_its_record(answer: Any) -> None:
    assert answer_from(answer_facts(answer)) == answer
