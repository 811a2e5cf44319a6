"""Lines that Slurm cannot run: dlq's figures beside their goals, by the other benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from benchmarks.race import machine
from benchmarks.race.pairs import Goals
from benchmarks.race.running import Race


class Asked(NamedTuple):
    """A benchmark, and its figures by patterns of their names."""

    words: tuple[str, ...]
    goals: dict[str, Goals]
    label: str = ""  # of its rows
    long: bool = False  # left out of the short form


TICK = ("planning.tick", "--queued", "1000,100000")
COMPLETION, REPLAN = "completion, 100000 queued*", "full replan*"
ASKED = (
    Asked((*TICK, "--policy", "fifo"), {COMPLETION: Goals(at_most=20)}, ", fifo"),
    Asked((*TICK, "--policy", "tiresias-las"), {COMPLETION: Goals(at_most=20)}, ", LAS", long=True),
    Asked(
        (*TICK, "--policy", "dlq"),
        {COMPLETION: Goals(at_most=40), REPLAN: Goals(at_most=15), "memory*": Goals(at_most=1536)},
        ", dlq",
    ),
    Asked(("live.submits",), {"submits, 64 in flight": Goals(at_least=1800)}),
    Asked(("commands.sbatch_loop", "--count", "20"), {"dlq, one job of*": Goals(at_most=0.05)}),
    Asked(("live.restart",), {"restart with*": Goals(at_most=2.5)}, long=True),
    Asked(
        ("live.agents", "--agents", "5000", "--queued", "10000"),
        {"dlq, 5000 agents: CPU of the master": Goals(at_most=50)}, long=True,
    ),
)  # fmt: skip


def run(race: Race) -> None:
    """One benchmark after another."""
    race.close()
    for asked in ASKED:
        if not (asked.long and race.short):
            _ask(race, asked)


def _ask(race: Race, asked: Asked) -> None:
    command = [sys.executable, "-m", f"benchmarks.{asked.words[0]}", *asked.words[1:], "--json"]
    turn, done = machine.beside(lambda: subprocess.run(command, capture_output=True, text=True))
    how = f"python -m benchmarks.{' '.join(asked.words)}"
    if done.returncode:
        race.report.say(f"  {how} failed: {done.stderr.strip().splitlines()[-1:]}")
        return
    for figure, goals in matching(json.loads(done.stdout)["figures"], asked.goals):
        name = f"{figure['name']}{asked.label}"
        race.alone(name, figure["unit"], [(turn, figure["value"])], goals, how)


def matching(
    figures: list[dict[str, Any]], goals: dict[str, Goals]
) -> list[tuple[dict[str, Any], Goals]]:
    """The figures whose names fit a pattern, with the goals of that."""
    return [
        (figure, found)
        for pattern, found in goals.items()
        for figure in figures
        if fnmatchcase(figure["name"], pattern)
    ]
