"""Steps on two types measure the ratio of these types for a program, and that outweighs what was
declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dlq_master.model.cluster import drive
from dlq_master.model.estimates.estimate import Basis, Confidence, Source
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.job_steps import Released
from dlq_master.model.jobs.likeness import Likeness, likeness
from dlq_master.model.jobs.reward import strict
from dlq_master.model.jobs.trials import Profiling
from dlq_master.model.jobs.type_paces import KEPT, KINDS_KEPT, Stepped
from dlq_master.model.nodes.type_speeds import TypeSpeeds
from dlq_master.model.order.keys import had
from dlq_master.model.resources import Request
from dlq_master.policy.admit.estimates import from_history
from dlq_master.policy.order.by_key import left_s
from dlq_master.policy.promise.verdicts.reading import slo_job
from dlq_master.policy.stop_costs import expected_end_s
from support.builders import World, a_job, a_node

FAST, SLOW = "h100-80gb", "t4-16gb"
FAMILY = "ada/resnet"
DECLARED = TypeSpeeds({"t4": 0.25})


def of(number: int = 1, **more: Any) -> Job:
    return a_job(number, 1, **{"family": FAMILY, **more})


def stepped(known: Profiling, kind: Job, gpu_type: str, steps_s: Sequence[float]) -> None:
    begin = known.paces.told
    for number, step_s in enumerate(steps_s, begin + 1):
        known.learn_pace(kind._replace(job_id=number), gpu_type, step_s)  # type: ignore[arg-type]


def a_world(policy: str = "dlq", kind: str = SLOW, **settings: str) -> World:
    """One node of 8 GPUs on which jobs run; most GPUs are fast, and lie on closed nodes."""
    world = World(policy, [a_node("n1", 8, kind), a_node("f", 16, FAST)], None, **settings)
    world.cluster.speeds = DECLARED
    return world.drain("f")


def measured(world: World, times: float = 2.0) -> World:
    """A step takes so many times as long on the slow type, where four were declared."""
    known = world.cluster.profiling
    stepped(known, of(), FAST, [1.0, 1.05, 1.0])
    stepped(known, of(), SLOW, [times, times, times])
    return world


@pytest.fixture
def known() -> Profiling:
    return Profiling(0.0)


def times_of(known: Profiling, kind: Job | None = None) -> float | None:
    return known.measured_times(likeness(kind or of()), FAST, SLOW)


def test_steps_of_enough_jobs_on_both_types_tell_the_ratio(known: Profiling) -> None:
    stepped(known, of(), FAST, [1.0, 1.0, 1.0])
    stepped(known, of(), SLOW, [2.0, 2.1])
    assert times_of(known) is None, "two jobs are too few"
    stepped(known, of(), SLOW, [2.0])
    assert times_of(known) == 2.0
    assert known.measured_times(likeness(of()), SLOW, FAST) == 0.5
    other = of(step_count=500, request=Request(gpus=4))
    assert times_of(known, other) == 2.0, "another number of steps, and another width"
    assert times_of(known, of(family="bob/bert")) is None
    assert times_of(known, of(program="batch=8")) is None


def test_paces_that_disagree_tell_nothing(known: Profiling) -> None:
    stepped(known, of(), FAST, [1.0, 1.0, 1.0])
    stepped(known, of(), SLOW, [2.0, 2.0, 3.0])
    assert times_of(known) is None
    wide = of(request=Request(gpus=8))
    for kind, step_s in ((of(family="b"), 2.0), (wide._replace(family="b"), 4.0)):
        stepped(known, kind, FAST, [1.0] * 3)
        stepped(known, kind, SLOW, [step_s] * 3)
    assert times_of(known, of(family="b")) is None, "one width says 2 and another 4"


def test_completed_runs_tell_it_where_no_steps_do(known: Profiling) -> None:
    for gpu_type, run_s in ((FAST, 100.0), (SLOW, 300.0)):
        for _ in range(5):
            known.learn(of(state=JobState.COMPLETED, worked_s=run_s, gpu_type_ran=gpu_type))
    assert times_of(known) == 3.0
    stepped(known, of(), FAST, [1.0] * 3)
    stepped(known, of(), SLOW, [2.0] * 3)
    assert times_of(known) == 2.0


def test_what_is_kept_is_bounded(known: Profiling) -> None:
    stepped(known, of(), FAST, [1.0] * (KEPT + 5))
    (types,) = known.paces.by_kind.values()
    assert len(types[FAST]) == KEPT
    assert known.paces.knows(likeness(of()), FAST, KEPT + 5)
    assert not known.paces.knows(likeness(of()), FAST, KEPT + 6)
    for number in range(KINDS_KEPT):
        kind = Likeness(f"u/{number}", 1, None, None, False)
        known.paces.learn(kind, FAST, Stepped(number, 1.0))
    assert len(known.paces.by_kind) == KINDS_KEPT
    assert likeness(of()) not in known.paces.by_kind


@pytest.mark.parametrize("backwards", [False, True])
def test_each_of_more_jobs_than_are_kept_tells_its_pace_once(
    known: Profiling, *, backwards: bool
) -> None:
    """All of them run at once, and each is looked at again and again."""
    jobs = sorted(range(1, KEPT + 6), reverse=backwards)
    for _ in range(3):
        for number in jobs:
            if not known.paces.knows(likeness(of()), FAST, number):
                known.learn_pace(of(number), FAST, 1.0)
    assert known.paces.told == (KEPT if backwards else KEPT + 5)
    (types,) = known.paces.by_kind.values()
    assert [one.job_id for one in types[FAST]] == list(range(6, KEPT + 6))


def test_a_measured_ratio_outweighs_the_declared_one_for_its_family_alone() -> None:
    world = measured(a_world())
    cluster = world.cluster
    assert cluster.pace(of(), SLOW) == 0.5
    assert cluster.pace(of(family="bob/bert"), SLOW) == 0.25
    assert cluster.pace(of(family=""), SLOW) == 0.25
    assert cluster.pace(of(request=Request(gpus=1, gpu_type=SLOW)), SLOW) == 1.0
    assert cluster.pace(of(), FAST) == 1.0, "the usual type is as declared"
    cluster.speeds = TypeSpeeds({})
    assert cluster.pace(of(), SLOW) == 1.0, "where nobody declared any speed all types are alike"


def test_run_times_count_by_it_and_service_by_what_is_declared() -> None:
    world = measured(a_world())
    world.submit(of(1, duration_estimate_s=1000.0), of(2, family="", duration_estimate_s=1000.0))
    world.at(0.0)
    cluster = world.cluster
    assert [world.attempt(n).pace for n in (1, 2)] == [0.5, None]
    assert [world.attempt(n).speed for n in (1, 2)] == [0.25, 0.25]
    lefts = [left_s(cluster, world.job(n), 100.0) for n in (1, 2)]
    assert lefts == [950.0, 975.0]
    ends = [expected_end_s(world.job(n), world.attempt(n), 0.0) for n in (1, 2)]
    assert ends == [2000.0, 4000.0]
    seen = [had(world.job(n), world.attempt(n), 100.0) for n in (1, 2)]
    assert [one.executed_s for one in seen] == [50.0, 25.0]
    assert [one.attained_gpu_s for one in seen] == [25.0, 25.0]
    world.now_s = 100.0
    world.finish(1, 2)
    assert [world.job(n).worked_s for n in (1, 2)] == [50.0, 25.0]
    assert [world.job(n).total_gpu_s for n in (1, 2)] == [25.0, 25.0]


def test_an_attempt_keeps_its_pace_and_its_run_is_told_by_the_clock() -> None:
    """The ratio becomes known while it runs."""
    world = a_world()
    world.submit(of(1, duration_estimate_s=1000.0)).at(0.0)
    measured(world)
    assert world.attempt(1).pace is None
    assert left_s(world.cluster, world.job(1), 100.0) == 975.0
    world.now_s = 100.0
    world.finish(1)
    ((_, runs),) = world.cluster.profiling.runs.items()
    assert runs == {SLOW: (100.0,)}


def test_a_run_in_two_parts_is_kept_in_seconds_of_its_type() -> None:
    """150 s of work on the reference are 600 s on slow GPUs, less the time to resume."""
    world = a_world()
    world.submit(of(1, duration_estimate_s=1000.0)).at(0.0)
    world.now_s = 400.0
    world.pause(1)
    world.leave(1)
    drive.step_job(world.cluster, JobId(1), Released(), 400.0)
    world.at(500.0)
    world.now_s = 700.0
    world.finish(1)
    ((_, runs),) = world.cluster.profiling.runs.items()
    assert runs == {SLOW: (600.0 - world.cluster.terms.resume_s,)}


def test_a_promise_reserves_by_the_measured_ratio() -> None:
    works_s = []
    for world in (a_world("chronus"), measured(a_world("chronus"))):
        job = of(1, duration_estimate_s=3600.0, steps=strict(86_400.0), gpu_type_promised=SLOW)
        world.submit(job)
        works_s.append(slo_job(world.cluster, world.job(1), 0, 0.0).work_s)
    assert works_s[0] - works_s[1] == pytest.approx(2 * 3600.0)


@pytest.mark.parametrize(("times", "promised"), [(2.0, 0), (4.0, None)])
def test_a_deadline_is_promised_by_it(times: float, promised: int | None) -> None:
    """2,000 s on the reference: 4,000 s as measured on the slow type, or 8,000."""
    nodes = [*(a_node(f"s{n}", 8, SLOW) for n in range(3)), a_node("f", 32, FAST)]
    world = World("chronus", nodes, be_floor="0").drain("f")
    world.cluster.speeds = DECLARED
    asks = Request(gpus=8)
    for kind, steps_s in ((FAST, [1.0] * 3), (SLOW, [times] * 3)):
        stepped(world.cluster.profiling, of(request=asks), kind, steps_s)
    job = of(1, request=asks, duration_estimate_s=2000.0, steps=strict(6500.0))
    world.submit(job).decide()
    assert world.job(1).promised == promised


def test_runs_on_one_type_tell_those_on_another_by_steps_or_else_by_declared_speeds() -> None:
    world = a_world()
    known = world.cluster.profiling
    for _ in range(5):
        known.learn(of(state=JobState.COMPLETED, worked_s=100.0, gpu_type_ran=FAST))
    on_slow = of(9, request=Request(gpus=1, gpu_type=SLOW))
    guess = from_history(world.cluster, on_slow)
    assert guess is not None
    assert (guess.estimate_s, guess.basis.confidence, guess.basis.guess) == (
        400.0,
        Confidence.LOW,
        True,
    )
    assert "4.00 times as long (as declared)" in guess.basis.rests_on
    measured(world)
    told = from_history(world.cluster, on_slow)
    assert told is not None
    assert (told.estimate_s, told.basis) == (
        200.0,
        Basis(Source.HISTORY, Confidence.MEDIUM, rests_on=told.basis.rests_on),
    )
    assert told.basis.rests_on.endswith("(by the steps of its program on both)")
