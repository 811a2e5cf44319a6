"""A planner and a twin that fail at every question: everybody is told, nobody waits, and it is said
when they are well.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_cli import exit_codes
from support.harness import Daemons
from support.ports import free_ports
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "fault/test_planner.py",
        "unit/master/control/forecast/test_twin_process.py",
    ),
]

# Before anything of ours is imported: the helpers end at once, for as long as the file is there.
BROKEN = """
import os, sys
if os.path.exists({flag!r}) and any(word in sys.orig_argv for word in {modules!r}):
    os._exit(3)
"""
HELPERS = ("dlq_master.planner.worker", "dlq_simulator.twin")


class Site:
    """A master whose helpers can be broken and mended, and one node with eight GPUs."""

    def __init__(self, root: Path) -> None:
        self.flag = root / "broken"
        self.flag.touch()
        patches = root / "patches"
        patches.mkdir()
        words = BROKEN.format(flag=str(self.flag), modules=HELPERS)
        (patches / "sitecustomize.py").write_text(words)
        (port,) = free_ports(1)
        self.metrics_url = f"http://127.0.0.1:{port}/metrics"
        self._listen = f'[listen]\nmetrics = "127.0.0.1:{port}"\n'
        self.daemons = Daemons(root, ("n1",), twin=True)
        self._root = root
        self._patches = str(patches)
        self._journal = root / "master.log"

    def start_master(self) -> None:
        """As under systemd: its output is the journal's."""
        config = self._root / "master.toml"
        config.write_text(config.read_text().replace("[listen]\n", self._listen))
        self._journal.touch()
        found = self._journal.stat()
        stream = f"{found.st_dev}:{found.st_ino}"
        self.daemons.start("master", PYTHONPATH=self._patches, JOURNAL_STREAM=stream)
        self.daemons.wait_for("master")

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(self.metrics_url) as answer:
            lines = answer.read().decode().splitlines()
        rows = [line.rpartition(" ") for line in lines if not line.startswith("#")]
        return {name: float(value) for name, _, value in rows}

    def is_well(self, helper: str) -> bool:
        return self.metrics()[f'dlq_helper_ok{{helper="{helper}"}}'] == 1

    def twin_fails(self) -> bool:
        """Seen by somebody that looks at the queue: else nobody asks it."""
        self.daemons.said("status")
        return not self.is_well("twin")

    def events(self, priority: int) -> list[str]:
        """What the master has said with this priority of the journal."""
        head = f"<{priority}>"
        lines = self.daemons.log("master").splitlines()
        return [json.loads(line[len(head) :])["event"] for line in lines if line.startswith(head)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("cluster"))
    with made.daemons.up():
        made.daemons.said("admin", "policy", "set", "-y", "dlq")
        made.daemons.kill("master")
        made.start_master()
        yield made


def submit(site: Site, *flags: str) -> tuple[str, ...]:
    return (
        "submit",
        "--parsable",
        "--gpus",
        "8",
        "-t",
        "1:00:00",
        *flags,
        "--",
        "/bin/sleep",
        "600",
    )


def test_whoever_asks_helpers_that_fail_is_told_at_once(site: Site) -> None:
    daemons = site.daemons
    deadline = ("--deadline", "2h", "--work", "5m")
    first = daemons.dlq(*submit(site, *deadline, "--wait-admission"))
    assert first.code == exit_codes.UNJUDGED
    assert "nobody judges deadlines, since the planning process fails (it ended)" in first.out
    daemons.said(*submit(site))
    wait_until(site.twin_fails, what="the twin fails", timeout_s=60.0)
    assert not site.is_well("planner")

    told = daemons.dlq("estimate", "1")
    assert "no forecast: the forecasting process fails: " in told.out
    compared = daemons.dlq("what-if", "--add-nodes", "1x8")
    assert compared.code != 0
    assert "the forecasting process fails: " in compared.err

    policy = daemons.said("admin", "policy", "show")
    assert "FAILING   planner fails: " in policy
    assert "FAILING   twin fails: " in policy
    doctor = json.loads(daemons.dlq("doctor", "--json").out)["verdicts"]
    found = {one["check"]: one for one in doctor}
    assert (found["planner"]["health"], found["twin"]["health"]) == ("fail", "fail")
    assert "journalctl" in found["planner"]["todo"]
    assert site.events(3).count("helper_failing") == 2


def test_helpers_that_answer_again_are_well_and_that_is_said(site: Site) -> None:
    os.unlink(site.flag)
    wait_until(lambda: site.is_well("planner"), what="the planner is well", timeout_s=120.0)
    wait_until(lambda: site.is_well("twin"), what="the twin is well", timeout_s=120.0)
    assert site.events(3).count("helper_recovered") == 2
    assert "FAILING" not in site.daemons.said("admin", "policy", "show")
    (job,) = json.loads(site.daemons.said("status", "--json", "1"))["jobs"]
    assert job["promise"]["state"] in ("guaranteed", "unguaranteed")
