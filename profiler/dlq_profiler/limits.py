"""Facts of a program or its host as the reason why its traffic is unknown. No numpy here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlq_profiler.capabilities import BLIND, Unwatched
from dlq_profiler.results import JobProfile, TrafficReason, TrafficVerdict

# Unknown for one of these, a job may be unknown because nothing could see its traffic.
_UNSEEN = frozenset(
    {
        TrafficReason.NOTHING_RECORDED,
        TrafficReason.NO_TRAFFIC,
        TrafficReason.NOT_PERIODIC,
        TrafficReason.TOO_FEW_ITERATIONS,
        TrafficReason.BYPASS,
    }
)


def reason_of(why: Unwatched) -> TrafficReason:
    return TrafficReason(why.value.replace("_", "-"))


# Of such programs nothing at all is seen.
_BLIND = frozenset(reason_of(why) for why in BLIND)


def limited(profile: JobProfile, limits: Sequence[TrafficReason]) -> JobProfile:
    """The profile with the limit as the reason of its unknown values, if that is likely."""
    if not limits:
        return profile
    limit = next((limit for limit in limits if limit in _BLIND), limits[0])
    return replace(
        profile, traffic=_verdict(profile.traffic, limit), sizes=_verdict(profile.sizes, limit)
    )


def _verdict(verdict: TrafficVerdict, limit: TrafficReason) -> TrafficVerdict:
    return verdict._replace(reason=limit) if verdict.reason in _UNSEEN else verdict
