"""The CA changes under real daemons and jobs: the master and an agent restart in the middle, and
one line is silent. No job notices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_client.line.identity import save_identity
from dlq_client.login import renew
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.long("integration/test_identity_rotation.py"),
    pytest.mark.integration,
]


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    with Daemons(tmp_path, ("n1", "n2")).up() as made:
        yield made


def runs(jobs: Jobs, job_id: str) -> bool:
    job = jobs.get(job_id).job
    return bool(job.node_ids) and job.HasField("start_time")


def states(daemons: Daemons) -> dict[str, str]:
    told: dict[str, Any] = json.loads(daemons.said("admin", "ca", "status", "--json"))
    return {one["name"]: one["state"] for one in told["authority"]["members"]}


def follow(daemons: Daemons, *names: str) -> None:
    wait_until(
        lambda: {states(daemons)[name] for name in names} == {"follows"},
        what=f"{names} follow",
        timeout_s=60,
    )


def log_in_anew(daemons: Daemons) -> None:
    """As `dlq` does it, which asks once an hour."""
    with daemons.connect() as line:
        save_identity(daemons.root / "home", renew(line))


def test_jobs_go_on_while_the_ca_changes(daemons: Daemons) -> None:
    with daemons.connect() as line:
        jobs = Jobs(line)
        ids = [jobs.submit(daemons.ledger_job(45.0, 0, nodes=nodes)).job.job_id for nodes in (1, 2)]
        wait_until(
            lambda: all(runs(jobs, one) for one in ids),
            what="they run",
            timeout_s=60,
        )
    daemons.freeze("n2")
    daemons.said("admin", "ca", "rotate", "-y")
    log_in_anew(daemons)
    follow(daemons, "n1")
    refused = daemons.dlq("admin", "ca", "finish", "-y")
    assert refused.code != 0
    assert "node n2" in refused.err
    daemons.kill("master")
    daemons.start("master")
    daemons.wait_for("master")
    daemons.kill("n1")
    daemons.start("n1")
    daemons.wait_for("n1")
    assert states(daemons)["n2"] != "follows"
    daemons.thaw("n2")
    follow(daemons, "n1", "n2")
    wait_until(
        lambda: daemons.dlq("admin", "ca", "finish", "-y").code == 0,
        what="nobody uses the former CA",
        timeout_s=60,
    )
    log_in_anew(daemons)
    for name in ("n1", "n2"):
        own = daemons.root / name
        wait_until(
            lambda own=own: certificates(own) == 1,  # type: ignore[misc]
            what=f"{name} has forgotten the former root",
            timeout_s=60,
        )
    with daemons.connect() as line:
        jobs = Jobs(line)
        wait_until(
            lambda: all(jobs.get(one).job.state == job_pb2.JOB_STATE_COMPLETED for one in ids),
            what="they end",
            timeout_s=120,
        )
        assert [len(jobs.get(one).attempts) for one in ids] == [1, 1]


def certificates(state_dir: Path) -> int:
    """How many roots a node trusts."""
    return next(state_dir.rglob("ca.crt")).read_bytes().count(b"BEGIN CERTIFICATE")


def test_the_agent_of_a_revoked_node_is_cut_off_and_its_job_goes_on(daemons: Daemons) -> None:
    with daemons.connect() as line:
        jobs = Jobs(line)
        job_id = jobs.submit(daemons.ledger_job(20.0, 0)).job.job_id
        wait_until(
            lambda: runs(jobs, job_id),
            what="it runs",
            timeout_s=60,
        )
        (name,) = jobs.get(job_id).job.node_ids
    assert "1 open stream ended" in daemons.said("admin", "revoke", "node", name, "-y")
    wait_until(lambda: "was revoked" in daemons.log(name), what="the agent says it", timeout_s=60)
    daemons.kill("master")
    daemons.start("master")
    daemons.wait_for("master")
    daemons.kill(name)
    state_dir = next((daemons.root / name).rglob("identity.key")).parent
    for file in state_dir.glob("identity.*"):
        file.unlink()
    daemons._make_agent(name)  # with a new token
    daemons.start(name)
    daemons.wait_for(name)
    with daemons.connect() as line:
        jobs = Jobs(line)
        wait_until(
            lambda: jobs.get(job_id).job.state == job_pb2.JOB_STATE_COMPLETED,
            what="it ends",
            timeout_s=120,
        )
        assert len(jobs.get(job_id).attempts) == 1
