"""The result of a check: a figure with its unit and its limit, as one line of JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

PASSED, FAILED, UNKNOWN = 0, 1, 3  # exit codes
_LONGEST_WHY = 64  # characters: the agent tells the master 200 of a line


class WrongResult(Exception):
    """The node has computed or kept something else than it was given."""


class NotMeasured(Exception):
    """The check could not be made here; that is no word on the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measured value. `on` names its means, such as "numpy" or "CUDA, 8 GPUs"; `note`: a word
    for people.
    """

    value: float
    unit: str
    on: str
    least: bool = True  # its limit is the least that passes; else the most
    note: str = ""
    instead_of: str = ""  # why it is of other means than the limit, such as "NCCL not found"

    def passes(self, limit: float) -> bool:
        """Whether it is within the limit; a limit of 0 lets everything pass."""
        return not limit or (self.value >= limit if self.least else self.value <= limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """`passed` None: nothing was learned about the node, and `why` says the reason. With a verdict,
    `why` is a word for people.
    """

    check: str
    limit: float = 0.0
    figure: Figure | None = None
    passed: bool | None = None
    why: str = ""

    @property
    def exit_code(self) -> int:
        return {True: PASSED, False: FAILED, None: UNKNOWN}[self.passed]

    def line(self) -> str:
        """One line of JSON, shorter than 200 characters."""
        told: dict[str, object] = {"check": self.check}
        if self.figure is not None:
            value = float(f"{self.figure.value:.4g}")
            told |= {"figure": value, "unit": self.figure.unit, "on": self.figure.on}
        told |= {"limit": self.limit, "passed": self.passed}
        if self.why:
            told["why"] = self.why[:_LONGEST_WHY]
        return json.dumps(told)


def judged(check: str, figure: Figure, limit: float, *, load: float = 0.0) -> CheckResult:
    """The verdict on a figure. A failure says nothing on a node that others keep busy; `load`: its
    processes that wanted a core before the check, for each core; 0: nobody asks. A limit is none
    for a figure of other means.
    """
    if figure.instead_of:
        passed = None if limit else True
        return CheckResult(
            check=check, limit=limit, figure=figure, passed=passed, why=figure.instead_of
        )
    passed = figure.passes(limit)
    told = CheckResult(check=check, limit=limit, figure=figure, passed=passed, why=figure.note)
    if not told.passed and load > MOST_LOAD:
        why = f"the node is busy: a load of {load:.1f} for each core"
        return CheckResult(check=check, limit=limit, figure=figure, why=why)
    return told


MOST_LOAD = 0.8  # of each core, before a check begins


def load_of_cores() -> float:
    """The load of the last minute, for each core."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def planted(name: str, environment: Mapping[str, str]) -> float | None:
    """The value of a fault that was planted on virtual devices; None: there is none.

    A line `*|slow_disk|0.001` of their file makes each figure of the disk a thousandth.
    `*|hung_disk|1` lets that check hang.
    """
    try:
        with open(environment.get("DLQ_CHECK_FAULTS", ""), encoding="utf-8") as script:
            lines = [line.strip().split("|") for line in script]
    except OSError:
        return None
    values = [float(rest[0]) for star, word, *rest in lines if (star, word) == ("*", name) and rest]
    return values[-1] if values else None
