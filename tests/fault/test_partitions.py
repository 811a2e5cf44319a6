"""Lines between agents and the master that are cut in both directions, in one, or again and again.

No job runs twice, and none is put back before its hold has ended. `make prove ONLY=partitions`
makes many.
"""

import os
import random
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.held_lines import BOTH, TO_AGENT, TO_MASTER, HeldLine
from support.ledger_clients import drain, load
from support.parted_daemons import PartedDaemons
from support.proofs import proved

N = int(os.environ.get("N", "30"))
SEED = int(os.environ.get("SEED", "1"))
LONGEST_S = 60.0
KINDS = ("both", "to the master", "to the agent", "severed", "flapping")


class Parting(threading.Thread):
    """Cuts the line of one agent again and again."""

    def __init__(self, line: HeldLine, cuts: int, chance: random.Random, mean_s: float) -> None:
        super().__init__(name="parting")
        self._line, self._cuts, self._chance, self._mean_s = line, cuts, chance, mean_s
        self._pause = threading.Event()
        self.longest_s = 0.0

    def run(self) -> None:
        for _ in range(self._cuts):
            self._pause.wait(self._chance.uniform(0.2, 2.0))
            lasts_s = min(LONGEST_S, 0.3 + self._chance.expovariate(1 / self._mean_s))
            self.longest_s = max(self.longest_s, lasts_s)
            self._part(self._chance.choice(KINDS), lasts_s)
            self._line.heal()

    def _part(self, kind: str, lasts_s: float) -> None:
        if kind == "flapping":
            for _ in range(4):
                self._line.hold(BOTH)
                self._pause.wait(lasts_s / 8)
                self._line.heal()
                self._pause.wait(lasts_s / 8)
            return
        if kind == "severed":
            self._line.sever()
        else:
            directions = {"both": BOTH, TO_MASTER: {TO_MASTER}, TO_AGENT: {TO_AGENT}}
            self._line.hold(frozenset(directions[kind]))
        self._pause.wait(lasts_s)


def part(root: Path, agents: Sequence[str], cuts: int, mean_s: float) -> None:
    """Cut the lines `cuts` times together, under load; then half of them at once."""
    daemons = PartedDaemons(root, agents)
    with daemons.up():
        with load(daemons, SEED):
            parting = [
                Parting(daemons.lines[name], cuts // len(agents), random.Random(f"{SEED}/{name}"),
                        mean_s)
                for name in agents
            ]  # fmt: skip
            for each in parting:
                each.start()
            for each in parting:
                each.join()
            half = [daemons.lines[name] for name in agents[: len(agents) // 2]]
            for line in half:
                line.hold(BOTH)
            threading.Event().wait(10.0)
            for line in half:
                line.heal()
        found = drain(daemons)
    assert found["more_than_one_attempt"] == 0, "a job was put back before its hold had ended"
    proved(
        "partitions",
        cuts=cuts // len(agents) * len(agents) + len(half),
        longest_s=round(max(each.longest_s for each in parting), 1),
        jobs=found["jobs"],
        overlaps=found["overlaps"],
    )


@pytest.mark.long("property/test_core_world.py")
def test_a_few_partitions_put_no_job_back_and_run_none_twice(tmp_path: Path) -> None:
    part(tmp_path, ("n1", "n2"), cuts=6, mean_s=1.0)


@pytest.mark.torture
def test_many_partitions_put_no_job_back_and_run_none_twice(tmp_path: Path) -> None:
    part(tmp_path, [f"n{number}" for number in range(1, 7)], cuts=N, mean_s=5.0)
