"""The use of GPUs x time: that of an attempt, by user and purpose, and that of a pool, held or not.

Days are those of UTC. Seconds are x GPUs wherever a name says `gpu_s`. A slow GPU counts there as a
fast one. Normalised GPU-seconds are x the speed of the GPUs besides (`Attempt.speed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from math import floor
from typing import Final, NamedTuple

from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.attempts.grace import work_at_risk_s
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import LeaseKind

DAY_S: Final = 86_400.0
# Nobody has to do again what these leave undone: it is saved, or nobody wants it any more.
_LOSES_NOTHING = frozenset(
    {
        AttemptState.SUCCEEDED,
        AttemptState.PREEMPTED,
        AttemptState.CANCELLED,
        AttemptState.TIMED_OUT,
    }
)


class Use(StrEnum):
    """The purpose for which a GPU was held."""

    USEFUL = "useful"  # work that nobody has to do again, as far as it is known yet
    PREEMPTED = "preempted"  # work that has to be done again since the job had to leave
    FAILED = "failed"  # ... since the job, its node or its start failed
    TRANSIT = "transit"  # getting ready, loading a checkpoint, leaving


class UseClass(StrEnum):
    """By what right."""

    PROMISED = "promised"  # a deadline of its job is promised
    TRIAL = "trial"  # to measure how long it runs
    BORROWED = "borrowed"  # beyond what its team has by right
    BEST_EFFORT = "best_effort"


class Account(NamedTuple):
    """To whom and to what GPUs x time are counted. `team`: "" for a user alone."""

    day: int  # since 1970-01-01
    user: str
    team: str
    use_class: UseClass
    pool: str


class Used(NamedTuple):
    """GPU-seconds by what they were held for; fields as `Use`. `normalised`: all of them, in those
    of a GPU of speed 1. `idle`: those of them in which nothing ran on the GPU, by its samples.
    """

    useful: float = 0.0
    preempted: float = 0.0
    failed: float = 0.0
    transit: float = 0.0
    normalised: float = 0.0
    idle: float = 0.0

    def __add__(self, other: Used) -> Used:  # type: ignore[override] # not of a sequence
        return Used(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def held(self) -> float:
        return self.useful + self.preempted + self.failed + self.transit


class Level(NamedTuple):
    """GPUs of a pool: held, free, and neither (down, closed, withheld); or GPU-seconds."""

    used: float = 0
    idle: float = 0
    withheld: float = 0

    def __add__(self, other: Level) -> Level:  # type: ignore[override] # not of a sequence
        return Level(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def over(self, span_s: float) -> Level:
        """So many GPU-seconds is this in that time."""
        return Level(*(gpus * span_s for gpus in self))

    @property
    def capacity(self) -> float:
        return self.used + self.idle + self.withheld


def charges(
    attempt: Attempt, job: Job, until_s: float, pools: Mapping[NodeId, str], from_s: float = 0.0
) -> Iterator[tuple[Account, Used]]:
    """The charge of an attempt from its placement to `until_s`, when its GPUs fell free, or now if
    it lives; nothing before `from_s`. `pools`: of its nodes. A job without GPUs holds none.
    """
    if job.request.without_gpus:
        return
    use_class = class_of(attempt, job)
    for pool, gpus in _widths(attempt, pools).items():
        for use, begin_s, end_s in pieces(attempt, job, until_s):
            for day, span_s in by_day(max(begin_s, from_s), end_s):
                account = Account(day, job.user, job.team, use_class, pool)
                gpu_s = gpus * span_s
                used = Used(normalised=gpu_s * attempt.speed)
                yield account, used._replace(**{use.value: gpu_s})


def pieces(attempt: Attempt, job: Job, until_s: float) -> tuple[tuple[Use, float, float], ...]:
    """Its time from its placement to `until_s` without a gap: purpose, from, to."""
    begin_s, started_s = attempt.held_since_s, attempt.started_time_s
    lost = _lost_to(attempt)
    if started_s is None:
        return ((lost or Use.TRANSIT, begin_s, until_s),)
    end_s = until_s if attempt.ended_time_s is None else min(attempt.ended_time_s, until_s)
    end_s = max(end_s, started_s)
    risk_s = 0.0 if lost is None else work_at_risk_s(attempt, end_s)
    kept_s = end_s - min(risk_s, end_s - started_s)
    if lost is None and attempt.state is AttemptState.PREEMPTED and attempt.checkpoint is not None:
        kept_s = min(end_s, max(started_s, attempt.checkpoint.time_s))  # what follows is leaving
    ready_s = min(max(started_s, begin_s + _resume_s(attempt, job)), kept_s)
    return (
        (Use.TRANSIT, begin_s, ready_s),
        (Use.USEFUL, ready_s, kept_s),
        (lost or Use.TRANSIT, kept_s, end_s),
        (Use.TRANSIT, end_s, max(end_s, until_s)),
    )


def by_day(begin_s: float, end_s: float) -> Iterator[tuple[int, float]]:
    """The days of a span, and the seconds of it in each."""
    while begin_s < end_s:
        day = floor(begin_s / DAY_S)
        until_s = min(end_s, (day + 1) * DAY_S)
        yield day, until_s - begin_s
        begin_s = until_s


def summed(rows: Iterable[tuple[Account, Used]]) -> dict[Account, Used]:
    found: dict[Account, Used] = {}
    for account, spent in rows:
        found[account] = found.get(account, Used()) + spent
    return found


# --- helpers, in order of use ---------------------------------------------------------------------


def class_of(attempt: Attempt, job: Job) -> UseClass:
    """By what right it holds its GPUs."""
    if attempt.lease.kind is LeaseKind.PROFILE:
        return UseClass.TRIAL
    if attempt.lease.kind is LeaseKind.SLO or job.promised is not None:
        return UseClass.PROMISED
    return UseClass.BORROWED if job.band is Band.BORROW else UseClass.BEST_EFFORT


def _widths(attempt: Attempt, pools: Mapping[NodeId, str]) -> dict[str, int]:
    widths: dict[str, int] = {}
    for node_id, mask in attempt.lease.allocation.slots:
        pool = pools[node_id]
        widths[pool] = widths.get(pool, 0) + mask.bit_count()
    return widths


def _lost_to(attempt: Attempt) -> Use | None:
    """The cause of the loss of its unsaved work; None: to nothing, or it lives."""
    if attempt.live or attempt.state in _LOSES_NOTHING:
        return None
    return Use.PREEMPTED if attempt.state is AttemptState.PREEMPTED_LOST else Use.FAILED


def _resume_s(attempt: Attempt, job: Job) -> float:
    """From its placement until it went on where it had saved, as last measured of its job."""
    return job.resumes[-1] if attempt.resume_from is not None and job.resumes else 0.0
