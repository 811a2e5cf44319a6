"""What is known of a job's run time, and what is missing, as it is shown."""

from __future__ import annotations

import pytest

from dlq_master.model.estimates.estimate import DECLARED, Basis, Confidence, Source, Unmeasured
from dlq_master.model.jobs.job import Job
from dlq_master.model.words.estimate_words import known
from dlq_master.rpc.views.preemption_view import estimate_message
from support.builders import a_waiting_job, an_attempt

HIGH = Confidence.HIGH


def a_job(estimate_s: float | None = None, basis: Basis | None = None, **more: object) -> Job:
    job = a_waiting_job(1, duration_estimate_s=estimate_s)
    return job._replace(basis=basis or job.basis, **more)  # type: ignore[arg-type]  # fields of a job


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (a_job(60.0, DECLARED), "its user says so"),
        (a_job(60.0, Basis(Source.HISTORY, HIGH)), "earlier jobs of its family ran alike"),
        (a_job(60.0, Basis(Source.PROFILED, HIGH)), "by its own steps"),
        (
            a_job(60.0, Basis(Source.PROFILED, HIGH), measured_s=(50.0, 55.0)),
            "by trials on one node and on two",
        ),
        (a_job(trials=(8, 16)), "it waits for a trial that will tell it"),
        (a_job(), "it is measured once it runs"),
        (
            a_job(basis=Basis(unmeasured=Unmeasured.NO_BEATS)),
            "it told no steps within 600 s (run.beat of dlq_train); --work says it instead",
        ),
        (
            a_job(basis=Basis(unmeasured=Unmeasured.NO_TOTAL)),
            "it tells its steps, but not how many there are (total= of run.beat, or --steps)",
        ),
    ],
)
def test_what_is_known_is_said_and_what_is_missing(job: Job, words: str) -> None:
    assert known(job, None, 300.0) == words


@pytest.mark.parametrize("why", Unmeasured)
def test_every_reason_has_words_of_its_own(why: Unmeasured) -> None:
    others = {known(a_job(basis=Basis(unmeasured=it)), None, 300.0) for it in Unmeasured}
    assert len(others) == len(Unmeasured)
    assert known(a_job(basis=Basis(unmeasured=why)), None, 300.0) in others


def test_who_runs_is_being_measured_on_what_it_has() -> None:
    attempt = an_attempt(1)
    assert known(a_job(), attempt, 300.0) == "it is being measured"
    trial = a_job(trials=(8, 16))
    width = attempt.lease.allocation.width
    assert known(trial, attempt, 300.0).startswith(f"it is being measured, on {width} of ")


def test_where_nobody_measures_it_is_said_who_could_tell() -> None:
    assert known(a_job(), None, None).startswith(
        "nobody has said it, and this policy measures no jobs"
    )


def test_on_the_wire_what_is_unknown_is_unset() -> None:
    told = estimate_message(a_job(90.0, Basis(Source.PROFILED, HIGH, 1.5)), None, 300.0)
    assert (told.run_duration.seconds, told.source, told.confidence) == (90, "profiled", "high")
    assert told.step_duration.ToMilliseconds() == 1500
    unknown = estimate_message(a_job(), None, 300.0)
    assert not unknown.HasField("run_duration")
    assert (unknown.source, unknown.confidence, unknown.unmeasured) == ("", "", "")
