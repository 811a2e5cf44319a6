"""When a waiting job moves by itself without going to and fro. Pure.

A move costs the job its place in line, and offers are forecasts. So it moves only for a plain gain,
and rests longer after each move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from dlq_broker.handover import HandOver, HandOverState
from dlq_broker.offers import ClusterOffer

# The least gain: so many seconds, and this share of the time that is left at its own cluster.
LEAST_GAIN_S = 600.0
LEAST_GAIN_SHARE = 0.25
# After its first move a job rests so long, and after each further one twice as long as before.
REST_S = 3_600.0


def is_plain_gain(own: ClusterOffer | None, other: ClusterOffer, now_s: float) -> bool:
    """Whether another cluster would end the job much earlier. Without ends, starts are compared.

    `own`: the offer of its present cluster; None: that is silent or makes none, and the job stays.
    An offer without a forecast is worse than any other.
    """
    if own is None:
        return False
    own_s, other_s = own.likely_end_s, other.likely_end_s
    starts_s = (own.likely_start_s, other.likely_start_s)
    if inf in (own_s, other_s) and inf not in starts_s:
        own_s, other_s = starts_s
    if other_s == inf:
        return False
    least_s = max(LEAST_GAIN_S, LEAST_GAIN_SHARE * (own_s - now_s))
    return own_s == inf or own_s - other_s >= least_s


def moves_by_name(hands: Iterable[HandOver]) -> Mapping[str, HandOver]:
    """The moves among these, by the job's new global name."""
    return {
        hand.global_name: hand
        for hand in hands
        if hand.state is HandOverState.PLACED and hand.moving is not None
    }


def rests_until_s(moves: Mapping[str, HandOver], name: str) -> float:
    """Until when the job with this global name rests, by its `moves_by_name`; 0: it
    does not rest.
    """
    latest_s, former = 0.0, set[str]()
    # A list may give a name to another cluster, so a name may come again.
    while name not in former and (hand := moves.get(name)) is not None and hand.moving is not None:
        former.add(name)
        latest_s = latest_s or hand.made_s
        name = hand.moving.global_name
    return latest_s + REST_S * 2.0 ** (len(former) - 1) if former else 0.0
