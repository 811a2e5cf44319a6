"""Submits to a cluster of 100 full nodes, while its queue grows.

Slurm has a real slurmd for each node, and dlq virtual agents in one process: nothing starts.
"""

from __future__ import annotations

from benchmarks.race.lines.submits import BEATEN, MASTER_MS, submitting
from benchmarks.race.pairs import Goals, Row
from benchmarks.race.running import Race, Wanted

NODES, CLIENTS = 100, 8
LENGTHS = (0, 400, 1600)
MOST_GROWTH = 1.5
QUEUE = "queue"


def run(race: Race) -> None:
    """A row for each length of the queue, and the growth of dlq's cost."""
    jobs = 160 if race.short else 400
    sides = race.sides(Wanted(NODES, virtual=True))
    for side in sides:
        side.fill(8)
    rows, queued = [], 0
    for length in LENGTHS:
        for side in sides:
            if length > queued:
                side.submit(length - queued, QUEUE)
        queued = length
        rows.append(
            race.pairs(
                f"submits, {NODES} full nodes, {length:,} wait", "/s",
                [submitting(side, CLIENTS, jobs) for side in sides], jobs,
                f"{CLIENTS} clients of each side, {jobs} jobs of 1 GPU together; {NODES} slurmd, "
                f"{NODES} virtual agents of dlq in one process",
                more_is_better=True, goals=Goals(ahead=BEATEN, controller_ms=MASTER_MS),
            )
        )  # fmt: skip
    first_ms = Row.middle(rows[0].dlq, "controller_ms")
    race.alone(
        f"master CPU of a submit, {LENGTHS[-1]:,} waiting against none", "times",
        [(turn, turn.controller_ms / first_ms) for turn in rows[-1].dlq],
        Goals(at_most=MOST_GROWTH),
    )  # fmt: skip
