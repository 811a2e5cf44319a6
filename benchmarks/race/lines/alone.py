"""Lines that Slurm cannot run: dlq's figures beside their goals, by the other benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from benchmarks.race import machine
from benchmarks.race.pairs import Goals, Turn
from benchmarks.race.running import Race


class Asked(NamedTuple):
    """A benchmark, and its figures by patterns of their names."""

    words: tuple[str, ...]
    goals: dict[str, Goals]
    label: str = ""  # of its rows
    long: bool = False  # left out of the short form
    short_words: tuple[str, ...] = ()  # in the short form


TICK = ("planning.tick", "--queued", "100000")
SHAPES = ("planning.tick", "--queued", "10000", "--shapes", "10000", "--policy", "dlq")
AGENTS = {
    "*agents: CPU of the master": Goals(at_most=50),
    "*heartbeat, p99": Goals(at_most=100),
    "*longest round of the loop": Goals(at_most=30),
}
COMPLETION, REPLAN = "completion, 100000 queued*", "full replan*"
ASKED = (
    Asked((*TICK, "--policy", "fifo"), {COMPLETION: Goals(at_most=20)}, ", fifo"),
    Asked((*TICK, "--policy", "tiresias-las"), {COMPLETION: Goals(at_most=20)}, ", LAS", long=True),
    Asked(
        (*TICK, "--policy", "dlq"),
        {COMPLETION: Goals(at_most=40), REPLAN: Goals(at_most=15), "memory*": Goals(at_most=1536)},
        ", dlq",
    ),
    Asked(SHAPES, {"*shapes against one": Goals(at_most=2)}, ", distinct --mem, dlq"),
    Asked(("live.submits",), {"submits, 64 in flight": Goals(at_least=1800)}),
    Asked(("commands.sbatch_loop", "--count", "20"), {"dlq, one job of*": Goals(at_most=0.05)}),
    Asked(("live.restart",), {"restart with*": Goals(at_most=2.5)}, long=True),
    Asked(
        ("live.agents", "--agents", "5000", "--windows", "1"), AGENTS,
        short_words=("live.agents", "--windows", "1", "--seconds", "8"),
    ),
)  # fmt: skip


def run(race: Race) -> None:
    """One benchmark after another; each is repeated, but for the short form."""
    race.close()
    for asked in ASKED:
        if not (asked.long and race.short):
            _ask(race, asked, 1 if race.short else race.repeat)


def _ask(race: Race, asked: Asked, times: int) -> None:
    words = asked.short_words if race.short and asked.short_words else asked.words
    command = [sys.executable, "-m", f"benchmarks.{words[0]}", *words[1:], "--json"]
    how = f"python -m benchmarks.{' '.join(words)}"
    found: dict[tuple[str, str], tuple[Goals, list[tuple[Turn, float]]]] = {}
    for _ in range(times):
        turn, done = machine.beside(lambda: subprocess.run(command, capture_output=True, text=True))
        if done.returncode:
            race.report.say(f"  {how} failed: {done.stderr.strip().splitlines()[-1:]}")
            return
        for figure, goals in matching(json.loads(done.stdout)["figures"], asked.goals):
            row = found.setdefault((figure["name"], figure["unit"]), (goals, []))
            row[1].append((turn, figure["value"]))
    for (name, unit), (goals, values) in found.items():
        race.alone(f"{name}{asked.label}", unit, values, goals, how)


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
