"""What a user hears of data that is staged before their job starts."""

from __future__ import annotations

import pytest

from dlq.v1 import job_pb2
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import a_job

pytestmark = pytest.mark.integration


def test_why_tells_how_much_is_staged_by_which_job(master: FakeMaster, dlq: Dlq) -> None:
    master.jobs["6"] = a_job(6, "queued")
    master.specs["6"] = job_pb2.JobSpec(name="train", command=["true"])
    master.specs["6"].dependency.terms.add(job_id="5")
    master.reasons["6"] = [job_pb2.WaitReason(code="dependency")]
    master.jobs["5"] = a_job(5, "running", name="stage words")
    assert "staging words: job 5 is running\n" in dlq("why", "6").out
    progress = master.jobs["5"].progress
    progress.step, progress.total_step_count = 3_100, 12_000
    assert "staging words: 3.1 of 12.0 GB, by job 5\n" in dlq("why", "6").out
