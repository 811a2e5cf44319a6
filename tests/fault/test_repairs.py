"""A start that is killed in the change of its schema, and a copy restored under living agents.

`make prove ONLY=repairs` kills at every statement, from some former schemas or from all of them.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_master.control.config import StoreConfig
from dlq_master.store.sqlite.migrations import migrations
from support.harness import HERE, Daemons
from support.postgres_site import PostgresSite, need_postgres, postgres_site
from support.proofs import proved
from support.waiting import wait_until

SCHEMAS = int(os.environ.get("SCHEMAS", "3"))  # former schemas, of all that there were
RESTORES = int(os.environ.get("RESTORES", "1"))
SEED = int(os.environ.get("SEED", "1"))
PATIENCE_S = 120.0
JOB_S = 20.0
EACH = 4  # jobs that run before the copy, and after it
RUNNING = job_pb2.ATTEMPT_STATE_RUNNING


@pytest.mark.torture
def test_a_start_that_is_killed_at_any_statement_of_the_schema_loses_no_job(
    tmp_path: Path,
) -> None:
    former = range(1, len(migrations._steps))
    count = min(SCHEMAS, len(former))
    chosen = [former[number * (len(former) - 1) // max(1, count - 1)] for number in range(count)]
    done = subprocess.run(
        [sys.executable, HERE / "schema_kills.py", tmp_path, *map(str, dict.fromkeys(chosen))],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    proved("kills in the change of the schema", **json.loads(done.stdout), jobs_lost=0)


@pytest.mark.long("unit/master/store/test_store_crash.py")
def test_a_start_that_is_killed_in_the_last_step_of_the_schema_goes_on(tmp_path: Path) -> None:
    last = len(migrations._steps) - 1
    done = subprocess.run(
        [sys.executable, HERE / "schema_kills.py", tmp_path, str(last)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["kills"] > 3


@pytest.fixture
def site() -> Iterator[PostgresSite]:
    need_postgres()
    with postgres_site() as made:
        yield made


def killed_on_postgres(site: PostgresSite) -> dict[str, Any]:
    """The same on a server of PostgreSQL; what was found."""
    done = subprocess.run(
        [sys.executable, HERE / "postgres_schema_kills.py", site.primary.dsn],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["kills"] > found["most_statements"] > 5
    return found


@pytest.mark.torture
def test_a_start_that_is_killed_in_the_change_of_postgresqls_schema_loses_no_job(
    site: PostgresSite,
) -> None:
    found = killed_on_postgres(site)
    proved("kills in the change of PostgreSQL's schema", **found, jobs_lost=0)


def submit(daemons: Daemons, count: int) -> list[str]:
    """Jobs that all run."""
    with daemons.connect() as line:
        jobs = Jobs(line)
        made = [jobs.submit(daemons.ledger_job(JOB_S, 0)).job.job_id for _ in range(count)]
        wait_until(
            lambda: all(jobs.get(one).job.attempt_state == RUNNING for one in made),
            what="the jobs run",
            timeout_s=PATIENCE_S,
        )
    return made


def ledger(daemons: Daemons) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (daemons.root / "ledger").read_text().splitlines()]


def ended(daemons: Daemons, job_ids: list[str]) -> bool:
    """Whether the process of each job has come to its end by itself."""
    told = {line["job"] for line in ledger(daemons) if line["what"] == "stop"}
    return {*job_ids} <= told


def restore(daemons: Daemons, number: int) -> None:
    """The newest copy, in the place of the database of a master that was killed."""
    copies, config = str(daemons.root / f"copies{number}"), str(daemons.root / "master.toml")
    restored = ("restore", copies, "--replace", "--config", config)
    daemons.kill("master")
    dlq_master(*restored)
    daemons.start("master")
    daemons.wait_for("master")


def dlq_master(*words: str) -> None:
    program = Path(sys.executable).with_name("dlq-master")
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def orphans(daemons: Daemons) -> set[str]:
    """The jobs of ranks that the master reports as unknown to it."""
    said = daemons.said("events", "--jsonl", "-t", "orphan_seen")
    told = [json.loads(line)["event"] for line in said.splitlines()]
    return {str(one["data"]["rank"]).partition(".")[0] for one in told}


def completed(daemons: Daemons, job_ids: list[str]) -> bool:
    """Whether the master has heard that they have ended well, in their first attempt."""
    with daemons.connect() as line:
        found = [Jobs(line).get(one) for one in job_ids]
    assert {len(one.attempts) for one in found} == {1}
    return all(one.job.state == job_pb2.JOB_STATE_COMPLETED for one in found)


@pytest.mark.torture
def test_a_copy_that_is_restored_under_living_agents_kills_no_job(tmp_path: Path) -> None:
    daemons, chance = Daemons(tmp_path, ("n1", "n2", "n3")), random.Random(SEED)
    known, unknown = list[str](), list[str]()
    with daemons.up():
        for number in range(RESTORES):
            before = submit(daemons, EACH)
            config, to = str(tmp_path / "master.toml"), str(tmp_path / f"copies{number}")
            dlq_master("backup", "--config", config, "--to", to)
            after = submit(daemons, EACH)
            threading.Event().wait(chance.uniform(0.0, 2.0))
            restore(daemons, number)
            wait_until(
                lambda after=after: {*after} <= orphans(daemons),  # type: ignore[misc]
                what="all jobs that are newer than the copy are reported",
                timeout_s=PATIENCE_S,
            )
            wait_until(
                lambda ids=before + after: ended(daemons, ids),  # type: ignore[misc]
                what="all jobs end by themselves",
                timeout_s=PATIENCE_S,
            )
            known, unknown = known + before, unknown + after
            wait_until(
                lambda before=before: completed(daemons, before),  # type: ignore[misc]
                what="the master has heard of the ends of jobs that it knows",
                timeout_s=PATIENCE_S,
            )
    starts = [line["job"] for line in ledger(daemons) if line["what"] == "start"]
    assert sorted(starts) == sorted(known + unknown), "no job ran twice, and no number means two"
    proved(
        "restores under living agents",
        restores=RESTORES,
        jobs=len(known),
        newer_jobs=len(unknown),
        copies_every_s=StoreConfig().backup_every,
        reported=len(unknown),
        killed=0,
        ran_twice=0,
    )
