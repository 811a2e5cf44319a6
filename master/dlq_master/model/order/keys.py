"""Orders by a key: the service of a job, and its key, as one number that gives its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.jobs.job import Job
from dlq_master.model.values import maker

# A position is one integer, in stretches that never meet. Promoted jobs come first, then jobs by
# their start, then waiting jobs (preempted ones count down from WAITING_BASE, new ones up). It
# stays below 2**53, exact in JSON.
PROMOTED_BASE = -(1 << 50)
STARTED_BASE = 0
STARTED_END = 1 << 49
WAITING_BASE = 1 << 50


class Had(NamedTuple):
    """The service of a job by now, its running attempt included.

    `attained_gpu_s` counts since the last promotion; `executed_s` is work that need not be done
    again; its turn began at `since_s` (None: it waits, or holds GPUs on which nothing runs yet).
    `unaged_s`: the instant now less all its waiting time, which stands still for a waiting job.
    `kept_s`: by so many seconds of work who runs stands further ahead, since to stop it has its
    price.
    """

    attained_gpu_s: float
    executed_s: float
    since_s: float | None = None
    unaged_s: float = 0.0
    kept_s: float = 0.0


_had = maker(Had)


class Learned(NamedTuple):
    """The parts beside the job on which a key may depend. These are the bounds of the levels, the
    services of completed jobs (GPU-seconds, sorted), and the use of accounts against their shares.
    """

    thresholds: tuple[float, ...] = ()
    services_gpu_s: tuple[float, ...] = ()
    standing: Mapping[str, int] = MappingProxyType({})  # model.shares


# The smallest first, inside a priority; ties keep the order of positions. All of a level have the
# same length. No number in it may change while a job waits, or the index of those who wait would be
# wrong.
Key = Callable[[Job, Had], tuple[float, ...]]
# The key for as long as nothing else is learned.
KeyRule = Callable[[Learned], Key]


class Moving(Enum):
    """How the place of a waiting job moves when other services are learned."""

    NOT = 0
    TOGETHER = 1  # all such jobs of a priority keep their order among themselves
    ALONE = 2


MovingRule = Callable[[Job, Had], Moving]


def had(job: Job, attempt: Attempt | None, now_s: float, kept_s: float = 0.0) -> Had:
    """`attempt`: its live one, if it has one. `kept_s`: it stands ahead by so many seconds."""
    if job.request.sizes:
        return _had_elastic(job, attempt, now_s, kept_s)
    executed_s, since_s = job.worked_s, job.queued_since_s
    unaged_s = (now_s if since_s is None else since_s) - job.queued_s
    if attempt is None or attempt.started_time_s is None:
        return _had((job.attained_gpu_s, executed_s, None, unaged_s, kept_s))
    runs_s = now_s - attempt.started_time_s
    request = job.request
    gpu_s = runs_s * request.weighed(request.gpus)
    if attempt.speed != 1.0 or attempt.pace is not None:
        gpu_s *= attempt.speed
        runs_s *= attempt.paced(request)
    attained_gpu_s = job.attained_gpu_s + gpu_s
    return _had((attained_gpu_s, executed_s + runs_s, attempt.started_time_s, unaged_s, kept_s))


def _had_elastic(job: Job, attempt: Attempt | None, now_s: float, kept_s: float) -> Had:
    """Its seconds count as many as they would on the GPUs that it asked for."""
    since_s = job.queued_since_s
    unaged_s = (now_s if since_s is None else since_s) - job.queued_s
    if attempt is None or attempt.started_time_s is None:
        return Had(job.attained_gpu_s, job.worked_s, None, unaged_s, kept_s)
    runs_s, gpus = now_s - attempt.started_time_s, attempt.lease.allocation.width
    paced = attempt.paced(job.request)
    worked_s = job.worked_s + runs_s * job.sure_speed_on(gpus) * paced
    attained_gpu_s = job.attained_gpu_s + runs_s * gpus * attempt.speed
    return Had(attained_gpu_s, worked_s, attempt.started_time_s, unaged_s, kept_s)


def position(job: Job, key: tuple[float, ...]) -> int:
    """One integer in the order of (promoted first, key, sequence), so that orders by a key are
    compared as fast as those by sequence. Promoted jobs keep their sequence, which is negative."""
    sequence = job.sequence
    if sequence < STARTED_BASE:
        return sequence
    length = len(key)
    # An IEEE 754 double as a whole number in the same order: below 0 all bits turn, else the sign.
    number, signs = int.from_bytes(_PACKED[length](*key), "big"), _SIGNS[length]
    number = _turned(key) if number & signs else number | signs
    return number << _SEQUENCE_BITS | sequence


def _turned(key: tuple[float, ...]) -> int:
    """The same for keys of which some value is below 0."""
    number = 0
    for value in key:
        (bits,) = _BITS.unpack(_DOUBLE.pack(value + 0.0))  # -0.0 becomes 0.0, which it equals
        number = number << 64 | (bits ^ _ALL if bits & _SIGN else bits | _SIGN)
    return number


_BITS, _DOUBLE = Struct(">Q"), Struct(">d")
_ALL, _SIGN = (1 << 64) - 1, 1 << 63
_LONGEST = 8  # values of a key
_PACKED = [Struct(f">{length}d").pack for length in range(_LONGEST + 1)]
_SIGNS = [sum(_SIGN << 64 * word for word in range(length)) for length in range(_LONGEST + 1)]
_SEQUENCE_BITS = 53  # sequences stay below (`model.order`)
