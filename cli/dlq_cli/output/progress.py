"""A line on a terminal that shows how far a long command is, and is wiped away at its end."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self, TextIO

from dlq_cli.output.render import age

_CELLS = 24
_WIPE = "\r\x1b[K"


class ProgressBar:
    """How much of the time has passed; on stderr, and only where that is a terminal. A context:
    behind it the line is empty.
    """

    def __init__(self, what: str, seconds: float, stream: TextIO | None = None) -> None:
        self._what, self._seconds = what, seconds
        self._stream = sys.stderr if stream is None else stream
        self._shown = self._stream.isatty()

    def at(self, passed_s: float) -> None:
        """So much has passed."""
        share = min(1.0, max(0.0, passed_s / self._seconds)) if self._seconds else 1.0
        full = int(share * _CELLS)
        left = age(self._seconds - passed_s)
        self._write(f"{_WIPE}{self._what} [{'#' * full}{'.' * (_CELLS - full)}] {left} left")

    def __enter__(self) -> Self:
        self.at(0.0)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._write(_WIPE)

    def _write(self, text: str) -> None:
        if self._shown:
            self._stream.write(text)
            self._stream.flush()
