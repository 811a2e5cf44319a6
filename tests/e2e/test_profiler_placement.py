"""Jobs submitted without hints: their first start tells how they communicate, and the next are
placed by it.

Two agents in two network namespaces, joined by a link of 100 Mbit/s. One job sends for longer than
it computes, the other hardly at all; neither says so. On one node each their traffic is recorded.
Then the master is killed, and with one GPU free on each node the first waits to be kept together
and the second is spread; and what being spread costs is measured, on the second because it was
spread, on the first because somebody asks for two nodes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import job_pb2, job_service_pb2
from dlq_client.jobs import Jobs
from dlq_profiler.injection import built
from support.shaped_cluster import ShapedCluster
from support.shaped_link import why_no_links
from support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.netns]

MEGABITS = 100
SETTINGS = f"""
[scheduler.settings]
place = "skew"

[profiler]
window = "6s"
link_gbits = {MEGABITS / 1000}
"""
JOB = Path(__file__).parents[1] / "support" / "ring_job.py"
# Megabytes that an iteration exchanges, and seconds that it computes.
HEAVY, LIGHT = ("2", "0.1"), ("0.02", "0.2")
ITERATIONS = 60
TOLERATED = 1.05
# What a busy host adds to short iterations.
SLACK = 0.15
PATIENCE_S = 90.0


class Site:
    """The cluster, and what its jobs say of themselves."""

    def __init__(self, daemons: ShapedCluster, jobs: Jobs) -> None:
        self._daemons, self._jobs = daemons, jobs

    def train(self, what: tuple[str, str], *, nodes: int | None = None) -> str:
        """Two ranks; on few nodes or many as the scheduler thinks, unless a number is named."""
        spec = job_pb2.JobSpec(
            name="train",
            command=[
                sys.executable, "-S", str(JOB), str(self._daemons.root), *what, str(ITERATIONS)
            ],
            working_directory=str(self._daemons.root),
            launch="per-gpu",
        )  # fmt: skip
        spec.resources.gpu_count = 2
        if nodes is not None:
            spec.resources.node_count = nodes
        return self._jobs.submit(spec).job.job_id

    def occupy(self, node: str) -> str:
        """One GPU of this node, until it is cancelled."""
        spec = self._daemons.ledger_job(3600.0, 0)
        spec.resources.node_ids.append(node)
        job_id = self._jobs.submit(spec).job.job_id
        wait_until(lambda: self.nodes(job_id), what=f"{node} is occupied", timeout_s=PATIENCE_S)
        return job_id

    def get(self, job_id: str) -> job_service_pb2.GetJobResponse:
        return self._jobs.get(job_id)

    def nodes(self, job_id: str) -> list[str]:
        return list(self.get(job_id).job.node_ids)

    def placed(self, job_id: str) -> list[str]:
        """Its nodes, once it has some."""
        return wait_until(lambda: self.nodes(job_id), what="it is placed", timeout_s=PATIENCE_S)

    def end(self, job_id: str) -> None:
        """Until it has completed."""
        wait_until(
            lambda: self.get(job_id).job.HasField("end_time"), what="it ends", timeout_s=PATIENCE_S
        )
        assert self.get(job_id).job.state == job_pb2.JOB_STATE_COMPLETED, self.said("show", job_id)

    def told(self, job_id: str) -> None:
        """Until all its nodes have told of its traffic."""
        wait_until(
            lambda: [
                start for start in self.get(job_id).traffic.starts if start.HasField("found_time")
            ],
            what=f"the nodes of job {job_id} tell",
            timeout_s=PATIENCE_S,
        )

    def period_s(self, job_id: str) -> float:
        """As the job itself measured it."""
        path = self._daemons.root / f"{job_id}.1.json"
        return float(json.loads(path.read_text())["period_s"])

    def belief(self, job_id: str) -> dict[str, Any]:
        """As `dlq show` tells it."""
        found: dict[str, Any] = self.facts("show", job_id)["jobs"][0]["traffic"]["belief"]
        return found

    def kill_master(self) -> None:
        """What it has learned is on disk."""
        self._daemons.kill("master")
        self._daemons.start("master")
        self._daemons.wait_for("master")

    def cancel(self, job_id: str) -> None:
        self._jobs.cancel(job_id, kill=True)

    def said(self, *words: str) -> str:
        return self._daemons.said(*words)

    def facts(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.said(*words, "--json"))
        return answer


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    if missing := why_no_links():
        pytest.skip(missing)
    if built() is None:
        pytest.skip("the profiler's library was not built")
    cluster = ShapedCluster(tmp_path, MEGABITS, settings=SETTINGS)
    with cluster.up(), cluster.connect() as line:
        yield Site(cluster, Jobs(line))


def test_who_would_suffer_is_kept_together_who_would_not_is_spread_and_measures_agree(
    site: Site,
) -> None:
    first = {what: site.train(what) for what in (HEAVY, LIGHT)}
    for job_id in first.values():
        assert len(site.placed(job_id)) == 1, "nobody knows it: it is kept together"
        site.end(job_id)
        site.told(job_id)

    site.kill_master()
    taken = [site.occupy("n1"), site.occupy("n2")]
    heavy, light = site.train(HEAVY), site.train(LIGHT)
    assert sorted(site.placed(light)) == ["n1", "n2"]
    assert site.nodes(heavy) == []
    assert "placement: on few nodes: it would communicate" in site.said("why", heavy)
    site.end(light)
    site.told(light)
    assert site.nodes(heavy) == [], "two GPUs are free, on two nodes"
    for job_id in taken:
        site.cancel(job_id)
    assert len(site.placed(heavy)) == 1
    site.end(heavy)

    spread = site.train(HEAVY, nodes=2)
    site.end(spread)
    site.told(spread)
    confirm(site, heavy=(first[HEAVY], spread), light=(first[LIGHT], light))


def confirm(site: Site, *, heavy: tuple[str, str], light: tuple[str, str]) -> None:
    """The slowdowns: by the jobs' own clocks, as measured by their traffic, and as the first start
    foretold.
    """
    found = {}
    for name, (together, spread) in {"heavy": heavy, "light": light}.items():
        own = site.period_s(spread) / site.period_s(together)
        rho, measured = site.belief(together)["rho"], site.belief(spread)["slowdown"]
        print(f"{name}: {own:.2f} by its clock, {measured:.2f} measured, rho {rho:.3f}")  # noqa: T201 - a figure of the run
        assert measured == pytest.approx(own, rel=SLACK)
        assert max(1.0, rho) * (1 - SLACK) <= own <= (1 + rho) * (1 + SLACK)
        found[name] = own, rho
    assert found["heavy"][0] > 1.5
    assert found["light"][0] < 1 + SLACK
    assert found["heavy"][1] > TOLERATED, "whatever overlaps, it suffers"
    assert found["light"][1] < TOLERATED - 1, "even if nothing overlaps, it does not"

    assert "times as long" in site.said("show", heavy[1])
    profile = site.facts("profile", "show", heavy[0])
    assert profile["attempt"] == f"{heavy[0]}.1"
    assert profile["bytes_per_iteration"] == pytest.approx(float(HEAVY[0]) * 1e6, rel=0.01)
