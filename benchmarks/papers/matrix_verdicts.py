"""The goals for the challenger in one cell of the matrix, and whether they hold.

Against the best preset of each figure: average JCT and cost at most `RATIO` times, wDMR at most
`POINTS` more. Where deadlines and best effort, elastic jobs and loans are mixed, also that no
preset is better on both wDMR and best-effort JCT. Presets that refused more jobs than another are
out of comparison: a policy with fewer jobs is done sooner.

Beside all figures stands the workload's own metric (`Metric`, declared in `matrix_cases`), held to
`OWN_RATIO` times the best of any preset, wDMR included. Where two figures count together, a preset
beats the challenger if it is better on both, and by more than that on one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

RATIO = 1.03
OWN_RATIO = 1.02  # of the own metric
POINTS = 0.005
NOTHING = 1e-9  # of doubles


class Ran(NamedTuple):
    """A replay, or the mean of some, in seconds, shares and $; None where the workload has no such
    thing.

    `cost`: of the nodes and of being late, together.
    """

    jobs: float
    refused: float
    avg_jct_s: float
    be_jct_s: float | None
    wdmr: float | None
    cost: float | None
    guaranteed: float | None
    missed: float | None
    preemptions: float
    cpu_s: float

    @property
    def jobs_per_cpu_s(self) -> float:
        """Finished jobs over the CPU time of the replay."""
        return self.jobs / self.cpu_s if self.cpu_s else 0.0


Row = Mapping[str, Ran]  # preset -> its results


class Verdict(NamedTuple):
    """One goal: the challenger's figure, the best preset's figure, and that preset."""

    asked: str
    ok: bool
    own: float
    best: float
    by: str

    @property
    def over(self) -> float:
        """How much more than the best: points of wDMR, else times."""
        return self.own - self.best if self.asked == WDMR else ratio(self.own, self.best)


JCT, WDMR, COST, BOTH, REFUSED = "avg JCT", "wDMR", "cost", "not beaten on both", "refused"
_FIGURES = {JCT: "avg_jct_s", WDMR: "wdmr", COST: "cost"}


class Metric(StrEnum):
    """The figure that a workload is about."""

    AVERAGE = JCT
    MISSES = WDMR
    BILL = COST
    JOINT = "wDMR and BE JCT"


def verdicts(row: Row, challenger: str, *, mixed: bool) -> list[Verdict]:
    """One for each thing that is asked in this cell; none if the challenger did not run, or
    alone.
    """
    others = comparable(row, challenger)
    if challenger not in row or not others:
        return []
    own = row[challenger]
    found = [_refused(own, others)]
    for asked, name in _FIGURES.items():
        best = _best(others, name)
        value = getattr(own, name)
        if best is not None and value is not None:
            found.append(_against_best(asked, value, best, getattr(others[best], name)))
    if mixed:
        found.append(_both(own, others))
    return found


def own_verdict(row: Row, challenger: str, metric: Metric) -> Verdict | None:
    """Whether the challenger is best, or within `OWN_RATIO` of the best, in the workload's own
    metric; None where nobody can be compared.
    """
    others = comparable(row, challenger)
    if challenger not in row or not others:
        return None
    own = row[challenger]
    if metric is Metric.JOINT:
        beaten = [name for name in beaten_by(own, others) if _clearly(others[name], own)]
        return Verdict(BOTH, not beaten, len(beaten), 0, ", ".join(beaten))
    name = _FIGURES[metric.value]
    by = _best(others, name)
    value = getattr(own, name)
    if by is None or value is None:
        return None
    best = getattr(others[by], name)
    return Verdict(metric.value, value <= best * OWN_RATIO + NOTHING, value, best, by)


def comparable(row: Row, challenger: str) -> Row:
    """The other presets that ran as many jobs as any."""
    others = {name: ran for name, ran in row.items() if name != challenger}
    least = min((ran.refused for ran in others.values()), default=0)
    return {name: ran for name, ran in others.items() if ran.refused <= least}


def ratio(own: float, best: float) -> float:
    """Where the best is 0 there is no ratio but for 0 itself."""
    return own / best if best > 0 else 1.0 if own <= 0 else float("inf")


def beaten_by(own: Ran, others: Row) -> list[str]:
    """The presets with both a smaller wDMR and a smaller best-effort JCT."""
    return [
        name
        for name, ran in others.items()
        if _less(ran.wdmr, own.wdmr) and _less(ran.be_jct_s, own.be_jct_s)
    ]


def _against_best(asked: str, own: float, by: str, best: float) -> Verdict:
    most = best + POINTS if asked == WDMR else best * RATIO
    return Verdict(asked, own <= most + NOTHING, own, best, by)


def _refused(own: Ran, others: Row) -> Verdict:
    name, least = min(others.items(), key=lambda item: item[1].refused)
    return Verdict(REFUSED, own.refused <= least.refused, own.refused, least.refused, name)


def _both(own: Ran, others: Row) -> Verdict:
    beaten = beaten_by(own, others)
    return Verdict(BOTH, not beaten, len(beaten), 0, ", ".join(beaten))


def _best(row: Row, name: str) -> str | None:
    """The preset with the least of that figure, the first of equals; None without a preset that has
    it.
    """
    having = {key: value for key, ran in row.items() if (value := getattr(ran, name)) is not None}
    return min(having, key=lambda key: having[key]) if having else None


def _clearly(better: Ran, own: Ran) -> bool:
    """Better by more than `OWN_RATIO` on one of two figures."""
    pairs = ((better.wdmr, own.wdmr), (better.be_jct_s, own.be_jct_s))
    return any(_less((one or 0.0) * OWN_RATIO, other) for one, other in pairs)


def _less(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and one < other - NOTHING
