"""Checks of nodes over real daemons: a planted slow disk is found, and its node is left alone."""

from __future__ import annotations

import getpass
import json
from pathlib import Path

import pytest

from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("unit/master/control/checks/test_control_checks.py"),
]

CHECKS = f"""
[checks]
user = "{getpass.getuser()}"
heed_load = false
work = "0s"
mib = 1

[checks.kinds]
disk = {{ limit = 0.000001, when = [] }}
matrix = {{ limit = 0.000001, when = [] }}
all_reduce = {{ limit = 0.000001, when = [] }}
"""


def results(said: str) -> list[tuple[str, str, str]]:
    """Node, check and result of each."""
    return [(one["node_id"], one["check"], one["result"]) for one in json.loads(said)["checks"]]


def test_a_planted_slow_disk_closes_its_node_until_it_is_repaired(tmp_path: Path) -> None:
    script = tmp_path / "devices"
    script.write_text("*|slow_disk|0\n")
    daemons = Daemons(tmp_path, ("n1", "n2"), settings=CHECKS)
    with daemons.up():
        daemons.stop("n1")
        config = tmp_path / "n1.toml"
        made = config.read_text().replace('"fake:8xH100-80GB"', f'"fake:8xH100-80GB@{script}"')
        config.write_text(made)
        daemons.start("n1")

        kinds = ("--kind", "disk", "--kind", "matrix")
        said = daemons.dlq("admin", "check", "run", "n1", "n2", *kinds, "--json")
        assert said.code == 1, said.err
        assert results(said.out) == [
            ("n1", "disk", "failed"),
            ("n2", "disk", "passed"),
            ("n1", "matrix", "passed"),
            ("n2", "matrix", "passed"),
        ]
        assert "check disk: 0 MB/s, limit 1e-06 MB/s" in daemons.said("admin", "node", "show", "n1")
        assert "quarantined" in daemons.said("nodes")
        job = daemons.said("submit", "--parsable", "--gpus", "8", "--", "sleep", "600").split()[-1]
        wait_until(lambda: "job_ran" in daemons.said("events", job), what="the job runs")
        assert "n2:" in daemons.said("events", job)
        busy = daemons.dlq("admin", "check", "run", "n2", "--kind", "disk")
        assert "node n2 is busy: it was not checked" in busy.err
        assert busy.code == 75
        assert daemons.dlq("admin", "check", "run", "n1", "--kind", "all_reduce").code == 2
        assert daemons.dlq("admin", "check", "history", "nope").code == 3
        daemons.said("cancel", job)
        wait_until(lambda: "job_cancelled" in daemons.said("events", job), what="it is over")

        script.write_text("")
        said = daemons.dlq("admin", "check", "run", "n1", "--kind", "disk")
        assert said.code == 0, said.err
        assert "quarantined" not in daemons.said("nodes")
        pair = daemons.dlq("admin", "check", "run", "n[1-2]", "--kind", "all_reduce", "--json")
        assert pair.code == 0, pair.err
        assert results(pair.out) == [("n1", "all_reduce", "passed"), ("n2", "all_reduce", "passed")]
        told = results(daemons.said("admin", "check", "history", "n1", "--json"))
        assert [result for _, check, result in told if check == "disk"] == ["failed", "passed"]
