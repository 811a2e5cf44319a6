"""Turns the content of a rank's rings into the evidence for the master: pure."""

import json
from collections.abc import Sequence

from dlq_nodeagent.model.messages import (
    MOST_PROCESSES_BYTES,
    Launch,
    ProfileFound,
    Verdict,
)
from dlq_nodeagent.profiling.reading import RingReading
from dlq_profiler.capabilities import limited
from dlq_profiler.job import job_of
from dlq_profiler.results import JobProfile, ProcessProfile, TrafficReason
from dlq_profiler.results import TrafficVerdict as ProfileVerdict

_MOST_COUNT = 2**31 - 1
_MOST_WORDS, _LONGEST_WORD = 16, 64
_LONGEST_PERIOD_S = 1e6  # beyond it there is no iteration


def found_of(
    launch: Launch,
    reading: RingReading,
    limits: Sequence[TrafficReason],
    *,
    gpu_type: str,
    window_s: float,
    ended_s: float,
) -> ProfileFound:
    """The traffic of a rank. `limits`: the known obstacles."""
    job = job_of(()) if reading.job is None else reading.job
    if (job.period_s or 0.0) > _LONGEST_PERIOD_S:
        job = job_of(())
    job = limited(job, limits)
    largest, skew = job.largest_tensor_bytes, job.skew
    return ProfileFound(
        ended_s=ended_s,
        window_s=window_s,
        gpu_type=gpu_type,
        gpu_count=len(launch.gpu_indexes),
        node_count=max(1, len(launch.node_ids)),
        traffic=_verdict(job.traffic, reading.failure),
        sizes=_verdict(job.sizes, reading.failure),
        pattern=job.pattern.value,
        process_count=min(job.processes, _MOST_COUNT),
        rank_count=_rank_count(job),
        iteration_count=min(job.iterations, _MOST_COUNT),
        period_s=job.period_s,
        jitter=job.jitter,
        bytes_per_iteration=job.bytes_per_iteration,
        model_bytes=job.model_bytes,
        largest_low_bytes=None if largest is None else largest.lower,
        largest_high_bytes=None if largest is None else largest.upper,
        skew_low=None if skew is None else skew.lower,
        skew_high=None if skew is None else skew.upper,
        server_skew=job.server_skew,
        active_fraction=job.active_fraction,
        self_check_error=job.self_check_error,
        record_count=job.records,
        lost_count=job.lost,
        unseen=_words(job.unseen),
        limits=_words(limits),
        processes=_processes(reading.processes),
    )


def _verdict(verdict: ProfileVerdict, failure: TrafficReason | None) -> Verdict:
    method, confidence = verdict.method.value, verdict.confidence.value
    if verdict.reason is None:
        return Verdict(method, confidence)
    return Verdict(method, confidence, (failure or verdict.reason).value)


def _rank_count(job: JobProfile) -> int | None:
    count = job.world_size
    return count if count is not None and count <= _MOST_COUNT else None


def _words(words: Sequence[str]) -> tuple[str, ...]:
    """Fixed words; every other word is cut."""
    return tuple(
        "".join(char if char.isprintable() else "?" for char in word[:_LONGEST_WORD])
        for word in words[:_MOST_WORDS]
    )


def _processes(processes: Sequence[ProcessProfile]) -> str:
    """The processes as JSON, all or none: half of a job's processes would be another job."""
    if not processes:
        return ""
    text = json.dumps([process.facts() for process in processes], separators=(",", ":"))
    return text if len(text) <= MOST_PROCESSES_BYTES else ""
