"""The port of a check: its claim, its needs, its limit, and its findings, told as it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.gpu.site import Site


class Outcome(StrEnum):
    """How a check ended."""

    HELD = "held"
    FAILED = "failed"  # the claim is broken, or the check itself
    COULD_NOT = "could not"  # the machine lacks something, or no time was left
    NONE_HERE = "none here"  # the claim is about something that this machine has not, nor should


GOOD = (Outcome.HELD, Outcome.NONE_HERE)


class ClaimBroken(Exception):
    """The claim does not hold; the text says by what."""


class CouldNot(Exception):
    """The check cannot be made on this machine; the text says why."""


class NoneHere(Exception):
    """There is nothing here that the claim is about; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was measured or seen. A goal that is missed is shown, and breaks no claim."""

    name: str
    value: str | int | float
    unit: str = ""
    at_most: float | None = None

    @property
    def missed(self) -> bool:
        """Whether there is a goal, and the value is above it."""
        return self.at_most is not None and float(self.value) > self.at_most

    def told(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Check:
    """One claim about dlq on this machine's GPUs.

    `run` gets a site and yields findings. It ends well, or raises ClaimBroken, CouldNot or
    NoneHere. `needs` are words of `Machine.lacks`.
    """

    name: str
    claim: str
    needs: tuple[str, ...]
    limit_s: int
    run: Callable[[Site], Iterator[Finding]]


def broken_unless(holds: bool, words: str) -> None:
    """Raise ClaimBroken with these words if it does not hold."""
    if not holds:
        raise ClaimBroken(words)
