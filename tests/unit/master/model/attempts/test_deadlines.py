"""What is left of a job until its deadlines: by its run time, and never by a guess."""

from __future__ import annotations

import pytest

from dlq_master.model.attempts.deadlines import left_s, lost_s, slack_s
from dlq_master.model.estimates.estimate import DECLARED, Basis, Confidence, Source
from dlq_master.model.jobs.reward import strict
from dlq_master.model.nodes.type_speeds import ALL_ALIKE, TypeSpeeds
from dlq_master.model.resources import CORE_TYPE, Request
from support.builders import World, a_node, a_waiting_job, an_attempt

GUESS = Basis(Source.HISTORY, Confidence.LOW)
MEASURED = Basis(Source.HISTORY, Confidence.HIGH)


def test_a_guess_ends_no_job_and_tells_no_slack() -> None:
    job = a_waiting_job(duration_estimate_s=300.0, steps=strict(250.0), basis=GUESS)
    assert left_s(job, None, 0.0) is None
    assert slack_s(job, None, 0.0) is None
    assert lost_s(job, None, 0.0) == 250.0, "the deadline itself"


@pytest.mark.parametrize("basis", [DECLARED, MEASURED])
def test_a_known_run_time_does(basis: Basis) -> None:
    job = a_waiting_job(duration_estimate_s=300.0, steps=strict(250.0), basis=basis)
    assert slack_s(job, None, 0.0) == -50.0
    assert lost_s(job, None, 0.0) == -50.0


def test_a_job_that_fast_gpus_still_bring_home_is_not_lost() -> None:
    job = a_waiting_job(duration_estimate_s=1500.0, steps=strict(1000.0), basis=DECLARED)
    assert lost_s(job, None, 0.0) == -500.0
    assert lost_s(job, None, 0.0, pace=3.0) == 500.0


def test_slow_gpus_hide_no_lateness() -> None:
    job = a_waiting_job(duration_estimate_s=3900.0, steps=strict(4800.0), basis=DECLARED)
    attempt = an_attempt()
    assert slack_s(job, attempt, 0.0) == 900.0
    assert slack_s(job, attempt._replace(speed=0.5), 0.0) == -3000.0
    named = job._replace(request=Request(gpus=1, gpu_type="t4"))
    assert slack_s(named, attempt._replace(speed=0.5), 0.0) == 900.0, "its run time is that there"


def test_the_fastest_type_is_one_that_the_job_may_get() -> None:
    speeds = TypeSpeeds({"h100": 3.0, "t4": 0.5})

    def fastest_pace(request: Request, types: list[str], of: TypeSpeeds = speeds) -> float:
        cluster = World(nodes=[a_node(kind, 1, kind) for kind in types]).cluster
        cluster.speeds = of
        return cluster.fastest_pace(a_waiting_job(request=request))

    types = ["h100", "t4", CORE_TYPE]
    assert fastest_pace(Request(gpus=1), types) == 3.0
    assert fastest_pace(Request(gpus=1), ["t4"]) == 0.5
    either = Request(gpus=1, gpu_type="t4", or_gpu_types=("a100",))
    assert fastest_pace(either, [*types, "a100"]) == 1.0
    assert fastest_pace(Request(gpus=1, gpu_type="t4"), types) == 1.0
    assert fastest_pace(Request(gpus=1), types, ALL_ALIKE) == 1.0
    assert fastest_pace(Request(gpus=1), []) == 1.0
