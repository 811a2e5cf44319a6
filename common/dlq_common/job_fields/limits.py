"""What the value of a field may be: the master checks it, whatever client has sent it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from dlq_common.errors import InvalidRequest
from dlq_common.text.names import shown
from dlq_common.text.suggest import did_you_mean


class Limit(Protocol):
    """A rule for one value, as the message holds it."""

    def check(self, field: str, value: Any) -> None:
        """Raises InvalidRequest naming `field` for a value that is none."""


def refused(field: str, what: str) -> InvalidRequest:
    """The error for a field of JobSpec: `nice must be between -100 and 100`."""
    return InvalidRequest(f"{field} {what}", field=f"spec.{field}")


@dataclass(frozen=True, slots=True)
class Between:
    """A number; `unit` follows it in the error."""

    least: float
    most: float
    unit: str = ""

    def check(self, field: str, value: float) -> None:
        """Raises InvalidRequest naming `field`."""
        if not self.least <= value <= self.most:
            told = f"must be between {self.least} and {self.most}"
            raise refused(field, f"{told} {self.unit}".rstrip())


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A number, and how its least value is written."""

    least: int
    written: str

    def check(self, field: str, value: int) -> None:
        """Raises InvalidRequest naming `field`."""
        if value < self.least:
            raise refused(field, f"must be at least {self.written}")


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]

    def check(self, field: str, value: str) -> None:
        """Raises InvalidRequest naming `field`."""
        if value not in self.words:
            known = f"{', '.join(self.words)}{did_you_mean(value, self.words)}"
            raise refused(field, f"{shown(value)} is not one of {known}")


@dataclass(frozen=True, slots=True)
class Passes:
    """A text that a check of dlq_common.text lets pass; `what` is what the check calls it."""

    rule: Callable[..., object]
    what: str = ""

    def check(self, field: str, value: str) -> None:
        """Raises InvalidRequest naming `field`."""
        try:
            self.rule(value, self.what) if self.what else self.rule(value)
        except ValueError as error:
            raise InvalidRequest(f"{field}: {error}", field=f"spec.{field}") from None


@dataclass(frozen=True, slots=True)
class Lasts:
    """A well-formed Duration, in seconds."""

    least_s: float
    most_s: float

    def check(self, field: str, value: Any) -> None:
        """Raises InvalidRequest naming `field`."""
        well_formed = abs(value.nanos) < 1_000_000_000 and value.seconds * value.nanos >= 0
        seconds = value.seconds + value.nanos / 1e9
        if not (well_formed and self.least_s <= seconds <= self.most_s):
            told = f"must be between {self.least_s:g} and {self.most_s:g} seconds"
            raise refused(field, told)


@dataclass(frozen=True, slots=True)
class Several:
    """A few whole numbers between two others."""

    count: int
    least: int
    most: int

    def check(self, field: str, value: Iterable[int]) -> None:
        """Raises InvalidRequest naming `field`."""
        numbers = list(value)
        if len(numbers) > self.count:
            raise refused(field, f"are more than {self.count}")
        for number in numbers:
            if not self.least <= number <= self.most:
                raise refused(field, f"{number} is not between {self.least} and {self.most}")
