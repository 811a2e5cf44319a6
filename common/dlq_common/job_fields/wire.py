"""How the value of a field lies in a message of dlq.v1: JobSpec, and UpdateJobRequest likewise.

Messages are reached by the names of their fields, so that none need be loaded here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from dlq_common.job_fields.reading.words import RestartsAllowed

T = TypeVar("T")

# No slots below: they refuse Plain[int](...) before 3.13.


@dataclass(frozen=True)
class Plain(Generic[T]):
    """A scalar whose empty value (0, false or "") means unset."""

    path: str

    def put(self, message: Any, value: T) -> None:
        parent, name = self._reached(message)
        setattr(parent, name, value)

    def take(self, message: Any) -> T | None:
        """The value; None: nothing is said."""
        said: T | None = self.said(message)
        return said

    def said(self, message: Any) -> Any:
        """The same as the message holds it."""
        parent, name = self._reached(message)
        return getattr(parent, name) or None

    @cached_property
    def _parts(self) -> tuple[Sequence[str], str]:
        *above, name = self.path.split(".")
        return above, name

    def _reached(self, message: Any) -> tuple[Any, str]:
        above, name = self._parts
        for each in above:
            message = getattr(message, each)
        return message, name


@dataclass(frozen=True)
class Present(Plain[T]):
    """A field with presence: its empty value says something."""

    def said(self, message: Any) -> Any:
        parent, name = self._reached(message)
        return getattr(parent, name) if parent.HasField(name) else None


@dataclass(frozen=True)
class Many(Plain[tuple[T, ...]]):
    """Repeated scalars."""

    def put(self, message: Any, value: tuple[T, ...]) -> None:
        parent, name = self._reached(message)
        getattr(parent, name).extend(value)

    def take(self, message: Any) -> tuple[T, ...] | None:
        said = self.said(message)
        return None if said is None else tuple(said)


@dataclass(frozen=True)
class RestartsByCause(Plain[RestartsAllowed]):
    """A number of restarts, which older masters know too, and beside it a map of causes."""

    by_cause: str = "max_restart_counts"

    def put(self, message: Any, value: RestartsAllowed) -> None:
        parent, name = self._reached(message)
        setattr(parent, name, value.own or 0)
        getattr(parent, self.by_cause).update(value.by_cause)

    def said(self, message: Any) -> RestartsAllowed | None:
        parent, name = self._reached(message)
        own = getattr(parent, name) or None
        by_cause = tuple(sorted(getattr(parent, self.by_cause).items()))
        return RestartsAllowed(own, by_cause) if own or by_cause else None


@dataclass(frozen=True)
class YesNo(Plain[bool]):
    """A text: "yes", "no", or nothing said."""

    def put(self, message: Any, value: bool) -> None:
        parent, name = self._reached(message)
        setattr(parent, name, "yes" if value else "no")

    def take(self, message: Any) -> bool | None:
        said = self.said(message)
        return None if said is None else said == "yes"


@dataclass(frozen=True)
class FractionalSeconds(Present[float]):
    """A Duration, as seconds."""

    def put(self, message: Any, value: float) -> None:
        from dlq_common.text.wire import to_duration  # loads protobuf

        parent, name = self._reached(message)
        getattr(parent, name).CopyFrom(to_duration(value))

    def take(self, message: Any) -> float | None:
        from dlq_common.text.wire import from_duration  # loads protobuf

        said = self.said(message)
        return None if said is None else from_duration(said)


@dataclass(frozen=True)
class Seconds(FractionalSeconds):
    """A Duration, as whole seconds."""

    def take(self, message: Any) -> int | None:
        seconds = FractionalSeconds.take(self, message)
        return None if seconds is None else round(seconds)
