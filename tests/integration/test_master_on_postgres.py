"""A real master whose rows lie in PostgreSQL: it is killed, and nothing is lost."""

from contextlib import suppress
from pathlib import Path

import pytest

from dlq_client.jobs import Jobs
from dlq_common.errors import DlqError
from support.harness import Daemons
from support.postgres_daemons import PostgresDaemons
from support.postgres_site import DURABLE, postgres_site
from support.waiting import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long("integration/test_postgres_store.py", "contract/test_store.py"),
]


def test_jobs_survive_kills_of_the_master_and_of_the_server(tmp_path: Path) -> None:
    with postgres_site(DURABLE) as site:
        site.add_standby()
        daemons = PostgresDaemons(tmp_path, site.primary, asynchronous=False)
        with daemons.up(), daemons.connect(patience_s=30.0) as line:
            jobs = Jobs(line)
            ended = jobs.submit(daemons.ledger_job(0.1, 3)).job.job_id
            wait_until(lambda: jobs.get(ended).job.HasField("end_time"), what="it has ended")
            held = _held(daemons, jobs)
            runs = jobs.submit(daemons.ledger_job(2.0, 0)).job.job_id
            daemons.kill("master")
            daemons.start("master")
            daemons.wait_for("master")
            assert jobs.get(ended).job.exit_code == 3
            assert jobs.get(held).job.job_id == held
            wait_until(lambda: jobs.get(runs).job.HasField("end_time"), what="the job ends")
            assert jobs.get(runs).job.exit_code == 0

            site.primary.kill()
            site.primary.start()
            with daemons.connect(patience_s=0.5) as hasty, suppress(DlqError):
                _held(daemons, Jobs(hasty))  # the first commit on the line that broke
            daemons.wait_for_failure("master")
            assert "commit_failed" in daemons.log("master")
            daemons.start("master")
            daemons.wait_for("master")
            fresh = _held(daemons, jobs)
            assert int(fresh) > int(held)
            known = {job.job_id for job in jobs.list(user="*").jobs}
            assert {held, fresh} <= known
            assert daemons.master("verify-audit").endswith("0 broken\n")


def _held(daemons: Daemons, jobs: Jobs) -> str:
    spec = daemons.ledger_job(0.0, 0)
    spec.hold = True
    return jobs.submit(spec).job.job_id
