"""How many servers an inference cluster lends over time: rows of a cluster file, or a load file
beside it.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

from dlq_master.policy.reclaim.controller import Lender, Lending, follow
from dlq_simulator import toml_tables as toml
from dlq_simulator.columns import BadValue, fraction, seconds
from dlq_simulator.errors import DataError
from dlq_simulator.readers.text import FIX_ROW, CsvRows, read_text
from dlq_simulator.toml_tables import Table

Seconds = int | float

LOAD_COLUMNS = ("time_s", "busy")
# Of the servers, kept idle for the inference side's next peak.
HEADROOM = 0.05


class LoanStep(NamedTuple):
    """The number of lent servers from `at_s` on, until the next step."""

    at_s: Seconds
    servers: int


Steps = tuple[LoanStep, ...]


def lent_at(steps: Steps, at_s: Seconds) -> int:
    """How many are lent at an instant; 0 before the first step."""
    place = bisect_right(steps, at_s, key=lambda step: step.at_s)
    return steps[place - 1].servers if place else 0


def server_seconds(steps: Steps, begin_s: Seconds, end_s: Seconds) -> Seconds:
    """The server-seconds lent in this time."""
    total: Seconds = 0
    ends = [step.at_s for step in steps[1:]]
    for step, until_s in zip(steps, (*ends, end_s), strict=True):
        lasts_s = min(until_s, end_s) - max(step.at_s, begin_s)
        total += step.servers * max(0, lasts_s)
    return total


def read_steps(where: str, table: Table, count: int, directory: Path) -> Steps:
    """The steps of a [[loans]] table of `count` servers: its `rows`, or the `trace` in
    `directory`.
    """
    if ("rows" in table) == ("trace" in table):
        why = "it wants rows or trace, one of them"
        raise DataError(where, why, 'write rows = [[0, 3], [3600, 5]] or trace = "load.csv"')
    if "rows" in table:
        for key in ("headroom", "settle_s"):
            if key in table:
                raise DataError(
                    where, f"{key} goes with a trace", "delete it; rows say how many are lent"
                )
        return _merged(_rows(where, table["rows"], count))
    if not isinstance(table["trace"], str):
        raise DataError(where, "trace is not a path", 'write trace = "load.csv"')
    headroom = table.get("headroom", HEADROOM)
    if not isinstance(headroom, int | float) or not 0 <= headroom < 1:
        raise DataError(where, "headroom is not from 0 to below 1", f"write headroom = {HEADROOM}")
    settle_s = toml.number(where, table, "settle_s", 0) or 0
    lender = Lender(count, headroom, settle_s)
    return _merged(_of_load(str(directory / table["trace"]), lender))


def _rows(where: str, rows: object, count: int) -> list[LoanStep]:
    if not isinstance(rows, list) or not rows:
        raise DataError(where, "rows is not a list of rows", "write rows = [[0, 3], [3600, 5]]")
    steps: list[LoanStep] = []
    for number, row in enumerate(rows, 1):
        at = f"{where}, row {number}"
        pair = isinstance(row, list) and len(row) == 2
        if not pair or any(isinstance(v, bool) or not isinstance(v, int | float) for v in row):
            raise DataError(at, "it is not [seconds, servers]", "write for example [3600, 5]")
        at_s, servers = row
        if not isinstance(servers, int) or not 0 <= servers <= count:
            raise DataError(at, f"{servers} is not a number of servers from 0 to {count}", FIX_ROW)
        _rises(at, at_s, steps)
        steps.append(LoanStep(at_s, servers))
    return steps


def _of_load(path: str, lender: Lender) -> list[LoanStep]:
    """The lender's steps for the load."""
    rows = CsvRows(path, read_text(path, "load"))
    header = next(rows, (1, []))[1]
    if tuple(header[:2]) != LOAD_COLUMNS:
        fix = "make one with dlq simulate generate inference"
        raise DataError(path, f"the header is not {','.join(LOAD_COLUMNS)}", fix, line=1)
    steps: list[LoanStep] = []
    lending = Lending()
    for line, cells in rows:
        if len(cells) != len(header):
            why = f"the row has {len(cells)} cells and the header {len(header)}"
            raise DataError(path, why, FIX_ROW, line=line)
        at_s = _cell(path, line, 0, cells[0])
        busy = _cell(path, line, 1, cells[1])
        _rises(f"{path}, line {line}", at_s, steps)
        lending = follow(lending, lender, at_s, busy)
        steps.append(LoanStep(at_s, lending.lent))
    if not steps:
        raise DataError(path, "it has a header and no rows", "add one row for each load")
    return steps


def _cell(path: str, line: int, place: int, text: str) -> int | float:
    try:
        return (seconds, fraction)[place](text.strip())
    except BadValue as error:
        why = f"{error}, found {text[:40]!r}"
        raise DataError(path, why, FIX_ROW, line=line, column=LOAD_COLUMNS[place]) from error


def _rises(where: str, at_s: Seconds, steps: list[LoanStep]) -> None:
    if not 0 <= at_s < float("inf") or (steps and at_s <= steps[-1].at_s):
        raise DataError(where, "its time is not after the one before", "sort the rows by time")


def _merged(steps: list[LoanStep]) -> Steps:
    """The steps that change the number."""
    kept: list[LoanStep] = []
    for step in steps:
        if not kept or kept[-1].servers != step.servers:
            kept.append(step)
    return tuple(kept)
