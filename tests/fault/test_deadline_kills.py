"""A real master is killed -9 while it promises, and at the boundary at which somebody has to leave
for a promise.

What the next one finds in the database is enough: who asks again gets the same job, each deadline
is judged once and kept or given up in words, nothing works twice, and GPU seconds are counted once.
A few places are part of `make test`, all of them of `make torture`.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from dlq.v1 import event_pb2, job_pb2
from dlq_cli.words import shown_state
from dlq_client.jobs import Jobs
from dlq_master.control.loop import failpoints
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.jobs.job import Job
from dlq_master.store.sqlite.halves import Reader
from support.harness import HERE, Daemons
from support.json_lines import json_lines
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "fault/test_promise_kills.py",
    ),
]

# Slots of four seconds; work and deadlines so long that a slow machine judges them in time, and
# keeps them.
LEASE = 'be_term = "2s"\nslo_term = "4s"\nsave_lead = "500ms"\nresume = "500ms"'
DUE_S, WORK_S, GPUS = 240, 4, 8
FOREVER = 1_000_000  # steps
GIVEN_UP = {"promise_broken", "promise_at_risk", "promise_overrun"}
COMMITS = failpoints.NAMES[:2]
# Each place with the event at which it is passed: at admission, and at a boundary.
EVERY = [
    *(f"{place}@{kind}" for kind in ("job_submitted", "promise_made", "job_reserved") for place in COMMITS),  # noqa: E501
    *(f"{place}@{kind}" for kind in ("attempt_stop_requested", "attempt_assigned") for place in failpoints.NAMES),  # noqa: E501
    *(f"{place}@attempt_preempted" for place in COMMITS),
]  # fmt: skip
SOME = ["before_commit@promise_made", "before_send@attempt_stop_requested"]


def lasting(daemons: Daemons, steps: int, *, due: bool = False) -> job_pb2.JobSpec:
    """A job that fills a node."""
    script = str(HERE / "lasting_job.py")
    spec = job_pb2.JobSpec(
        command=[sys.executable, script, str(daemons.root / "ledger"), str(steps)],
        working_directory=str(daemons.root),
    )
    spec.checkpoint.directory = str(daemons.root / "checkpoints")
    spec.resources.gpu_count = GPUS
    spec.run_estimate_duration.FromSeconds(2 * WORK_S if due else 3600)
    if due:
        spec.deadlines.add(reward=100.0).due_duration.FromSeconds(DUE_S)
    return spec


def promise_through_deaths(root: Path, places: list[str]) -> None:
    daemons = Daemons(root, ("n1", "n2"), lease=LEASE)
    with daemons.up(), daemons.connect(patience_s=120.0) as line, ThreadPoolExecutor() as crowd:
        settings = ("-s", "be_floor=0", "-s", "profile_floor=0")
        daemons.said("admin", "policy", "set", "chronus", *settings, "-y")
        jobs = Jobs(line)
        spot = [jobs.submit(lasting(daemons, FOREVER)).job.job_id for _ in daemons.agents]
        promised = []
        for number, place in enumerate(places):
            wait_until(lambda: is_full(jobs, spot), what="a full cluster", timeout_s=120.0)
            daemons.kill("master")
            daemons.start("master", DLQ_DEBUG__FAILPOINT=place)
            spec = lasting(daemons, WORK_S * 10, due=True)
            asked = crowd.submit(jobs.submit, spec, request_id=f"due-{number}")
            daemons.wait_for_death("master")
            daemons.start("master")
            job_id = asked.result().job.job_id
            assert jobs.submit(spec, request_id=f"due-{number}").job.job_id == job_id
            promised.append(job_id)
        wait_until(
            lambda: all(jobs.get(job_id).job.HasField("end_time") for job_id in promised),
            what="everybody with a deadline has ended",
            timeout_s=120.0,
        )
        for job_id in spot:
            jobs.cancel(job_id, kill=True)
        wait_until(
            lambda: all(jobs.get(job_id).job.HasField("end_time") for job_id in spot),
            what="the end",
        )
        assert not written(daemons, "overlap"), "two attempts of a job worked at once"
        for job_id in promised:
            judge(jobs.get(job_id).job, list(jobs.events(job_id)))
            assert written(daemons, "stop")[job_id] == 1, "it came to its end once"
        assert len({job.job_id for job in jobs.list(user="*").jobs}) == len(spot) + len(places)
        daemons.stop("master")
        preempted = account(daemons.root / "master" / "dlq.db")
        assert preempted, "nobody had to leave"
        assert daemons.kills["master"] == 2 * len(places)


def is_full(jobs: Jobs, spot: list[str]) -> bool:
    """Whoever comes now has to wait for one of these to leave."""
    return all(shown_state(jobs.get(job_id).job) == "running" for job_id in spot)


def judge(job: job_pb2.Job, story: list[event_pb2.Event]) -> None:
    """It was judged once, unless it ended before, and its promise was kept, or given up in words
    before the deadline.
    """
    assert job.state == job_pb2.JOB_STATE_COMPLETED
    words = Counter(event.kind for event in story)
    assert words["promise_made"] + words["promise_refused"] <= 1, words
    assert words["job_submitted"] == 1
    by = job.promise.deadlines[0].due_time.ToNanoseconds()
    if words["promise_refused"] or job.end_time.ToNanoseconds() <= by:
        return
    assert words["promise_made"], "it was never judged"
    told = [event.event_time.ToNanoseconds() for event in story if event.kind in GIVEN_UP]
    assert told, "broken in silence"
    assert min(told) <= by, "told too late"


def account(path: Path) -> int:
    """What each job has used is what its ended attempts have; returns how many of them had to
    leave.
    """
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with closing(Reader(path)) as reader:
        tries = [(job, reader.attempts(job.job_id)) for job in reader.load().jobs]
    for job, attempts in tries:
        assert_counted_once(job, attempts)
    return sum(attempt.state == "preempted" for _, attempts in tries for attempt in attempts)


def assert_counted_once(job: Job, attempts: tuple[Attempt, ...]) -> None:
    ran = [one for one in attempts if one.started_time_s and one.ended_time_s]
    used_s = [one.ended_time_s - one.started_time_s for one in ran]  # type: ignore[operator]  # both are there
    assert job.total_gpu_s == pytest.approx(GPUS * sum(used_s)), job.job_id


def written(daemons: Daemons, what: str) -> Counter[str]:
    """How often each job wrote that."""
    lines = json_lines(daemons.root / "ledger")
    return Counter(line["job"] for line in lines if line["what"] == what)


def test_a_master_killed_while_it_promises_and_at_a_boundary_breaks_nothing(tmp_path: Path) -> None:
    promise_through_deaths(tmp_path, SOME)


@pytest.mark.torture
def test_a_master_killed_at_every_place_of_a_promise_breaks_nothing(tmp_path: Path) -> None:
    promise_through_deaths(tmp_path, EVERY)
