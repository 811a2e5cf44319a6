"""When a trial is over, and what it has told. A trial is a run of a job whose run time is unknown.
It runs on fewer GPUs than it asks for, on its own in the part for trials, or on its own GPUs anyway
(in place).
"""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.gang import is_reduced
from dlq_master.model.estimates.estimate import Basis, Confidence, Source, Unmeasured
from dlq_master.model.jobs.job import Job
from dlq_master.policy.trial.steps import MANY, Pace, Sample, Track, pace

STEADY_S = 60.0  # a job in place that has kept its pace for so long need not go on being watched
PATIENCE = 2.0  # times T_profile: for the first word, and from there for enough steps


class WatchedTrial(NamedTuple):
    """A run of a job whose run time nobody knows, as far as it is told.

    `profile_s`: T_profile; `total`: steps in all; `iteration_s`: the iteration time that its
    traffic shows; `since_s`: when it began to run, or its master to watch.
    """

    job: Job
    attempt: Attempt
    track: Track | None
    now_s: float
    since_s: float
    profile_s: float
    total: int | None = None
    iteration_s: float | None = None


class TrialTold(NamedTuple):
    """All of the job's work takes so long at the pace of this run; `work_s` None: `basis` says why
    nobody knows. `words`: the basis of that.
    """

    work_s: float | None
    basis: Basis
    words: str = ""


def judged(run: WatchedTrial) -> TrialTold | None:
    """The present knowledge of it; None: it is to be watched on.

    T_profile counts from the first word of the job. (Chronus counts from the start, which for large
    models would measure loading.) On its own GPUs it counts the earlier work too.
    """
    track = run.track
    if track is None:
        return _wordless(run)
    found = pace(track)
    late = run.now_s - max(track.first_s, run.since_s) >= PATIENCE * run.profile_s
    if found is None:
        return _stuck(run, track) if late else None
    if late or _enough(run, track, found):
        if run.total is None:
            return _nothing(Unmeasured.NO_TOTAL, found.step_s)
        return _reckoned(run, track, found, run.total)
    return None


def told_s(job: Job, attempt: Attempt, track: Track, total: int) -> float | None:
    """Seconds that all of a job's work takes by the steps of this run on all of its GPUs, whatever
    was estimated; None: they are too few, or too uneven. O(samples)."""
    found, last = pace(track), track.last
    if found is None or last is None or not steady(found):
        return None
    return _whole_s(job, attempt, last, total, found)


# --- helpers, in order of use ---------------------------------------------------------------------


def steady(found: Pace) -> bool:
    """A first step that compiles makes the halves of a short run differ: that is no pace yet."""
    long = found.span_s >= STEADY_S
    return found.confidence is Confidence.HIGH or (long and found.confidence is Confidence.MEDIUM)


def _whole_s(job: Job, attempt: Attempt, last: Sample, total: int, found: Pace) -> float:
    """Its finished work, and the steps that are left."""
    ran_s = attempt.executed_s(last.time_s) + max(0, total - last.step) * found.step_s
    return job.worked_s + ran_s * attempt.paced(job.request)


def _wordless(run: WatchedTrial) -> TrialTold | None:
    silent_s = run.now_s - run.since_s
    if silent_s >= run.profile_s and (told := _by_traffic(run)) is not None:
        return told
    return _nothing(Unmeasured.NO_BEATS) if silent_s >= PATIENCE * run.profile_s else None


def _stuck(run: WatchedTrial, track: Track) -> TrialTold:
    """It has told something, but no steps to speak of."""
    why = Unmeasured.TOO_FEW_STEPS if track.samples else Unmeasured.NO_BEATS
    return _by_traffic(run) or _nothing(why)


def _enough(run: WatchedTrial, track: Track, found: Pace) -> bool:
    """In place the job loses nothing by being watched on, and gains nothing once its pace is
    steady.
    """
    if found.steps < MANY:
        return False
    reduced = is_reduced(run.attempt, run.job)
    worked_s = 0.0 if reduced else run.job.worked_s
    over = worked_s + run.now_s - track.first_s >= run.profile_s
    if reduced or run.job.trials:
        return over
    long = found.span_s >= min(STEADY_S, run.profile_s)
    return long and (over or found.confidence is Confidence.HIGH)


def _reckoned(run: WatchedTrial, track: Track, found: Pace, total: int) -> TrialTold:
    """On its own GPUs: its finished work, and the steps that are left. On fewer: its start, and all
    steps.
    """
    began_s = run.attempt.started_time_s or track.first_s
    last = track.last
    if is_reduced(run.attempt, run.job) or last is None:
        first = track.samples[0]
        start_s = max(0.0, first.time_s - began_s - first.step * found.step_s)
        paced = run.attempt.paced(run.job.request)
        work_s, steps = paced * (start_s + total * found.step_s), f"there are {total}"
    else:
        work_s = _whole_s(run.job, run.attempt, last, total, found)
        steps = f"{max(0, total - last.step)} of {total} are left"
    words = f"{found.steps} steps took {found.span_s:.0f} s, and {steps}"
    return TrialTold(work_s, Basis(Source.PROFILED, found.confidence, found.step_s), words)


def _by_traffic(run: WatchedTrial) -> TrialTold | None:
    """Its iterations are taken for steps; only of work that it has begun in this run."""
    total, iteration_s = run.total, run.iteration_s
    if total is None or iteration_s is None or run.job.worked_s > 0.0:
        return None
    words = f"an iteration of its traffic takes {iteration_s:.3g} s, and there are {total} steps"
    basis = Basis(Source.TRAFFIC, Confidence.LOW, iteration_s)
    work_s = total * iteration_s * run.attempt.paced(run.job.request)
    return TrialTold(work_s, basis, words)


def _nothing(why: Unmeasured, step_s: float | None = None) -> TrialTold:
    return TrialTold(None, Basis(step_s=step_s, unmeasured=why))
