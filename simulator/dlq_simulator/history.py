"""`--set history=FILE`: how much service earlier jobs have needed, for policies that learn."""

from __future__ import annotations

from dlq_simulator.columns import BadValue, positive
from dlq_simulator.errors import DataError
from dlq_simulator.readers.text import FIX_ROW, CsvRows, read_text

COLUMN = "duration"


def read_history(path: str) -> list[float]:
    """GPU-seconds of every job of the file: its column `duration`, or one number a line.

    DataError names the line of a value that is not positive, and a file without any.
    """
    place: int | None = None
    samples: list[float] = []
    for line, cells in CsvRows(path, read_text(path)):
        if place is None:
            words = [cell.strip() for cell in cells]
            place = words.index(COLUMN) if COLUMN in words else 0
            if COLUMN in words:
                continue
            if len(words) > 1:
                why = f"it has no column {COLUMN!r}"
                raise DataError(path, why, "name the column of GPU-seconds so", line=line)
        samples.append(_sample(path, line, cells, place))
    if not samples:
        raise DataError(path, "it holds no job", "give at least one service in GPU-seconds")
    return samples


def _sample(path: str, line: int, cells: list[str], place: int) -> float:
    try:
        return float(positive(cells[place].strip()))
    except IndexError:
        why = "the row ends before it"
    except BadValue as error:
        why = f"{error!s}, not {cells[place][:40]!r}"
    raise DataError(path, why, FIX_ROW, line=line, column=COLUMN)
