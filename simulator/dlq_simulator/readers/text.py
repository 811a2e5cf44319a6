"""A trace file's text and its CSV rows, with errors that name the line."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from dlq_simulator.errors import DataError, UsageError

# Of a file, unpacked: some ten times the largest trace there is; a packed one may claim any size.
MOST_BYTES = 512 * 2**20
FIX_ROW = "correct the row and run again"


def read_text(path: str, what: str = "trace") -> str:
    """The whole file as text, unpacked if its name ends in .gz; never more than `MOST_BYTES` of it.

    `what`: its name in errors.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            f"cannot read the {what} {path!r}", reason.lower(), "give the path of a CSV file"
        ) from error
    if path.endswith(".gz"):
        data = _gunzip(path, data)
    if len(data) > MOST_BYTES:
        most = f"{MOST_BYTES / 2**20:g} MiB"
        raise DataError(path, f"it has more than {most} of text", "cut it into smaller traces")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(path, "it is not UTF-8 text", "save it as UTF-8", line=line) from error


def _gunzip(path: str, data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            return packed.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(path, f"it is not a whole gzip file ({error})", "copy it anew") from error


class CsvRows(Iterator[tuple[int, list[str]]]):
    """Non-empty rows with the number of the line they end on.

    A row that is not CSV is a DataError that names the line it begins on. The next call gets the
    rows from the next line on.
    """

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._lines = list(io.StringIO(text, newline=""))
        self._header: Sequence[str] = ()
        self._begin(0)

    def _begin(self, line: int) -> None:
        """Read from the line with this index on, as if nothing had been before."""
        self._before = line  # lines that the reader has not seen
        self._done = line  # lines of complete rows
        rest = (self._lines[index] for index in range(line, len(self._lines)))
        self._reader = csv.reader(rest, strict=True)

    def __next__(self) -> tuple[int, list[str]]:
        while True:
            try:
                cells = next(self._reader)
            except csv.Error as error:
                read = self._before + self._reader.line_num
                bad, begun = self._bad(error, read), self._done
                self._begin(begun + 1)
                raise bad from error
            self._done = self._before + self._reader.line_num
            if cells:
                self._header = self._header or cells
                return self._done, cells

    def _bad(self, error: csv.Error, read: int) -> DataError:
        """The fault of the row that begins after the complete ones; `read`: the last line read."""
        why, column = f"it is not CSV: {error}", None
        if read > self._done + 1 or "unexpected end" in str(error):
            why = "a quote that opens in this row is not closed"
        elif "field limit" in str(error):
            limit = csv.field_size_limit()
            why = f"a cell has more than {limit} characters"
            column = self._name(self._lines[self._done], limit)
        return DataError(self._path, why, FIX_ROW, line=self._done + 1, column=column)

    def _name(self, line: str, limit: int) -> str | None:
        """The column of the enormous cell; None where quotes make that uncertain."""
        sizes = [len(cell) for cell in line.split(",", len(self._header))]
        place = next((n for n, size in enumerate(sizes) if size > limit), len(sizes))
        known = '"' not in line and place < len(self._header)
        return self._header[place].strip() if known else None
