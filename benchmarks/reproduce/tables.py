"""A case's table as Markdown: ours alone, or the paper's figure, ours and the ratio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.reproduce.case import Case, Cell, Table

SAME = 0.1  # a ratio within this of 1 needs no sentence
NOT_EXAMINED = "not examined"


class Written(NamedTuple):
    """The lines, and the rows that differ without a sentence."""

    text: str
    unexplained: list[str]


def markdown(case: Case, table: Table) -> Written:
    """ValueError where the paper's figures name a row or a column that the table has not."""
    _check(case, table)
    printed = {name for row in case.paper.values() for name in row}
    three = f": {case.beside} / ours / ratio"
    heads = [f"{name}{three if name in printed else ''}" for name in table.columns]
    if printed:
        heads.append("where it differs, why")
    lines = [_line([case.rows, *heads]), "|" + "---|" * (len(heads) + 1)]
    unexplained = []
    for label, row in table.rows.items():
        theirs = case.paper.get(label, {})
        cells = [
            _cell(row.get(name), theirs.get(name), shown) for name, shown in table.columns.items()
        ]
        if printed:
            why = _why(case, label, row, theirs)
            unexplained += [label] if why == NOT_EXAMINED else []
            cells.append(why)
        lines.append(_line([label, *cells]))
    return Written("\n".join(lines), unexplained)


def off(ours: Cell, theirs: float | None) -> bool:
    """Whether two figures differ by more than `SAME`."""
    if theirs is None or not isinstance(ours, int | float):
        return False
    if theirs == 0:
        return ours != 0
    return abs(ours / theirs - 1.0) > SAME


def _why(case: Case, label: str, row: Mapping[str, Cell], theirs: Mapping[str, float]) -> str:
    """The case's sentence, also for a row that differs by less."""
    differs = any(off(row.get(name), value) for name, value in theirs.items())
    return case.differs.get(label, NOT_EXAMINED if differs else "")


def _cell(ours: Cell, theirs: float | None, shown: str) -> str:
    own = "" if ours is None else ours if isinstance(ours, str) else format(ours, shown)
    if theirs is None:
        return own
    ratio = "-"
    if isinstance(ours, int | float):
        ratio = f"{ours / theirs:.2f}" if theirs else "1.00" if not ours else "-"
    return f"{theirs:{shown}} / {own or '-'} / {ratio}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _check(case: Case, table: Table) -> None:
    rows = {*case.paper, *case.differs}
    columns = {name for row in case.paper.values() for name in row}
    strange = [*sorted(rows - set(table.rows)), *sorted(columns - set(table.columns))]
    if strange:
        raise ValueError(f"{case.name}: its table has no {strange[0]!r}")
