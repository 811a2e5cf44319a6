"""Pairs of turns: the ratio of the two sides with its interval, and whether the goals are met.

A turn is one measurement of one side. The two turns of a pair follow each other at once, so what
else the machine does meets both. A pair counts only if the machine was quiet in both of its turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import mean, median, stdev
from typing import Any

# A turn is loud when others took more than this share of all cores meanwhile.
LOUD = 0.10
FEWEST_PAIRS = 3
# Student's t, two-sided 95 %, for 1, 2, ... degrees of freedom; then the normal distribution's.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)
T_95_MANY = 1.96
MET, MISSED, OPEN = "met", "NOT MET", "open"


@dataclass(frozen=True, slots=True)
class Turn:
    """One measurement of one side. CPU is in milliseconds for each operation."""

    value: float
    controller_ms: float  # the controller's daemons
    beside_ms: float  # clients, helpers, nodes and jobs
    others: float  # share of all cores that other processes took
    stolen: float  # share that the host of this machine took

    @property
    def quiet(self) -> bool:
        return self.others + self.stolen <= LOUD


@dataclass(frozen=True, slots=True)
class Goals:
    """The goals of a row; None: no such goal."""

    ahead: float | None = None  # times ahead of Slurm, at least
    at_most: float | None = None  # of the value
    at_least: float | None = None
    controller_ms: float | None = None  # at most
    beside_ms: float | None = None

    def words(self, unit: str) -> str:
        """`>= 1.2 x Slurm, controller <= 0.6 ms CPU`."""
        told = (
            (">= {:g} x Slurm", self.ahead),
            (f"<= {{:g}} {unit}", self.at_most),
            (f">= {{:,g}} {unit}", self.at_least),
            ("controller <= {:g} ms CPU", self.controller_ms),
            ("beside it <= {:g} ms CPU", self.beside_ms),
        )
        return ", ".join(form.format(bound) for form, bound in told if bound is not None)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times dlq is ahead, with the 95 % interval; one pair has no interval."""

    times: float
    low: float | None
    high: float | None

    def words(self) -> str:
        if self.low is None:
            return f"{self.times:.2f} x (one pair)"
        return f"{self.times:.2f} x [{self.low:.2f}, {self.high:.2f}]"


@dataclass(slots=True)
class Row:
    """One row of the table: the turns of both sides, in pairs, or of dlq alone."""

    line: str  # the line that measured it
    name: str
    unit: str
    how: str  # what each side does
    more_is_better: bool = False
    goals: Goals = field(default_factory=Goals)
    fewest: int = FEWEST_PAIRS
    steady: bool = False  # other work does not change it: memory
    with_cpu: bool = True  # its turns tell CPU time
    peer: str = "Slurm"  # the other side, if it is not Slurm
    slurm: list[Turn] = field(default_factory=list)
    dlq: list[Turn] = field(default_factory=list)

    def pairs(self) -> list[tuple[Turn, Turn]]:
        """The quiet ones: Slurm's turn and dlq's."""
        both = zip(self.slurm, self.dlq, strict=False)
        return [(one, two) for one, two in both if self.steady or (one.quiet and two.quiet)]

    @property
    def ratio(self) -> Ratio | None:
        """None where no pair was made, or too few of them in quiet."""
        pairs = self.pairs()
        if not self.slurm or len(pairs) < min(self.fewest, len(self.slurm)):
            return None
        return ratio([self._ahead(one.value, two.value) for one, two in pairs])

    def _ahead(self, slurm: float, dlq: float) -> float:
        return dlq / slurm if self.more_is_better else slurm / dlq

    @property
    def refusal(self) -> str:
        """Why there is no ratio; empty where there is one, or no Slurm beside it."""
        if not self.slurm or self.ratio is not None:
            return ""
        worst = max(turn.others + turn.stolen for turn in (*self.slurm, *self.dlq))
        return (
            f"too loaded to tell: {len(self.pairs())} quiet pairs of {len(self.slurm)}, others "
            f"took up to {100 * worst:.0f} % of the cores"
        )

    def verdict(self) -> str:
        """Met, missed or open; empty without a goal.

        Load makes no figure better. So a goal that is met on a loaded machine is met, and one that
        is missed there is open.
        """
        each = [*self._verdicts()]
        return next((word for word in (MISSED, OPEN, MET) if word in each), "")

    def _verdicts(self) -> Sequence[str]:
        goals, found = self.goals, []
        if goals.ahead is not None:
            found.append(_beaten(self.ratio, goals.ahead))
        quiet = self.steady or bool(self.pairs()) or any(turn.quiet for turn in self.dlq)
        missed = MISSED if quiet else OPEN
        of_dlq = {
            name: self.middle(self.dlq, name) for name in ("value", "controller_ms", "beside_ms")
        }
        for name, bound in (
            ("value", goals.at_most),
            ("controller_ms", goals.controller_ms),
            ("beside_ms", goals.beside_ms),
        ):
            if bound is not None:
                found.append(MET if of_dlq[name] <= bound else missed)
        if goals.at_least is not None:
            found.append(MET if of_dlq["value"] >= goals.at_least else missed)
        return found

    @staticmethod
    def middle(turns: Sequence[Turn], what: str) -> float:
        """The median over the quiet turns, or over all where none was quiet."""
        chosen = [turn for turn in turns if turn.quiet] or turns
        return float(median(getattr(turn, what) for turn in chosen))

    def facts(self) -> dict[str, Any]:
        """The row as plain values."""
        found = self.ratio
        return {
            "line": self.line,
            "name": self.name,
            "unit": self.unit,
            "how": self.how,
            "peer": self.peer,
            "more_is_better": self.more_is_better,
            "goal": self.goals.words(self.unit) or None,
            "verdict": self.verdict() or None,
            "ratio": None if found is None else asdict(found),
            "refusal": self.refusal or None,
            "slurm": [asdict(turn) for turn in self.slurm],
            "dlq": [asdict(turn) for turn in self.dlq],
        }


def ratio(times: Sequence[float]) -> Ratio:
    """The geometric mean of the pairs' ratios; Student's interval of their logarithms."""
    logs = [math.log(each) for each in times]
    middle, count = mean(logs), len(logs)
    if count == 1:
        return Ratio(times[0], None, None)
    quantile = T_95[count - 2] if count - 2 < len(T_95) else T_95_MANY
    reach = quantile * stdev(logs) / math.sqrt(count)
    return Ratio(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach))


def _beaten(found: Ratio | None, bound: float) -> str:
    """A goal is met, or missed, when the whole interval says so."""
    if found is None or found.low is None or found.high is None:
        return OPEN
    return MET if found.low >= bound else MISSED if found.high < bound else OPEN
