"""How values are made and replaced at the price that a hot path can pay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import partial
from operator import attrgetter
from typing import Any, Generic, TypeVar

ValueT = TypeVar("ValueT")

Changes = dict[str, Any]  # fields of a value by name, with their new values


def maker(kind: type[ValueT]) -> Callable[[Iterable[Any]], ValueT]:
    """Makes a NamedTuple of all its fields, in order, at half the price of calling its class.

    A completion makes about twenty values and has 20 us in all. Nothing is checked: for a value of
    three fields, count them; for a large one, use `changer`.
    """
    return partial(tuple.__new__, kind)  # type: ignore[type-var]  # a NamedTuple is a tuple


def record_changer(kind: type[ValueT]) -> Callable[[ValueT, Changes], ValueT]:
    """`dataclasses.replace` of a dataclass with many slots and no check of its own, at a third of
    its price.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    places = {name: place for place, name in enumerate(names)}
    setters = [getattr(kind, name).__set__ for name in names]
    values_of = attrgetter(*names)

    def changed(value: ValueT, changes: Changes) -> ValueT:
        values = [*values_of(value)]
        for name, item in changes.items():
            values[places[name]] = item
        new = object.__new__(kind)
        for put, item in zip(setters, values, strict=True):
            put(new, item)
        return new

    return changed


def changer(kind: type[ValueT]) -> Callable[[ValueT, Changes], ValueT]:
    """`_replace` of a NamedTuple with many fields, at half its price (`planning/drafts.py`)."""
    places = {name: place for place, name in enumerate(kind._fields)}  # type: ignore[attr-defined]
    new = tuple.__new__

    def changed(value: ValueT, changes: Changes) -> ValueT:
        fields = [*value]  # type: ignore[misc]  # a NamedTuple is a tuple
        for name, item in changes.items():
            fields[places[name]] = item
        return new(kind, fields)  # type: ignore[type-var]

    return changed


def median(values: Iterable[float]) -> float:
    """The middle one; of an even number the mean of both. `statistics` brings six modules along."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class Alike(Generic[ValueT]):
    """One object for all equal values. Ten thousand jobs of one kind then hold what differs alone.

    It keeps `most` values, and then begins anew.
    """

    __slots__ = ("_known", "_most")

    def __init__(self, most: int = 10_000) -> None:
        self._known: dict[ValueT, ValueT] = {}
        self._most = most

    def one(self, value: ValueT) -> ValueT:
        """The first one of the values that equal this one."""
        if len(self._known) >= self._most:
            self._known.clear()
        return self._known.setdefault(value, value)
