"""Events in words: what only dlq can tell, and nothing that the cluster hides."""

from __future__ import annotations

import pytest

from dlq.v1 import job_pb2
from dlq_common.text.wire import to_duration, to_timestamp
from dlq_notify.letters import content_of
from dlq_notify.line import plain_line
from dlq_notify.wording import JobNotice, notice_of
from support.notify_site import a_letter, told
from support.wire_jobs import EPOCH_S, a_job


def text_of(kind: str, job: job_pb2.Job, **fields: object) -> str:
    return notice_of(told(7, kind, job, **fields), "ended").text


def test_a_preemption_says_for_whom_by_which_rule_and_at_what_cost() -> None:
    job = a_job(
        17, "pausing", work_at_risk_duration=to_duration(600), stop_cost_duration=to_duration(90)
    )
    facts = {"for_job": "9", "user": "bob", "rule": "it has a promised deadline"}
    assert text_of("job_displaced", job, data=facts) == (
        "job 17 (train-17) leaves its GPUs for job 9 of bob: it has a promised deadline. At stake: "
        "10m00s of work since its last checkpoint and 1m30s to save and resume"
    )


def test_a_preemption_names_nobody_where_the_cluster_hides_names() -> None:
    facts = {"for_job": "9", "rule": "less attained service"}
    text = text_of("job_displaced", a_job(17, "pausing"), data=facts)
    assert text == "job 17 (train-17) leaves its GPUs for job 9: less attained service"


def test_a_preemption_that_is_over_says_what_it_cost() -> None:
    taken = job_pb2.Preemption(for_job_id="9", lost_duration=to_duration(300))
    job = a_job(17, last_preemption=taken)
    text = text_of("job_displaced", job, data={"for_job": "9", "rule": "fifo"})
    assert text.endswith("fifo. 5m00s of work are done again")


def test_a_promise_at_risk_comes_with_its_reason_its_slack_and_the_cheapest_change() -> None:
    promise = job_pb2.Promise(
        state="guaranteed", guaranteed_index=0, risk="it runs more slowly than it was taken to",
        slack_duration=to_duration(-600), fix="fewer_gpus", fix_gpu_count=4,
        earliest_time=to_timestamp(EPOCH_S + 3_600),
        deadlines=[job_pb2.DeadlineStep(due_time=to_timestamp(EPOCH_S), reward=100.0)],
    )  # fmt: skip
    text = text_of("promise_at_risk", a_job(17, "running", promise=promise))
    assert "guaranteed, at risk: it runs more slowly than it was taken to" in text
    assert "slack -00:10:00" in text
    assert "--deadline 2026-11-20T09:00:00Z" in text
    assert "with 4 GPUs" in text


@pytest.mark.parametrize(
    ("kind", "job", "fields", "words"),
    [
        ("job_admitted", a_job(1), {}, "waits in default"),
        ("job_ran", a_job(1, "running"), {}, "runs on gpu01, gpu02"),
        ("job_requeued", a_job(1), {"cause": "node_lost"}, "waits again: node_lost"),
        ("job_completed", a_job(1, "completed"), {}, "has completed after"),
        ("job_cancelled", a_job(1, "cancelled"), {"actor": "user:olga"}, "was cancelled by olga"),
        ("job_failed", a_job(1, "failed", exit_signal=9), {}, "has failed: signal 9"),
        ("job_timed_out", a_job(1, "timed_out", end_reason="time_limit"), {}, "at its time limit"),
        ("attempt_warned", a_job(1, "running"), {"data": {"left_s": "300.0"}}, "5m00s left"),
        ("job_reclaimed", a_job(1, "running"), {"cause": "reclaimed for"}, "reclaimed for"),
        ("promise_missed", a_job(1), {"cause": "late by 5 min"}, "promise missed: late by 5 min"),
        ("of_a_newer_master", a_job(1), {}, "of a newer master"),
    ],
)
def test_each_kind_has_words(
    kind: str, job: job_pb2.Job, fields: dict[str, object], words: str
) -> None:
    assert words in text_of(kind, job, **fields)


def test_several_events_are_counted_first_and_the_rest_is_named_as_such() -> None:
    notices = [
        JobNotice(number, "ended", "job_completed", EPOCH_S, f"job {number} has completed", "1")
        for number in range(1, 51)
    ]
    letter = a_letter(counts={"job_completed": 1_199, "job_failed": 1}, notices=notices)
    content = content_of(letter, "lab")
    assert content.subject == "[dlq lab] 1,199 completed, 1 failed"
    assert content.lines[0] == "1,199 completed, 1 failed"
    assert content.lines[-1] == "and 1170 more"


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("\x1b[31mValueError\x1b[0m: no\tdata", "ValueError: no data"),
        ("\x1b]0;title\x07x\x1b[2Jy", "xy"),
        ("\u202eevil\u202c", "?evil?"),
        ("a\rb", "a b"),
    ],
)
def test_a_line_of_output_has_no_effects(line: str, plain: str) -> None:
    assert plain_line(line) == plain
