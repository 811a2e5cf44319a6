"""Servers of the inference side under real daemons: lent and taken back while both are killed, and
devices that disagree.
"""

import json
from collections.abc import Iterator

import pytest

from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from support.lender import Lender
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "fault/test_loan_kills.py",
        "unit/master/control/loans/test_control_loans.py",
        "unit/master/control/loans/test_control_load_sources.py",
    ),
]

BUSY = "3|process|4711|8589934592"


@pytest.fixture(scope="module")
def lender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lender]:
    root = tmp_path_factory.mktemp("lender")
    # Nobody tells a load before a test writes it.
    follows = f'[loans]\nload = "{root}/load"\nevery = "1s"\nsettle = "1s"\nwithin = "3s"\n'
    made = Lender(root, agents=("i1", "i2"), settings=follows)
    with made.up():
        yield made


@pytest.fixture
def line(lender: Lender) -> Iterator[Connection]:
    with lender.connect() as made:
        yield made


def test_a_server_is_lent_and_taken_back_through_deaths_and_lies(
    lender: Lender, line: Connection
) -> None:
    jobs = Jobs(line)
    spec = lender.ledger_job(600.0, 0)
    spec.resources.gpu_count = 8
    job_id = jobs.submit(spec).job.job_id
    assert "not lent" in lender.said("why", job_id)
    lender.say("i1", BUSY)
    lender.said("admin", "loan", "i1")
    wait_until(
        lambda: "GPU 3: 8.0 GiB in use" in lender.server("i1")["detail"], what="i1 is not empty"
    )
    assert lender.dlq("admin", "loan", "i1", "--wait", "100ms").code == 1
    assert not jobs.get(job_id).attempts
    lender.say("i1")
    assert "lent" in lender.said("admin", "loan", "i1", "--wait", "60s")
    wait_until(lambda: jobs.get(job_id).attempts, what="the job runs on i1")
    plan = json.loads(lender.said("admin", "reclaim", "--count", "1", "--plan", "--json"))["plan"]
    assert [job["job_id"] for job in plan["jobs"]] == [job_id]
    refused = lender.dlq("admin", "reclaim", "--count", "1", "--within", "3s")
    assert refused.code != 0
    assert "cannot be promised" in refused.err
    lender.say("i1", BUSY)
    lender.kill("i1")
    lender.kill("master")
    lender.start("master")
    lender.wait_for("master")
    lost = lender.dlq("admin", "reclaim", "--token", plan["token"])
    assert (lost.code != 0, "there is no plan" in lost.err) == (True, True)
    lender.start("i1")
    lender.wait_for("i1")
    lender.said("admin", "reclaim", "i1", "--within", "3s", "--force")
    assert lender.server("i1")["state"] == "reclaimed"
    lender.kill("master")
    lender.start("master")
    lender.wait_for("master")
    assert lender.server("i1")["state"] == "reclaimed", "it is on disk"
    assert lender.dlq("admin", "reclaim", "--count", "1").code != 0, "no more are lent"
    told = [one.cause for one in jobs.events(job_id) if one.kind == "job_reclaimed"]
    assert "reclaimed for the inference side (i1)" in told[0]
    lender.say("i1")
    assert "away" in lender.said("admin", "reclaim", "i1", "--wait", "60s")
    assert not lender.server("i1")["attempts"]
    wait_until(lambda: jobs.get(job_id).job.wait_code, what="the job waits again")
    jobs.cancel(job_id, kill=True)
    _is_accounted_for(lender)


def test_servers_follow_a_load_that_is_told_in_a_file(lender: Lender, line: Connection) -> None:
    load = lender.root / "load"
    assert "fault" in lender.said("admin", "loan", "auto"), "there is no such file yet"
    load.write_text("0.1\n")
    wait_until(lambda: lender.server("i1")["state"] == "lent", what="i1 is lent", timeout_s=60.0)
    jobs = Jobs(line)
    job_id = jobs.submit(lender.ledger_job(600.0, 0)).job.job_id
    wait_until(lambda: jobs.get(job_id).attempts, what="a job runs on i1")
    load.write_text("0.9\n")
    wait_until(lambda: lender.server("i1")["state"] == "away", what="i1 is back", timeout_s=60.0)
    told = json.loads(lender.said("admin", "loan", "auto", "--json"))["controller"]
    assert (told["busy_share"], told["lent_count"], told["fault"]) == (0.9, 0, None)
    jobs.cancel(job_id, kill=True)
    assert "switched off by user:" in lender.said("admin", "loan", "auto", "off")
    lender.kill("master")
    lender.start("master")
    lender.wait_for("master")
    told = json.loads(lender.said("admin", "loan", "auto", "--json"))["controller"]
    assert told["off_by"].startswith("user:")
    assert "follows" in lender.said("admin", "loan", "auto", "on")


def _is_accounted_for(lender: Lender) -> None:
    """Jobs are charged what they held of the servers, though the master was killed meanwhile."""
    told = json.loads(lender.said("usage", "--by", "pool", "--json"))
    (charged,), (pool,) = told["usages"], told["pools"]
    assert charged["gpu_hours"] > 0.0
    assert charged["gpu_hours"] == pytest.approx(pool["used_gpu_hours"], abs=1e-3)
    (lost,) = json.loads(lender.said("report", "preemptions", "--json"))["rows"]
    assert lost["preempted_jobs"] == 1
