"""Submits by the clients of both, and by their commands in a shell loop, on nodes that are full."""

from __future__ import annotations

from functools import partial

from benchmarks.race.clients import Clients
from benchmarks.race.dlq_side import DlqSide
from benchmarks.race.lines.calls import SMALL, loop_ms, warm
from benchmarks.race.pairs import Goals
from benchmarks.race.running import Race, Side
from benchmarks.race.slurm_side import SlurmSide

ASK = "Three users ask in turn for 1 to 8 GPUs and 400 sizes of memory."
HOW = (
    "{clients} x libslurm in C, {clients} x dlq_client in Python, one submit after another each. "
    + ASK
    + " The nodes are full and the jobs wait"
)
SHAPES = 400
BEATEN, MASTER_MS = 1.2, 0.6


def run(race: Race) -> None:
    """One client, and eight."""
    jobs = 400 if race.short else 1600
    sides = race.sides(SMALL)
    for side in sides:
        side.fill(8)
    for clients in (1, 8):
        race.pairs(
            f"submits, {clients} client{'s' * (clients > 1)}", "/s",
            [submitting(side, clients, jobs) for side in sides], jobs,
            HOW.format(clients=clients),
            more_is_better=True,
            goals=Goals(ahead=BEATEN, controller_ms=MASTER_MS),
        )  # fmt: skip


def submitting(side: SlurmSide | DlqSide, clients: int, jobs: int) -> Side:
    """Clients that connect before the turn; their jobs are cancelled after it."""
    crowds: list[Clients] = []

    def before() -> None:
        crowds.append(side.clients(clients, jobs, shapes=SHAPES))
        crowds[-1].__enter__()

    def after() -> None:
        crowds.pop().__exit__()
        side.cancel("race")

    return Side(lambda: jobs / crowds[-1].go(), before, after)


def run_loop(race: Race) -> None:
    """`sbatch` beside `dlq submit`, and beside dlq's own `sbatch`."""
    count = 50 if race.short else 200
    slurm, dlq = sides = race.sides(SMALL)
    for side in sides:
        side.fill(8)
    batch = ("sbatch", "-Q", "-J", "race", "-G1", "--wrap=true")
    named = ("dlq", "submit", "-J", "race", "--", "true")
    theirs = partial(loop_ms, batch, slurm.environment, count)
    for name, words in (("dlq submit", named), ("dlq's sbatch", batch)):
        warm(dlq, words)
        dlq.cancel("race")
        ours = partial(loop_ms, words, dlq.environment, count)
        race.pairs(
            f"{name} in a shell loop", "ms",
            (
                Side(theirs, after=partial(slurm.cancel, "race")),
                Side(ours, after=partial(dlq.cancel, "race")),
            ),
            count, f"sbatch of Slurm beside {' '.join(words[:2])} ..., {count} calls of sh",
            goals=Goals(at_most=15, beside_ms=6),
        )  # fmt: skip
