"""Jobs that are named: every one is answered for, those that are not there with exit code 3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import a_job

pytestmark = pytest.mark.integration


class ArrayMaster(FakeMaster):
    """Array 28 of three tasks: one has ended, one runs, one waits and takes no signal."""

    def __init__(self) -> None:
        super().__init__()
        for index, state in enumerate(("completed", "running", "queued")):
            task = job_pb2.ArrayTask(array_id="28", index=index)
            self.jobs[str(29 + index)] = a_job(29 + index, state, array_task=task)

    def SignalJob(self, request: wire.SignalJobRequest, context: Any) -> wire.SignalJobResponse:
        refusal = wire.Refusal(job_id="31", reason="ILLEGAL_TRANSITION", detail="it is queued")
        return wire.SignalJobResponse(jobs=self.jobs.values(), refusals=[refusal])


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    running = ArrayMaster()
    yield running
    running.stop()


def test_a_signal_to_an_array_says_of_every_task_whether_it_got_it(dlq: Dlq) -> None:
    said = dlq("signal", "28", "USR2")
    assert said.out.splitlines() == [
        "job 28_0: has ended; no USR2 for it",
        "job 28_1: USR2 is sent",
    ]
    assert "job 28_2: it is queued" in said.err
    assert said.code == 1


def test_status_tells_what_is_there_and_refuses_the_rest(dlq: Dlq) -> None:
    said = dlq("status", "30", "99", "--no-header", "-o", "id,state")
    assert (said.code, said.out.split()) == (3, ["28_1", "running"])
    assert "there is no job 99" in said.err
    in_json = dlq("status", "30", "99", "--json")
    assert in_json.code == 3
    assert [job["job_id"] for job in json.loads(in_json.out)["jobs"]] == ["30"]
    nobody = dlq("status", "99", "98")
    assert (nobody.code, nobody.out) == (3, "")


def test_history_of_a_job_that_is_not_there_is_an_error(dlq: Dlq) -> None:
    nobody = dlq("history", "999")
    assert (nobody.code, nobody.out) == (3, "")
    assert "there is no job 999" in nobody.err
    some = dlq("history", "29", "999", "-n", "-P", "-o", "id,state")
    assert (some.code, some.out) == (3, "28_0|completed\n")
    assert "there is no job 999" in some.err


def test_a_job_that_lives_has_no_history_yet_and_that_is_no_error(dlq: Dlq) -> None:
    said = dlq("history", "30")
    assert said.code == 0
    assert "none of these has ended" in said.err
