"""The measured lateness of a cluster's starts against its offers, added to its next offers.

A cluster may lie about its starts, or not know better; its jobs show it. The wait in an offer is
multiplied by the measured factor. Being early earns nothing: an offer never becomes better than its
cluster says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp, inf, isfinite, log
from typing import NamedTuple

from dlq_broker.doors import JobWait, WaitState
from dlq_broker.handover import HandOver, HandOverState
from dlq_broker.offers import ClusterOffer, OfferAnswer, believable

# A minute more or less is no error: no forecast is better, and an empty cluster foretells 0 s.
_SLACK_S = 60.0
# A cluster begins with so many jobs that started as foretold. One late job alone says little.
_PRIOR_JOBS = 1.0
# One job that waited for ever must not shut its cluster out for ever.
_WORST_FACTOR = 100.0
# So many of the newest jobs of a cluster are looked at.
MOST_JOBS = 20


class StartLateness(NamedTuple):
    """The waits of `jobs` jobs were `factor` times as long as offered; at least 1."""

    factor: float = 1.0
    jobs: int = 0


def foretold_s(hand: HandOver) -> float:
    """The wait in seconds that the job's cluster had offered; inf: it had offered none."""
    for answer in hand.answers:
        if isinstance(answer, ClusterOffer) and answer.cluster == hand.cluster:
            return max(0.0, answer.told_start_s - hand.made_s)
    return inf


def placed_at(hands: Iterable[HandOver], site: str) -> list[HandOver]:
    """The newest hand-overs with a job at this site. `hands`: the oldest first."""
    there = [one for one in hands if one.state is HandOverState.PLACED and one.site == site]
    return there[-MOST_JOBS:]


def to_look_at(hands: Iterable[HandOver]) -> list[HandOver]:
    """Those whose job is not known to have started."""
    return [one for one in hands if one.wait is None]


def measured(
    hands: Iterable[HandOver], waits: Mapping[str, JobWait], now_s: float
) -> StartLateness:
    """The lateness by the hand-overs of one site. `waits`: new observations, by job number.

    The factor is the geometric mean of wait over offered wait. A job that still waits counts once
    it has waited longer than offered.
    """
    errors = []
    for hand in hands:
        wait, told_s = hand.wait or waits.get(hand.job), foretold_s(hand)
        if wait is None or wait.state is WaitState.LEFT or not isfinite(told_s):
            continue
        waits_s = now_s - hand.made_s if wait.state is WaitState.WAITS else wait.waited_s
        error = log((max(0.0, waits_s) + _SLACK_S) / (told_s + _SLACK_S))
        if wait.state is WaitState.STARTED or error > 0.0:
            errors.append(error)
    mean = sum(errors) / (len(errors) + _PRIOR_JOBS)
    return StartLateness(min(_WORST_FACTOR, exp(max(0.0, mean))), len(errors))


def lowered(answer: OfferAnswer, late: StartLateness, now_s: float) -> OfferAnswer:
    """The offer with a later start and end, and by how many seconds. `now_s`: the begin of its
    wait.
    """
    if not isinstance(answer, ClusterOffer) or not isfinite(answer.told_start_s):
        return answer
    wait_s = max(0.0, answer.told_start_s - now_s)
    late_s = (wait_s + _SLACK_S) * (late.factor - 1.0)
    if late_s < _SLACK_S:  # within the precision of every forecast
        return answer
    return believable(answer._replace(late_s=late_s, late_jobs=late.jobs))
