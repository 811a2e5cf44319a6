"""Runs of a family that differ in one thing count through a measured ratio, and never as sure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dlq_master.model.estimates.estimate import Basis, Confidence, Source
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.likeness import Likeness, likeness
from dlq_master.model.jobs.trials import FAMILIES_KEPT, Profiling
from dlq_master.policy.admit.family_runs import FamilyTime, foretell
from support.builders import a_job

HIGH, MEDIUM, LOW = Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW


def a_run(run_s: float, gpu_type: str = "H100", **more: Any) -> Job:
    asked: Any = {"family": "ada/resnet", **more}
    job = a_job(1, 8)._replace(**asked)
    return job._replace(state=JobState.COMPLETED, worked_s=run_s, gpu_type_ran=gpu_type)


def taught(
    known: Profiling, run_s: float, gpu_type: str = "H100", runs: int = 5, **more: Any
) -> Profiling:
    for _ in range(runs):
        known.learn(a_run(run_s, gpu_type, **more))
    return known


def told(known: Profiling, gpu_type: str = "H100", **more: Any) -> tuple[float, Confidence] | None:
    found = foretell(known, likeness(a_run(1.0, **more)), gpu_type)
    return None if found is None else (round(found.run_s, 6), found.confidence)


@pytest.fixture
def known() -> Profiling:
    return Profiling(0.0)


def test_runs_of_its_own_kind_count_as_they_are(known: Profiling) -> None:
    taught(known, 100.0)
    assert told(known) == (100.0, MEDIUM)
    taught(known, 100.0)
    assert told(known) == (100.0, HIGH)
    found = foretell(known, likeness(a_run(1.0)), "H100")
    assert found == FamilyTime(100.0, HIGH, "10 runs on H100")


# --- GPU types ------------------------------------------------------------------------------------


def test_without_a_measured_ratio_a_type_says_nothing_of_another(known: Profiling) -> None:
    taught(known, 100.0, runs=20)
    taught(known, 100.0, family="bob/bert")
    taught(known, 300.0, "T4", runs=4, family="bob/bert")
    assert told(known, "T4") is None


@pytest.mark.parametrize(
    ("kind", "confidence"),
    [
        ({"step_count": 500}, MEDIUM),
        ({"family": "bob/bert"}, LOW),
        ({"program": "other"}, LOW),
    ],
    ids=["own program", "another family", "other arguments"],
)
def test_a_ratio_is_measured_by_kinds_of_jobs_that_ran_on_both(
    known: Profiling, kind: dict[str, Any], confidence: Confidence
) -> None:
    taught(known, 100.0, runs=20)
    taught(taught(known, 50.0, **kind), 200.0, "T4", **kind)
    assert told(known) == (100.0, HIGH)
    assert told(known, "T4") == (400.0, confidence)
    assert told(known, "A100") is None
    found = foretell(known, likeness(a_run(1.0)), "T4")
    assert found is not None
    assert "and T4 takes 4.00 times as long (by 1 kinds of jobs" in found.rests_on


def test_a_ratio_that_differs_among_its_own_kinds_is_low(known: Profiling) -> None:
    taught(known, 100.0, runs=20)
    for steps, on_t4_s in ((10, 200.0), (20, 500.0), (40, 400.0)):
        taught(taught(known, 100.0, step_count=steps), on_t4_s, "T4", step_count=steps)
    assert told(known, "T4") == (400.0, LOW)


# --- steps ----------------------------------------------------------------------------------------


def test_one_number_of_steps_scales_the_time_as_a_guess(known: Profiling) -> None:
    taught(known, 100.0, runs=20, step_count=1000)
    assert told(known, step_count=1000) == (100.0, HIGH)
    assert told(known, step_count=3000) == (300.0, LOW)
    assert told(known) is None, "nobody says how many"


def test_two_numbers_of_steps_tell_the_start_and_the_step(known: Profiling) -> None:
    """60 s to start, and 0.1 s a step."""
    taught(known, 160.0, runs=20, step_count=1000)
    taught(known, 260.0, runs=20, step_count=2000)
    assert told(known, step_count=3000) == (360.0, MEDIUM)
    assert told(known, step_count=1500) == (210.0, MEDIUM)
    assert told(known, step_count=500) == (110.0, MEDIUM)
    assert told(known, step_count=9000) == (960.0, LOW), "far from what was measured"


def test_times_that_do_not_grow_with_steps_are_no_line(known: Profiling) -> None:
    taught(known, 300.0, step_count=1000)
    taught(known, 100.0, step_count=2000)
    assert told(known, step_count=3000) == (150.0, LOW)


def test_steps_and_type_at_once_are_no_surer_than_either(known: Profiling) -> None:
    taught(taught(known, 160.0, step_count=1000), 260.0, step_count=2000)
    taught(known, 320.0, "T4", step_count=1000)
    assert told(known, "T4", step_count=3000) == (720.0, MEDIUM)
    assert told(known, "T4", step_count=90_000) == (28_800.0, LOW), "steps alone"


# --- arguments ------------------------------------------------------------------------------------


def test_other_arguments_under_one_name_are_a_guess(known: Profiling) -> None:
    for number in range(20):
        taught(known, 100.0, runs=1, program=f"seed {number}")
    assert told(known, program="batch 64") == (100.0, LOW)
    taught(known, 400.0, program="batch 64")
    assert told(known, program="batch 64") == (400.0, MEDIUM)


def test_other_arguments_that_run_otherwise_say_nothing(known: Profiling) -> None:
    for number in range(20):
        taught(known, 100.0 * (1 + number % 3), runs=1, program=f"batch {number}")
    assert told(known, program="batch 64") is None


def test_own_runs_that_differ_are_not_replaced_by_those_of_others(known: Profiling) -> None:
    for run_s in (100.0, 100.0, 100.0, 300.0, 300.0):
        taught(known, run_s, runs=1, program="own")
    taught(known, 100.0, program="other")
    assert told(known, program="own") is None


@pytest.mark.parametrize(
    "more",
    [{"gpus": 4}, {"nodes": 1}, {"halves_batch": True}, {"family": "bob/resnet"}],
    ids=["gpus", "nodes", "batch", "family"],
)
def test_other_sizes_and_families_say_nothing(known: Profiling, more: dict[str, Any]) -> None:
    taught(known, 100.0, runs=20)
    asked = likeness(a_run(1.0))._replace(**more)
    assert foretell(known, asked, "H100") is None


# --- what is kept ---------------------------------------------------------------------------------


def test_the_kin_of_a_family_are_those_of_which_runs_are_kept() -> None:
    known = Profiling(0.0)
    assert not list(known.kin("f1"))
    for at in range(FAMILIES_KEPT + 10):
        known.learn(a_run(1.0, family=f"f{at}"))
        known.learn(a_run(1.0, "T4", family=f"f{at}"))
    assert not list(known.kin("f9"))
    assert list(known.kin("f10")) == [likeness(a_run(1.0, family="f10"))]
    again = Profiling(0.0)
    again.remember(known.remembered)
    assert list(again.several(300)) == list(known.several(300))
    assert len(list(known.several(10**9))) == FAMILIES_KEPT


def test_a_row_of_before_has_no_program() -> None:
    assert Likeness("ada/resnet", 8, None, None, False).program == ""


def test_a_guess_is_one_of_low_confidence_from_history_alone() -> None:
    def guesses(sources: Sequence[Source], confidence: Confidence) -> list[bool]:
        return [Basis(source, confidence).guess for source in sources]

    assert guesses(list(Source), LOW) == [False, False, False, True]
    assert guesses(list(Source), MEDIUM) == [False] * 4
    job = a_job(1, 8)._replace(duration_estimate_s=9.0, basis=Basis(Source.HISTORY, LOW))
    assert (job.timed, job._replace(basis=Basis(Source.HISTORY, MEDIUM)).timed) == (False, True)
    assert not a_job(JobId(1), 8).timed
