"""Deadlines of jobs that may get GPUs of several of the cluster's own types: promised on one, and
kept to it.
"""

from __future__ import annotations

import pytest

from dlq_master.model.cluster import drive
from dlq_master.model.estimates.estimate import Basis, Source
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import strict
from dlq_master.model.plan import Plan, Reserve
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.model.words.promise_words import promise
from dlq_master.policy.legal.check import IllegalPlan, check_delta
from dlq_master.policy.promise.verdicts.proof import broken
from dlq_master.policy.reasons.explain import explain
from support.builders import World, a_job, a_node

POLICIES = ["chronus-paper", "chronus", "dlq"]
SETTINGS = {"be_floor": "0"}


def a_world(policy: str = "chronus-paper", a: int = 1, b: int = 2) -> World:
    """Of type B there is more: it is what jobs without a wish are promised first."""
    nodes = [a_node(f"a{at}", 8, "A") for at in range(a)]
    nodes += [a_node(f"b{at}", 8, "B") for at in range(b)]
    return World(policy, nodes, None, **SETTINGS)


def due(
    job_id: int, *types: str, gpus: int = 8, run_s: float = 2000.0, by_s: float = 4000.0
) -> Job:
    first, *others = types or (None,)
    request = Request(gpus=gpus, gpu_type=first, or_gpu_types=tuple(others))
    return a_job(job_id, request=request, duration_estimate_s=run_s, steps=strict(by_s))


def promised(world: World, *job_ids: int) -> list[str]:
    """On which type each is promised its deadline; "-": it is not."""
    jobs = [world.job(job_id) for job_id in job_ids]
    return ["-" if job.promised is None else job.gpu_type_promised for job in jobs]


@pytest.mark.parametrize("policy", POLICIES)
def test_any_type_will_do_and_the_one_with_the_least_promised_comes_first(policy: str) -> None:
    world = a_world(policy).submit(*[due(number) for number in range(1, 4)]).decide()
    assert promised(world.submit(due(4)).decide(), 1, 2, 3, 4) == ["B", "A", "B", "-"]
    starts = [world.attempt(number).lease.allocation.node_ids[0][0] for number in (1, 2, 3)]
    assert starts == ["b", "a", "b"]


@pytest.mark.parametrize("policy", POLICIES)
def test_of_the_types_that_it_names_it_is_promised_the_first_that_can_be(policy: str) -> None:
    world = a_world(policy)
    world.submit(due(1, "A", "B"), due(2, "A", "B"), due(3, "A"), due(4, "B"), due(5, "A", "B"))
    world.decide()
    assert promised(world, 1, 2, 4) == ["A", "B", ""]
    assert promised(world, 3, 5) == ["-", "-"]
    assert world.job(3).verdict == world.job(5).verdict != "type"


def test_the_type_on_which_it_would_start_now_comes_before_one_that_it_likes_better() -> None:
    world = a_world(a=1, b=1).submit(a_job(9, request=Request(gpus=8, gpu_type="A"))).decide()
    world.submit(due(1, "A", "B"), due(2, "A", "B")).decide()
    assert (promised(world, 1, 2), world.running) == (["B", "A"], [1, 9])


def test_who_is_promised_one_type_waits_for_it_though_others_are_free() -> None:
    """Its slots are counted there, and what it left free elsewhere may have been promised since."""
    world = a_world(a=1, b=1).submit(a_job(8, 8), a_job(9, 8)).decide()
    world.submit(due(1, "A", "B")).decide()
    assert (promised(world, 1), world.running) == (["A"], [8, 9])
    on_b = next(it for it in (8, 9) if world.attempt(it).lease.allocation.node_ids == ("b0",))
    world.finish(on_b).decide()
    assert len(world.running) == 1
    told = {it.code: it for it in explain(View(world.cluster, world.now_s), world.policy, JobId(1))}
    assert told[ReasonCode.GPU_TYPE].detail.endswith("but its deadline is promised on A")
    assert (
        promise(world.job(1), "guaranteed", "")
        == "its deadline is promised on A, and a plan keeps it"
    )


def test_what_was_measured_is_promised_nowhere_else() -> None:
    measured = due(1)._replace(basis=Basis(Source.PROFILED))
    assert promised(a_world().submit(measured).decide(), 1) == ["-"]
    unknown = due(1, "A", "B", by_s=9000.0)._replace(duration_estimate_s=None)
    world = a_world().submit(unknown).decide()
    known = world.job(1)._replace(duration_estimate_s=2000.0, basis=measured.basis)
    world.cluster.put_job(known)
    assert promised(world.at(2.0), 1) == ["A"]


def test_gpus_of_several_types_at_once_are_promised_to_nobody_but_those_of_one_are() -> None:
    mixed = due(1)._replace(request=Request(gpus=8, mixed=True))
    world = a_world(a=1, b=1).submit(mixed).decide()
    assert promised(world, 1) == ["A"]
    assert not world.cluster.shape(world.job(1)).mixed
    unknown = mixed._replace(request=Request(gpus=12, mixed=True), duration_estimate_s=None)
    world = a_world(a=1, b=1).submit(unknown).decide()
    assert len(world.attempt(1).lease.allocation.slots) == 2
    world.cluster.put_job(world.job(1)._replace(duration_estimate_s=1000.0))
    assert world.at(2.0).job(1).verdict == "type"


def test_a_type_whose_nodes_are_too_small_is_not_asked() -> None:
    world = a_world(a=1, b=2)
    request = Request(gpus=16, gpu_type="A", or_gpu_types=("B",))
    wide = a_job(1, request=request, duration_estimate_s=2000.0, steps=strict(4000.0))
    assert promised(world.submit(wide).decide(), 1) == ["B"]


def test_more_gpus_of_another_type_move_no_promise() -> None:
    world = a_world().submit(due(1, by_s=9000.0)).decide()
    for number in range(5):
        world.cluster.put_node(a_node(f"c{number}", 8, "C"))
    assert world.cluster.own.home == "C"
    world.at(2.0)
    assert promised(world, 1) == ["B"]
    assert world.cluster.shape(world.job(1)).gpu_types == ("B",)


def test_who_loses_its_promise_may_get_any_of_its_types_again() -> None:
    world = a_world().submit(due(1, by_s=9000.0)).decide()
    lost = Reserve(
        world.job(1).job_id, Band.SPOT, (), None, "broken", Reason(ReasonCode.PROMISE_BROKEN)
    )
    drive.apply(world.cluster, Plan((lost,)), world.now_s, 1)
    assert (promised(world, 1), world.job(1).gpu_type_promised) == (["-"], "")


def test_a_promise_on_a_type_that_it_cannot_have_is_illegal_and_one_too_many_breaks_others() -> (
    None
):
    world = a_world(a=1, b=1).submit(due(1, "A"), due(2, "B"), due(3, "B", "A"), due(4)).decide()
    assert promised(world, 3, 4) == ["-", "-"]
    view, slots = View(world.cluster, world.now_s), world.job(1).slots
    rules = world.policy.promises
    assert rules is not None
    made = Reserve(
        world.job(3).job_id,
        Band.SPOT,
        slots,
        0,
        "holes",
        Reason(ReasonCode.GUARANTEED),
        0.0,
        gpu_type="A",
    )
    assert "A: slot" in broken(view, [made], rules)
    with pytest.raises(IllegalPlan, match="is promised no C"):
        check_delta(view, Plan((made._replace(gpu_type="C"),)), world.policy)
