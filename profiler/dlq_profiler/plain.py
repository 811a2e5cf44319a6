"""Values with named parts as plain ones that go to JSON, and back with every part checked."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

_LARGEST = 1e300  # a whole number may be more than any float
_T = TypeVar("_T")


def plain(value: Any) -> Any:
    """Objects for values with named parts, lists for tuples, words for enums."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        if hasattr(value, "_asdict"):
            return {name: plain(part) for name, part in value._asdict().items()}
        return [plain(part) for part in value]
    return value.value if isinstance(value, StrEnum) else value


def read(kind: type[_T], facts: Any) -> _T:
    """The inverse of `plain` for a kind of value with named parts, each of its declared type.

    Raises KeyError, TypeError or ValueError for facts that are something else.
    """
    declared: Any = kind
    return kind(**{name: _part(of, facts[name]) for name, of in _parts(declared).items()})


@cache
def _parts(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _part(kind: Any, value: Any) -> Any:
    if isinstance(kind, UnionType):
        return None if value is None else _part(get_args(kind)[0], value)
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise TypeError(f"{value!r} is no list")
        return tuple(_part(get_args(kind)[0], each) for each in value)
    if kind is int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
            raise ValueError("no number of things")
        return value
    if kind is float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"{value!r} is no amount")
        if not 0 <= value <= _LARGEST:
            raise ValueError(f"{value!r} is no amount")
        return float(value)
    if kind is str:
        if not isinstance(value, str):
            raise TypeError(f"{value!r} is no text")
        return value
    return kind(value) if issubclass(kind, StrEnum) else read(kind, value)
