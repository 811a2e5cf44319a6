"""How much of the same is tried: some of it in `make test`, all of it in `make test-long`
(LONG=1).
"""

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
LONG = os.environ.get("LONG", "0") not in ("", "0")


def some(cases: Sequence[T], at_most: int) -> Sequence[T]:
    """So many of the cases, evenly spread; every one in the long run."""
    if LONG or at_most >= len(cases):
        return cases
    return [cases[number * len(cases) // at_most] for number in range(at_most)]


def times(few: int, many: int) -> int:
    """How often a random example is drawn: `many` in the long run."""
    return many if LONG else few


def spread(cases: Sequence[Any], at_most: int) -> list[Any]:
    """Every case as a parameter: `make test` runs `at_most` of them, evenly spread, and
    `make test-rest` runs the others. A tuple is one value for each name.
    """
    kept = {number * len(cases) // at_most for number in range(min(at_most, len(cases)))}
    marked = []
    for number, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        marks = () if number in kept else (pytest.mark.long("the other cases"),)
        marked.append(pytest.param(*values, marks=marks))
    return marked
