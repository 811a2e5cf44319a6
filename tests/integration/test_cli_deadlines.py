"""What users see of deadlines: the answer when they submit, `dlq show`, and the columns of `dlq
status`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from threading import Timer

import pytest

from dlq.v1 import event_pb2, job_pb2
from dlq_common.text.wire import to_duration, to_timestamp
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.wire_jobs import EPOCH_S, a_job

pytestmark = pytest.mark.integration

SUBMIT = ("submit", "--wait-admission", "--deadline", "4h", "--work", "3h", "--", "train")


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    made = FakeMaster()
    yield made
    made.stop()


def promised(state: str, detail: str = "so it is", **more: object) -> job_pb2.Promise:
    """Of a job that is due three hours after the epoch."""
    due = job_pb2.DeadlineStep(due_time=to_timestamp(EPOCH_S + 10_800), reward=100.0)
    return job_pb2.Promise(deadlines=[due], state=state, detail=detail, on_miss="continue", **more)  # type: ignore[arg-type] # a builder takes any field


REFUSED = promised(
    "unguaranteed",
    "nothing is promised: promises that were made before leave too few GPUs",
    earliest_time=to_timestamp(EPOCH_S + 14_400),
    fix="later_deadline",
    fix_time=to_timestamp(EPOCH_S + 14_400),
    slack_duration=to_duration(-60.0),
)


def test_the_answer_of_a_submission_is_its_exit_code(master: FakeMaster, dlq: Dlq) -> None:
    master.jobs["17"] = a_job(17, promise=promised("guaranteed", "its deadline is promised"))
    said = dlq(*SUBMIT)
    assert (said.code, said.out) == (
        0, "Submitted batch job 17\njob 17 is guaranteed: its deadline is promised\n",
    )  # fmt: skip
    master.jobs["18"] = a_job(18, promise=REFUSED)
    said = dlq(*SUBMIT)
    assert said.code == 6
    assert said.out.splitlines()[1:] == [
        "job 18 is not guaranteed: nothing is promised: promises that were made before leave too "
        "few GPUs",
        "the earliest that could be promised: --deadline 2026-11-20T12:00:00Z",
    ]
    master.jobs["19"] = a_job(19, promise=promised("run_time_unknown", "not until it is known"))
    assert dlq(*SUBMIT).code == 7
    master.jobs["20"] = a_job(20, promise=promised("not_offered", "the policy promises none"))
    assert dlq(*SUBMIT).code == 7


def test_fewer_gpus_are_offered_with_the_deadline_that_they_allow(
    master: FakeMaster, dlq: Dlq
) -> None:
    wide = promised("unguaranteed", "too wide", fix="fewer_gpus", fix_gpu_count=8)
    master.jobs["17"] = a_job(17, promise=wide)
    assert dlq(*SUBMIT).out.splitlines()[2:] == ["with 8 GPUs its deadline could be"]
    wide.fix_time.CopyFrom(to_timestamp(EPOCH_S + 14_400))
    master.jobs["18"] = a_job(18, promise=wide)
    (told,) = dlq(*SUBMIT).out.splitlines()[2:]
    assert told.startswith(
        "with 8 GPUs, if it takes as much longer on them: --deadline 2026-11-20T12"
    )


def test_it_waits_until_the_job_has_been_judged(master: FakeMaster, dlq: Dlq) -> None:
    master.jobs["17"] = a_job(17, promise=promised("undecided"))
    made = event_pb2.Event(sequence=5, kind="promise_refused", job_id="17")
    teller = Timer(0.2, lambda: master.tell(made, a_job(17, promise=REFUSED)))
    teller.start()
    said = dlq("submit", "--json", *SUBMIT[1:])
    teller.join()
    assert said.code == 6
    (job,) = json.loads(said.out)["jobs"]
    assert job["promise"]["state"] == "unguaranteed"
    assert job["promise"]["earliest_time"] == "2026-11-20T12:00:00.000Z"
    assert job["promise"]["slack_s"] == -60.0


def test_who_is_measured_first_is_waited_for_and_told_so(master: FakeMaster, dlq: Dlq) -> None:
    master.jobs["17"] = a_job(17, promise=promised("undecided", "not judged yet: it is measured"))
    made = event_pb2.Event(sequence=5, kind="promise_made", job_id="17")
    judged = promised("guaranteed", "it is promised", work_duration=to_duration(60.0))
    teller = Timer(0.2, lambda: master.tell(made, a_job(17, promise=judged)))
    teller.start()
    said = dlq(*SUBMIT)
    teller.join()
    assert (said.code, "job 17 is guaranteed" in said.out) == (0, True)
    assert "job 17: not judged yet: it is measured (Ctrl-C: it stays queued)" in said.err


def test_who_hears_that_nobody_judges_it_is_told_why_while_it_waits(
    master: FakeMaster, dlq: Dlq
) -> None:
    known = {"work_duration": to_duration(60.0)}
    late = promised("undecided", "not judged yet: restart the master", **known)
    master.jobs["17"] = a_job(17, promise=late)
    made = event_pb2.Event(sequence=5, kind="promise_made", job_id="17")
    judged = promised("guaranteed", "it is promised", **known)
    teller = Timer(0.2, lambda: master.tell(made, a_job(17, promise=judged)))
    teller.start()
    said = dlq(*SUBMIT)
    teller.join()
    assert (said.code, said.err.count("not judged yet")) == (0, 1)
    assert "job 17: not judged yet: restart the master (Ctrl-C: it stays queued)" in said.err


def test_waiting_for_an_answer_needs_a_deadline_and_no_other_end(dlq: Dlq) -> None:
    said = dlq("submit", "--wait-admission", "--", "train")
    assert (said.code, "is for jobs with a deadline" in said.err) == (2, True)
    said = dlq("submit", "--wait", *SUBMIT[1:])
    assert (said.code, "say one" in said.err) == (2, True)


def test_what_is_known_of_a_deadline_is_shown(master: FakeMaster, dlq: Dlq) -> None:
    master.jobs["17"] = a_job(17, promise=REFUSED)
    shown = dlq("show", "17").out
    assert "deadline: 2026-11-20T11:00:00" in " ".join(shown.split()).replace(" :", ":")
    assert "not guaranteed: nothing is promised" in shown
    assert "--deadline 2026-11-20T12:00:00Z" in shown
    assert "-00:01:00" in shown


def test_a_promise_at_risk_is_told_with_its_cause(master: FakeMaster, dlq: Dlq) -> None:
    risk = {"risk": "its slots are short of 8 GPUs", "risk_time": to_timestamp(EPOCH_S)}
    master.jobs["17"] = a_job(17, promise=promised("guaranteed", "it is promised", **risk))
    assert "guaranteed, at risk: its slots are short of 8 GPUs" in dlq("show", "17").out
    assert "at risk" in dlq("status", "-o", "id,promise").out
    (job,) = json.loads(dlq("show", "17", "--json").out)["jobs"]
    told = (job["promise"]["state"], job["promise"]["risk"], job["promise"]["risk_time"])
    assert told == ("guaranteed", "its slots are short of 8 GPUs", "2026-11-20T08:00:00.000Z")
    assert dlq(*SUBMIT).code == 0, "it is promised all the same"


def test_a_list_has_a_column_of_slack_where_somebody_has_any(master: FakeMaster, dlq: Dlq) -> None:
    master.jobs["17"] = a_job(17)
    assert "SLACK" not in dlq("status").out
    master.jobs["18"] = a_job(18, promise=REFUSED)
    head, first, second = dlq("status").out.splitlines()
    assert "PROMISE" in head
    assert "-00:01:00" not in first
    assert "unguaranteed  -00:01:00" in second
    in_order = dlq("status", "--sort", "slack", "-o", "id,slack,deadline").out.splitlines()
    assert [line.split()[0] for line in in_order] == ["JOB_ID", "18", "17"]
