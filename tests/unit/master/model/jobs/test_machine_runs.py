"""Run times from which models are fitted: which count, when, and what a job teaches."""

from __future__ import annotations

import pytest

from dlq_master.model.estimates.lessons import IN_A_ROW, Lesson
from dlq_master.model.estimates.scaling import SizePace
from dlq_master.model.estimates.traffic import TrafficProfile
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.machine_runs import (
    KEPT,
    LOOK_S,
    MOST_NEW,
    RING,
    MachineRun,
    MachineRuns,
    fitted_to,
    no_runs,
    runs_of,
    settled,
)
from dlq_master.policy.priced.learning import JobFeatures, LearnedTimes
from support.builders import a_job


def run(number: int, at_s: float = 0.0) -> MachineRun:
    gpus, iterations = 1 + number % 4, 100 + number % 37
    time_s = iterations * (2 / gpus + 1) / 3
    return MachineRun(at_s, gpus, 1.0, time_s, iterations, 0.0, f"f{number % 3}", f"{number}")


def test_facts_count_from_the_next_look_on() -> None:
    runs = no_runs()
    for at_s in (1.0, 29.0, 31.0, 59.0, 61.0):
        runs.append(run(0, at_s))
    counts = {now_s: settled(runs, now_s) for now_s in (61.0, 89.9, 90.0)}
    assert counts == {61.0: 4, 89.9: 4, 90.0: 5}
    assert settled(runs, 0.5) == 5, "a clock that was set back hides nothing"


def test_of_a_flood_of_facts_only_the_last_ones_wait() -> None:
    runs = no_runs()
    runs.extend(run(number, 1.0) for number in range(2 * RING))
    assert settled(runs, 1.0) == runs.total - (RING - KEPT - MOST_NEW)


def test_models_see_fixed_numbers_of_facts() -> None:
    counts = [fitted_to(count) for count in range(10_000)]
    assert sorted({*counts})[:12] == [0, 5, 8, 12, 18, 27, 41, 62, 93, 140, 204, 268]
    assert counts[4:9] == [0, 5, 5, 5, 8]
    assert all(0 <= count - seen < MOST_NEW for count, seen in enumerate(counts) if count > 200)
    assert counts == sorted(counts)


@pytest.mark.parametrize("count", [3, 50, KEPT + 100, RING + 700])
def test_models_do_not_depend_on_when_they_were_asked_for(count: int) -> None:
    """A master that has loaded the facts has the models of one that saw them come."""
    step, runs = 1 if count < 100 else 61, no_runs()
    asked = LearnedTimes((1.0, 2.0), 4, runs)
    kin = [JobFeatures("f0", 777), JobFeatures("f2", 5), JobFeatures("new", 90), JobFeatures("f1")]
    for number in range(count):
        runs.append(run(number))
        if number % step == 0:
            asked.look(runs.total)
            asked.times(kin[number % 4])
    asked.look(runs.total)
    again: MachineRuns = no_runs()
    again.extend(runs)
    again.total = runs.total
    loaded = LearnedTimes((1.0, 2.0), 4, again)
    for one in kin:
        assert asked.times(one).tolist() == loaded.times(one).tolist()


def test_a_network_that_was_measured_is_foretold_in_a_family_without_runs() -> None:
    """The time of an iteration goes with the size of the network."""
    runs = no_runs()
    for number in range(40):
        size = 1e6 * (1 + number % 10)
        one = run(number)
        runs.append(one._replace(time_s=one.iterations * size / 1e6, model_bytes=size))
    learned = LearnedTimes((1.0,), 1, runs)
    assert learned.times(JobFeatures("new", 50, 4.5e6))[0, 0] == pytest.approx(50 * 4.5, rel=0.05)
    assert learned.times(JobFeatures("new", 50))[0, 0] != pytest.approx(50 * 4.5, rel=0.05)


def ended(**changes: object) -> Job:
    job = a_job(gpus=4)._replace(total_executed_s=100.0, total_gpu_s=400.0)
    return job._replace(**changes)  # type: ignore[arg-type]


def test_a_job_that_ran_through_teaches_its_run_time() -> None:
    profile = TrafficProfile(model_bytes=1e8)
    job = ended(family="vgg", step_count=50, profile=profile)
    assert runs_of(job, 7.0, 1.5) == [
        MachineRun(7.0, 4, 1.5, 100.0, 50.0, 1e8, "vgg", str(job.job_id))
    ]
    (nameless,) = runs_of(ended(), 7.0)
    assert (nameless.family, nameless.iterations) == (f"{job.user}/", 0.0)


def test_mixtures_of_sizes_teach_nothing_unless_steps_tell_them_apart() -> None:
    assert runs_of(ended(resizes=1), 7.0) == []
    paces = (SizePace(2, 3.0, "H100"), SizePace(4, 2.0, "H100"))
    told = ended(resizes=1, step_count=50, paces=paces, gpu_type_ran="H100")
    assert [(one.gpus, one.time_s) for one in runs_of(told, 7.0)] == [(2, 150.0), (4, 100.0)]
    assert runs_of(told._replace(gpu_type_ran="several"), 7.0) == []


def test_rows_are_bounded() -> None:
    from dlq_master.model.cluster.learned import _RAN

    runs, rows = no_runs(), dict[str, Lesson]()
    for number in range(3 * RING):
        told = runs.total
        runs.append(run(number, LOOK_S * number))
        if number % 16 == 0 or number == 3 * RING - 1:
            rows |= {row.name: row for row in _RAN.rows(runs, max(0, told - 15))}
    assert len(rows) <= RING // IN_A_ROW + 2
    begin, facts = _RAN.facts(rows.values(), 6, 2)
    assert begin + len(facts) == runs.total
    assert facts[-RING:] == list(runs)
