"""Values with named parts as plain ones that go to JSON, and back with every part checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

_LARGEST = 1e300  # a whole number may be more than any float


def plain(value: Any) -> Any:
    """Objects for values with named parts, lists for tuples, words for enums."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        if hasattr(value, "_asdict"):
            return {name: plain(part) for name, part in value._asdict().items()}
        return [plain(part) for part in value]
    return value.value if isinstance(value, StrEnum) else value


def read(
    kind: type, facts: Mapping[str, Any], readers: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    """The fields of a dataclass, each by the reader for its declared type.

    Raises KeyError, TypeError or ValueError for facts that are something else.
    """
    return {field.name: readers[str(field.type)](facts[field.name]) for field in fields(kind)}


def whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError("no number of things")
    return value


def number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
        raise ValueError(f"{value!r} is no amount")
    return float(value)


def text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def or_none(reader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else reader(value)


def all_of(reader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read_all(values: Any) -> tuple[Any, ...]:
        if not isinstance(values, list | tuple):
            raise TypeError(f"{values!r} is no list")
        return tuple(reader(value) for value in values)

    return read_all
