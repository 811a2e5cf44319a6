"""make matrix: the whole suite on one interpreter after the other, and a table of what came of it.

An interpreter that was asked for by name (MATRIX="python3.12 /opt/python/bin/python3") and is not
there is an error. Without names every one of `USUAL` that this machine has is taken, and those that
it lacks are listed. Each has an environment of its own, build/matrix/VERSION, and a log beside it.
Standard library only: this runs before `make setup`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PLACE = Path("build/matrix")
# The one that the system itself runs on, then the newest of each line that is supported.
USUAL = ("/usr/bin/python3", "python3.11", "python3.12", "python3.13", "python3.14")
OLDEST = (3, 11)
VERSION = "import platform, sys; print(platform.python_version(), sys.executable)"
COUNTS = ("passed", "failed", "errors", "skipped")


class Interpreter(NamedTuple):
    """A Python of this machine."""

    version: str
    path: str

    @property
    def supported(self) -> bool:
        return tuple(int(part) for part in self.version.split(".")[:2]) >= OLDEST


class Result(NamedTuple):
    """What the suite did on one of them."""

    interpreter: Interpreter
    code: int
    counts: dict[str, int]
    minutes: float


def find(name: str) -> Interpreter | None:
    """The interpreter of that name or path; None where there is none that runs."""
    path = shutil.which(name)
    if path is None:
        return None
    asked = [path, "-I", "-c", VERSION]
    said = subprocess.run(asked, capture_output=True, text=True, check=False)
    if said.returncode != 0:
        return None
    version, executable = said.stdout.strip().split(" ", 1)
    return Interpreter(version, executable)


def choose(names: Iterable[str]) -> tuple[list[Interpreter], list[str]]:
    """Those that can be used, each version once, and the names of which none can."""
    chosen: dict[str, Interpreter] = {}
    missing = []
    for name in names:
        found = find(name)
        if found is None or not found.supported:
            missing.append(name)
        else:
            chosen.setdefault(found.version, found)
    return list(chosen.values()), missing


def counts_of(log: str) -> dict[str, int]:
    """The figures of pytest's last line; all 0 where it did not come to one."""
    for line in reversed(log.splitlines()):
        if re.search(r"\d+ (passed|failed|errors?)\b.* in ", line):
            found = {word.rstrip("s"): int(n) for n, word in re.findall(r"(\d+) ([a-z]+)", line)}
            return {name: found.get(name.rstrip("s"), 0) for name in COUNTS}
    return dict.fromkeys(COUNTS, 0)


def run(interpreter: Interpreter) -> Result:
    """The suite on one of them; its lines go to the log."""
    place = PLACE / interpreter.version
    log = place.with_name(f"{interpreter.version}.log")
    began_s = time.monotonic()
    words = ["make", "test", f"VENV={place}", f"PYTHON={interpreter.path}"]
    with log.open("wb") as file:
        done = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, check=False)
    minutes = (time.monotonic() - began_s) / 60
    text = log.read_text(errors="replace")
    counts = counts_of(text)
    code = done.returncode or int(not counts["passed"])
    if code:
        failed = [line for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))]
        print(*(failed[:20] or text.splitlines()[-20:]), f"the whole log: {log}", sep="\n")
    return Result(interpreter, code, counts, minutes)


def table(results: Sequence[Result]) -> str:
    lines = [f"{'PYTHON':10}{''.join(f'{name.upper():>10}' for name in COUNTS)}{'MINUTES':>10}"]
    for version, counts, minutes in ((r.interpreter.version, r.counts, r.minutes) for r in results):
        row = "".join(f"{counts[name]:>10}" for name in COUNTS)
        lines.append(f"{version:10}{row}{minutes:>10.1f}")
    return "\n".join(lines)


def main(asked: Sequence[str]) -> int:
    chosen, missing = choose(asked or USUAL)
    if missing:
        print(f"not found, or older than 3.{OLDEST[1]}: {', '.join(missing)}", file=sys.stderr)
    if not chosen or (asked and missing):
        print(
            'name interpreters that are there: make matrix MATRIX="python3.12 ..."', file=sys.stderr
        )
        return 2
    PLACE.mkdir(parents=True, exist_ok=True)
    results = []
    for interpreter in chosen:
        print(f"=== {interpreter.version}: {interpreter.path}", flush=True)
        results.append(run(interpreter))
    print(table(results))
    return max(result.code != 0 for result in results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
