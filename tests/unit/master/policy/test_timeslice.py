"""timeslice: everybody has a turn, and nobody more turns than others while somebody waits."""

from __future__ import annotations

from collections.abc import Sequence

from dlq_simulator.metrics import ReplayOutcome
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import read_cluster
from support.builders import World, a_job

FREE = ("term_s=100", "save_s=0", "resume_s=0")


def replayed(
    *rows: tuple[int, int, int], policy: str = "timeslice", settings: Sequence[str] = FREE
) -> Sequence[ReplayOutcome]:
    """Submit, GPUs and duration of jobs on eight GPUs, in turns of 100 s that cost nothing."""
    (chosen,) = read_settings([policy], settings)
    jobs = [
        TraceJob(job_id=str(number), submit_time_s=at_s, num_gpus=gpus, duration_s=duration_s)
        for number, (at_s, gpus, duration_s) in enumerate(rows)
    ]
    return replay(Trace.of("turns", jobs), read_cluster("1x8"), chosen).outcomes


def held(outcome: ReplayOutcome) -> tuple[tuple[float, float], ...]:
    """From when to when it had its GPUs."""
    return tuple((span.begin_s, span.end_s) for span in outcome.spans)


def test_equal_jobs_take_turns_in_the_order_in_which_they_wait() -> None:
    found = replayed((0, 8, 200), (0, 8, 200), (0, 8, 200))
    assert [held(outcome) for outcome in found] == [
        ((0, 100), (300, 400)),
        ((100, 200), (400, 500)),
        ((200, 300), (500, 600)),
    ]


def test_gandiva_has_slices_of_a_minute_and_pays_a_second_for_each_switch() -> None:
    found = replayed((0, 8, 100), (0, 8, 100), policy="gandiva", settings=())
    assert [held(outcome) for outcome in found] == [
        ((0, 60), (120, 161)),
        ((60, 120), (161, 202)),
    ]
    longer = replayed((0, 8, 100), (0, 8, 100), policy="gandiva", settings=("term_s=90",))
    assert held(longer[0]) == ((0, 90), (180, 191)), "--set says otherwise"


def test_who_need_not_leave_goes_on() -> None:
    found = replayed((0, 4, 300), (0, 4, 300), (10, 4, 50))
    assert [outcome.preemptions for outcome in found] == [0, 1, 0]
    assert held(found[2]) == ((100, 150),)
    assert held(found[1]) == ((0, 100), (150, 350))


def test_a_wide_job_has_its_turn_too() -> None:
    found = replayed((0, 4, 400), (0, 4, 400), (1, 8, 100))
    assert held(found[2]) == ((100, 200),)


def test_nothing_is_taken_before_the_boundary() -> None:
    world = World("timeslice", nodes=1).submit(a_job(1, 8)).at(0.0)
    world.submit(a_job(2, 8)).at(100.0)
    assert (world.running, world.leaving) == ([1], [])
    assert world.wake_at_s is not None
    world.at(world.wake_at_s)
    assert world.leaving == [1]
