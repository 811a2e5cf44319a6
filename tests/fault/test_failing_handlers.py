"""A handler with a fault: what it fails on is put aside, and everybody else is served. Real
daemons.
"""

import json
import os
import pwd
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_client.nodes import Nodes
from dlq_common.errors import DlqError
from support.harness import BRIEF_SILENCE_S, Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/control/loop/test_control_incidents.py",
    ),
]


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    with Daemons(tmp_path, ("n1", "n2"), silence_s=BRIEF_SILENCE_S).up() as made:
        yield made


def fail_on(daemons: Daemons, what: str) -> None:
    """Restart the master; it fails on every such stimulus from now on. Empty: on none."""
    config = daemons.root / "master.toml"
    text = re.sub(r"\n\[debug\]\nfailpoint = .*\n", "", config.read_text())
    text = text.replace('start_grace = "30s"', 'start_grace = "2s"')
    config.write_text(text + (f'\n[debug]\nfailpoint = "raise@{what}"\n' if what else ""))
    daemons.kill("master")
    daemons.start("master")
    daemons.wait_for("master")


def is_up(daemons: Daemons, name: str) -> bool:
    with daemons.connect() as line:
        states = {node.node_id: node.state for node in Nodes(line).list()}
    return int(states[name]) == 1


def completes(daemons: Daemons, jobs: Jobs) -> bool:
    job_id = jobs.submit(daemons.ledger_job(0.1, 0)).job.job_id
    wait_until(
        lambda: jobs.get(job_id).job.state == job_pb2.JOB_STATE_COMPLETED,
        what=f"{job_id} completes",
    )
    return True


def incidents(daemons: Daemons) -> list[Path]:
    return sorted((daemons.root / "master" / "incidents").glob("*.json"))


def test_a_node_whose_hello_fails_is_left_out_and_the_others_work(daemons: Daemons) -> None:
    fail_on(daemons, "OpenSession/node:n2")
    pid = daemons.pid("master")
    wait_until(lambda: "handler_failed" in daemons.log("master"), what="it has failed")
    wait_until(
        lambda: "the master failed on this before" in daemons.log("n2"), what="n2 is refused"
    )
    with daemons.connect() as line:
        assert completes(daemons, Jobs(line))
    assert daemons.pid("master") == pid
    assert daemons.is_alive("master")
    assert daemons.log("master").count("handler_failed") <= 3, "a growing pause lies between two"
    found = incidents(daemons)
    assert {path.stat().st_mode & 0o777 for path in found} == {0o600}
    told = json.loads(found[0].read_text())
    assert (told["kind"], told["sender"]) == ("OpenSession", "node:n2")
    assert any("OnPurpose" in text for text in told["trace"])
    doctor = daemons.dlq("doctor")
    assert doctor.code != 0
    assert f"incidents/{told['incident_id']}.json" in doctor.out
    assert "the master failed on OpenSession of node:n2" in doctor.out

    fail_on(daemons, "")
    wait_until(lambda: is_up(daemons, "n2"), what="n2 is back by itself", timeout_s=120.0)


def test_a_request_that_fails_is_answered_and_the_others_go_on(daemons: Daemons) -> None:
    with daemons.connect() as line:
        jobs = Jobs(line)
        held = jobs.submit(daemons.ledger_job(0.1, 0)).job.job_id
    fail_on(daemons, f"HoldJob/user:{pwd.getpwuid(os.geteuid()).pw_name}")
    pid = daemons.pid("master")
    with daemons.connect() as line:
        jobs = Jobs(line)
        with pytest.raises(DlqError, match=r"the master failed on this request"):
            jobs.hold(held)
        daemons.wait_for("master")
        assert completes(daemons, jobs)
    assert daemons.pid("master") == pid
