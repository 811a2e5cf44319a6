"""Reports from jobs that have ended, and usage as tables and lines."""

from __future__ import annotations

from typing import Any

import pytest

from dlq.v1 import job_pb2
from dlq.v1 import usage_service_pb2 as wire
from dlq_cli.facts.usage import report_facts
from dlq_cli.lists.reports import preemptions, promises, waits
from dlq_cli.output.render import OutputLook
from dlq_cli.text.costs import usage_csv, usage_text
from dlq_common.text.wire import to_duration, to_timestamp
from support.wire_jobs import EPOCH_S, a_job

PIPE = OutputLook(tty=False, color=False, now_s=EPOCH_S)


def ended(number: int, start_s: float, end_s: float, **more: Any) -> job_pb2.Job:
    """Submitted `number` seconds after the epoch; started and ended so long after that."""
    submit_s = EPOCH_S + number
    more = {"run_duration": to_duration(end_s - start_s), **more}
    return a_job(
        number,
        "completed",
        start_time=to_timestamp(submit_s + start_s),
        end_time=to_timestamp(submit_s + end_s),
        **more,
    )


def test_waits_are_told_by_width() -> None:
    jobs = [ended(number, 10.0 * number, 500.0) for number in range(1, 11)]
    jobs.append(a_job(11, "cancelled", end_time=to_timestamp(EPOCH_S + 20)))
    for job, gpus in zip(jobs, [1, 5, 6, 7, 8, 8, 8, 8, 8, 65, 1], strict=True):
        job.resources.gpu_count = gpus
    rows = {row["gpus"]: row for row in waits(jobs)}
    assert list(rows) == ["1", "5-8", ">64", "all"]
    assert (rows["1"]["jobs"], rows["1"]["never_started"]) == (2, 1)
    assert [rows["5-8"][f"start_{part}_s"] for part in ("p50", "p90", "max")] == [50.0, 90.0, 90.0]
    assert (rows["all"]["start_p50_s"], rows["all"]["start_p90_s"]) == (50.0, 90.0)
    paused = ended(1, 10.0, 500.0, run_duration=to_duration(300.0))
    assert waits([paused])[0]["not_running_p50_s"] == 200.0, "also what came between two starts"


def deadline(state: str, *due_s: float, ground: str = "", index: int | None = None) -> Any:
    steps = [job_pb2.DeadlineStep(due_time=to_timestamp(EPOCH_S + due)) for due in due_s]
    return job_pb2.Promise(state=state, deadlines=steps, ground=ground, guaranteed_index=index)


def test_a_promise_is_kept_by_the_deadline_that_was_promised() -> None:
    jobs = [
        ended(1, 0.0, 99.0, promise=deadline("guaranteed", 100.0, 200.0, index=0)),
        ended(1, 0.0, 150.0, promise=deadline("guaranteed", 100.0, 200.0, index=0)),
        ended(1, 0.0, 150.0, promise=deadline("guaranteed", 100.0, 200.0, index=1)),
        ended(1, 0.0, 150.0, promise=deadline("unguaranteed", 100.0, 200.0, ground="misfit")),
        ended(1, 0.0, 250.0, promise=deadline("unguaranteed", 200.0, ground="promise_broken")),
        a_job(1, "failed", promise=deadline("guaranteed", 900.0, index=0)),
        ended(1, 0.0, 1.0),
    ]
    told = [
        (row["state"], row["ground"], row["in_time"], row["late"], row["not_completed"])
        for row in promises(jobs)
    ]
    assert told == [
        ("guaranteed", None, 2, 1, 1),
        ("unguaranteed", "misfit", 1, 0, 0),
        ("unguaranteed", "promise_broken", 0, 1, 0),
    ]
    assert promises(jobs)[0]["kept_percent"] == 50.0


@pytest.mark.parametrize("state", ["undecided", "not_offered", "run_time_unknown"])
def test_a_deadline_that_nobody_judged_was_not_kept_either(state: str) -> None:
    (row,) = promises([ended(1, 0.0, 5.0, promise=deadline(state, 900.0))])
    assert (row["in_time"], row["kept_percent"]) == (1, None)


def test_who_lost_most_by_stops_comes_first() -> None:
    jobs = [
        ended(1, 0, 9, gpu_seconds=7200.0, lost_gpu_seconds=360.0, preemption_count=1),
        ended(2, 0, 9, user="bob", gpu_seconds=3600.0, lost_gpu_seconds=720.0, preemption_count=3,
              displaced_count=2),
        ended(3, 0, 9, user="bob"),
    ]  # fmt: skip
    bob, alice, everybody = preemptions(jobs)
    assert (bob["user"], bob["jobs"], bob["preempted_jobs"], bob["preemptions"]) == ("bob", 2, 1, 3)
    assert (bob["for_others"], bob["lost_gpu_hours"], alice["user"]) == (2, 0.2, "alice")
    assert (everybody["user"], everybody["gpu_hours"], everybody["preemptions"]) == ("all", 3.0, 4)
    assert preemptions([]) == []


@pytest.fixture
def answer() -> wire.GetUsageResponse:
    return wire.GetUsageResponse(
        from_time=to_timestamp(EPOCH_S),
        until_time=to_timestamp(EPOCH_S + 3600),
        usages=[
            wire.Usage(user="alice", useful_gpu_seconds=3600.0, transit_gpu_seconds=1800.0),
            wire.Usage(user="bob", team="vision", failed_gpu_seconds=900.0),
        ],
        pools=[wire.PoolUsage(pool="training", used_gpu_seconds=6300.0, idle_gpu_seconds=900.0)],
    )


def test_usage_is_a_table_of_jobs_and_one_of_pools(answer: wire.GetUsageResponse) -> None:
    lines = usage_text(answer, ("user", "team"), PIPE).splitlines()
    assert lines[1].split() == ["USER", "TEAM", "HELD", "USEFUL", "PREEMPTED", "FAILED", "TRANSIT"]
    assert lines[2].split() == ["alice", "-", "1.50", "1.00", "0.00", "0.00", "0.50"]
    assert lines[5].split() == ["POOL", "CAPACITY", "USED", "IDLE", "WITHHELD"]
    assert lines[6].split() == ["training", "2.00", "1.75", "0.25", "0.00"]


def test_hours_of_slow_gpus_stand_beside_in_those_of_fast_ones(
    answer: wire.GetUsageResponse,
) -> None:
    answer.usages[1].normalised_gpu_seconds = 225.0
    lines = usage_text(answer, ("user",), PIPE).splitlines()
    assert lines[1].split()[-2:] == ["TRANSIT", "NORMALISED"]
    assert [line.split()[-1] for line in lines[2:4]] == ["1.50", "0.06"]
    assert report_facts(answer, ())["usages"][1]["normalised_gpu_hours"] == 0.0625


def test_idle_hours_of_held_gpus_stand_there_if_there_are_some(
    answer: wire.GetUsageResponse,
) -> None:
    answer.usages[1].idle_gpu_seconds = 450.0
    lines = usage_text(answer, ("user",), PIPE).splitlines()
    assert lines[1].split()[-2:] == ["TRANSIT", "HELD_IDLE"]
    assert [line.split()[-1] for line in lines[2:4]] == ["0.00", "0.12"]


def test_usage_for_programs_has_units_in_its_names(answer: wire.GetUsageResponse) -> None:
    facts = report_facts(answer, ("user",))
    assert facts["usages"][1] == {
        "user": "bob",
        "held_idle_gpu_hours": 0.0,
        "gpu_hours": 0.25,
        "useful_gpu_hours": 0.0,
        "preempted_gpu_hours": 0.0,
        "failed_gpu_hours": 0.25,
        "transit_gpu_hours": 0.0,
        "normalised_gpu_hours": 0.25,
    }
    assert facts["pools"][0]["capacity_gpu_hours"] == 2.0
    head, alice, bob = usage_csv(answer, ("team", "user")).splitlines()
    assert head.startswith("team,user,gpu_hours,useful_gpu_hours,")
    assert (alice, bob) == (
        ",alice,1.5,1.0,0.0,0.0,0.5,1.5,0.0",
        "vision,bob,0.25,0.0,0.0,0.25,0.0,0.25,0.0",
    )
