"""The pace of a job, from the steps that it tells. Steps are counted as done, instants are those of
the step.
"""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.estimates.estimate import Confidence

FEW, MANY = 2, 10  # steps: with fewer there is no pace, with fewer a poor one
_KEPT = 32  # samples of an attempt
_ALIKE, _SIMILAR = 0.1, 0.3  # how far two halves of a trial may be apart


class Sample(NamedTuple):
    """So many steps were done at this instant."""

    step: int
    time_s: float


NO_STEPS = Sample(0, 0.0)


class Pace(NamedTuple):
    """Seconds of a step; `steps` of them in `span_s` say so."""

    step_s: float
    steps: int
    span_s: float
    confidence: Confidence


class Track(NamedTuple):
    """The reports of one attempt on `gpus` GPUs, and of earlier ones on as many: `before` sums up
    theirs.

    `first_s`: of its first word, by which the clock of a trial starts, whether or not it told a
    step.
    """

    attempt: int
    gpus: int
    first_s: float
    samples: tuple[Sample, ...] = ()
    before: Sample = NO_STEPS  # steps, and the seconds that they took

    @property
    def last(self) -> Sample | None:
        """Its last report."""
        return self.samples[-1] if self.samples else None


def followed(track: Track | None, attempt: int, gpus: int, step: int | None, at_s: float) -> Track:
    """The track after another report of this attempt. An attempt that counts anew, or runs on other
    GPUs, begins anew.
    """
    if track is None or track.gpus != gpus:
        track = Track(attempt, gpus, at_s)
    elif track.attempt != attempt:
        track = Track(attempt, gpus, at_s, before=_sum(track))
    last = track.last
    if step is None or (last is not None and step == last.step):
        return track
    if last is not None and (step < last.step or at_s <= last.time_s):
        return track._replace(samples=(Sample(step, at_s),))
    samples = (*track.samples, Sample(step, at_s))
    return track._replace(
        samples=samples if len(samples) <= _KEPT else (*samples[:-1:2], samples[-1])
    )


def pace(track: Track) -> Pace | None:
    """None: it has told fewer than FEW steps."""
    steps, span_s = _sum(track)
    if steps < FEW or span_s <= 0.0:
        return None
    return Pace(span_s / steps, steps, span_s, _confidence(track, steps, span_s / steps))


# --- helpers, in order of use ---------------------------------------------------------------------


def _sum(track: Track) -> Sample:
    """Steps that were made while it was watched, and the seconds that they took."""
    if not track.samples:
        return track.before
    first, last = track.samples[0], track.samples[-1]
    before = track.before
    return Sample(before.step + last.step - first.step, before.time_s + last.time_s - first.time_s)


def _confidence(track: Track, steps: int, step_s: float) -> Confidence:
    """By how much the two halves of the attempt differ."""
    if steps < MANY:
        return Confidence.LOW
    halves = _halves(track.samples)
    if halves is None:
        return Confidence.MEDIUM
    apart = abs(halves[0] - halves[1]) / step_s
    if apart <= _ALIKE:
        return Confidence.HIGH
    return Confidence.MEDIUM if apart <= _SIMILAR else Confidence.LOW


def _halves(samples: tuple[Sample, ...]) -> tuple[float, float] | None:
    """Seconds of a step in the first and in the second half; None: too little was told in
    between.
    """
    if len(samples) < 3:
        return None
    first, last = samples[0], samples[-1]
    half_s = (first.time_s + last.time_s) / 2.0
    middle = min(samples[1:-1], key=lambda sample: abs(sample.time_s - half_s))
    early, late = middle.step - first.step, last.step - middle.step
    if min(early, late) < FEW:
        return None
    return (middle.time_s - first.time_s) / early, (last.time_s - middle.time_s) / late
