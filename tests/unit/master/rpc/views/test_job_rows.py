"""Rows of lists: encoded once for each change of a job, and the same job as any other answer."""

from __future__ import annotations

import pytest

from dlq.v1 import job_pb2
from dlq.v1.job_service_pb2 import ListJobsResponse
from dlq_master.control.read_model.job_blocks import EVERYBODY, JobBlocks
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState, RestartCounts, RunRules
from dlq_master.model.resources import Request
from dlq_master.planner.forecasts import Range
from dlq_master.rpc.views import job_rows
from dlq_master.rpc.views.job_rows import JobRows
from dlq_master.rpc.views.job_view import job_message, likeness, present, standing
from dlq_master.store.tables.chosen_policy import Chosen
from support.counted_calls import counted_calls
from support.fake_clock import FakeClock
from support.fake_control import FakeControl, FakeRead


@pytest.fixture
def control() -> FakeControl:
    control = FakeControl(FakeClock())
    control.add_node("gpu01")
    for number in range(1, 101):
        job = Job(
            JobId(number), "alice", f"train-{number}", Request(gpus=1), control.clock.now_s(),
            queued_since_s=control.clock.now_s(), state=JobState.QUEUED,
        )  # fmt: skip
        control.published.all_jobs[job.job_id] = job
    return control


def _page(rows: JobRows, control: FakeControl) -> list[job_pb2.Job]:
    read = control.published
    content = b"".join(rows.row(job, read, control.clock.now_s()) for job in read.jobs())
    return list(ListJobsResponse.FromString(content).jobs)


def test_a_list_encodes_only_jobs_that_have_changed_since_the_last(control: FakeControl) -> None:
    rows, jobs = JobRows(), control.published.all_jobs
    _page(rows, control)
    assert rows.encoded == 100
    _page(rows, control)
    assert rows.encoded == 100
    jobs[JobId(7)] = jobs[JobId(7)]._replace(name="other")
    assert _page(rows, control)[6].name == "other"
    assert rows.encoded == 101
    control.published.chosen = Chosen("las", {}, "", 0.0)
    _page(rows, control)
    assert rows.encoded == 201


def test_alike_jobs_share_the_most_of_their_rows(control: FakeControl) -> None:
    jobs, rows, one = control.published.all_jobs, JobRows(), Request(gpus=1)
    for number in range(1, 101):
        job = jobs[JobId(number)]._replace(name="loop", request=one, submit_time_s=float(number))
        jobs[JobId(number)] = job._replace(family=f"f{number}", sequence=number)
    jobs[JobId(50)] = jobs[JobId(50)]._replace(nice=3)
    with counted_calls() as calls:
        told = _page(rows, control)
    assert calls["rpc/views/job_view.py:standing"] == 3, "of the first, of another, and of the next"
    assert told == [job_message(job, control.published, 0.0) for job in jobs.values()]


def test_a_likeness_leaves_out_what_is_encoded_for_each_job_or_not_shown(
    control: FakeControl,
) -> None:
    seen: set[str] = set()

    class Watched:
        def __getattr__(self, name: str) -> object:
            seen.add(name)
            return getattr(job, name)

    job = control.published.all_jobs[JobId(1)]
    standing(Watched(), control.published)  # type: ignore[arg-type]  # as a job
    own = {name for place, name in enumerate(Job._fields) if place not in likeness(range(1_000))}
    assert own - {"sequence", "family", "program", "person"} == {
        "job_id", "submit_time_s", "queued_since_s", "array", "array_index",
    }  # fmt: skip
    assert not seen & {"sequence", "family", "program", "person"}


def _blocks(rows: JobRows, control: FakeControl, blocks: JobBlocks) -> list[job_pb2.Job]:
    read, now_s = control.published, control.clock.now_s()
    parts: list[bytes] = []
    for number in blocks.numbers(EVERYBODY, 0):
        parts += rows.block(blocks.block(EVERYBODY, number), read, now_s)
    return list(ListJobsResponse.FromString(b"".join(parts)).jobs)


def test_a_block_is_joined_once_and_says_the_same_as_its_rows(control: FakeControl) -> None:
    jobs, now_s = control.published.all_jobs, control.clock.now_s()
    jobs[JobId(2)] = jobs[JobId(2)]._replace(begin_time_s=now_s + 60.0)
    control.place(JobId(70), "gpu01")
    rows, blocks = JobRows(), JobBlocks(jobs)
    assert _blocks(rows, control, blocks) == _page(JobRows(), control)
    with counted_calls() as calls:
        told = _blocks(rows, control, blocks)
    assert calls["rpc/views/job_rows.py:row"] == 2, "of jobs that the clock changes"
    assert told == _page(JobRows(), control)
    before, after = jobs[JobId(7)], jobs[JobId(7)]._replace(name="other")
    jobs[JobId(7)] = after
    blocks.changed(before, after)
    rows.encoded = 0
    assert _blocks(rows, control, blocks)[6].name == "other"
    assert rows.encoded == 1 + 2


def test_a_block_is_joined_anew_after_a_plan_a_stop_cost_and_another_policy(
    control: FakeControl,
) -> None:
    jobs, read = control.published.all_jobs, control.published
    rows, blocks = JobRows(), JobBlocks(jobs)
    _blocks(rows, control, blocks)
    changes = {"plan": object(), "stop_cost_changes": 1, "chosen": Chosen("las", {}, "", 0.0)}
    for name, value in changes.items():
        setattr(read, name, value)
        rows.encoded = 0
        assert _blocks(rows, control, blocks) == _page(JobRows(), control)
        assert rows.encoded == 100
        _blocks(rows, control, blocks)
        assert rows.encoded == 100


def test_a_foreseen_start_in_a_block_moves_with_the_clock_once_it_should_have_come(
    control: FakeControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, clock = control.published, control.clock
    assert isinstance(clock, FakeClock)
    now_s = clock.now_s()
    foreseen = (now_s + 10.0, now_s + 20.0, float("inf"))
    monkeypatch.setattr(
        FakeRead, "start_range",
        lambda _, job: Range(*(max(clock.now_s(), at_s) for at_s in foreseen))
        if job.job_id == 3 else None,
    )  # fmt: skip
    rows, blocks = JobRows(), JobBlocks(read.all_jobs)
    for seconds, joined in ((0, 100), (9, 0), (1.5, 1), (0.25, 0), (0.75, 1), (9, 1)):
        clock.advance(seconds)
        rows.encoded = 0
        told = _blocks(rows, control, blocks)
        assert told == _page(JobRows(), control) or seconds == 0.25
        assert rows.encoded == joined, f"at {clock.now_s() - now_s} s"


def test_rows_of_jobs_that_have_gone_make_room(control: FakeControl) -> None:
    rows, jobs = JobRows(most=100), control.published.all_jobs
    _page(rows, control)
    for number in range(1, 51):
        jobs[JobId(number + 200)] = jobs.pop(JobId(number))._replace(job_id=JobId(number + 200))
    _page(rows, control)
    _page(rows, control)
    assert rows.encoded == 150


def test_a_row_of_a_job_that_waits_is_made_anew_only_after_a_plan(
    control: FakeControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, made = JobRows(), list[JobId]()

    def noted(job: Job, read: FakeRead, now_s: float, start: Range | None) -> bytes:
        made.append(job.job_id)
        return present(job, read, now_s, start)

    monkeypatch.setattr(job_rows, "present", noted)
    control.place(JobId(1), "gpu01")
    control.published.all_jobs[JobId(2)] = control.published.all_jobs[JobId(2)]._replace(
        begin_time_s=control.clock.now_s() + 60.0
    )
    _page(rows, control)
    assert len(made) == 100
    _page(rows, control)
    assert made[100:] == [JobId(1), JobId(2)], "its attempt goes on, its time comes nearer"
    control.published.start_ranges[JobId(3)] = Range(1.0, 2.0, 3.0)
    assert _page(rows, control)[2].HasField("start_estimate")
    control.published.plan = object()
    _page(rows, control)
    assert len(made) == 205
    control.published.stop_cost_changes += 1
    _page(rows, control)
    assert len(made) == 305


def test_what_others_see_is_encoded_once_too(control: FakeControl) -> None:
    rows, read, now_s = JobRows(), control.published, control.clock.now_s()
    control.place(JobId(1), "gpu01")
    told = [[rows.redacted_row(job, read, now_s) for job in read.jobs()] for _ in range(3)]
    assert rows.encoded == 100 + 2, "what runs is told anew"
    assert [job.redacted for job in ListJobsResponse.FromString(b"".join(told[2])).jobs] == [
        True
    ] * 100


def test_a_row_is_the_same_job_as_any_other_answer(control: FakeControl) -> None:
    jobs, now_s = control.published.all_jobs, control.clock.now_s()
    for number in (JobId(1), JobId(3)):
        jobs[number] = jobs[number]._replace(
            time_limit_s=900.0, total_executed_s=0.25, attained_gpu_s=7.5
        )
    jobs[JobId(2)] = jobs[JobId(2)]._replace(begin_time_s=now_s + 60.0)
    jobs[JobId(3)] = jobs[JobId(3)]._replace(rules=RunRules(limit_each=True))
    jobs[JobId(4)] = jobs[JobId(4)]._replace(
        request=Request(gpus=1, sizes=(1, 2)), state=JobState.COMPLETED, end_time_s=now_s
    )
    control.published.start_ranges[JobId(5)] = Range(now_s, now_s + 1.5, float("inf"))
    control.place(JobId(1), "gpu01")
    control.place(JobId(3), "gpu01")
    assert isinstance(control.clock, FakeClock)
    control.clock.advance(50)
    told = _page(JobRows(), control)
    assert told == [
        job_message(job, control.published, control.clock.now_s())
        for job in control.published.jobs()
    ]
    assert (told[0].run_duration.seconds, told[0].run_duration.nanos) == (50, 250_000_000)
    assert (told[0].time_left_duration.seconds, told[0].attained_gpu_seconds) == (849, 57.5)
    assert told[1].begin_time.seconds == int(now_s + 60.0)
    assert list(told[3].elastic.gpu_counts) == [1, 2]


def test_what_an_attempt_changes_stands_in_no_kept_row(control: FakeControl) -> None:
    control.place(JobId(1), "gpu01")
    kept = standing(control.published.all_jobs[JobId(1)], control.published)
    assert not kept.HasField("run_duration")
    assert not kept.HasField("time_left_duration")
    assert not kept.HasField("run_estimate")
    assert not kept.HasField("elastic")
    assert not kept.node_ids


def test_a_job_tells_the_causes_of_its_restarts_that_have_happened(control: FakeControl) -> None:
    jobs = control.published.all_jobs
    assert not _page(JobRows(), control)[0].restart_counts
    jobs[JobId(1)] = jobs[JobId(1)]._replace(restart_counts=RestartCounts(node=2, error=1))
    assert dict(_page(JobRows(), control)[0].restart_counts) == {"error": 1, "node": 2}
