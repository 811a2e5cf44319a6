"""The acts of a job and their times: one JSON object a line, on the clock of all processes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


def now_s() -> float:
    """Seconds since the boot, the same for every process of this host."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Notes:
    """Lines at the end of one file; each is there at once."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def take(self, what: str, **facts: Any) -> None:
        """It happens now. Every note has its process, and its time by the wall too."""
        times = {"at_s": now_s(), "wall_s": time.time()}
        note = {"what": what, **times, "pid": os.getpid(), **facts}
        with self._path.open("a") as file:
            file.write(json.dumps(note) + "\n")

    def all(self, what: str = "") -> list[dict[str, Any]]:
        """The notes so far, or those of one word."""
        try:
            lines = self._path.read_text().splitlines()
        except FileNotFoundError:
            return []
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return [note for note in found if what in ("", note["what"])]
