"""From where it is known how long a job runs, how sure that is, and why nobody knows."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Source(StrEnum):
    """The source of a run time."""

    DECLARED = "declared"  # its user
    PROFILED = "profiled"  # the steps that it told, or its trials
    TRAFFIC = "traffic"  # the iterations that its traffic shows
    HISTORY = "history"  # earlier jobs of its family


class Confidence(StrEnum):
    """How far off an estimate is taken to be."""

    HIGH = "high"  # by a tenth
    MEDIUM = "medium"  # by a third
    LOW = "low"  # by more, or nobody can tell


class Unmeasured(StrEnum):
    """Why a job that was to be measured has no estimate. It may still get one: from its own steps
    at any time that it runs."""

    NO_BEATS = "no_beats"  # it told no steps, and its traffic shows no iterations
    NO_TOTAL = "no_total"  # steps, but not how many there are
    TOO_FEW_STEPS = "too_few_steps"
    TRIAL_FAILED = "trial_failed"  # it cannot run on fewer GPUs than it asks for
    TRIAL_LOST = "trial_lost"  # twice, with nodes or before it ran
    INTERACTIVE = "interactive"  # its client ends it
    GROUP = "group"  # it is a member of a group, and would run alone


class Basis(NamedTuple):
    """The basis of an estimate; or, without a source, why there is none."""

    source: Source | None = None
    confidence: Confidence | None = None
    step_s: float | None = None  # seconds of a training step on what the job asks for
    unmeasured: Unmeasured | None = None
    rests_on: str = ""  # the runs of others from which it is known, for people

    @property
    def guess(self) -> bool:
        """Whether other kinds of jobs tell it: it stands in an order until the job is measured.
        No promise rests on it."""
        return self.source is Source.HISTORY and self.confidence is Confidence.LOW


NOTHING_KNOWN = Basis()
DECLARED = Basis(Source.DECLARED, Confidence.LOW)  # what users say is often far off
