"""A trace file's text and its CSV rows, with errors that name the line."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from dlq_simulator.errors import DataError, UsageError

FIX_ROW = "correct the row and run again"


def read_text(path: str) -> str:
    """The whole file as text, unpacked if its name ends in .gz."""
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            f"cannot read the trace {path!r}", reason.lower(), "give the path of a CSV file"
        ) from error
    if path.endswith(".gz"):
        data = _gunzip(path, data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(path, "it is not UTF-8 text", "save it as UTF-8", line=line) from error


def _gunzip(path: str, data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(path, f"it is not a whole gzip file ({error})", "copy it anew") from error


def csv_rows(path: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """Non-empty rows with the number of the line they end on."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise DataError(path, f"it is not CSV: {error}", FIX_ROW, line=reader.line_num) from error
