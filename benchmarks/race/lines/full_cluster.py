"""Submits to a cluster of full nodes, while its queue grows, for clusters of several sizes.

Slurm has a real slurmd for each node, and dlq virtual agents in one process: nothing starts. Three
users ask for 1 to 8 GPUs and for 400 sizes of memory. With `--full` dlq goes on alone, to sizes at
which Slurm's daemons do not fit on this machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.race import machine
from benchmarks.race.dlq_side import DlqSide
from benchmarks.race.lines.submits import ASK, BEATEN, MASTER_MS, SHAPES, submitting
from benchmarks.race.pairs import Goals, Row, Turn
from benchmarks.race.running import Race, Wanted

CLIENTS = 8
MOST_GROWTH = 1.5
QUEUE = "queue"
# Nodes, and the lengths of the queue at which submits are measured.
SHORT = {10: (0,), 100: (0, 1_600)}
LONG = {10: (0, 1_600), 1_000: (0, 1_600), 100: (0, 1_600, 10_000, 100_000)}
FULL = {100: (1_000_000,), 10_000: (0, 100_000)}  # dlq alone
HOW = (
    "{clients} clients of each side, {jobs} jobs together. " + ASK + " {nodes} slurmd, "
    "{nodes} virtual agents of dlq in one process"
)


def run(race: Race) -> None:
    """A row for each size and length, and the growth of dlq's cost."""
    jobs = 160 if race.short else 400
    plan = SHORT if race.short else LONG
    found = {nodes: _of_size(race, nodes, lengths, jobs) for nodes, lengths in plan.items()}
    longest = plan[100][-1]
    _growth(race, f"{longest:,} waiting against none", found[100][0], found[100][-1])
    few, many = min(found), max(found)
    _growth(race, f"{many:,} nodes against {few:,}", found[few][0], found[many][0])
    if race.full:
        race.close()
        for nodes, lengths in FULL.items():
            _alone(race, nodes, lengths, jobs)


def _of_size(race: Race, nodes: int, lengths: Sequence[int], jobs: int) -> list[Sequence[Turn]]:
    """The rows of one cluster; the turns of dlq."""
    sides = race.sides(Wanted(nodes, virtual=True))
    for side in sides:
        side.fill(8)
    found: list[Sequence[Turn]] = []
    queued = 0
    for length in lengths:
        for side in sides:
            if length > queued:
                side.submit(length - queued, QUEUE, SHAPES)
        queued = length
        row = race.pairs(
            f"submits, {nodes:,} full nodes, {length:,} wait", "/s",
            [submitting(side, CLIENTS, jobs) for side in sides], jobs,
            HOW.format(clients=CLIENTS, jobs=jobs, nodes=nodes),
            more_is_better=True, goals=Goals(ahead=BEATEN, controller_ms=MASTER_MS),
        )  # fmt: skip
        found.append(row.dlq)
    return found


def _growth(race: Race, what: str, few: Sequence[Turn], many: Sequence[Turn]) -> None:
    first_ms = Row.middle(few, "controller_ms")
    race.alone(
        f"master CPU of a submit, {what}", "times",
        [(turn, turn.controller_ms / first_ms) for turn in many], Goals(at_most=MOST_GROWTH),
    )  # fmt: skip


def _alone(race: Race, nodes: int, lengths: Sequence[int], jobs: int) -> None:
    """Rows of dlq alone."""
    with (
        tempfile.TemporaryDirectory(prefix="dlqr", dir="/tmp") as root,
        DlqSide(Path(root), nodes, virtual=True) as side,
    ):
        side.fill(8)
        queued = 0

        def groups() -> Mapping[str, list[int]]:
            return {"dlq": side.daemons(), "dlq controller": side.controllers()}

        for length in lengths:
            if length > queued:
                side.submit(length - queued, QUEUE, SHAPES)
            queued = length
            does = submitting(side, CLIENTS, jobs)
            turns = []
            for _ in range(race.repeat):
                does.before()
                turns.append(machine.turn(does.work, jobs, groups, "dlq", ""))
                does.after()
            name = f"submits, {nodes:,} full nodes, {length:,} wait"
            race.alone(
                name, "/s", [(turn, turn.value) for turn in turns], Goals(),
                f"{CLIENTS} clients of dlq, {jobs} jobs together; no Slurm beside it",
            )  # fmt: skip
            race.alone(
                f"master CPU of a submit, {nodes:,} full nodes, {length:,} wait", "ms",
                [(turn, turn.controller_ms) for turn in turns], Goals(at_most=MASTER_MS),
            )  # fmt: skip
