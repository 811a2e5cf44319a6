"""The answers of a planner: every value in them is checked before it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from math import inf, isfinite
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from dlq_master.model.estimates.traffic import Packing
from dlq_master.model.plan import Change, Plan
from dlq_master.planner.snapshot import Unreadable, dumps, loads

MOST_PLANS = 1_000  # one after the other at one instant


class Answer(NamedTuple):
    """Plans, each made of what the one before has left, or why there are none.

    `plan_s`: how long that took where it was made.
    """

    number: int  # of the question
    plans: tuple[Plan, ...] = ()
    plan_s: float = 0.0
    fault: str = ""


def write_answer(answer: Answer) -> bytes:
    return dumps(tuple(answer))


def read_answer(data: bytes) -> Answer:
    """The answer of a planner. Raises Unreadable unless every number of the answer is well formed.
    Nothing but values gets in, however wrong the plans are.
    """
    said = loads(data)
    if type(said) is not tuple or len(said) != len(Answer._fields):
        raise Unreadable(f"a {type(said).__name__} is no answer")
    answer = Answer(*said)
    head = conforms(answer.number, int) and conforms(answer.plan_s, float)
    if not head or not conforms(answer.fault, str):
        raise Unreadable("an answer that is none")
    if type(answer.plans) is not tuple or len(answer.plans) > MOST_PLANS:
        raise Unreadable("plans that are none")
    for plan in answer.plans:
        _check_plan(plan)
    return answer


def _check_plan(plan: object) -> None:
    if type(plan) is not Plan or type(plan.changes) is not tuple:
        raise Unreadable("a plan that is none")
    if not (conforms(plan.wake_at_s, float | None) and conforms(plan.again, bool)):
        raise Unreadable("a plan that says nothing of when")
    wrong = next((change for change in plan.changes if not conforms(change, Change)), None)
    if wrong is not None:
        raise Unreadable(f"a {type(wrong).__name__} that is no change of a plan")


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
