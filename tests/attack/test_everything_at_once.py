"""Kills, freezes, cut lines, forged messages and jobs that mean harm, all at once: what was
acknowledged is done once.

Alice's jobs write a ledger of their own; a program that knows nothing of the product compares it
with what she was promised and with what the master says (tests/support/ledger_check.py).
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from threading import Event

import pytest

from attack.calling import fuzzed, seeds, told
from attack.extent import SEED, seconds
from attack.hostile import HostileUser, harm_done, left_running
from attack.site import EVIL, PEOPLE, SEVERAL_USERS, AttackedSite, attacked_site
from attack.test_messages import fuzzers
from dlq.v1 import node_pb2
from dlq_client.jobs import Jobs
from dlq_client.nodes import Nodes
from dlq_common.identity.pki import Role
from support.ledger_clients import drain, load
from support.proofs import proved
from support.waiting import wait_until

pytestmark = [
    pytest.mark.attack,
    pytest.mark.skipif(not SEVERAL_USERS, reason="only root starts jobs of several users"),
]

CALM_S = 120.0  # what a cluster may take to find its way back


def test_nothing_is_lost_nothing_runs_twice_and_no_wall_falls() -> None:
    seed, fuzz, jobs_seed = seeds(SEED, 3)
    chance = random.Random(seed)
    with attacked_site(SEED) as site:
        mallory = HostileUser(site, jobs_seed)
        crowd = fuzzers(
            site, {"mallory": PEOPLE["mallory"], EVIL: Role.NODE}, fuzz, ["1", "2", "3", "4", "5"]
        )
        freezes = 0
        with load(site, SEED) as proxy, fuzzed(crowd):
            mallory.start()
            try:
                freezes = trouble(site, chance, time.monotonic() + seconds(0.45))
            finally:
                mallory.stop()
                mallory.join()
        if mallory.failure is not None:
            raise mallory.failure
        back(site)
        end_all(site, "mallory")
        found = drain(site)
        wait_until(
            lambda: not left_running(), what="mallory's processes are gone", timeout_s=CALM_S
        )
        kills = site.kills
        scripts = Counter(mallory.submitted.values())
        print(  # noqa: T201 - the figures of the run
            f"\neverything at once, seed {SEED}: kills of the master {kills['master']}, of agents"
            f" {sum(kills.values()) - kills['master']}; freezes {freezes}; replies "
            f"{proxy.replies}, lost {proxy.cuts};"
            f" hostile jobs {sum(scripts.values())} of {len(scripts)} kinds; "
            f"{json.dumps(found)}\n{told(crowd)}"
        )
        assert found["accepted"] > 0
        assert found["more_than_one_attempt"] == 0
        assert harm_done(site) == []
        assert [wrong for one in crowd for wrong in one.wrongs if "secret" in wrong] == []
        assert site.wrongs() == []
        proved(
            "everything at once",
            seed=SEED,
            kills=sum(kills.values()),
            freezes=freezes,
            hostile_jobs=sum(scripts.values()),
            most_kinds_of_them=len(scripts),
            forged_calls=sum(sum(one.codes.values()) for one in crowd),
            walls_fallen=0,
            **found,
        )


def trouble(site: AttackedSite, chance: random.Random, until_s: float) -> int:
    """Kills and freezes at random moments until then; how many freezes there were."""
    pause, freezes = Event(), 0
    while time.monotonic() < until_s:
        victim = chance.choice(["master", "master", *site.agents])
        pause.wait(chance.uniform(0.2, 5.0))
        if chance.random() < 0.25:
            site.freeze(victim)
            pause.wait(chance.uniform(0.1, 3.0))
            site.thaw(victim)
            freezes += 1
            continue
        site.kill(victim)
        pause.wait(chance.uniform(0.0, 1.0))
        site.start(victim)
        if chance.random() < 0.7:
            site.wait_for(victim)
    return freezes


def back(site: AttackedSite) -> None:
    """Every daemon serves, every node is up and takes work."""
    for name in ("master", *site.agents):
        site.wait_for(name)
    with site.connect() as line:
        nodes = Nodes(line)

        def fine() -> bool:
            seen = {node.node_id: node for node in nodes.list()}
            return all(
                seen[name].state == node_pb2.NODE_STATE_UP and not seen[name].flags
                for name in site.agents
            )

        wait_until(fine, what="every node is up and takes work", timeout_s=CALM_S)


def end_all(site: AttackedSite, user: str) -> None:
    """Cancel whatever they still have."""
    with site.connect() as line:
        jobs = Jobs(line)
        for job in jobs.list(user=user).jobs:
            if not job.HasField("end_time"):
                jobs.cancel(job.job_id, kill=True)
