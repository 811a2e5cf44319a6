"""Results of parts, one file each: written whole or not at all, so that a killed run goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import ROOT
from benchmarks.reproduce.sources import Key

HOME = ROOT / "build" / "reproduce" / "results"


class Result(NamedTuple):
    """The value of a part, and the CPU time that it took."""

    value: Any
    cpu_s: float


class Kept:
    """A folder for each thing that was asked, with a file for each way in which it was computed."""

    def __init__(self, home: Path = HOME) -> None:
        self._home = home

    def get(self, key: Key) -> Result | None:
        """The result under exactly this key; None where there is none."""
        return _read(self._file(key))

    def put(self, key: Key, result: Result) -> None:
        """Keep it. A reader sees the whole file or none."""
        file = self._file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(result._asdict()))
        fresh.replace(file)

    def cost_s(self, key: Key) -> float | None:
        """The CPU time of the same part the last time, under any sources."""
        files = sorted(self._file(key).parent.glob("*.json"), key=lambda path: path.stat().st_mtime)
        last = _read(files[-1]) if files else None
        return last.cpu_s if last else None

    def _file(self, key: Key) -> Path:
        return self._home / key.what / f"{key.how}.json"


def _read(file: Path) -> Result | None:
    try:
        return Result(**json.loads(file.read_text()))
    except (FileNotFoundError, ValueError):  # a file cut short by a lost disk counts as none
        return None
