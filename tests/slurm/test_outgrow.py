"""make slurm: dlq outgrows its own node into a real Slurm, and gives it back."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "demo"))

import processes
from cluster import BIN, Cluster, wait_until
from quick import STAYS, quick
from support.real_slurm import RealSlurm, missing

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(bool(missing()), reason=missing())]

STEPS = Path(__file__).resolve().parents[2] / "examples" / "jobs" / "steps.py"
POOLS = """
[[pools]]
name = "campus"
provider = "slurm"
pilot = "{agent}"
pilot_config = "{config}"
sbatch = ["--gres=gpu:8", "--output={root}/pilot-%j.log"]
gpu_type = "h100-80gb"
gpus = 8
price_per_hour = 36.0
boot = "20s"
leave = "20s"
most = 1

[renting]
allow_master_account = true
look_every = "2s"
"""
SILENCE = 'ttl = "6s"\nunreachable = "10s"'
PILOT = """
[node]
devices = "fake:8xH100-80GB"

[jobs]
allow_root = {root}
startup_grace = "3s"

[reconnect]
jitter = "1s"
longest = "1s"
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """A short path: sockets are there."""
    path = Path(tempfile.mkdtemp(prefix="dlq-slurm-"))
    path.chmod(0o755)
    yield path
    processes.kill_all(path)
    shutil.rmtree(path, ignore_errors=True)


class Outgrown:
    """The cluster beside a Slurm."""

    def __init__(self, cluster: Cluster, slurm: RealSlurm) -> None:
        self.cluster, self.slurm = cluster, slurm

    def submit(self, steps: int, *flags: str) -> str:
        words = (sys.executable, str(STEPS), "--steps", str(steps), "--seconds", "0.1")
        told = self.cluster.dlq("submit", "--json", "-D", "/tmp", "-G", "8", *flags, "--", *words)
        return str(json.loads(told)["jobs"][0]["job_id"])

    def job(self, job_id: str) -> dict[str, Any]:
        jobs = json.loads(self.cluster.dlq("status", "--since", "all", "--json"))["jobs"]
        return next(job for job in jobs if job["job_id"] == job_id)

    def machines(self) -> list[dict[str, Any]]:
        told = json.loads(self.cluster.dlq("admin", "pool", "show", "campus", "--json"))
        machines: list[dict[str, Any]] = told["pool"]["machines"]
        return machines

    def events(self) -> list[str]:
        return [one["kind"] for one in json.loads(self.cluster.dlq("events", "--json"))["events"]]

    def until_runs(self, job_id: str) -> None:
        wait_until(lambda: self.job(job_id)["state"] == "running", f"job {job_id} to run")


def test_dlq_outgrows_its_own_node_into_slurm_and_gives_it_back(root: Path) -> None:
    config = root / "pilot.toml"
    config.write_text(PILOT.format(root="true" if os.getuid() == 0 else "false"))
    pools = POOLS.format(agent=BIN / "dlq-nodeagent", config=config, root=root)
    settings = quick(pools, lease=SILENCE, settings=STAYS)
    (root / "slurm").mkdir()
    outgrowing = Cluster(root, settings=settings, nodes=("own-a",))
    outgrowing.client_environment["SLURM_CONF"] = str(root / "slurm" / "slurm.conf")
    with (
        RealSlurm(root / "slurm", 17_300 + os.getpid() % 500 * 2) as slurm,
        outgrowing as cluster,
    ):
        site = Outgrown(cluster, slurm)
        site.until_runs(site.submit(6000, "--work", "1h"))
        dear = site.submit(150, "--work", "20s", "--due", "40s", "--weight", "500")
        site.until_runs(dear)
        (machine,) = site.machines()
        assert slurm.jobs() == [machine["instance_id"]]
        assert site.job(dear)["nodes"] == [machine["node_id"]]

        # Slurm wants it back, and warns: the job saves, and goes on elsewhere.
        slurm.said("scancel", "--batch", "--signal=USR1", machine["instance_id"])
        wait_until(lambda: "machine_taken_back" in site.events(), "the pilot to announce it")
        wait_until(lambda: site.job(dear)["nodes"] != [machine["node_id"]], "the job to leave")
        assert "attempt_node_lost" not in site.events(), "it was asked to save"
        site.until_runs(dear)
        second = site.machines()[-1]
        assert second["machine_id"] != machine["machine_id"]

        # It is killed outright, and soon: its node is lost, it is not paid on, and its pool rests.
        for found in processes.belonging_to(root):
            if found.environment.get("SLURM_JOB_ID") == second["instance_id"]:
                processes.kill(found.pid)
        wait_until(lambda: site.machines()[1]["state"] == "failed", "the second to be gone")
        assert "lost" in site.machines()[1]["fault"]

        wait_until(lambda: site.job(dear)["state"] == "completed", "the job to end", patience_s=120)
        wait_until(lambda: not slurm.jobs(), "Slurm to have everything back")
        wait_until(
            lambda: all(one["state"] in ("away", "failed") for one in site.machines()),
            "all machines to be gone",
        )
        assert [one["state"] for one in site.machines()] == ["away", "failed", "away"]
