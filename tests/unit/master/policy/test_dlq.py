"""The default policy, part by part: whose nodes deadlines are worked for on, elastic jobs beside
seats, who waits to be kept together, and what people are told."""

from __future__ import annotations

import pytest

from dlq_master.model.estimates.traffic import TrafficProfile
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import BEST_EFFORT, Steps, strict
from dlq_master.model.nodes.node import Node, NodeFlag, NodePool
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.model.words.sentence import sentence
from dlq_master.policy.promise.capacity.grids import grid_of
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.registry.registry import build
from dlq_master.policy.registry.settings import PolicyError
from support.builders import H100, World, a_job, a_node
from support.validate import validate

DUE = strict(9000.0)
LENT = frozenset([NodeFlag.LOANED])
FITTING = {"guarantee": "fitting", "be_floor": "0"}


def own(name: str = "o1", gpus: int = 8, gpu_type: str = H100) -> Node:
    return a_node(name, gpus, gpu_type)


def lent(name: str = "t1", gpus: int = 8, gpu_type: str = H100) -> Node:
    return a_node(name, gpus, gpu_type, pool=NodePool.INFERENCE, flags=LENT)


def a_world(*nodes: Node, **settings: str) -> World:
    return World("dlq", nodes, None, **{**FITTING, **settings})


def a_task(job_id: int, gpus: int, run_s: float | None = 1000.0, steps: Steps = BEST_EFFORT) -> Job:
    return a_job(job_id, gpus, duration_estimate_s=run_s, steps=steps)


def elastic(job_id: int, *sizes: int, run_s: float = 1000.0, steps: Steps = BEST_EFFORT) -> Job:
    request = Request(gpus=sizes[0], sizes=sizes)
    return a_job(job_id, request=request, duration_estimate_s=run_s, steps=steps)


def where(world: World, job_id: int) -> dict[str, int]:
    slots = world.attempt(job_id).lease.allocation.slots
    return {str(slot.node_id): slot.mask.bit_count() for slot in slots}


def told(world: World, job_id: int) -> dict[str, str]:
    job = world.job(job_id)
    reasons = explain(View(world.cluster, world.now_s), world.policy, job.job_id)
    return {reason.code.value: sentence(reason, job, "ada") for reason in reasons}


# --- own and lent nodes ------------------------------------------------------------------------


def test_a_job_with_a_deadline_waits_for_own_nodes_and_others_take_the_lent_ones() -> None:
    world = a_world(own(), lent()).submit(a_task(1, 8, 50.0)).decide()
    world.submit(a_task(2, 4, 500.0, DUE), a_task(3, 4)).decide()
    assert (where(world, 1), where(world, 3)) == ({"o1": 8}, {"t1": 4})
    assert world.job(2).waiting
    world.finish(1).decide()
    assert where(world, 2) == {"o1": 4}


@pytest.mark.parametrize("promised", [True, False])
def test_whether_its_deadline_is_promised_or_not(promised: bool) -> None:
    run_s = 500.0 if promised else 20_000.0
    world = a_world(own(), lent()).submit(a_task(1, 8, 50.0)).decide()
    world.submit(a_task(2, 4, run_s, DUE)).decide()
    assert (world.job(2).promised == 0, world.job(2).waiting) == (promised, True)


def test_a_job_that_own_nodes_could_never_hold_runs_anywhere_and_nothing_is_promised_to_it() -> (
    None
):
    """It would wait for ever else."""
    world = a_world(own(), lent("t1", 16)).submit(a_task(1, 12, 500.0, DUE)).decide()
    assert (where(world, 1), world.job(1).promised) == ({"t1": 12}, None)


def test_own_nodes_that_come_are_waited_for_and_ones_that_go_are_not() -> None:
    world = a_world(own(), lent()).submit(a_task(9, 8), a_task(1, 12, 500.0, DUE)).decide()
    shape = world.cluster.shape(world.job(1))
    assert shape.avoid == ()
    world.cluster.put_node(own("o2"))
    assert world.cluster.shape(world.job(1)).avoid == ("t1",)
    validate(world.cluster)
    world.cluster.remove_node(NodeId("o2"))
    assert world.cluster.shape(world.job(1)).avoid == ()
    validate(world.cluster)


def test_who_waits_is_looked_for_in_the_right_place_when_a_node_changes_hands() -> None:
    world = a_world(own("o1"), own("o2")).submit(a_task(8, 8), a_task(9, 8)).decide()
    world.submit(a_task(1, 4, 500.0, DUE), a_task(2, 4)).decide()
    assert world.cluster.shape(world.job(1)).avoid == ()
    world.cluster.put_node(world.cluster.nodes[NodeId("o2")]._replace(pool=NodePool.PRICED))
    assert world.cluster.shape(world.job(1)).avoid == ("o2",)
    assert world.cluster.shape(world.job(2)).avoid == ()
    validate(world.cluster)
    back = world.cluster.nodes[NodeId("o2")]._replace(pool=NodePool.TRAINING)
    world.cluster.put_node(back._replace(flags=frozenset([NodeFlag.LOANED])))
    assert world.cluster.shape(world.job(1)).avoid == ("o2",)
    world.cluster.put_node(back)
    assert world.cluster.shape(world.job(1)).avoid == ()
    validate(world.cluster)


def test_where_nothing_is_its_own_deadlines_run_on_what_there_is() -> None:
    world = a_world(lent()).submit(a_task(1, 4, 500.0, DUE)).decide()
    assert (where(world, 1), world.job(1).verdict) == ({"t1": 4}, "width")


def test_a_promised_job_goes_nowhere_else_even_when_nothing_is_the_cluster_s_own_any_more() -> None:
    """Until the next slot is decided, when it is told that its promise is lost."""
    world = a_world(own("o1"), own("o2")).submit(a_task(8, 8, 300.0), a_task(9, 8, 300.0)).decide()
    world.submit(a_task(1, 4, 500.0, DUE)).decide()
    assert world.job(1).promised == 0
    for name in ("o1", "o2"):
        node = world.cluster.nodes[NodeId(name)]
        world.cluster.put_node(node._replace(pool=NodePool.INFERENCE, flags=LENT))
    world.finish(8, 9).decide()
    assert world.job(1).waiting
    world.at(1170.0)
    assert (world.job(1).verdict, world.running) == ("broken", [1])


def test_a_type_that_is_not_its_own_is_promised_to_nobody() -> None:
    job = a_job(1, request=Request(gpus=2, gpu_type="T4"), duration_estimate_s=500.0, steps=DUE)
    world = a_world(own(), lent("t1", 8, "T4")).submit(job).decide()
    assert (where(world, 1), world.job(1).verdict) == ({"t1": 2}, "width")


def test_larger_lent_nodes_of_the_same_type_change_nothing_about_promises() -> None:
    """Blocks are those of the own nodes, and a promised job is as much together as these allow."""
    world = a_world(own("o1", 4), own("o2", 4), *[lent(f"t{at}") for at in range(4)])
    assert world.policy.promises is not None
    grid = grid_of(world.cluster, H100, world.policy.promises, 0)
    assert (grid.node_gpus, grid.capacity) == (4, (8,))
    world.submit(a_task(1, 8, 500.0, DUE)).decide()
    assert (where(world, 1), world.job(1).promised) == ({"o1": 4, "o2": 4}, 0)


def test_who_suffers_from_being_spread_is_together_as_far_as_own_nodes_allow() -> None:
    world = a_world(own("o1", 4), own("o2", 4), lent("t1", 8))
    world.submit(a_task(1, 8, 20_000.0, DUE)._replace(profile=TrafficProfile(skew=0.9))).decide()
    assert (where(world, 1), world.job(1).promised) == ({"o1": 4, "o2": 4}, None)


def test_what_widest_first_leaves_free_is_given_at_the_same_instant() -> None:
    """The walk puts 1 on n0 and 2 on n1; then these change places, and 3, which is not to go to n0,
    fits.
    """
    world = a_world(own("n0", 2), own("n1", 4)).submit(a_task(1, 1, 10.0), a_task(2, 2, 20.0))
    third = a_job(3, request=Request(gpus=3, avoid=(NodeId("n0"),)), duration_estimate_s=500.0)
    world.submit(third).decide()
    assert [where(world, it) for it in (1, 2, 3)] == [{"n1": 1}, {"n0": 2}, {"n1": 3}]


# --- elastic jobs beside promises --------------------------------------------------------------


def test_a_seat_takes_what_an_elastic_job_holds_beyond_its_base_and_no_more() -> None:
    world = a_world(own()).submit(elastic(1, 2, 4, 6, 8, run_s=50_000.0)).at(10.0)
    assert where(world, 1) == {"o1": 8}
    world.submit(a_task(2, 4, 1000.0, strict(2600.0))).decide()
    assert world.job(2).promised == 0
    now_s = 10.0
    while world.job(2).waiting and now_s < 2600.0:
        now_s = world.wake_at_s or now_s + 30.0
        world.at(now_s)
        for job_id in world.leaving:
            world.now_s = now_s + 30.0
            world.leave(job_id).decide()
    assert world.running == [1, 2]
    assert where(world, 1)["o1"] == 4
    assert where(world, 2)["o1"] == 4


def test_who_has_a_slot_runs_beside_who_grows_into_the_rest() -> None:
    world = a_world(own()).submit(a_task(1, 4, 6800.0, strict(8500.0))).at(10.0)
    world.submit(elastic(2, 1, 2, 4, run_s=50_000.0)).at(270.0)
    world.at(1170.0)
    assert (world.job(1).band, where(world, 1)) == (Band.SLO, {"o1": 4})
    assert where(world, 2) == {"o1": 4}


def test_an_urgent_job_is_promised_the_slots_that_others_leave_to_be_late() -> None:
    """Everything is promised three times over; each has slots at its end, and the first ones are
    nobody's.
    """
    world = a_world(own())
    for number, due_s in ((1, 40_000.0), (2, 41_000.0), (3, 42_000.0)):
        world.submit(a_task(number, 8, 9000.0, strict(due_s)))
    world.at(10.0).at(1170.0)
    assert [world.job(number).promised for number in (1, 2, 3)] == [0, 0, 0]
    begins = [world.job(number).slots[0].begin for number in (1, 2, 3)]
    assert min(begins) > 5
    world.at(1300.0).submit(a_task(4, 8, 1000.0, strict(4000.0))).decide()
    assert (world.job(4).promised, world.job(4).verdict) == (0, "holes")
    assert [world.job(number).slots[0].begin for number in (1, 2, 3)] == begins


def test_whole_nodes_are_cleared_for_who_takes_more_than_one() -> None:
    """The first to leave would be 6 GPUs on each of two nodes: room for 12, that takes 8 + 4 when
    it starts, so that nothing whole would be left for the other seat."""
    names = ("n0", "n1", "n2")
    world = a_world(*[own(name) for name in names])
    held = [("n0", 4, 400_000.0), ("n0", 2, 400_000.0), ("n0", 2, 2000.0)]
    held += [("n1", gpus, run_s) for _, gpus, run_s in held]
    for number, (home, gpus, run_s) in enumerate([*held, ("n2", 8, 30_000.0)], start=1):
        avoid = tuple([NodeId(name) for name in names if name != home])
        job = a_job(number, request=Request(gpus=gpus, avoid=avoid), duration_estimate_s=run_s)
        world.submit(job).decide()
    wide = [a_task(it, gpus, 19_000.0, strict(20_500.0)) for it, gpus in ((8, 12), (9, 8))]
    world.submit(*wide).decide()
    assert [world.job(it).promised for it in (8, 9)] == [0, 0]
    world.at(1170.0)
    world.now_s = 1200.0
    world.leave(*world.leaving).decide()
    assert {8, 9} <= {*world.running}
    assert [sorted(where(world, it).values()) for it in (8, 9)] == [[4, 8], [8]]


# --- placement ---------------------------------------------------------------------------------


def test_only_who_is_known_to_suffer_waits_to_be_kept_together() -> None:
    world = a_world(own("o1"), own("o2")).submit(a_task(8, 6), a_task(9, 6)).decide()
    world.submit(a_task(1, 4)._replace(profile=TrafficProfile(skew=0.9))).decide()
    assert world.job(1).waiting
    world.submit(a_task(2, 4)).decide()
    assert where(world, 2) == {"o1": 2, "o2": 2}


def test_told_to_wait_nobody_of_whom_nothing_is_known_is_spread() -> None:
    world = a_world(own("o1"), own("o2"), pack="wait").submit(a_task(8, 6), a_task(9, 6)).decide()
    assert world.submit(a_task(2, 4)).decide().job(2).waiting


def test_elastic_jobs_stand_on_lent_nodes_and_others_on_own_ones() -> None:
    world = a_world(own(), lent()).submit(a_task(1, 2), elastic(2, 2, 4)).decide()
    assert (where(world, 1), where(world, 2)) == ({"o1": 2}, {"t1": 4})


# --- what people are told ----------------------------------------------------------------------


def test_that_only_lent_nodes_are_free_is_said_to_who_has_a_deadline() -> None:
    world = a_world(own(), lent()).submit(a_task(9, 8, 50_000.0)).decide()
    world.submit(a_task(1, 4, 500.0, strict(40_000.0))).decide()
    found = told(world, 1)
    assert next(iter(found)) == "own_only"
    assert found["own_only"] == (
        "GPUs are free only on nodes that are here for a time (t1); a job with a deadline runs on "
        "the cluster's own"
    )
    assert "failed_nodes" not in found
    assert found["resources"].startswith("needs 4 GPUs, none is free; job 9 holds GPUs")


def test_nodes_on_which_it_has_failed_are_still_told_apart() -> None:
    world = (
        a_world(own("o1"), own("o2"), lent()).submit(a_task(9, 8, 50_000.0), a_task(8, 4)).decide()
    )
    job = a_task(1, 4, 500.0, strict(40_000.0))
    avoids = Request(gpus=4, avoid=(NodeId("o2"),))
    world.submit(job._replace(request=avoids)).decide()
    assert next(iter(told(world, 1))) == "own_only"
    world.drain("t1")
    found = told(world, 1)
    assert (
        found["failed_nodes"]
        == "GPUs are free only where its attempts have failed (o2); others exist"
    )


# --- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "words", "what"),
    [
        ("dlq", {"slots": "soon"}, "expected one of early, late"),
        ("dlq", {"spot": "expect"}, "expected one of .*expected"),
        ("dlq", {"trials": "here"}, "expected one of partition, in-place"),
        ("dlq", {"pack": "maybe"}, "expected one of wait, try, known"),
        ("dlq", {"size": "all"}, "expected one of"),
        ("dlq", {"profile_floor": "2", "know": "profiled"}, "needs trials=partition"),
        ("dlq", {"submit_gpus": "24"}, "needs know=profiled"),
        ("dlq", {"place": "consolidate", "packlimit": "0.5"}, "needs place=skew"),
        ("dlq", {"preempt": "free"}, "has no setting"),
        ("dlq", {"promote_knob": "4"}, "has no setting"),
        ("chronus", {"size": "rollout"}, "has no setting"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(
    policy: str, words: dict[str, str], what: str
) -> None:
    with pytest.raises(PolicyError, match=what):
        build(policy, words)


def test_the_parts_of_the_default() -> None:
    policy = build("dlq")
    assert policy.promises is not None
    assert policy.sizing is not None
    found = (
        policy.placement.name,
        policy.sizing.name,
        policy.promises.slots.value,
        policy.profiling,
    )
    assert found == ("skew-groups", "rollout", "late", None)
    assert build("dlq", {"know": "profiled", "trials": "partition"}).profiling is not None
