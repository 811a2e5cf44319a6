"""Two masters on one PostgreSQL with a synchronous standby: the leader is killed, stopped and told
to leave, under load. Nothing acknowledged is lost, no job notices.

A short run is part of `make test-rest`; `make ha TAKEOVERS=200 SEED=1` is the long one.
"""

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.extent import times
from support.ledger_clients import Client, Promises, drain
from support.pair_daemons import MASTERS, PairDaemons
from support.postgres_site import DURABLE, PostgresSite, postgres_site
from support.proofs import proved

TAKEOVERS = int(os.environ.get("TAKEOVERS", "200"))
SEED = int(os.environ.get("SEED", "1"))
KILL, STOP, LEAVE = "killed", "stopped", "left"


@pytest.fixture
def site() -> Iterator[PostgresSite]:
    with postgres_site(DURABLE) as made:
        made.add_standby()
        yield made


class Takeovers:
    """Ends one leader after the other, and writes down how long the next one took."""

    def __init__(self, daemons: PairDaemons) -> None:
        self._daemons = daemons
        self.took_s: dict[str, list[float]] = {}
        self.leader, self.other = MASTERS

    def end_leader(self, how: str) -> None:
        """End the leader so, wait for the other one, and bring the first back as a standby."""
        daemons, leader = self._daemons, self.leader
        leaving = threading.Thread(target=lambda: daemons.stop(leader))
        match how:
            case "killed":
                daemons.kill(leader)
            case "stopped":
                daemons.freeze(leader)
            case "left":
                leaving.start()
        self.took_s.setdefault(how, []).append(daemons.taken_over_s(self.other))
        self._bring_back(how, leaving)

    def _bring_back(self, how: str, leaving: threading.Thread) -> None:
        daemons, leader = self._daemons, self.leader
        if how == STOP:
            daemons.thaw(leader)
            daemons.wait_for_failure(leader)
        if how == LEAVE:
            leaving.join()
        daemons.start_standby(leader)
        self.leader, self.other = self.other, leader


def run(daemons: PairDaemons, ways: list[str], chance: random.Random) -> None:
    """Load from the first takeover to the last, and the judgement."""
    promises = Promises(daemons.root / "promises")
    crowd = [Client(daemons, "", number, promises, SEED) for number in range(3)]
    takeovers = Takeovers(daemons)
    with daemons.up():
        daemons.start_standby()
        for client in crowd:
            client.start()
        try:
            for how in ways:
                time.sleep(chance.uniform(0.5, 2.0))
                takeovers.end_leader(how)
        finally:
            for client in crowd:
                client.stop()
            for client in crowd:
                client.join()
        for client in crowd:
            if client.failure is not None:
                raise client.failure
        found = drain(daemons)
    spans = {
        f"{how}_{name}_s": round(value, 2)
        for how, all_s in takeovers.took_s.items()
        for name, value in (("median", sorted(all_s)[len(all_s) // 2]), ("worst", max(all_s)))
    }
    proved("takeovers", takeovers=len(ways), seed=SEED, **spans, **found)
    assert found["accepted"] > 0
    assert found["more_than_one_attempt"] == 0


@pytest.mark.integration
@pytest.mark.long(
    "unit/master/leader/test_leader_lease.py",
    "integration/test_masters.py",
    "contract/test_lease_row.py",
)
def test_a_few_takeovers_lose_nothing(tmp_path: Path, site: PostgresSite) -> None:
    ways = [KILL, STOP, LEAVE][: times(2, 3)]
    daemons = PairDaemons(tmp_path, site.primary, ("n1", "n2"), asynchronous=False)
    run(daemons, ways, random.Random(SEED))


@pytest.mark.torture
def test_many_takeovers_lose_nothing(tmp_path: Path, site: PostgresSite) -> None:
    chance = random.Random(SEED)
    ways = [KILL, STOP] * (TAKEOVERS // 2)
    ways[8::10] = [LEAVE] * len(ways[8::10])
    chance.shuffle(ways)
    daemons = PairDaemons(tmp_path, site.primary, ("n1", "n2"), asynchronous=False)
    run(daemons, ways, chance)
