"""Who has cancelled a job, and why, for its user who was away."""

from __future__ import annotations

import threading

import pytest

from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.waiting import wait_until
from support.wire_jobs import a_job, an_event

pytestmark = pytest.mark.integration

RULE = "its use was 0.0 % over 1 h, below the 5 % of [interactive]"


def cancelled(master: FakeMaster, number: int, actor: str, cause: str = "") -> None:
    job = a_job(number, "cancelled")
    master.jobs[str(number)] = job
    event = an_event(len(master.events) + 1, "job_cancelled", number, actor=actor, cause=cause)
    master.tell(event, job)


def test_show_and_why_name_the_rule_or_the_user(master: FakeMaster, dlq: Dlq) -> None:
    cancelled(master, 17, "master", RULE)
    cancelled(master, 18, "user:bob")
    assert f"cancelled: by the master: {RULE}\n" in dlq("show", "17").out
    assert f"  cancelled by the master: {RULE}\n" in dlq("why", "17").out
    assert "  cancelled by bob\n" in dlq("why", "18").out
    master.jobs["19"] = a_job(19, "completed")
    assert "cancelled" not in dlq("show", "19").out + dlq("why", "19").out


def test_run_says_why_a_job_was_cancelled_under_its_user(master: FakeMaster, dlq: Dlq) -> None:
    def end() -> None:
        wait_until(lambda: "17" in master.jobs, what="the job")
        cancelled(master, 17, "master", RULE)

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    said = dlq("run", "-G", "1", "--", "true")
    thread.join()
    assert said.code == 1
    assert f"job 17 was cancelled by the master: {RULE}" in said.err
