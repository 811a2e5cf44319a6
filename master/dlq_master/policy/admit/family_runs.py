"""How long a job runs by the runs of its family, and how sure that is.

Runs of jobs that are like it in all count as they are. Runs that differ in one thing count through
a ratio that was measured, and never at full confidence:

- **the GPU type**: by the steps of jobs of its program on both types, or by kinds of jobs that ran
  alike on both. Its own program makes it medium, other kinds low. Before there are any, declared
  speeds tell it, and it is low;
- **the number of steps**: along a line through two numbers that were measured. Near these it is
  medium. From one number only it is proportional, and low;
- **the arguments**, in a family with a name: nobody knows what they change, so it is low.

A low one is a guess (`Basis.guess`): its job is measured all the same, and no promise rests on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dlq_master.model.estimates.estimate import Confidence
from dlq_master.model.jobs.likeness import FEWEST_RUNS, SPREAD, Likeness, agreed, percentile
from dlq_master.model.jobs.trials import Profiling, Runs
from dlq_master.model.nodes.type_speeds import ALL_ALIKE, TypeSpeeds
from dlq_master.model.values import median

SURE = 10, 1.1  # runs, and their spread, that are as good as can be
PAIRS = 200  # kinds of jobs on several types that are looked at, the latest
KIN = 200  # kinds of jobs of its family, likewise
NEAR = 2.0  # so many times the largest measured number of steps is near it

_HIGH, _MEDIUM, _LOW = Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW
_ORDER = (_LOW, _MEDIUM, _HIGH)


class Trusted(NamedTuple):
    """How long the next of such jobs runs."""

    run_s: float
    confidence: Confidence


class FamilyTime(NamedTuple):
    """How long the next job runs; `rests_on`: on which runs that rests, for people."""

    run_s: float
    confidence: Confidence
    rests_on: str


class TypeRate(NamedTuple):
    """The time on one GPU type over that on another, by so many kinds of jobs."""

    times: float
    confidence: Confidence
    kinds: str


def least_sure(of: Iterable[Confidence]) -> Confidence:
    """The lowest of these."""
    return min(of, key=_ORDER.index)


def trusted(runs_s: Sequence[float]) -> Trusted | None:
    """By the median of these run times; None: they say too little."""
    if len(runs_s) < FEWEST_RUNS:
        return None
    ordered = sorted(runs_s)
    median_s = percentile(ordered, 0.5)
    spread = percentile(ordered, 0.9) / median_s
    if spread > SPREAD:
        return None
    least, most = SURE
    sure = len(runs_s) >= least and spread <= most
    return Trusted(median_s, _HIGH if sure else _MEDIUM)


def foretell(
    known: Profiling, asked: Likeness, gpu_type: str, speeds: TypeSpeeds = ALL_ALIKE
) -> FamilyTime | None:
    """The run time of a job like that on GPUs of this type; None: its family says too little.
    `speeds`: the prior of ratios of types.

    Worked out once for all jobs that are alike, until another run is learned.
    """
    if asked not in known.runs and not known.kin(asked.family):
        return None
    found: tuple[FamilyTime | None] | None = known.foretold.get((asked, gpu_type))
    if found is None:
        found = (_foretell(known, asked, gpu_type, speeds),)
        known.foretold.put((asked, gpu_type), found)
    return found[0]


# --- helpers, in order of use ---------------------------------------------------------------------


def _foretell(
    known: Profiling, asked: Likeness, gpu_type: str, speeds: TypeSpeeds
) -> FamilyTime | None:
    """The surest way; of equally sure ones the first. Enough runs of its own decide alone, also if
    they differ too much to tell anything.
    """
    runs = known.runs.get(asked, {})
    if len(runs.get(gpu_type, ())) >= FEWEST_RUNS:
        return _on(runs, gpu_type)
    alike, others = _kin(known, asked)
    ways = [
        _by_steps(asked, alike, gpu_type),
        *_by_types(known, asked, alike, gpu_type, speeds),
        _by_arguments(asked, others, gpu_type),
    ]
    told = [way for way in ways if way is not None]
    return max(told, key=lambda way: _ORDER.index(way.confidence), default=None)


def _on(runs: Runs, gpu_type: str) -> FamilyTime | None:
    runs_s = runs.get(gpu_type, ())
    told = trusted(runs_s)
    return None if told is None else FamilyTime(*told, f"{len(runs_s)} runs on {gpu_type}")


Kin = Mapping[Likeness, Runs]


def _kin(known: Profiling, asked: Likeness) -> tuple[Kin, Kin]:
    """The kinds of jobs of the same size: those with the same program, and the others."""
    alike: dict[Likeness, Runs] = {}
    others: dict[Likeness, Runs] = {}
    for kind in list(known.kin(asked.family))[-KIN:]:
        if kind._replace(steps=asked.steps) == asked:
            alike[kind] = known.runs[kind]
        elif kind._replace(program=asked.program) == asked:
            others[kind] = known.runs[kind]
    return alike, others


def _by_steps(asked: Likeness, alike: Kin, gpu_type: str) -> FamilyTime | None:
    """By the same program with other numbers of steps."""
    if asked.steps is None:
        return None
    times_s: dict[int, FamilyTime] = {}
    for kind, runs in alike.items():
        told = _on(runs, gpu_type)
        if kind.steps and kind.steps != asked.steps and told is not None:
            times_s[kind.steps] = told
    if not times_s:
        return None
    low, high = _around(sorted(times_s), asked.steps)
    steps = asked.steps
    near = low if steps - low < high - steps else high
    run_s, confidence = times_s[near].run_s * steps / near, _LOW
    if low != high:
        step_s = (times_s[high].run_s - times_s[low].run_s) / (high - low)
        start_s = times_s[low].run_s - low * step_s
        if step_s > 0.0 and start_s >= -step_s:
            run_s = max(0.0, start_s) + steps * step_s
            confidence = _MEDIUM if low / NEAR <= steps <= high * NEAR else _LOW
    of = f"{low}" if low == high else f"{low} and {high}"
    return FamilyTime(run_s, confidence, f"{times_s[near].rests_on}, of {of} steps")


def _around(measured: Sequence[int], steps: int) -> tuple[int, int]:
    """The two next to it, or the first or last two; the same twice if there is but one."""
    at = sum(1 for each in measured if each < steps)
    right = min(max(at, 1), len(measured) - 1)
    return measured[max(0, right - 1)], measured[right]


def _by_types(
    known: Profiling, asked: Likeness, alike: Kin, gpu_type: str, speeds: TypeSpeeds
) -> Iterator[FamilyTime | None]:
    """By what is known of it on each other type, and how types differ."""
    for other in sorted({each for runs in alike.values() for each in runs} - {gpu_type}):
        told = _on(alike.get(asked, {}), other) or _by_steps(asked, alike, other)
        rate = None if told is None else _rate(known, asked, other, gpu_type, speeds)
        if told is not None and rate is not None:
            grounds = f"{told.rests_on}, and {gpu_type} takes {rate.times:.2f} times as long"
            sure = least_sure((told.confidence, rate.confidence))
            yield FamilyTime(told.run_s * rate.times, sure, f"{grounds} ({rate.kinds})")


def _rate(
    known: Profiling, asked: Likeness, other: str, gpu_type: str, speeds: TypeSpeeds
) -> TypeRate | None:
    """Medium if jobs of its own program say the same."""
    stepped = agreed(list(known.paces.ratios(asked, other, gpu_type)))
    if stepped is not None:
        return TypeRate(stepped, _MEDIUM, "by the steps of its program on both")
    own, others = list[float](), list[float]()
    for kind in known.several(PAIRS):
        runs = known.runs[kind]
        before, after = trusted(runs.get(other, ())), trusted(runs.get(gpu_type, ()))
        if before is not None and after is not None:
            mine = (kind.family, kind.program) == (asked.family, asked.program)
            (own if mine else others).append(after.run_s / before.run_s)
    every = own or others
    if not every and speeds.declared:
        return TypeRate(speeds.of(other) / speeds.of(gpu_type), _LOW, "as declared")
    if not every:
        return None
    sure = bool(own) and max(own) <= SPREAD * min(own)
    whose = "of its program" if own else "of others"
    kinds = f"by {len(every)} kinds of jobs {whose} that ran on both"
    return TypeRate(median(every), _MEDIUM if sure else _LOW, kinds)


def _by_arguments(asked: Likeness, others: Kin, gpu_type: str) -> FamilyTime | None:
    """By all runs with other arguments together."""
    runs_s = [run_s for runs in others.values() for run_s in runs.get(gpu_type, ())]
    told = trusted(runs_s)
    if told is None:
        return None
    grounds = f"{len(runs_s)} runs with other arguments on {gpu_type}"
    return FamilyTime(told.run_s, _LOW, grounds)
