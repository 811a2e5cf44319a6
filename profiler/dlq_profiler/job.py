"""A whole job from the profiles of its processes, on any hosts. No numpy here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dlq_profiler import all_reduce, parameter_server
from dlq_profiler.all_reduce import Sizes
from dlq_profiler.results import (
    JobProfile,
    Method,
    Pattern,
    ProcessProfile,
    TrafficConfidence,
    TrafficReason,
    TrafficVerdict,
)

# A process that sends less than this share of the busiest one does not take part: launchers,
# loaders.
LEAST_OF_BUSIEST = 0.01
# Rendezvous and heartbeats recur, too; a training step moves more than they do.
LEAST_BYTES = 4096
# Seen in this many iterations, a pattern must explain this share of the sent bytes to be believed.
# Records of a few iterations, cut off in the middle of one, can make a part of the traffic look
# like all of it.
LEAST_COVERAGE = ((6, 0.9), (4, 0.98), (0, 0.995))
FULL_COVERAGE = 0.98
# Of several reasons the one that says most.
_SAYS_MOST = (
    TrafficReason.BYPASS,
    TrafficReason.GRAPH,
    TrafficReason.RECORDS_LOST,
    TrafficReason.TOO_FEW_ITERATIONS,
    TrafficReason.NOT_PERIODIC,
    TrafficReason.NO_TRAFFIC,
)


class _Ranks(NamedTuple):
    size: int | None
    told: bool


def job_of(processes: Sequence[ProcessProfile], *, world_size: int | None = None) -> JobProfile:
    """The profile of a job. `world_size`: ranks, if the caller knows better."""
    ranks = _ranks(processes, world_size)
    found = JobProfile(
        pattern=Pattern.OTHER,
        traffic=_unknown(_reason(processes)),
        sizes=_unknown(_reason(processes)),
        processes=0,
        world_size=ranks.size,
        records=sum(process.records for process in processes),
        lost=sum(process.lost for process in processes),
        unseen=tuple(sorted({word for process in processes for word in process.unseen})),
    )
    talkers = _talkers(processes)
    if not talkers:
        return _with_exact(found, processes)
    ranks = ranks if ranks.told else _Ranks(len(talkers), told=False)
    found = _with_traffic(replace(found, world_size=ranks.size), talkers)
    if parameter_server.is_one(talkers):
        found = parameter_server.merged(found, talkers)
    else:
        found = _with_sizes(found, talkers, all_reduce.sizes_of(talkers, ranks.size or 1))
    return _with_exact(found, processes)


def _talkers(processes: Sequence[ProcessProfile]) -> list[ProcessProfile]:
    known = [process for process in processes if process.reason is None]
    busiest = max((process.sent_bytes for process in known), default=0.0)
    return [
        process
        for process in known
        if process.sent_bytes >= max(LEAST_BYTES, LEAST_OF_BUSIEST * busiest)
    ]


def _ranks(processes: Sequence[ProcessProfile], told: int | None) -> _Ranks:
    if told is not None:
        return _Ranks(told, told=True)
    sizes = {process.world_size for process in processes} - {None}
    return _Ranks(sizes.pop(), told=True) if len(sizes) == 1 else _Ranks(None, told=False)


def _reason(processes: Sequence[ProcessProfile]) -> TrafficReason:
    if not processes:
        return TrafficReason.NOTHING_RECORDED
    reasons = {process.reason for process in processes}
    return next((reason for reason in _SAYS_MOST if reason in reasons), TrafficReason.NO_TRAFFIC)


def _with_traffic(found: JobProfile, talkers: Sequence[ProcessProfile]) -> JobProfile:
    busiest = max(talkers, key=lambda process: process.sent_bytes)
    coverage = min(process.coverage for process in talkers)
    found = replace(found, processes=len(talkers))
    seen = min(process.iterations for process in talkers)
    if coverage < next(least for often, least in LEAST_COVERAGE if seen >= often):
        why = TrafficReason.RECORDS_LOST if found.lost else TrafficReason.NOT_PERIODIC
        return replace(found, traffic=_unknown(why, busiest.method))
    full = coverage >= FULL_COVERAGE and not found.unseen
    return replace(
        found,
        traffic=TrafficVerdict(
            busiest.method, TrafficConfidence.CHECKED if full else TrafficConfidence.ASSUMED
        ),
        iterations=seen,
        period_s=sum(process.period_s for process in talkers) / len(talkers),
        jitter=max(process.jitter for process in talkers),
        bytes_per_iteration=busiest.sent_bytes,
        phases=busiest.phases,
        active_fraction=active_fraction(busiest.phases),
    )


def _with_sizes(found: JobProfile, talkers: Sequence[ProcessProfile], sizes: Sizes) -> JobProfile:
    if sizes.reason is TrafficReason.SELF_CHECK:
        # The count of iterations may be wrong, and then so is all that was divided by it.
        found = _without_traffic(found, TrafficReason.SELF_CHECK)
    method = sizes.method
    if sizes.reason is not None or not found.traffic.known:
        why = sizes.reason or found.traffic.reason or TrafficReason.NOT_PERIODIC
        return replace(found, sizes=_unknown(why, method), self_check_error=sizes.self_check_error)
    return replace(
        found,
        pattern=Pattern.ALL_REDUCE,
        sizes=TrafficVerdict(method, TrafficConfidence.ASSUMED),
        model_bytes=sizes.model_bytes,
        largest_tensor_bytes=sizes.largest,
        skew=sizes.skew,
        buckets=sizes.buckets,
        self_check_error=sizes.self_check_error,
    )


def _without_traffic(found: JobProfile, reason: TrafficReason) -> JobProfile:
    return replace(
        found,
        traffic=_unknown(reason, found.traffic.method),
        iterations=0,
        period_s=None,
        jitter=None,
        bytes_per_iteration=None,
        phases=(),
        active_fraction=None,
    )


def _with_exact(found: JobProfile, processes: Sequence[ProcessProfile]) -> JobProfile:
    """Exact figures of the framework replace concluded ones."""
    told = next((process.tensors for process in processes if process.tensors), ())
    sizes = tuple(sorted((size for model in told for size in model.sizes), reverse=True))
    total = sum(sizes)
    if not total:
        return found
    exact = all_reduce.exactly(sizes[0], total)
    return replace(
        found,
        sizes=TrafficVerdict(Method.EXACT, TrafficConfidence.EXACT),
        model_bytes=float(total),
        largest_tensor_bytes=exact.largest,
        skew=exact.skew,
        tensors=sizes,
    )


def active_fraction(phases: Sequence[float]) -> float | None:
    """The part of an iteration in which it sends: parts with a tenth of the mean or more."""
    total = sum(phases)
    if not total:
        return None
    least = total / len(phases) / 10
    return sum(phase >= least for phase in phases) / len(phases)


def _unknown(reason: TrafficReason, method: Method = Method.NONE) -> TrafficVerdict:
    return TrafficVerdict(method, TrafficConfidence.UNKNOWN, reason)
