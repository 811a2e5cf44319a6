"""Two masters on three PostgreSQL servers, under load. The leader is killed, stopped, told to leave
or cut off. The primary dies, fills its disk, or ends a commit that waits, and a server that has
lost commits is promoted. Nothing acknowledged is lost, no job notices, and what a user has read at
one leader the next one says too.

A short run is part of `make test-rest`; `make ha TAKEOVERS=200 SEED=1` is the long one.
"""

import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import pytest

from support.extent import some
from support.ledger_clients import Client, Promises, at_work, drain
from support.lined_pair import LinedPair
from support.proofs import proved
from support.rotating_site import RotatingSite, rotating_site
from support.seen_reads import Reading
from support.takeover_faults import FAULTS, Takeovers

TAKEOVERS = int(os.environ.get("TAKEOVERS", "200"))
SEED = int(os.environ.get("SEED", "1"))
ONLY = os.environ.get("FAULTS", "").split()
# Of each hundred takeovers.
SHARES = {
    "killed": 30, "stopped": 22, "left": 10, "half_open": 8, "failover": 12, "wait_ended": 8,
    "lagging": 5, "full_disk": 5,
}  # fmt: skip
AGENTS = ("n1", "n2")


@pytest.fixture
def site() -> Iterator[RotatingSite]:
    with rotating_site() as made:
        yield made


def drawn(count: int, chance: random.Random, *, disks: bool) -> list[str]:
    """So many faults: each kind once at first, if there is room for all, then by their shares."""
    kinds = [name for name in ONLY or SHARES if disks or name != "full_disk"]
    first = kinds if count >= len(kinds) else chance.sample(kinds, count)
    shares = [SHARES[name] for name in kinds]
    faults = [*first, *chance.choices(kinds, shares, k=count - len(first))]
    chance.shuffle(faults)
    return faults


def run(root: Path, site: RotatingSite, faults: Sequence[str], chance: random.Random) -> None:
    """Load from the first takeover to the last, and the judgement."""
    daemons = LinedPair(root, site.servers, AGENTS)
    promises = Promises(root / "promises")
    # A long run must not end with a long queue.
    crowd = [
        Client(daemons, "", number, promises, SEED, pauses_s=(0.3, 1.2)) for number in range(3)
    ]
    takeovers, reading = Takeovers(daemons, site, chance), Reading(daemons, SEED)
    with daemons.up():
        daemons.start_standby()
        with at_work([*crowd, reading]):
            for fault in faults:
                time.sleep(chance.uniform(0.3, 1.5))
                takeovers.befall(fault)
        assert reading.seen.wrongs == []
        found = drain(daemons)
    for fault, took_s in sorted(takeovers.took_s.items()):
        proved(
            "takeovers",
            fault=fault.replace("_", " "),
            times=len(took_s),
            median_s=round(median(took_s), 2),
            worst_s=round(max(took_s), 2),
        )
    proved(
        "takeovers", takeovers=len(faults), seed=SEED, refused=takeovers.refused,
        reads=reading.seen.answers, reads_that_went_back=0, **found,
    )  # fmt: skip
    assert found["accepted"] > 0
    assert found["more_than_one_attempt"] == 0


@pytest.mark.integration
@pytest.mark.long(
    "unit/master/leader/test_leader_lease.py",
    "integration/test_masters.py",
    "contract/test_lease_row.py",
)
def test_a_few_takeovers_lose_nothing(tmp_path: Path, site: RotatingSite) -> None:
    run(tmp_path, site, some([*FAULTS], 2), random.Random(SEED))


@pytest.mark.torture
def test_many_takeovers_lose_nothing(tmp_path: Path, site: RotatingSite) -> None:
    chance = random.Random(SEED)
    run(tmp_path, site, drawn(TAKEOVERS, chance, disks=site.can_fill), chance)
