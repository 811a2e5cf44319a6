"""The merged reports of the nodes of an attempt, by the analysis' own rules."""

import json
from collections.abc import Sequence
from typing import Final

from dlq_master.model.jobs.recording import Evidence, Found, Told
from dlq_profiler.capabilities import limited
from dlq_profiler.job import job_of
from dlq_profiler.results import (
    JobProfile,
    ProcessProfile,
    TrafficConfidence,
    TrafficReason,
    TrafficVerdict,
)

_REASONS: Final = frozenset(TrafficReason)
_LEAST_FIRST: Final = (
    TrafficConfidence.UNKNOWN,
    TrafficConfidence.ASSUMED,
    TrafficConfidence.CHECKED,
    TrafficConfidence.EXACT,
)


def job_profile(parts: Sequence[Evidence]) -> JobProfile:
    """The profile of a job of which every node has told, at least one.

    Without the processes of all nodes the least sure of the nodes speaks for all. Each of them
    alone reports the whole model, and one that saw nothing may be where the most was sent.
    """
    if all(part.processes for part in parts):
        told = [facts for part in parts for facts in json.loads(part.processes)]
        return limited(job_of([ProcessProfile.of(facts) for facts in told]), _limits(parts))
    summaries = [JobProfile.of(json.loads(part.profile)) for part in parts]
    return min(summaries, key=lambda one: _LEAST_FIRST.index(one.traffic.confidence))


def _limits(parts: Sequence[Evidence]) -> list[TrafficReason]:
    """Of all nodes; words that only a newer agent knows say nothing here."""
    words = dict.fromkeys(word for part in parts for word in part.limits)
    return [TrafficReason(word) for word in words if word in _REASONS]


def found_of(parts: Sequence[Evidence]) -> Found:
    """The belief about the traffic of a job with reports of every node."""
    profile = job_profile(parts)
    skew = profile.skew
    return Found(
        traffic=_told(profile.traffic),
        sizes=_told(profile.sizes),
        iterations=profile.iterations,
        period_s=profile.period_s,
        bytes_per_iteration=profile.bytes_per_iteration,
        model_bytes=profile.model_bytes,
        skew_low=None if skew is None else skew.lower,
        skew_high=None if skew is None else skew.upper,
        server_skew=profile.server_skew,
        recorded_s=min(part.window_s for part in parts),
    )


def _told(verdict: TrafficVerdict) -> Told:
    reason = "" if verdict.reason is None else verdict.reason.value
    return Told(verdict.method.value, verdict.confidence.value, reason)
