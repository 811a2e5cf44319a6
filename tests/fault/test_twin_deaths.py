"""The twin of a real master: killed, stopped and lost with its master, while jobs go on."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/control/forecast/test_twin_process.py",
    ),
]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master that foresees, and one node with eight virtual GPUs."""
    made = Daemons(tmp_path_factory.mktemp("cluster"), ("n1",), twin=True)
    with made.up():
        yield made


def submit(daemons: Daemons, *flags: str) -> str:
    words = ("submit", "--parsable", "--gpus", "8", *flags, "--", "/bin/sleep", "600")
    return daemons.said(*words).strip()


def job(daemons: Daemons, job_id: str) -> dict[str, Any]:
    (found,) = json.loads(daemons.said("status", "--json", job_id))["jobs"]
    return dict(found)


def foreseen(daemons: Daemons, job_id: str) -> Any:
    return job(daemons, job_id)["start_estimate"]


def pids(daemons: Daemons) -> list[int]:
    """Of all twins that were ever started, by the master's log."""
    lines = [line for line in daemons.log("master").splitlines() if '"twin_started"' in line]
    return [json.loads(line)["pid"] for line in lines]


def alive(pid: int) -> bool:
    try:
        return "dlq_simulator.twin" in Path(f"/proc/{pid}/cmdline").read_text()
    except FileNotFoundError:
        return False


def test_nobody_misses_a_twin_that_dies(daemons: Daemons) -> None:
    runs = submit(daemons, "-t", "1:00:00")
    wait_until(lambda: job(daemons, runs)["state"] == "running", what="it runs")
    waits = submit(daemons, "-t", "2:00:00")
    wait_until(lambda: foreseen(daemons, waits), what="a start is foreseen")
    told = json.loads(daemons.said("estimate", "--json", waits))
    assert told["missing"] is None
    assert told["start"]["likely_time"] < told["end"]["likely_time"]
    new = daemons.said("estimate", "--gpus", "8", "-t", "1:00:00", "--", "true")
    assert "if it were submitted now" in new
    assert "≈" in new

    (first,) = pids(daemons)
    usual = os.getpriority(os.PRIO_PROCESS, os.getpid())
    assert os.getpriority(os.PRIO_PROCESS, first) == min(19, usual + 10)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not alive(first), what="the twin is gone")
    assert job(daemons, runs)["state"] == "running"
    later = submit(daemons)
    wait_until(lambda: foreseen(daemons, later), what="another twin foresees", timeout_s=60.0)

    second = pids(daemons)[-1]
    os.kill(second, signal.SIGSTOP)
    assert job(daemons, waits)["start_estimate"]
    last = submit(daemons)  # accepted, although nobody can say when it will start
    assert daemons.said("cancel", last, later)
    assert job(daemons, last)["state"] == "cancelled"
    os.kill(second, signal.SIGCONT)

    daemons.kill("master")
    wait_until(lambda: not alive(second), what="its twin ends with the master")
    daemons.start("master")
    daemons.wait_for("master")
    wait_until(lambda: foreseen(daemons, waits), what="it is foreseen again", timeout_s=60.0)
    compared = json.loads(daemons.said("what-if", "--json", "--add-nodes", "1x8"))
    (one,) = compared["starts"]
    assert one["other_start"]["likely_time"] < one["start"]["likely_time"]
    assert json.loads(daemons.said("admin", "estimates", "--json"))["estimate_count"] == 1
    daemons.said("cancel", runs, waits)
