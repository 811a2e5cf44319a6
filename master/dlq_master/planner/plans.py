"""Questions to a planner, and its answers."""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.plan import Change, Plan
from dlq_master.planner.shape import conforms
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
