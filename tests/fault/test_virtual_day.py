"""A day of a cluster on virtual time: every agent beats every five seconds, jobs come and end.

Agents die and come back, others stammer, the master crashes. A node that beats is never taken for
dead, and a dead one is noticed in time. `make prove ONLY=day FULL=1` has 5,000 agents for 24 hours.
"""

import os
import random

import pytest

from dlq_master.control.stimuli import Heartbeat, OpenSession, ReportedPhase, Stimulus, Tick
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes.node import NodeState
from dlq_master.model.resources import Request
from support.grown_master import GrownMaster
from support.proofs import proved

AGENTS = int(os.environ.get("AGENTS", "200"))
HOURS = float(os.environ.get("HOURS", "4"))
SEED = int(os.environ.get("SEED", "1"))
BEAT_S = 5
HOUR_S = 3_600
UNREACHABLE_S = 25.0
NOTICED_S = UNREACHABLE_S + BEAT_S + 2.0  # the last beat, the bound, and the ticks of a second
ONE_GPU = Request(gpus=1)


class VirtualDay(GrownMaster):
    """The clock goes on by seconds."""

    def __init__(self, agents: int, seed: int) -> None:
        super().__init__("best-effort", nodes=agents, waiting=agents)
        self._chance = random.Random(seed)
        self._names = list(self._sessions)
        self._silent_until_s: dict[NodeId, float] = {}
        self._dead: dict[NodeId, float] = {}  # since when
        self._noticed: set[NodeId] = set()
        self._lost_line: list[NodeId] = []  # after a crash of the master
        self.noticed_s: list[float] = []
        self.beats = self.ends = self.crashes = self.stammers = 0
        self.wrong: set[tuple[int, NodeId]] = set()
        self._second = 0

    def run(self, hours: float) -> None:
        """So many hours, each with its troubles."""
        for _ in range(round(hours * HOUR_S)):
            self._second += 1
            self.master.clock.advance(1.0)
            self._trouble()
            self.master.turn(*self._beats(), Tick("leases"))
            if self._second % 10 == 0:
                self._end_a_job()
            self.obey()
            self._look()
            if self._second % 60 == 0:
                self.store.forget()

    def _trouble(self) -> None:
        now_s, hour = self._second, self._second % HOUR_S
        if hour == 300:  # one in a hundred does not beat for a while
            for name in self._chance.sample(self._names, max(1, len(self._names) // 100)):
                self._silent_until_s[name] = now_s + self._chance.uniform(5.0, 13.0)
                self.stammers += 1
        if hour == 900:
            (name,) = self._chance.sample(self._names, 1)
            self._dead[name] = now_s
        if hour == 1_500:
            self._lost_line += self._dead  # they come back, with no job
            self._dead.clear()
            self._noticed.clear()
        if hour == 2_700:
            self.master.crashed()
            self.crashes += 1
            self._lost_line = self._chance.sample(self._names, len(self._names))
        spread = max(1, len(self._names) // 15)  # they come back within fifteen seconds
        for name in self._lost_line[:spread]:
            self._open(name)
        del self._lost_line[:spread]

    def _open(self, name: NodeId) -> None:
        node = self.master.node(name)
        facts = self._facts(name, self._names.index(name), len(node.gpus))
        hello = OpenSession(
            node_id=name, facts=facts, highest_epoch=self.master.state.epoch, reports=()
        )
        self._sessions[name] = self.master.ask(hello).session_id

    def _beats(self) -> list[Stimulus]:
        """Of a fifth of the nodes: each second has its own."""
        away = set(self._lost_line)
        due = [
            name
            for name in self._names[self._second % BEAT_S :: BEAT_S]
            if name not in away
            and name not in self._dead
            and self._silent_until_s.get(name, 0.0) <= self._second
        ]
        self.beats += len(due)
        return [
            Heartbeat(node_id=name, session_id=self._sessions[name], hold_revision=0)
            for name in due
        ]

    def _end_a_job(self) -> None:
        """A job ends, and another one comes."""
        attempts = self.master.state.cluster.attempts
        key: AttemptKey = self._chance.choice(list(attempts))
        name = attempts[key].lease.allocation.slots[0].node_id
        if name not in self._dead and name not in self._lost_line:
            self._turn(self._report(name, key, ReportedPhase.EXITED))()
            self.ends += 1
        self._turn(self._submission(ONE_GPU))()

    def _look(self) -> None:
        """Every node that beats is up, and every other one is noticed when it is time."""
        nodes = self.master.state.cluster.nodes
        for name, since_s in self._dead.items():
            gone = nodes[name].state is NodeState.UNREACHABLE
            silent_s = self._second - since_s
            assert gone or silent_s <= NOTICED_S, f"{name} is dead for {silent_s} s"
            if gone and name not in self._noticed:
                self._noticed.add(name)
                self.noticed_s.append(silent_s)
        if self._second % BEAT_S or self._lost_line:
            return
        for name, node in nodes.items():
            if node.state is not NodeState.UP and name not in self._dead:
                self.wrong.add((self._second, name))


def live(agents: int, hours: float) -> None:
    """A day, and what it came to."""
    day = VirtualDay(agents, SEED)
    try:
        day.run(hours)
        assert sorted(day.wrong) == [], "nodes that beat were taken for dead"
        assert day.noticed_s, "no node died"
        proved(
            "virtual day",
            agents=agents,
            virtual_hours=hours,
            heartbeats=day.beats,
            ends_of_jobs=day.ends,
            crashes_of_the_master=day.crashes,
            stammering_nodes=day.stammers,
            taken_for_dead_wrongly=len(day.wrong),
            dead_noticed_within_s=max(day.noticed_s),
        )
    finally:
        day.close()


def test_an_hour_of_a_small_cluster_takes_no_living_node_for_dead() -> None:
    live(agents=20, hours=1.0)


@pytest.mark.torture
def test_a_day_of_a_large_cluster_takes_no_living_node_for_dead() -> None:
    live(AGENTS, HOURS)
