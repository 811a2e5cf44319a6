"""Limits of a field's value; the master checks them for every client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.reading.words import RESTART_CAUSES, RestartsAllowed
from dlq_common.text.names import shown
from dlq_common.text.suggest import did_you_mean


class Limit(ABC):
    """A rule for one value, as the message holds it."""

    @abstractmethod
    def wrong(self, value: Any) -> str:
        """The fault of a value, to follow the field's name; empty if there is none."""

    def check(self, field: str, value: Any) -> None:
        """Raises InvalidRequest naming the field of JobSpec: `nice must be between ...`."""
        if what := self.wrong(value):
            raise refused(field, what)


def refused(field: str, what: str) -> InvalidRequest:
    """The error for a field of JobSpec; `what` follows its name."""
    return InvalidRequest(f"{field}{what if what[0] == ':' else f' {what}'}", field=f"spec.{field}")


@dataclass(frozen=True, slots=True)
class Between(Limit):
    """A number; `unit` follows it in the error."""

    least: float
    most: float
    unit: str = ""

    def wrong(self, value: float) -> str:
        """The limits, for a number outside them."""
        if self.least <= value <= self.most:
            return ""
        return f"must be between {self.least} and {self.most} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class AtLeast(Limit):
    """A number, and how its least value is written."""

    least: int
    written: str

    def wrong(self, value: int) -> str:
        """The least, for a lower number."""
        return f"must be at least {self.written}" if value < self.least else ""


@dataclass(frozen=True, slots=True)
class RestartsUpTo(Limit):
    """Restarts after failures of the program, and after each cause."""

    most: int

    def wrong(self, value: RestartsAllowed) -> str:
        """The first cause that nobody knows, or the first number outside the limits."""
        number = Between(0, self.most)
        known = OneOf(RESTART_CAUSES)
        if fault := number.wrong(value.own or 0):
            return fault
        for cause, most in value.by_cause:
            if fault := known.wrong(cause):
                return f": {fault}"
            if fault := number.wrong(most):
                return f": {cause} {fault}"
        return ""


@dataclass(frozen=True, slots=True)
class OneOf(Limit):
    """One of a few words."""

    words: tuple[str, ...]

    def wrong(self, value: str) -> str:
        """The words, for another one."""
        if value in self.words:
            return ""
        known = ", ".join(self.words)
        return f"{shown(value)} is not one of {known}{did_you_mean(value, self.words)}"


@dataclass(frozen=True, slots=True)
class Passes(Limit):
    """A text that a check of dlq_common.text lets pass; `what` is the check's name for it."""

    rule: Callable[..., object]
    what: str = ""

    def wrong(self, value: str) -> str:
        """The fault that the check reports."""
        try:
            self.rule(value, self.what) if self.what else self.rule(value)
        except ValueError as error:
            return f": {error}"
        return ""


@dataclass(frozen=True, slots=True)
class Lasts(Limit):
    """A well-formed Duration, in seconds."""

    least_s: float
    most_s: float

    def wrong(self, value: Any) -> str:
        """The limits, for a Duration outside them or not well-formed."""
        well_formed = abs(value.nanos) < 1_000_000_000 and value.seconds * value.nanos >= 0
        inside = self.least_s <= value.seconds + value.nanos / 1e9 <= self.most_s
        if well_formed and inside:
            return ""
        return f"must be between {self.least_s:g} and {self.most_s:g} seconds"


@dataclass(frozen=True, slots=True)
class Several(Limit):
    """A few whole numbers between two others."""

    count: int
    least: int
    most: int

    def wrong(self, value: Iterable[int]) -> str:
        """The first number outside, or that they are too many."""
        numbers = list(value)
        if len(numbers) > self.count:
            return f"are more than {self.count}"
        outside = (each for each in numbers if not self.least <= each <= self.most)
        told = [f"{each} is not between {self.least} and {self.most}" for each in outside]
        return told[0] if told else ""
