"""The constants of our methods, and the sets of jobs that are named on all pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.reproduce.case import NONE_PRINTED, Case, Done, Form, Table, Words
from benchmarks.reproduce.constants import CONSTANTS, Constant, key_of, values
from benchmarks.reproduce.job_sets import NOTHING, SETS

PAGE = "constants.md"
COLUMNS = ("value", "of", "chosen on", "judged on", "in-sample", "ground")


def _once(_seeds: Sequence[int]) -> Iterable[Words]:
    return [{}]


def _constants(results: Sequence[Done]) -> Table:
    found = results[0].value
    rows = {key_of(one): _row(one, found[key_of(one)]) for one in CONSTANTS}
    return Table(dict.fromkeys(COLUMNS, ""), rows)


def _row(one: Constant, value: str) -> dict[str, str]:
    both = [name for name in one.judged_on if name in one.fitted_on]
    told = (
        f"`{value}`",
        ", ".join(f"`{name}`" for name in one.methods),
        ", ".join(one.fitted_on) or "no jobs",
        ", ".join(one.judged_on),
        ", ".join(both),
        one.ground,
    )
    return dict(zip(COLUMNS, told, strict=True))


def _sets(_results: Sequence[Done]) -> Table:
    return Table({"jobs": ""}, {name: {"jobs": told} for name, told in SETS.items()})


_COST = Form(cpu_s=1)
CASES = (
    Case(
        name="constants-chosen",
        page=PAGE,
        section="Constants",
        about="Values as the code has them.",
        rows="constant",
        run=values,
        parts=_once,
        table=_constants,
        seeds=(0,),
        short=_COST,
        full=_COST,
        paper=NONE_PRINTED,
        judged_on=(NOTHING,),
        fitted_on=(),
    ),
    Case(
        name="constants-sets",
        page=PAGE,
        section="Sets of jobs",
        about="The words for them on all pages.",
        rows="set",
        run=values,
        parts=_once,
        table=_sets,
        seeds=(0,),
        short=_COST,
        full=_COST,
        paper=NONE_PRINTED,
        judged_on=(NOTHING,),
        fitted_on=(),
    ),
)
