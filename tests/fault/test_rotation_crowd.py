"""The CA changes under many agents, each with a running job. No job is lost, and all agents come
back. `make prove ONLY=rotation` has a thousand of them in its full form.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_client.line.identity import save_identity
from dlq_client.login import renew
from dlq_master.serving import read_authority
from dlq_master.store.batch import Batch
from dlq_master.store.rows import write_batch
from dlq_master.store.sqlite.open import open_database, write
from support.following_agents import FollowingCrowd, joined
from support.harness import Daemons
from support.proofs import proved

AGENTS = int(os.environ.get("AGENTS", "50"))
PATIENCE_S = 400.0
JITTER_S = 5.0
# More beats than in production would be work for two cores alone.
BEATS = {"DLQ_LEASE__HEARTBEAT": "5s"}


class CrowdDaemons(Daemons):
    """A master that knows nodes whose agents are not there yet."""

    def __init__(self, root: Path, count: int) -> None:
        super().__init__(root, (), settings=f"queued_per_user = {2 * count + 100}\n")
        self._count = count

    def _make_master(self) -> None:
        super()._make_master()
        db = open_database(self.root / "master" / "dlq.db")
        with write(db):
            write_batch(db, Batch(nodes=joined(self._count)))
        db.close()

    def start(self, name: str, **env: str) -> None:
        super().start(name, **BEATS, **env)


async def until(look: Callable[[], bool], what: str) -> None:
    """Look until it is so; the agents go on meanwhile."""
    end_s = time.monotonic() + PATIENCE_S
    while not await asyncio.to_thread(look):
        assert time.monotonic() < end_s, f"never: {what}"
        await asyncio.sleep(0.2)


def standing(daemons: Daemons) -> Counter[str]:
    """The nodes by their part in the change of the CA."""
    told: dict[str, Any] = json.loads(daemons.said("admin", "ca", "status", "--json"))
    return Counter(one["state"] for one in told["authority"]["members"] if one["kind"] == "node")


def log_in_anew(daemons: Daemons) -> None:
    with daemons.connect() as line:
        save_identity(daemons.root / "home", renew(line))


def submit(daemons: Daemons, count: int) -> None:
    spec = job_pb2.JobSpec(command=["/bin/true"], working_directory="/tmp")
    spec.resources.gpu_count = 1
    with daemons.connect() as line:
        jobs = Jobs(line)
        for done in range(0, count, 100):
            jobs.submit_many([spec] * min(100, count - done))


def running(daemons: Daemons) -> int:
    with daemons.connect() as line:
        found = Jobs(line).list(user="*").jobs
    return sum(job.attempt_state == job_pb2.ATTEMPT_STATE_RUNNING for job in found)


async def rotate(daemons: Daemons, count: int) -> dict[str, float]:
    authority = read_authority(daemons.root / "master", "torture")
    crowd = FollowingCrowd(daemons.api, authority, count, JITTER_S)
    crowd.start()
    try:
        await until(lambda: crowd.connected == count, "all agents have a session")
        await asyncio.to_thread(submit, daemons, count)
        await until(lambda: running(daemons) == count, "each agent has a job")
        began_s = time.monotonic()
        await asyncio.to_thread(daemons.said, "admin", "ca", "rotate", "-y")
        await asyncio.to_thread(log_in_anew, daemons)
        await until(lambda: standing(daemons) == {"follows": count}, "all agents follow")
        followed_s = time.monotonic() - began_s
        await until(
            lambda: daemons.dlq("admin", "ca", "finish", "-y").code == 0, "nobody uses the former"
        )
        await asyncio.to_thread(log_in_anew, daemons)
        await until(
            lambda: len(crowd.trusting(1)) == crowd.connected == count,
            "all agents have forgotten the former root, and are back",
        )
        assert await asyncio.to_thread(running, daemons) == count
        took_s = time.monotonic() - began_s
        return {**crowd.told, "followed_s": round(followed_s), "whole_change_s": round(took_s)}
    finally:
        await crowd.close()


@pytest.mark.torture
def test_the_ca_changes_under_many_agents_and_no_job_is_lost(tmp_path: Path) -> None:
    daemons = CrowdDaemons(tmp_path, AGENTS)
    with daemons.up():
        told = asyncio.run(rotate(daemons, AGENTS))
        with daemons.connect() as line:
            jobs = Jobs(line)
            attempts = Counter(
                len(jobs.get(job.job_id).attempts) for job in jobs.list(user="*").jobs
            )
        events = daemons.said("events", "--type", "node_*")
    assert attempts == {1: AGENTS}
    lost = sum(events.count(word) for word in ("node_vanished", "node_lost", "node_missed"))
    assert lost == 0
    proved("rotation of the CA", agents=AGENTS, jobs=AGENTS, jobs_lost=0, nodes_down=0, **told)
