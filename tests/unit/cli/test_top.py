"""`dlq top`: which jobs it lists, in which order, and what it says of them."""

from __future__ import annotations

from dlq.v1 import job_pb2, node_pb2
from dlq_cli.commands.look.top import use_facts, uses_of
from dlq_common.text.wire import to_duration


def job(number: int, **more: object) -> job_pb2.Job:
    made = job_pb2.Job(
        job_id=str(number),
        name=f"job{number}",
        state=job_pb2.JOB_STATE_QUEUED,
        attempt_state=job_pb2.ATTEMPT_STATE_RUNNING,
        run_duration=to_duration(3600.0),
        held_gpu_count=2,
    )
    for name, value in more.items():
        setattr(made, name, value)
    return made


def gpu(number: int, index: int, percent: float | None, idle_s: float) -> node_pb2.GpuStatus:
    status = node_pb2.GpuStatus(index=index, state="busy", attempt=f"{number}.1")
    if percent is not None:
        status.mean_utilization_percent, status.power_watts = percent, 100
        status.idle_duration.CopyFrom(to_duration(idle_s))
        status.used_memory_bytes, status.clock_mhz = 3 << 30, 1400 - index
    return status


def test_the_idlest_job_comes_first_and_a_job_is_as_idle_as_its_busiest_gpu() -> None:
    nodes = [
        node_pb2.Node(gpu_statuses=[gpu(1, 0, 90.0, 0.0), gpu(1, 1, 0.0, 600.0)]),
        node_pb2.Node(gpu_statuses=[gpu(2, 0, 0.0, 300.0), gpu(2, 1, 0.0, 400.0)]),
        node_pb2.Node(gpu_statuses=[gpu(3, 0, 0.0, 900.0), gpu(3, 1, None, 0.0)]),
    ]
    found = uses_of([job(1), job(2), job(3)], nodes)
    assert [use.job.job_id for use in found] == ["2", "3", "1"]
    two, three, one = found
    assert (one.percent, one.watts, one.idle_s) == (45.0, 200, 0.0)
    assert (one.memory_bytes, one.clock_mhz) == (6 << 30, 1399)
    assert (three.memory_bytes, three.clock_mhz) == (None, None)
    assert (two.percent, two.watts, two.idle_s) == (0.0, 200, 300.0)
    assert (three.percent, three.watts, three.idle_s) == (None, None, None), "one is not known"


def test_gpus_that_were_idle_before_a_job_do_not_make_it_idle() -> None:
    node = node_pb2.Node(gpu_statuses=[gpu(1, 0, 0.0, 9999.0)])
    (use,) = uses_of([job(1)], [node])
    assert use.idle_s == 3600.0


def test_only_running_jobs_are_listed_and_their_notes_are_told() -> None:
    waiting = job_pb2.Job(job_id="8", state=job_pb2.JOB_STATE_QUEUED)
    hung = job(9)
    hung.activity.stall_reason = "no step for 5 min"
    (use,) = uses_of([waiting, hung], [])
    assert use.words == "stalled: no step for 5 min"
    assert use_facts(use)["stall_reason"] == "no step for 5 min"


def test_a_job_that_a_node_slows_down_has_a_note() -> None:
    slowed = job(9)
    slowed.activity.straggler_reason = "rank 2 on gpu02 works 10 % longer"
    (use,) = uses_of([slowed], [])
    assert use.words == "slowed down: rank 2 on gpu02 works 10 % longer"
    assert use_facts(use)["straggler_reason"] == "rank 2 on gpu02 works 10 % longer"


def test_figures_of_virtual_gpus_are_told_as_such() -> None:
    node = node_pb2.Node(gpu_statuses=[gpu(1, 0, 90.0, 0.0)])
    real, virtual = uses_of([job(1), job(2, virtual_devices=True)], [node])
    assert sorted((real.words, virtual.words)) == ["", "virtual devices"]
