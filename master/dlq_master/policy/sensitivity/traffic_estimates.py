"""Beliefs about the communication of jobs, from the recorded starts, and the starts to record.

A recording speaks for its job and for the jobs of its family on GPUs of its type. Times speak for
gangs of its width alone. How much being spread costs is measured where there are two: one on as few
nodes as can be, one on more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlq_common.slowdown import rho_of, rho_of_spread
from dlq_master.model.estimates.slowdowns import TimedRun
from dlq_master.model.estimates.traffic import TrafficProfile
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.recording import Belief, Cause, Recording, family_of
from dlq_master.model.timers import Timers

FAMILIES_KEPT = 10_000
KEPT = 32  # recordings of a family, the newest
FRESH_S = 30 * 86_400.0  # a program and a fabric change: then it is looked at again
MOST_TRIES = 2  # starts that told nothing, before no more are recorded unasked
MOST_CUT_SHORT = 8  # and those that were preempted or failed before their window was over
LATE_S = 900.0  # after its window a recording is waited for so long: images are pulled first


class RecordedStart(NamedTuple):
    """A start that may be recorded: of `job`, on so many GPUs of this type."""

    job: Job
    gpu_type: str
    gpus: int
    spread: bool
    at_s: float


class TrafficEstimates:
    """The newest recordings of each family. Part of the working state; their rows are in the
    store.
    """

    def __init__(self, bytes_per_s: float | None) -> None:
        """`bytes_per_s`: the rate of the link between two nodes; None: nobody knows, and no rho is
        told.
        """
        self._bytes_per_s = bytes_per_s
        self._families: dict[str, tuple[Recording, ...]] = {}  # the latest family stands last
        self._by_key: dict[AttemptKey, Recording] = {}
        self._open: dict[AttemptKey, Recording] = {}  # not all nodes have told
        self._due: Timers[AttemptKey] = Timers()  # until when those are waited for

    def get(self, key: AttemptKey) -> Recording | None:
        """The recording of an attempt; None: it was not recorded, or that was long ago."""
        return self._by_key.get(key)

    def __iter__(self) -> Iterator[Recording]:
        """All that are kept."""
        return iter(self._by_key.values())

    def put(self, recording: Recording) -> TimedRun | None:
        """A new one, or a new value. Returns what is measured now of being spread, if it has become
        so.
        """
        before = self._by_key.get(recording.key)
        of_family = self._families.pop(recording.family, ())
        rest = tuple(one for one in of_family if one.key != recording.key)
        kept = sorted((*rest, recording), key=_age)
        self._families[recording.family] = tuple(kept[-KEPT:])
        self._by_key[recording.key] = recording
        if recording.found is None:
            self._open[recording.key] = recording
            self._due.set(recording.key, _due_s(recording))
        else:
            self._close(recording.key)
        self._drop(kept[:-KEPT])
        if len(self._families) > FAMILIES_KEPT:
            self._drop(self._families.pop(next(iter(self._families))))
        news = recording.trusted and (before is None or not before.trusted)
        return self._measured(recording) if news else None

    def overdue(self, now_s: float) -> tuple[Recording, ...]:
        """Recordings without the reports of all nodes in time."""
        return tuple([self._open[key] for key in self._due.due(now_s)])

    def of(self, job: Job) -> Belief | None:
        """The belief about a job, for any GPUs if it names none; None: nothing."""
        if not self._families:
            return None  # as nearly always when a master starts with a long queue
        asked = job.request
        known = [
            one
            for one in self._families.get(family_of(job), ())
            if one.found is not None
            and (one.trusted or not one.found.sizes.reason)
            and asked.shape.may_be(one.gpu_type)
        ]
        if not known:
            return None
        basis = max(
            known,
            key=lambda one: (
                one.trusted,
                one.key.job_id == job.job_id,
                one.gpus == asked.gpus,
                not one.spread,
                _age(one),
            ),
        )
        profile = self.profile(basis)
        if basis.gpus != asked.gpus:
            profile = profile._replace(slowdown=None)
        own = basis.key.job_id == job.job_id
        return Belief(profile, basis, own, *self._pair(basis))

    def profile(self, basis: Recording) -> TrafficProfile:
        """The message of a start to plans, with the start to compare it with if there is one.

        A skew between two bounds counts as the higher: a job that may be sensitive is treated so.
        """
        found = basis.found
        if found is None:
            return TrafficProfile()
        sized = not found.sizes.reason
        return TrafficProfile(
            skew=found.skew_high if sized else None,
            rho=self._rho(basis),
            model_bytes=found.model_bytes if sized else None,
            slowdown=_slowdown(*self._pair(basis)),
        )

    def why_record(self, start: RecordedStart, *, asked: bool) -> Cause | None:
        """Whether there is anything to learn from this start; None: no."""
        alike = [
            one
            for one in self._families.get(family_of(start.job), ())
            if (one.gpu_type, one.gpus) == (start.gpu_type, start.gpus)
        ]
        same = [one for one in alike if one.spread == start.spread]
        own = [one for one in same if one.key.job_id == start.job.job_id]
        if asked:
            return None if any(one.trusted for one in own) else Cause.ASKED
        fresh = [one for one in same if one.order_time_s >= start.at_s - FRESH_S]
        # An earlier attempt of this job is over: it ended too soon, whatever it still reports.
        others = [one for one in fresh if one.key.job_id != start.job.job_id]
        if any(one.trusted for one in fresh) or any(_awaited(one, start.at_s) for one in others):
            return None
        silent = [one for one in fresh if one.found is not None and not one.cut_short]
        if len(silent) >= MOST_TRIES or len(fresh) >= MOST_TRIES + MOST_CUT_SHORT:
            return None
        if any(one.trusted for one in same):
            return Cause.STALE
        return Cause.PLACEMENT if any(one.trusted for one in alike) else Cause.FIRST

    # --- helpers, in order of use -----------------------------------------------------------------

    def _drop(self, recordings: Sequence[Recording]) -> None:
        for recording in recordings:
            self._by_key.pop(recording.key, None)
            self._close(recording.key)

    def _close(self, key: AttemptKey) -> None:
        """Nothing more is waited for."""
        self._open.pop(key, None)
        self._due.clear(key)

    def _measured(self, recording: Recording) -> TimedRun | None:
        together, spread = self._pair(recording)
        slowdown = _slowdown(together, spread)
        if together is None or slowdown is None:
            return None
        foretold = self.profile(together)._replace(slowdown=None)
        return TimedRun(foretold, spread=True, slowdown=slowdown)

    def _pair(self, like: Recording) -> tuple[Recording | None, Recording | None]:
        """The newest on few nodes and the newest on more, of its family, width and type."""
        newest: dict[bool, Recording] = {}
        for one in self._families[like.family]:
            if one.trusted and (one.gpu_type, one.gpus) == (like.gpu_type, like.gpus):
                newest[one.spread] = one
        return newest.get(False), newest.get(True)

    def _rho(self, basis: Recording) -> float | None:
        found = basis.found
        if self._bytes_per_s is None or found is None or not found.timed:
            return None
        sent, period_s = found.bytes_per_iteration, found.period_s
        if sent is None or not period_s:
            return None
        of = rho_of_spread if basis.spread else rho_of
        return of(sent, period_s, self._bytes_per_s)


def _age(recording: Recording) -> tuple[float, AttemptKey]:
    return recording.order_time_s, recording.key


def _awaited(recording: Recording, now_s: float) -> bool:
    return recording.found is None and now_s < _due_s(recording)


def _due_s(recording: Recording) -> float:
    return recording.order_time_s + recording.window_s + LATE_S


def _slowdown(together: Recording | None, spread: Recording | None) -> float | None:
    """The time for an iteration on many nodes over that on few, as far as both are known."""
    if together is None or spread is None or together.found is None or spread.found is None:
        return None
    few_s, many_s = together.found.period_s, spread.found.period_s
    return many_s / few_s if few_s and many_s else None
