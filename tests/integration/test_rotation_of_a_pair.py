"""A hand-over in the middle of a change of the CA: the other master goes on with it by itself."""

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
from support.pair_daemons import PairDaemons
from support.postgres_site import PostgresSite, postgres_site
from support.waiting import wait_until

pytestmark = [
    pytest.mark.long("unit/master/rpc/test_shared_authority.py"),
    pytest.mark.integration,
]
PATIENCE_S = 120.0
RUNNING = job_pb2.ATTEMPT_STATE_RUNNING


@pytest.fixture
def site() -> Iterator[PostgresSite]:
    with postgres_site() as made:
        yield made


def facts(daemons: PairDaemons) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(daemons.said("admin", "ca", "status", "--json"))
    authority: dict[str, Any] = told["authority"]
    return authority


def log_in_anew(daemons: PairDaemons) -> None:
    with daemons.connect() as line:
        save_identity(daemons.root / "home", renew(line))


def files(daemons: PairDaemons, name: str) -> dict[str, bytes]:
    """The CA of one master."""
    return {path.name: path.read_bytes() for path in (daemons.root / name).glob("ca.*")}


def are_alike(daemons: PairDaemons) -> bool:
    return files(daemons, "master") == files(daemons, "master2")


def hand_over(daemons: PairDaemons, dies: str, leads: str) -> None:
    daemons.kill(dies)
    wait_until(lambda: daemons.leads(leads), what=f"{leads} leads", timeout_s=PATIENCE_S)


def test_a_hand_over_in_the_middle_of_a_change_of_the_ca(
    tmp_path: Path, site: PostgresSite
) -> None:
    daemons = PairDaemons(tmp_path, site.primary)
    with daemons.up():
        daemons.start_standby()
        with daemons.connect() as line:
            job_id = Jobs(line).submit(daemons.ledger_job(600.0, 0)).job.job_id
            wait_until(
                lambda: Jobs(line).get(job_id).job.attempt_state == RUNNING,
                what="it runs",
                timeout_s=PATIENCE_S,
            )
        daemons.said("admin", "ca", "rotate", "-y")
        following = facts(daemons)["next_fingerprint"]
        wait_until(
            lambda: "ca.next.pem" in files(daemons, "master2") and are_alike(daemons),
            what="the standby has the next CA",
            timeout_s=PATIENCE_S,
        )
        hand_over(daemons, "master", "master2")
        assert facts(daemons)["next_fingerprint"] == following, "the change goes on"
        log_in_anew(daemons)
        wait_until(
            lambda: daemons.dlq("admin", "ca", "finish", "-y").code == 0,
            what="the other master ends the change",
            timeout_s=PATIENCE_S,
        )
        log_in_anew(daemons)
        daemons.start_standby("master")
        wait_until(lambda: are_alike(daemons), what="the former has it", timeout_s=PATIENCE_S)
        assert "ca.next.pem" not in files(daemons, "master")
        hand_over(daemons, "master2", "master")
        assert facts(daemons)["fingerprint"] == following
        with daemons.connect() as line:
            jobs = Jobs(line)
            wait_until(
                lambda: jobs.get(job_id).job.attempt_state == RUNNING,
                what="its agent is back",
                timeout_s=PATIENCE_S,
            )
            assert len(jobs.get(job_id).attempts) == 1
            jobs.cancel(job_id)
