"""Values of the agent as JSON and back, by the types of their fields.

A value is a frozen dataclass or a named tuple. Its fields are plain values, tuples, mappings, or
such values again. Fields that are missing have their defaults, and unknown ones are passed over:
the record of an older or a newer agent can be read.
"""

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

_Read = Callable[[Any], Any]


def to_json(value: object) -> bytes:
    """All fields of a value."""
    return _ENCODER.encode(value).encode()


def changed_fields(value: object, but: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a value that differ from their defaults, for `to_json`."""
    return {
        name: part
        for name, default in _defaults_of(value).items()
        if name not in but and (part := getattr(value, name)) != default
    }


def from_plain(kind: Any, content: Any) -> Any:
    """The value of this type in what JSON gave. Raises ValueError, TypeError, KeyError or
    AttributeError when it is none.
    """
    return _reader(kind)(content)


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _defaults_of(value)}


def _defaults_of(value: object) -> Mapping[str, Any]:
    kind: Any = type(value)
    return _defaults(kind)


_ENCODER = json.JSONEncoder(default=_fields)


@cache
def _defaults(kind: Any) -> Mapping[str, Any]:
    """Those of all fields; a field without one has a default that nothing equals."""
    return {
        field.name: field.default_factory()
        if field.default_factory is not dataclasses.MISSING
        else field.default
        for field in dataclasses.fields(kind)
    }


@cache
def _reader(kind: Any) -> _Read:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return lambda value: value
    if origin in (typing.Union, types.UnionType):
        (some,) = (part for part in parts if part is not types.NoneType)
        return _or_none(_reader(some))
    if origin is tuple:
        return _items(_reader(parts[0]))
    if origin is not None:
        return _entries(_reader(parts[1]))
    if dataclasses.is_dataclass(kind):
        return _whole(kind)
    return _named(kind) if issubclass(kind, tuple) else typing.cast(_Read, kind)


def _or_none(read: _Read) -> _Read:
    return lambda value: None if value is None else read(value)


def _items(read: _Read) -> _Read:
    return lambda value: tuple([read(item) for item in value])


def _entries(read: _Read) -> _Read:
    return lambda value: {str(name): read(item) for name, item in value.items()}


def _named(kind: Any) -> _Read:
    return lambda value: kind(*value)


def _whole(kind: Any) -> _Read:
    readers = {name: _reader(part) for name, part in typing.get_type_hints(kind).items()}
    needed = [name for name, default in _defaults(kind).items() if default is dataclasses.MISSING]

    def read(value: Any) -> Any:
        missing = [name for name in needed if name not in value]
        if missing:
            raise KeyError(missing[0])
        known = {name: part for name, part in value.items() if name in readers}
        return kind(**{name: readers[name](part) for name, part in known.items()})

    return read
