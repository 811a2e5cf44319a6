"""Deadlines on the wire: what is refused and by which field, and what is told of a promise."""

from __future__ import annotations

import math

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from dlq.v1.job_pb2 import DeadlineStep, JobSpec
from dlq.v1.job_service_pb2 import UpdateJobRequest
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import from_timestamp, to_duration, to_timestamp
from dlq_master.control.deadlines.risks import Risk
from dlq_master.control.stimuli import SAME, AskedDeadline
from dlq_master.model.estimates.estimate import Basis, Unmeasured
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Alternative, Job, JobState, RunRules
from dlq_master.model.jobs.reward import soft
from dlq_master.model.resources import Request
from dlq_master.rpc.specs.deadlines import (
    MOST_DEADLINES,
    check_deadlines,
    deadlines_of,
    new_deadlines,
    new_on_miss,
    promise_message,
)
from dlq_master.rpc.specs.spec import checked

DUE = DeadlineStep(due_duration=to_duration(3600.0), reward=100.0)


@pytest.mark.parametrize(
    "step",
    [
        DeadlineStep(reward=100.0),
        DeadlineStep(due_duration=to_duration(60.0)),
        DeadlineStep(due_duration=to_duration(60.0), reward=100.5),
        DeadlineStep(due_duration=to_duration(60.0), reward=math.nan),
        DeadlineStep(due_duration=to_duration(1e12), reward=5.0),
        DeadlineStep(due_time=Timestamp(seconds=-1), reward=5.0),
        DeadlineStep(due_time=Timestamp(seconds=1, nanos=2_000_000_000), reward=5.0),
    ],
)
def test_a_deadline_that_cannot_be_meant_is_refused(step: DeadlineStep) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_deadlines(JobSpec(deadlines=[step]))
    assert refused.value.field == "spec.deadlines"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (JobSpec(deadlines=[DUE] * (MOST_DEADLINES + 1)), "spec.deadlines"),
        (JobSpec(deadlines=[DUE], on_miss="boost"), "spec.on_miss"),
        (JobSpec(on_miss="cancel"), "spec.on_miss"),
        (JobSpec(step_count=0), "spec.step_count"),
    ],
)
def test_what_goes_with_deadlines_is_checked_too(spec: JobSpec, field: str) -> None:
    spec.command.append("true")
    spec.resources.gpu_count = 1
    with pytest.raises(InvalidRequest) as refused:
        checked(spec)
    assert refused.value.field == field


def test_both_forms_become_what_the_loop_takes() -> None:
    spec = JobSpec(deadlines=[DUE, DeadlineStep(due_time=to_timestamp(5000.0), reward=50.0)])
    check_deadlines(spec)
    assert deadlines_of(spec) == (
        AskedDeadline(100.0, after_s=3600.0), AskedDeadline(50.0, at_s=5000.0)
    )  # fmt: skip


def a_job(**more: object) -> Job:
    job = Job(JobId(1), "alice", "train", Request(gpus=8), 1000.0, state=JobState.QUEUED)
    steps = soft([(600.0, 100.0), (900.0, 40.0)])
    return job._replace(steps=steps, duration_estimate_s=300.0, **more)  # type: ignore[arg-type] # a builder takes any field


@pytest.mark.parametrize(
    ("job", "offered", "state", "words"),
    [
        (a_job(promised=1, verdict="moved"), True, "guaranteed", "its deadline 2 is promised"),
        (a_job(verdict="reach"), True, "unguaranteed", "too early even if it were alone"),
        (a_job(verdict="overrun"), True, "unguaranteed", "used up what was reserved"),
        (a_job(), True, "undecided", "not judged yet"),
        (a_job(state=JobState.COMPLETED), True, "undecided", "it ended before it was judged"),
        (a_job(), False, "not_offered", "the policy promises no deadlines"),
        (a_job()._replace(duration_estimate_s=None), True, "run_time_unknown", "--work"),
        (a_job(trials=(8,))._replace(duration_estimate_s=None), True, "undecided", "not judged"),
    ],
)
def test_a_promise_is_told_as_a_word_and_a_sentence(
    job: Job, offered: bool, state: str, words: str
) -> None:
    message = promise_message(job, None, 1100.0, offered=offered)
    assert (message.state, message.ground) == (state, job.verdict)
    assert words in message.detail
    assert [from_timestamp(step.due_time) for step in message.deadlines] == [1600.0, 1900.0]


def test_a_risk_is_told_of_who_is_promised_anything() -> None:
    risk = Risk(1050.0, "n2 is down", a_job())
    message = promise_message(a_job(promised=0), None, 1100.0, offered=True, risk=risk)
    assert (message.state, message.risk) == ("guaranteed", "n2 is down")
    assert message.detail == "its deadline 1 is promised, but is at risk: n2 is down"
    assert from_timestamp(message.risk_time) == 1050.0
    gone = promise_message(a_job(verdict="broken"), None, 1100.0, offered=True, risk=risk)
    assert (gone.risk, gone.HasField("risk_time")) == ("", False)


@pytest.mark.parametrize(
    ("more", "profile_s", "state", "words"),
    [
        ({}, 300.0, "undecided", "not judged yet: it is measured once it runs; until then"),
        ({"step_count": 9}, None, "undecided", "not judged yet: it is measured once it runs"),
        ({}, None, "run_time_unknown", "nobody has said it, and this policy measures no jobs"),
        (
            {"basis": Basis(unmeasured=Unmeasured.NO_BEATS)}, 300.0, "run_time_unknown",
            "it told no steps within 600 s (run.beat of dlq_train); --work says it instead",
        ),
        ({"state": JobState.COMPLETED}, None, "undecided", "it ended before it was judged"),
    ],
)  # fmt: skip
def test_whoever_is_measured_is_judged_then_and_nobody_else(
    more: dict[str, object], profile_s: float | None, state: str, words: str
) -> None:
    job = a_job(**more)._replace(duration_estimate_s=None)
    message = promise_message(job, None, 1100.0, offered=True, profile_s=profile_s)
    assert message.state == state
    assert words in message.detail


@pytest.mark.parametrize(
    ("ground", "instead", "words"),
    [
        ("width", Alternative(need=16, have=8), "it takes 16 GPUs, counted in whole blocks, and "
                                                "new promises may use 8"),
        ("quota", Alternative(need=17, have=16), "they would be 17 GPUs, of 16 that the team may "
                                                 "have promised"),
        ("reach", Alternative(need=5400.0, have=60.0), "it needs 1:30:00, and from the next slot "
                                                       "on 0:01:00 is left"),
        ("reach", Alternative(need=60.0, have=-9.0), "it needs 0:01:00, and from the next slot on "
                                                     "nothing is left"),
        ("fluid", Alternative(need=3, have=1), "it needs 3 slots until then, and 1 have GPUs "
                                               "enough left"),
        ("worth", Alternative(need=2.0, have=0.5), "it earns 0.5 for a GPU and slot, others 2"),
        ("type", Alternative(detail="A100, H100"), "there are A100, H100; --gpu-type names one"),
        ("broken", Alternative(), "no plan keeps that any more; it runs as best effort"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_was_asked_and_what_there_is(
    ground: str, instead: Alternative, words: str
) -> None:
    told = promise_message(a_job(verdict=ground, alternative=instead), None, 1100.0, offered=True)
    assert words in told.detail


def test_a_refused_job_that_has_slots_is_told_so() -> None:
    job = a_job(verdict="worth", band=Band.SLO, state=JobState.QUEUED)
    told = promise_message(job, None, 1100.0, offered=True)
    assert told.detail.endswith("; it has this slot, which no promise needs")


@pytest.mark.parametrize(
    ("end_s", "promised", "words"),
    [
        (1500.0, 0, "its deadline 1 was promised; deadline 1 was kept 0:01:40 early"),
        (1700.0, 0, "its deadline 1 was promised; deadline 1 was missed by 0:01:40"),
        (1500.0, 1, "its deadline 2 was promised; deadline 1 was met 0:01:40 early"),
        (1700.0, 1, "its deadline 2 was promised; deadline 2 was kept 0:03:20 early"),
        (1500.0, None, "nothing was promised: its team has promised GPUs enough; deadline 1 was "
                       "met 0:01:40 early"),
        (1800.0, None, "nothing was promised: its team has promised GPUs enough; deadline 2 was "
                       "met 0:01:40 early"),
    ],
)  # fmt: skip
def test_of_a_job_that_completed_it_is_told_how_its_deadlines_came_out(
    end_s: float, promised: int | None, words: str
) -> None:
    job = a_job(promised=promised, verdict="quota", state=JobState.COMPLETED, end_time_s=end_s)
    message = promise_message(job, None, 9000.0, offered=True)
    assert message.detail == words
    failed = promise_message(job._replace(state=JobState.FAILED), None, 9000.0, offered=True)
    assert "early" not in failed.detail


def test_the_slack_and_what_could_be_instead_are_told() -> None:
    told = Alternative(earliest_s=2000.0, fix="wait_for_quota", fix_s=3000.0)
    refused = a_job(verdict="quota", alternative=told, rules=RunRules(cancel_late=True))
    message = promise_message(refused, None, 1100.0, offered=True)
    assert (message.slack_duration.seconds, message.on_miss) == (200, "cancel")
    assert from_timestamp(message.earliest_time) == 2000.0
    assert (message.fix, from_timestamp(message.fix_time)) == ("wait_for_quota", 3000.0)
    after = promise_message(refused._replace(verdict=""), None, 1100.0, offered=True)
    assert (after.fix, after.HasField("earliest_time")) == ("", False), "it is asked anew"
    late = promise_message(refused, None, 1900.0, offered=True)
    assert late.slack_duration.seconds == -300


# --- of an update --------------------------------------------------------------------------------


def test_an_update_says_nothing_of_deadlines_takes_them_away_or_gives_others() -> None:
    assert (new_deadlines(UpdateJobRequest()), new_on_miss(UpdateJobRequest())) == (SAME, SAME)
    assert new_deadlines(UpdateJobRequest(clear_deadlines=True)) == ()
    asked = new_deadlines(UpdateJobRequest(deadlines=[DUE]))
    assert asked == (AskedDeadline(100.0, after_s=3600.0),)
    assert new_on_miss(UpdateJobRequest(on_miss="cancel")) == "cancel"


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (UpdateJobRequest(deadlines=[DeadlineStep(reward=1.0)]), "deadlines"),
        (UpdateJobRequest(deadlines=[DUE] * (MOST_DEADLINES + 1)), "deadlines"),
        (UpdateJobRequest(deadlines=[DUE], clear_deadlines=True), "clear_deadlines"),
        (UpdateJobRequest(on_miss="stop"), "on_miss"),
        (UpdateJobRequest(on_miss=""), "on_miss"),
    ],
)
def test_an_update_that_cannot_be_meant_is_refused_by_its_field(
    request_: UpdateJobRequest, field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        _read(request_)
    assert refused.value.field == field


def _read(request_: UpdateJobRequest) -> object:
    return new_deadlines(request_), new_on_miss(request_)
