"""Half of the nodes fall silent at once, or one for longer than its hold.

Half at once is likelier the master's own line: nothing is queued again while they are silent. One
node alone is lost after its hold and the margin. `make prove ONLY=silences` cuts many lines.
"""

import math
import os
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dlq.v1 import job_pb2, node_pb2
from dlq_client.jobs import Jobs
from dlq_client.nodes import Nodes
from dlq_nodeagent.shim.contact import ContactFile
from support.parted_daemons import PartedDaemons
from support.proofs import proved
from support.waiting import wait_until

CUTS = int(os.environ.get("CUTS", "2"))
SEED = int(os.environ.get("SEED", "1"))
LONGEST_S = float(os.environ.get("LONGEST_S", "60"))
AGENTS = ("n1", "n2", "n3", "n4", "n5", "n6")
HOLD_S, MARGIN_S = 10, 5
PATIENCE_S = 120.0
RUNNING = job_pb2.ATTEMPT_STATE_RUNNING
UNTIL_TOLD = "exec sleep 100000"


@dataclass
class Silences:
    """The nodes of a cluster, their long jobs, and the figures so far."""

    daemons: PartedDaemons
    jobs: Jobs
    nodes: Nodes
    figures: dict[str, list[float]] = field(default_factory=dict)

    def occupy(self) -> None:
        """A job of the whole node on each node that has none, so that each has its own."""
        for job in self.living():
            if job.attempt_state != RUNNING:
                self.jobs.cancel(job.job_id)
        for _ in range(len(AGENTS) - len(self.running())):
            spec = job_pb2.JobSpec(command=["/bin/sh", "-c", UNTIL_TOLD], working_directory="/tmp")
            spec.resources.gpu_count = 8
            self.jobs.submit(spec)
        wait_until(lambda: len(self.running()) == len(AGENTS), what="all run", timeout_s=PATIENCE_S)

    def living(self) -> Sequence[job_pb2.Job]:
        """Jobs that have not ended."""
        return [job for job in self.jobs.list(user="*").jobs if not job.HasField("end_time")]

    def running(self) -> dict[str, str]:
        """The node of each running job."""
        return {
            job.job_id: job.node_ids[0] for job in self.living() if job.attempt_state == RUNNING
        }

    def attempts(self) -> dict[str, int]:
        """So many attempts each living job has had."""
        return {job.job_id: len(self.jobs.get(job.job_id).attempts) for job in self.living()}

    def silent(self, names: Sequence[str]) -> bool:
        """Whether exactly these nodes are not up."""
        up = {node.node_id for node in self.nodes.list() if node.state == node_pb2.NODE_STATE_UP}
        return {*AGENTS} - up == {*names}

    def heal(self, names: Sequence[str], *, running: int) -> None:
        """Let them speak; wait until each of them is up and so many jobs run."""
        began_s, healed_s = time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)
        self.daemons.heal(names)
        wait_until(
            lambda: self.silent(()) and len(self.running()) >= running,
            what=f"all nodes are up and {running} jobs run",
            timeout_s=PATIENCE_S,
        )
        self.figures.setdefault("healed", []).append(time.monotonic() - began_s)
        # A hold counts from the last answered heartbeat, and a greeting is none.
        wait_until(
            lambda: all(self.contact_s(name) > healed_s for name in names),
            what="heartbeats are answered",
        )

    def contact_s(self, name: str) -> float:
        """The last contact of an agent on CLOCK_BOOTTIME, as the guards of its jobs read it."""
        return ContactFile(self.daemons.root / name / "contact").boottime_s() or 0.0

    def end(self) -> None:
        for job in self.living():
            self.jobs.cancel(job.job_id)


def cut_half(silences: Silences, lasts_s: float, chance: random.Random, *, running: int) -> None:
    """Half of the nodes, for so long. No job of theirs has another attempt while they are cut."""
    half = chance.sample(AGENTS, len(AGENTS) // 2)
    before = silences.attempts()
    silences.daemons.cut(half)
    wait_until(lambda: silences.silent(half), what="the half is silent", timeout_s=PATIENCE_S)
    threading.Event().wait(lasts_s)
    assert silences.attempts() == before, "a job was queued again while half of the nodes were cut"
    silences.heal(half, running=running)


def cut_one(silences: Silences, chance: random.Random) -> None:
    """One node, until the master has taken the attempt of its job for lost."""
    job_id, name = chance.choice(sorted(silences.running().items()))
    before = silences.attempts()[job_id]
    began_s = time.monotonic()
    silences.daemons.cut([name])
    wait_until(
        lambda: lost(silences.jobs, job_id, before),
        what=f"job {job_id} is lost",
        timeout_s=PATIENCE_S,
    )
    silences.figures.setdefault("requeued", []).append(time.monotonic() - began_s - HOLD_S)
    silences.heal([name], running=len(AGENTS) - 1)


def lost(jobs: Jobs, job_id: str, attempt: int) -> bool:
    """Whether this attempt has ended for the master."""
    return jobs.get(job_id).attempts[attempt - 1].HasField("end_time")


@pytest.mark.torture
def test_half_of_the_nodes_cut_within_their_hold_requeue_nothing(tmp_path: Path) -> None:
    # A job is told to save while its hold has `grace` left: 60 s.
    daemons = PartedDaemons(tmp_path, AGENTS, hold_s=60 + 2 * math.ceil(LONGEST_S))
    chance = random.Random(SEED)
    with daemons.up(), daemons.connect() as line:
        silences = Silences(daemons, Jobs(line), Nodes(line))
        silences.occupy()
        for number in range(CUTS):
            cut_half(silences, chance.uniform(1.0, LONGEST_S), chance, running=len(AGENTS))
            assert set(silences.attempts().values()) == {1}, f"cut {number} queued a job again"
        silences.end()
    healed = silences.figures["healed"]
    proved("half cut within the hold", cuts=len(healed), longest_s=LONGEST_S, jobs=len(AGENTS),
           requeues=0, self_heal_worst_s=round(max(healed), 1))  # fmt: skip


@pytest.mark.torture
def test_beyond_the_hold_one_node_is_lost_in_time_and_half_of_them_is_not(tmp_path: Path) -> None:
    lease = f'hold_margin = "{MARGIN_S}s"'
    daemons = PartedDaemons(tmp_path, AGENTS, hold_s=HOLD_S, lease=lease)
    chance = random.Random(SEED)
    with daemons.up(), daemons.connect() as line:
        silences = Silences(daemons, Jobs(line), Nodes(line))
        silences.occupy()
        for _ in range(CUTS):
            cut_one(silences, chance)
            silences.occupy()
            cut_half(silences, HOLD_S + MARGIN_S + 5.0, chance, running=len(AGENTS) // 2)
            silences.occupy()
        assert daemons.said("events").count("requeues_frozen") == CUTS
        silences.end()
    requeued, healed = silences.figures["requeued"], silences.figures["healed"]
    proved("cut beyond the hold", cuts_of_one=CUTS, cuts_of_half=CUTS, hold_s=HOLD_S,
           requeued_after_hold_least_s=round(min(requeued), 1),
           requeued_after_hold_worst_s=round(max(requeued), 1),
           requeues_while_half_is_cut=0, self_heal_worst_s=round(max(healed), 1))  # fmt: skip
