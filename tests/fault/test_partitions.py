"""Lines between agents and the master that are cut in both directions, in one, or again and again.

No job runs twice, and none is put back before its hold has ended. `make prove ONLY=partitions`
makes many.
"""

import os
import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from dlq.v1 import node_pb2
from dlq_client.nodes import Nodes
from support.held_lines import BOTH, TO_AGENT, TO_MASTER, HeldLine
from support.ledger_clients import USUAL_PAUSES_S, drain, load
from support.parted_daemons import PartedDaemons
from support.proofs import proved
from support.waiting import wait_until

N = int(os.environ.get("N", "30"))
SEED = int(os.environ.get("SEED", "1"))
USUAL_AGENTS = 6
AGENTS = int(os.environ.get("AGENTS", str(USUAL_AGENTS)))
SHORTEST_S, LONGEST_S = 0.3, float(os.environ.get("LONGEST_S", "60"))
# A cut beyond it rightly ends an attempt; agents need some time to come back after the longest.
HOLD_S = max(120, round(1.5 * LONGEST_S))
LONG_S = 10.0
KINDS = ("both", "to the master", "to the agent", "severed", "flapping")


class Parting(threading.Thread):
    """Cuts the line of one agent again and again, for so long each time."""

    def __init__(
        self,
        line: HeldLine,
        lasts_s: Sequence[float],
        chance: random.Random,
        until_up: Callable[[], None],
    ) -> None:
        """`until_up` waits until the master hears the agent."""
        super().__init__(name="parting")
        self._line, self._lasts_s, self._chance = line, lasts_s, chance
        self._until_up = until_up
        self._pause = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._part_all()
        except BaseException as failure:  # noqa: BLE001 - raised again by the test
            self.failure = failure

    def _part_all(self) -> None:
        for lasts_s in self._lasts_s:
            self._pause.wait(self._chance.uniform(0.2, 2.0))
            if lasts_s > LONG_S:  # two of them in a row could be longer than the hold of a job
                self._until_up()
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


def lengths(count: int, longest_s: float) -> list[float]:
    """So many cuts, each by the same factor longer than the one before: from the shortest to the
    longest, both among them. A twentieth of those up to 60 s last longer than 46 s.
    """
    factor = (longest_s / SHORTEST_S) ** (1 / (count - 1))
    return [SHORTEST_S * factor**number for number in range(count)]


def shares(count: int, agents: int, longest_s: float, chance: random.Random) -> list[list[float]]:
    """The cuts of each agent, in any order. Each has some of every length, so that they end
    together.
    """
    dealt = lengths(count, longest_s)
    hands = [dealt[number::agents] for number in range(agents)]
    for hand in hands:
        chance.shuffle(hand)
    return hands


def until_up(daemons: PartedDaemons, name: str) -> None:
    """Wait until the master hears the agent."""
    with daemons.connect() as line:
        nodes = Nodes(line)
        wait_until(
            lambda: any(
                node.node_id == name and node.state == node_pb2.NODE_STATE_UP
                for node in nodes.list()
            ),
            what=f"{name} is up",
        )


def pauses_s(agents: int) -> tuple[float, float]:
    """Of the clients. A crowd of agents could run more jobs at once than a small machine can."""
    return USUAL_PAUSES_S if agents <= USUAL_AGENTS else (1.0, 4.0)


def part(root: Path, agents: Sequence[str], cuts: int, longest_s: float) -> None:
    """Cut the lines `cuts` times together, under load; then half of them at once."""
    daemons = PartedDaemons(root, agents, hold_s=HOLD_S)
    hands = shares(cuts, len(agents), longest_s, random.Random(SEED))
    with daemons.up():
        with load(daemons, SEED, pauses_s=pauses_s(len(agents))):
            parting = [
                Parting(
                    daemons.lines[name], hand, random.Random(f"{SEED}/{name}"),
                    partial(until_up, daemons, name),
                )
                for name, hand in zip(agents, hands, strict=True)
            ]  # fmt: skip
            for each in parting:
                each.start()
            for each in parting:
                each.join()
            for each in parting:
                if each.failure is not None:
                    raise each.failure
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
        cuts=cuts + len(half),
        longest_s=round(max(map(max, hands)), 1),
        jobs=found["jobs"],
        overlaps=found["overlaps"],
    )


def test_the_cuts_reach_from_the_shortest_to_the_longest() -> None:
    hands = shares(500, 6, 60.0, random.Random(1))
    dealt = sorted(length for hand in hands for length in hand)
    assert (round(dealt[0], 2), round(dealt[-1], 2), len(dealt)) == (0.3, 60.0, 500)
    assert sum(length > 46.0 for length in dealt) == 26
    assert max(map(sum, hands)) < 1.1 * min(map(sum, hands))


@pytest.mark.long("property/test_core_world.py")
def test_a_few_partitions_put_no_job_back_and_run_none_twice(tmp_path: Path) -> None:
    part(tmp_path, ("n1", "n2"), cuts=6, longest_s=4.0)


@pytest.mark.torture
def test_many_partitions_put_no_job_back_and_run_none_twice(tmp_path: Path) -> None:
    agents = [f"n{number}" for number in range(1, AGENTS + 1)]
    part(tmp_path, agents, cuts=N, longest_s=LONGEST_S)
