"""A different memory on each of many jobs costs plans, completions and reasons no more than one.

Counted in calls of functions, so that a noisy machine changes nothing.
"""

from collections.abc import Callable

import pytest

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.cluster import drive
from dlq_master.model.ids import JobId
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy.admit.any_that_fits import never
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.reasons.summary import ReasonSummary
from support.builders import World, a_job, a_node
from support.counted_calls import counted_calls

GIB = 2**30
NODES, GPUS, QUEUED = 40, 8, 400
SIZES = [size * GIB for size in (64, 128, 256, 512)]
FEW, MANY = len(SIZES), QUEUED
MOST_GROWTH = 1.1


def waiting(policy: str, shapes: int) -> World:
    """Every GPU is held, and each job in the line asks for the next of so many sizes."""
    nodes = [
        a_node(f"n{at:02d}", gpus=GPUS, memory_bytes=SIZES[at % len(SIZES)]) for at in range(NODES)
    ]
    world = World(policy, nodes=nodes)
    world.submit(*(a_job(at + 1) for at in range(NODES * GPUS))).decide()
    assert len(world.cluster.attempts) == NODES * GPUS
    for at in range(QUEUED):
        least = SIZES[at % FEW] - at % shapes // FEW * GIB // QUEUED
        request = Request(gpus=1 + at % 2, memory_bytes_per_node=least)
        world.submit(a_job(1000 + at, request=request))
    world.settle_moves()
    return world


def calls(act: Callable[[], object]) -> int:
    """Of a second time, when nothing is new to it."""
    act()
    with counted_calls(of_c=True) as counted:
        act()
    return counted.total()


def completion(world: World) -> int:
    """The plan after a job has ended."""
    key = world.attempt(NODES * GPUS).key
    drive.step_attempt(world.cluster, key, attempt_steps.Succeeded(), world.now_s)
    return calls(world.plan)


@pytest.mark.parametrize("policy", ["fifo", "best-effort", "tiresias-las", "dlq"])
def test_a_completion_costs_the_same_for_many_shapes(policy: str) -> None:
    few, many = (completion(waiting(policy, shapes)) for shapes in (FEW, MANY))
    assert many <= MOST_GROWTH * few


@pytest.mark.parametrize("policy", ["fifo", "best-effort", "tiresias-las", "dlq"])
def test_a_boundary_costs_the_same_for_many_shapes(policy: str) -> None:
    def cost(shapes: int) -> int:
        world = waiting(policy, shapes)
        world.now_s = 1e6
        return calls(world.settle_moves().plan)

    assert cost(MANY) <= MOST_GROWTH * cost(FEW)


@pytest.mark.parametrize("policy", ["fifo", "best-effort", "tiresias-las", "dlq"])
def test_all_reasons_cost_the_same_for_many_shapes(policy: str) -> None:
    def cost(shapes: int) -> int:
        world = waiting(policy, shapes)
        jobs = [job for job in world.cluster.jobs.values() if job.waiting]
        assert len(jobs) == QUEUED

        def look() -> None:
            found = ReasonSummary(View(world.cluster, world.now_s), world.policy)
            for job in jobs:
                assert found.code(job) is not None

        return calls(look)

    assert cost(MANY) <= MOST_GROWTH * cost(FEW)


def test_each_job_is_told_the_size_for_which_it_asked() -> None:
    nodes = [a_node("n1", memory_bytes=64 * GIB), a_node("n2", memory_bytes=128 * GIB)]
    world = World("best-effort", nodes=nodes).submit(a_job(1, gpus=8, nodes=1))
    wide = Request(gpus=8, memory_bytes_per_node=100 * GIB)
    world.submit(a_job(2, request=wide)).decide()
    for number, gib, cpus in ((3, 65, None), (4, 127, None), (5, 90, 2)):
        asked = Request(gpus=1, memory_bytes_per_node=gib * GIB, cpus_per_node=cpus)
        world.submit(a_job(number, request=asked))
    world.finish(1).settle_moves()
    view = View(world.cluster, world.now_s)
    summary = ReasonSummary(view, world.policy)
    for number in (3, 4, 5):
        told = explain(view, world.policy, JobId(number))
        assert tuple(it.kind for it in told) == summary.kinds(world.job(number))
        assert told[0].code is ReasonCode.CONSTRAINT
        assert told[0].subject.startswith("nodes with ")
    subjects = {explain(view, world.policy, JobId(it))[0].subject for it in (3, 4, 5)}
    assert subjects == {f"nodes with {gib}GiB of memory" for gib in (65, 127, 90)}


def test_what_all_nodes_could_hold_is_looked_for_again_when_one_comes_or_goes() -> None:
    world, wide = World("dlq", nodes=2), Request(gpus=2 * GPUS).shape

    def hopeless() -> tuple[bool, int]:
        with counted_calls() as calls:
            reason = never(world.cluster, world.policy.placement, wide)
        return reason is not None, calls["policy/admit/any_that_fits.py:_never"]

    assert [hopeless(), hopeless()] == [(False, 1), (False, 0)]
    world.cluster.put_node(a_node("n3", GPUS))
    assert hopeless() == (False, 1)
    for node_id in [*world.cluster.nodes][:2]:
        world.cluster.remove_node(node_id)
    assert [hopeless(), hopeless()] == [(True, 1), (True, 1)]
