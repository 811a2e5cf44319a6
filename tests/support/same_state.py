"""Two states as plain facts: whether a master that starts with one would do as with the other.

Everything below a state is compared, whatever it is called. Left out are answers that are kept so
that they need not be worked out again, entries of heaps that count no more, and the order in which
things became known where nothing but that order differs.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Set
from enum import Enum
from types import FunctionType, MethodType
from typing import Any

from sortedcontainers import SortedList

from dlq_master.control.composition.state import State
from dlq_master.control.read_model.published import Published
from dlq_master.model.cache import Memo
from dlq_master.model.timers import Timers
from dlq_master.model.values import Alike

KEPT_ANSWERS = frozenset({
    "_fronts", "_alike", "_own_holds", "foretold", "_kin", "_several", "_made", "_numbers",
    "_wondered", "_touched", "_kinds", "foretellable", "judged_changes",
})  # fmt: skip
PLAIN = (str, bytes, int, float, type(None), Enum)


def differences(one: Any, other: Any) -> list[str]:
    """The paths of the first facts that differ; empty: all are the same."""
    return _compared(facts(one), facts(other), "")[:20]


def facts_of_start(state: State, read: Published) -> Any:
    """All that a master begins with."""
    state.cluster.capacity.ready()
    state.counted_jobs = None  # the readers have it, in both
    return facts({"state": state, "read": read})


def facts(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Values that can be compared, and printed."""
    if isinstance(value, PLAIN):
        return value
    if id(value) in above:
        return "itself"
    above = (*above, id(value))
    if isinstance(value, Memo | Alike | FunctionType | MethodType | type):
        return type(value).__name__
    if isinstance(value, Timers):
        return facts(value.at, above)
    if isinstance(value, OrderedDict):
        return [(facts(key, above), facts(one, above)) for key, one in value.items()]
    if isinstance(value, Mapping):
        pairs = {
            key if isinstance(key, str) else repr(facts(key, above)): facts(one, above)
            for key, one in value.items()
        }
        if isinstance(value, Counter):
            pairs = {key: one for key, one in pairs.items() if one}
        more = _slots(value, above) if type(value).__module__.startswith("dlq_") else {}
        return pairs | more
    if isinstance(value, Set):
        return sorted(repr(facts(one, above)) for one in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: facts(getattr(value, name), above) for name in value._fields}
    if isinstance(value, list | tuple | deque | SortedList):
        return [facts(one, above) for one in value]
    return _slots(value, above)


def _slots(value: Any, above: tuple[int, ...]) -> dict[str, Any]:
    names = [name for kind in type(value).__mro__ for name in _named(kind)]
    names += vars(value) if hasattr(value, "__dict__") else []
    found = {"": type(value).__name__}
    for name in dict.fromkeys(names):
        if name in KEPT_ANSWERS or not hasattr(value, name):
            continue
        one = getattr(value, name)
        if name == "of_family":
            one = {key: {*ids} for key, ids in one.items()}
        if name == "by_account" and isinstance(one, Mapping):
            one = {account: counts for account, counts in one.items() if counts.there}
        found[name] = facts(one, above)
    return found


def _named(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _compared(one: Any, other: Any, path: str) -> list[str]:
    if type(one) is type(other) and isinstance(one, dict):
        found: list[str] = []
        for key in dict.fromkeys((*one, *other)):
            if key not in one or key not in other:
                found.append(f"{path}.{key}: only in the {'second' if key in other else 'first'}")
            else:
                found += _compared(one[key], other[key], f"{path}.{key}")
        return found
    if type(one) is type(other) and isinstance(one, list) and len(one) == len(other):
        return [
            words
            for at, (left, right) in enumerate(zip(one, other, strict=True))
            for words in _compared(left, right, f"{path}[{at}]")
        ]
    return [] if one == other else [f"{path}: {one!r:.200} is not {other!r:.200}"]
