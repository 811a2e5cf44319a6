"""`--set history=FILE`: how much service earlier jobs have needed, for policies that learn."""

from __future__ import annotations

from math import prod

from dlq_simulator.columns import BadValue, positive
from dlq_simulator.errors import DataError
from dlq_simulator.readers.text import FIX_ROW, CsvRows, read_text

COLUMN = "duration"
_GPUS = ("num_gpu", "num_gpus")  # beside it in traces, whose durations are seconds


def read_history(path: str) -> list[float]:
    """GPU-seconds of every job of the file: its column `duration`, or one number a line.

    Where there is a column `num_gpu` or `num_gpus` too, the file is a trace: `duration` is in
    seconds, and the service is the product of the two. DataError names the line of a value that is
    not positive, and a file without any.
    """
    factors: dict[str, int] = {}  # of a service: column -> place
    samples: list[float] = []
    for line, cells in CsvRows(path, read_text(path, "history")):
        if not factors:
            words = [cell.strip() for cell in cells]
            if COLUMN in words:
                factors = {name: words.index(name) for name in (COLUMN, *_GPUS) if name in words}
                continue
            if len(words) > 1:
                why = f"it has no column {COLUMN!r}"
                raise DataError(path, why, "name the column of GPU-seconds so", line=line)
            factors = {COLUMN: 0}
        samples.append(prod(_factor(path, line, cells, *factor) for factor in factors.items()))
    if not samples:
        raise DataError(path, "it holds no job", "give at least one service in GPU-seconds")
    return samples


def _factor(path: str, line: int, cells: list[str], column: str, place: int) -> float:
    try:
        return float(positive(cells[place].strip()))
    except IndexError:
        why = "the row ends before it"
    except BadValue as error:
        why = f"{error!s}, not {cells[place][:40]!r}"
    raise DataError(path, why, FIX_ROW, line=line, column=column)
