"""The pace of a job, by the steps that it tells, and when a trial has told enough."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.estimates.estimate import Confidence, Source, Unmeasured
from dlq_master.model.jobs.job import Job
from dlq_master.policy.trial.judge import TrialTold, WatchedTrial, judged
from dlq_master.policy.trial.steps import Track, followed, pace
from support.builders import a_job, an_attempt

HIGH, MEDIUM, LOW = Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW


def track_of(
    *said: tuple[float, int | None], attempt: int = 1, before: Track | None = None
) -> Track:
    """`said`: instants, and the steps that were done by then."""
    track = before
    for at_s, step in said:
        track = followed(track, attempt, 8, step, at_s)
    assert track is not None
    return track


def steady(seconds: int, step_s: float = 1.0, every_s: int = 5) -> list[tuple[float, int | None]]:
    return [(float(at), int(at / step_s)) for at in range(0, seconds + 1, every_s)]


@given(st.integers(1, 500), st.floats(0.01, 100.0), st.integers(2, 300))
def test_a_steady_pace_is_found_whatever_it_is(stride: int, step_s: float, words: int) -> None:
    found = pace(track_of(*((n * stride * step_s, n * stride) for n in range(words))))
    if stride * (words - 1) < 2:
        assert found is None
        return
    assert found is not None
    assert found.step_s == pytest.approx(step_s)
    assert found.steps == stride * (words - 1)
    assert len(track_of(*((n * step_s, n) for n in range(words))).samples) <= 33


@pytest.mark.parametrize(
    ("said", "confidence"),
    [
        (steady(100), HIGH),
        ([(0.0, 0), (100.0, 100)], MEDIUM),  # nothing in between
        ([(0.0, 0), (50.0, 50), (100.0, 110)], MEDIUM),
        ([(0.0, 0), (50.0, 10), (100.0, 120)], LOW),
        ([(0.0, 0), (50.0, 3), (100.0, 9)], LOW),  # few steps
    ],
)
def test_a_pace_is_as_sure_as_its_halves_are_alike(
    said: list[tuple[float, int | None]], confidence: Confidence
) -> None:
    found = pace(track_of(*said))
    assert found is not None
    assert found.confidence is confidence


def test_steps_that_go_back_are_counted_anew() -> None:
    found = pace(track_of((0.0, 100), (10.0, 200), (20.0, 50), (30.0, 60)))
    assert found is not None
    assert (found.steps, found.span_s) == (10, 10.0)


def test_what_an_earlier_attempt_told_counts_and_the_time_between_them_does_not() -> None:
    first = track_of((0.0, 0), (100.0, 100))
    found = pace(track_of((900.0, 100), (950.0, 150), attempt=2, before=first))
    assert found is not None
    assert (found.steps, found.span_s) == (150, 150.0)


def test_another_size_begins_anew() -> None:
    track = followed(track_of(*steady(50)), 2, 16, 0, 60.0)
    assert (track.gpus, len(track.samples), pace(track)) == (16, 1, None)


def run(
    said: Iterable[tuple[float, int | None]],
    now_s: float,
    *,
    job: Job | None = None,
    total: int | None = 1000,
    iteration_s: float | None = None,
) -> TrialTold | None:
    """What is known at `now_s` of an attempt that began at 0; T_profile is 300 s."""
    said = list(said)
    return judged(
        WatchedTrial(
            job=job or a_job(1, 8),
            attempt=an_attempt(1, started_time_s=0.0),
            track=track_of(*said) if said else None,
            now_s=now_s,
            since_s=0.0,
            profile_s=300.0,
            total=total,
            iteration_s=iteration_s,
        )
    )


IN_PARTITION = a_job(1, 8, trials=(8,))


def test_in_place_a_steady_pace_is_enough_and_in_the_partition_the_trial_takes_its_time() -> None:
    assert run(steady(50), 50.0) is None
    told = run(steady(60), 60.0)
    assert told is not None
    assert told.work_s == pytest.approx(1000.0)
    assert run(steady(295), 295.0, job=IN_PARTITION) is None
    assert run(steady(300), 300.0, job=IN_PARTITION) is not None


def test_in_place_an_unsteady_pace_is_watched_until_the_trial_is_over() -> None:
    halting = [(0.0, 0), (100.0, 10), (150.0, 80), (200.0, 160), (250.0, 300), (300.0, 330)]
    assert run(halting[:-1], 250.0) is None
    told = run(halting, 300.0)
    assert told is not None
    assert told.basis.confidence is not HIGH


def test_what_it_worked_before_counts_for_the_trial_and_for_the_estimate() -> None:
    job = IN_PARTITION._replace(worked_s=200.0)
    assert run(steady(95), 95.0, job=job) is None
    told = run(steady(100), 100.0, job=job)
    assert told is not None
    assert told.work_s == pytest.approx(200.0 + 1000.0)


@pytest.mark.parametrize(
    ("said", "now_s", "why"),
    [
        ([], 600.0, Unmeasured.NO_BEATS),
        ([(500.0, None)], 1100.0, Unmeasured.NO_BEATS),
        ([(0.0, 1)], 600.0, Unmeasured.TOO_FEW_STEPS),
    ],
)
def test_after_twice_the_time_it_is_said_why_nothing_is_known(
    said: list[tuple[float, int | None]], now_s: float, why: Unmeasured
) -> None:
    assert run(said, now_s - 1.0) is None
    told = run(said, now_s)
    assert told is not None
    assert (told.work_s, told.basis.unmeasured) == (None, why)


def test_without_a_total_a_pace_is_all_there_is() -> None:
    told = run(steady(300), 300.0, total=None)
    assert told is not None
    assert (told.work_s, told.basis.unmeasured) == (None, Unmeasured.NO_TOTAL)
    assert told.basis.step_s == pytest.approx(1.0)


def test_without_beats_the_iterations_of_its_traffic_count_if_their_number_is_known() -> None:
    assert run([], 299.0, iteration_s=0.5) is None
    told = run([], 300.0, iteration_s=0.5)
    assert told is not None
    assert told.work_s == 500.0
    assert (told.basis.source, told.basis.confidence) == (Source.TRAFFIC, LOW)
    assert run([], 300.0, total=None, iteration_s=0.5) is None
    again = a_job(1, 8)._replace(worked_s=50.0)  # how many it has made by now nobody knows
    assert run([], 300.0, job=again, iteration_s=0.5) is None
