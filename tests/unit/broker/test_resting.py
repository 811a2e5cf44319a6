"""A waiting job moves on where the gain is plain, and never to and fro."""

from __future__ import annotations

from math import inf

import pytest

from dlq_broker.handover import HandOver, HandOverState, MovingJob, digest_of
from dlq_broker.offers import TimeSpan
from dlq_broker.resting import (
    LEAST_GAIN_S,
    REST_S,
    is_plain_gain,
    moves_by_name,
    rests_until_s,
)
from support.fake_clusters import NOW_S, an_offer

HOUR_S = 3_600.0


@pytest.mark.parametrize(
    ("own_s", "other_s", "moves"),
    [
        (HOUR_S, HOUR_S, False),
        (HOUR_S, HOUR_S - LEAST_GAIN_S + 60.0, False),
        (HOUR_S, HOUR_S - 1.5 * LEAST_GAIN_S, True),
        (10 * HOUR_S, 9 * HOUR_S, False),  # a tenth of the time that is left
        (10 * HOUR_S, 7 * HOUR_S, True),
        (inf, HOUR_S, True),
        (HOUR_S, inf, False),
        (inf, inf, False),
    ],
)
def test_a_job_moves_for_a_quarter_of_the_time_that_is_left_and_ten_minutes(
    own_s: float, other_s: float, moves: bool
) -> None:
    never = TimeSpan(inf, inf, inf)
    own, other = (
        an_offer(name, at_s, start=never) if at_s < inf else an_offer(name, end=never, start=never)
        for name, at_s in (("a", own_s), ("b", other_s))
    )
    assert is_plain_gain(own, other, NOW_S) is moves


def test_a_job_whose_cluster_is_silent_stays() -> None:
    assert not is_plain_gain(None, an_offer("b"), NOW_S)


def moved(number: int, frm: str, to: str, made_s: float) -> HandOver:
    cluster, _, job = frm.partition(":")
    there, _, new = to.partition(":")
    return HandOver(
        number=f"m{number}", made_s=made_s, name="train", digest=digest_of(b""), spec=b"",
        order=(there, cluster), sites=("fake", "fake"), state=HandOverState.PLACED, job=new,
        moving=MovingJob(cluster, "fake", job, 1),
    )  # fmt: skip


def test_each_move_makes_a_job_rest_twice_as_long() -> None:
    hands = [
        moved(1, "a:3", "b:4", NOW_S),
        moved(2, "b:4", "a:9", NOW_S + 2 * HOUR_S),
        moved(3, "a:9", "c:1", NOW_S + 5 * HOUR_S),
        moved(4, "a:8", "b:8", NOW_S),
    ]
    assert rests_until_s(moves_by_name(hands), "a:3") == 0.0
    assert rests_until_s(moves_by_name(hands[:1]), "b:4") == NOW_S + REST_S
    assert rests_until_s(moves_by_name(hands[:2]), "a:9") == NOW_S + 2 * HOUR_S + 2 * REST_S
    assert rests_until_s(moves_by_name(hands), "c:1") == NOW_S + 5 * HOUR_S + 4 * REST_S


def test_moves_are_looked_up_for_every_job_of_a_round_and_a_name_may_come_again() -> None:
    moves = moves_by_name([moved(1, "a:3", "b:4", NOW_S), moved(2, "b:4", "a:3", NOW_S + HOUR_S)])
    for _ in range(2):
        assert rests_until_s(moves, "a:3") == NOW_S + HOUR_S + 2 * REST_S
        assert rests_until_s(moves, "b:4") == NOW_S + 2 * REST_S


def test_a_day_has_at_most_five_moves_of_one_job() -> None:
    """With every offer better than the last one, whenever it may."""
    hands: list[HandOver] = []
    name, now_s = "a:0", NOW_S
    while now_s < NOW_S + 24 * HOUR_S:
        to = f"{'b' if name[0] == 'a' else 'a'}:{len(hands) + 1}"
        hands.append(moved(len(hands), name, to, now_s))
        name, now_s = to, rests_until_s(moves_by_name(hands), to)
    assert len(hands) == 5
