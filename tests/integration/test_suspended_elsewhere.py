"""Real daemons and processes: a suspended job comes back to other GPUs, and the end of one does not
wait for the job on its GPUs. Agent and master are killed meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.support.living import Living

from support.waiting import wait_until

pytestmark = pytest.mark.long("fault/test_suspension_kills.py")

DEVICES = "fake:4xH100-80GB"
AGENT = '[suspend]\nmemory = "8GiB"\nspare = "1MiB"\n[jobs]\nruntime = "process"\n'
TICKS = "i=0; while :; do i=$((i+1)); echo $i > {}; sleep 0.05; done"


class Site:
    """One node with four virtual GPUs."""

    def __init__(self, living: Living) -> None:
        self.living = living
        self._start_agent()

    def submit(self, *words: str) -> str:
        return self.living.run("dlq", "submit", "--parsable", "--gpus=2", *words).strip()

    def job(self, job_id: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.living.run("dlq", "show", job_id, "--json"))
        found: dict[str, Any] = told["jobs"][0]
        return found

    def until(self, job_id: str, state: str) -> None:
        wait_until(lambda: self.job(job_id)["state"] == state, what=f"{job_id} is {state}")

    def out(self, job_id: str) -> None:
        self.living.run("dlq", "pause", "--in-memory", job_id)
        is_out = lambda: (self.job(job_id).get("suspension") or {}).get("phase") == "out"  # noqa: E731
        wait_until(is_out, what="it is off its GPUs")

    def gpus_of(self, job_id: str) -> list[int]:
        told = json.loads(self.living.run("dlq", "gpus", "--json"))["gpus"]
        return [gpu["index"] for gpu in told if gpu.get("job_id") == job_id]

    def kill_agent(self) -> None:
        self.agent.send_signal(signal.SIGKILL)
        self.agent.wait()
        self._again()

    def kill_master(self) -> None:
        self.living.master.send_signal(signal.SIGKILL)
        self.living.master.wait()
        self.living.master = self.living.start_master()

    def _start_agent(self) -> None:
        self.agent = self.living.start_agent("n1", DEVICES, AGENT)

    def _again(self) -> None:
        state_dir = str(self.living.root / "n1")
        self.agent = self.living._start(
            "dlq-nodeagent", "run", "--config", str(self.living.root / "n1.toml"),
            "--state-dir", state_dir, "--devices", DEVICES,
            *(["--allow-root-jobs"] if os.geteuid() == 0 else []),
        )  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Living(tmp_path) as living:
        living.run("dlq", "login")
        yield Site(living)


def ticks(site: Site, name: str) -> tuple[str, Path]:
    at = site.living.root / name
    return site.submit("--", "/bin/sh", "-c", TICKS.format(at)), at


def test_a_job_comes_back_to_other_gpus_though_its_agent_and_master_are_killed(site: Site) -> None:
    job_id, at = ticks(site, "ticks")
    wait_until(at.exists, what="it runs")
    before = site.gpus_of(job_id)
    site.out(job_id)
    guest = site.submit("--", "/bin/sleep", "1000")
    site.until(guest, "running")
    assert site.gpus_of(guest) == before
    site.kill_agent()
    site.kill_master()
    still = at.read_text()
    site.living.run("dlq", "resume", job_id)
    site.kill_agent()
    site.until(job_id, "running")
    wait_until(lambda: at.read_text() not in ("", still), what="it goes on")
    assert int(at.read_text()) > int(still), "the same process"
    assert site.job(job_id)["attempt_count"] == 1
    assert site.job(guest)["state"] == "running"
    assert set(site.gpus_of(job_id)) == {0, 1, 2, 3} - set(before)
    assert "to others: n1: 2+3" in site.living.run("dlq", "events", job_id)


def test_the_end_of_a_suspended_job_takes_no_gpu_from_the_one_on_its_gpus(site: Site) -> None:
    job_id, at = ticks(site, "ticks")
    wait_until(at.exists, what="it runs")
    site.out(job_id)
    guest = site.submit("--", "/bin/sleep", "1000")
    site.until(guest, "running")
    site.kill_agent()
    site.living.run("dlq", "cancel", job_id)
    site.until(job_id, "cancelled")
    told = json.loads(site.living.run("dlq", "gpus", "--json"))["gpus"]
    assert "withheld" not in {gpu["state"] for gpu in told}
    assert site.job(guest)["state"] == "running"
