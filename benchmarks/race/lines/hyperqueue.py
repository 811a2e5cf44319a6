"""HyperQueue beside dlq: submits of one client, and jobs that run `true`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.race.hyperqueue_side import HyperQueueSide, missing
from benchmarks.race.lines.dispatch import chain, dlq_rate
from benchmarks.race.lines.submits import submitting
from benchmarks.race.running import Race, Side, Wanted

CORES = 8
NOTE = "HyperQueue keeps its jobs in memory alone, for one user; its client looks once a second"


def run(race: Race) -> None:
    """Both rows, if the package is here."""
    if lack := missing():
        race.report.say(f"  left out: there is no HyperQueue here: {lack}")
        return
    with tempfile.TemporaryDirectory(prefix="dlqh") as root:
        _run_submits(race, Path(root) / "submit")
        _run_dispatch(race, Path(root) / "run")


def _run_submits(race: Race, root: Path) -> None:
    jobs = 400 if race.short else 1600
    sides = race.sides(Wanted(8))
    sides.dlq.fill(8)
    # Without a worker all jobs wait, as they do on nodes that are full.
    with HyperQueueSide(root, 0, CORES, "submit", jobs) as peer:
        race.pairs(
            "submits beside HyperQueue", "/s",
            [Side(lambda: jobs / peer.go()), submitting(sides.dlq, 1, jobs)], jobs,
            f"1 client in Python of each, one submit after another; {NOTE}",
            more_is_better=True, peer=peer,
        )  # fmt: skip


def _run_dispatch(race: Race, root: Path) -> None:
    nodes, jobs = (8, 300) if race.short else (32, 1000)
    sides = race.sides(Wanted(nodes, many_short_jobs=True))
    with HyperQueueSide(root, nodes, CORES, "run", jobs) as peer:
        row = race.pairs(
            f"dispatch of true beside HyperQueue, {nodes} nodes", "jobs/s",
            [
                Side(lambda: jobs / peer.go()),
                Side(lambda: dlq_rate(sides.dlq, jobs), after=sides.dlq.clear),
            ],
            jobs,
            f"{jobs} jobs of 1 core or 1 GPU, to the end of the last; workers and server of "
            f"HyperQueue are threads of one process; {NOTE}",
            more_is_better=True, peer=peer,
        )  # fmt: skip
    race.tell(chain(row))
