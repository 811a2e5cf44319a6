"""Is a value what its annotations say? Checks the shape of values from another process, even a
hostile one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from math import inf, isfinite
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from dlq_master.model.estimates.traffic import Packing

LARGEST = 1 << 62  # of any number that is stored
UNBOUNDED = frozenset({Packing})  # limits that may be infinite


def conforms(value: object, hint: Any) -> bool:
    """Whether the value is of this type, all the way down; numbers are finite, and none is huge."""
    hint = getattr(hint, "__supertype__", hint)
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(conforms(value, kind) for kind in get_args(hint))
    if origin is tuple:
        return type(value) is tuple and _tuple(value, get_args(hint))
    if hint is float:
        return type(value) in (int, float) and isfinite(value) and abs(value) < LARGEST  # type: ignore[arg-type]  # one of these
    if hint is int:
        return type(value) is int and abs(value) < LARGEST
    if hint in (str, bool, NoneType) or issubclass(hint, Enum):
        return type(value) is (hint or NoneType)
    return type(value) is hint and _fields(value, hint)


def _tuple(value: tuple[object, ...], kinds: tuple[Any, ...]) -> bool:
    if kinds[1:] == (...,):
        return all(conforms(item, kinds[0]) for item in value)
    return len(value) == len(kinds) and all(map(conforms, value, kinds))


def _fields(value: object, kind: type) -> bool:
    """Of a NamedTuple or a dataclass."""
    if kind in UNBOUNDED and isinstance(value, tuple):
        value = tuple([0.0 if number in (inf, -inf) else number for number in value])
    hints = _hints(kind)
    if isinstance(value, tuple):
        return len(value) == len(hints) and all(map(conforms, value, hints.values()))
    return all(
        hasattr(value, name) and conforms(getattr(value, name), hints[name]) for name in hints
    )


@lru_cache(maxsize=256)
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)
