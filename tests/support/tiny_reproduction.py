"""A case of `benchmarks.reproduce` that takes no time, and can die in the middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.reproduce.case import Case, Done, Form, Table, Words

NUMBERS = (1, 2, 3, 4)
DEADLY = 3


def square(folder: str, number: int) -> int:
    """Tells the log of the folder. Its process dies at `DEADLY` while there is a file `kill`."""
    with (Path(folder) / "log").open("a") as log:
        log.write(f"{number}\n")
    if number == DEADLY and (Path(folder) / "kill").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def tiny(folder: Path, **changes: Any) -> Case:
    """Squares of four numbers; the paper prints two of them."""

    def parts(_seeds: Sequence[int]) -> Iterable[Words]:
        return [{"folder": str(folder), "number": number} for number in NUMBERS]

    def table(results: Sequence[Done]) -> Table:
        rows = {str(done.words["number"]): {"square": float(done.value)} for done in results}
        return Table({"square": ",.0f"}, rows)

    fields: dict[str, Any] = {
        "name": "squares",
        "page": "squares.md",
        "section": "Squares",
        "about": "Squares of numbers.",
        "rows": "number",
        "run": square,
        "parts": parts,
        "table": table,
        "seeds": (7, 8),
        "short": Form(cpu_s=4),
        "full": Form(cpu_s=8, seeds=2),
        "paper": {"2": {"square": 4.0}, "4": {"square": 8.0}},
        "judged_on": ("own-480",),
        "fitted_on": (),
        "differs": {"4": "The paper doubles."},
    }
    return Case(**{**fields, **changes})
