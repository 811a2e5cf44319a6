"""The widest job of a length that would start now, by a few questions to the master's twin.

Sizes are powers of two, and all free GPUs. Of a wider job the twin never says an earlier start, so
halving finds the widest in a handful of calls. Nothing is submitted.
"""

from __future__ import annotations

from typing import NamedTuple

from dlq.v1 import forecast_service_pb2 as wire
from dlq.v1 import job_pb2
from dlq_cli.output.render import OutputLook, clean_line
from dlq_cli.text.foreseen import long_range
from dlq_common.errors import DlqError, TryAgain, Unavailable
from dlq_common.text.wire import from_timestamp, to_duration
from dlq_web.line.calls import Asking
from dlq_web.line.methods import named

SOON_S = 60.0  # a start within it is now
PATIENCE_S = 5.0  # of each question
MOST_QUESTIONS = 6
_ESTIMATE = named("ForecastService", "EstimateJob")


class StartNow(NamedTuple):
    """The answer."""

    gpus: int  # 0: no size starts now
    wider: int  # the next size that was asked for; 0: none
    words: str  # when that one starts, or why it does not


class _Said(NamedTuple):
    """The word of the twin on one size."""

    now: bool
    words: str
    unknown: bool = False


async def start_now(line: Asking, free: int, length_s: float, look: OutputLook) -> StartNow:
    """The widest such job that would start within a minute. Raises Unavailable and TryAgain."""
    sizes = sizes_of(free)
    low, high, told = 0, len(sizes), _Said(False, "no GPU is free")
    for _ in range(MOST_QUESTIONS):
        if low >= high:
            break
        middle = (low + high) // 2
        said = await _asked(line, sizes[middle], length_s, look)
        if said.unknown:
            return StartNow(sizes[low - 1] if low else 0, sizes[middle], said.words)
        if said.now:
            low = middle + 1
        else:
            high, told = middle, said
    widest = sizes[low - 1] if low else 0
    return StartNow(widest, sizes[high] if high < len(sizes) else 0, _why(told, widest, free))


def sizes_of(free: int) -> list[int]:
    """1, 2, 4, ... and all that are free, rising."""
    doubled = [1 << power for power in range(max(0, free).bit_length())]
    return sorted({size for size in (*doubled, free) if 0 < size <= free})


def _why(told: _Said, widest: int, free: int) -> str:
    return "these are all free GPUs" if widest and widest == free else told.words


async def _asked(line: Asking, gpus: int, length_s: float, look: OutputLook) -> _Said:
    """Ask the twin about one size. A refusal is an answer: no job may be so wide."""
    spec = job_pb2.JobSpec(name="what-if", command=["true"], working_directory="/")
    spec.resources.gpu_count = gpus
    spec.time_limit_duration.CopyFrom(to_duration(length_s))
    spec.run_estimate_duration.CopyFrom(to_duration(length_s))
    request = wire.EstimateJobRequest(spec=spec, wait_duration=to_duration(PATIENCE_S))
    try:
        answer: wire.EstimateJobResponse = await line.call(_ESTIMATE, request)
    except (Unavailable, TryAgain):
        raise
    except DlqError as error:
        return _Said(False, clean_line(error.what))
    if answer.missing:
        return _Said(False, f"no forecast: {clean_line(answer.missing)}", unknown=True)
    if not answer.start.HasField("likely_time"):
        return _Said(False, "would not start as things are")
    ahead_s = from_timestamp(answer.start.likely_time) - from_timestamp(answer.estimate_time)
    return _Said(ahead_s <= SOON_S, f"likely to start {long_range(answer.start, look)}")
