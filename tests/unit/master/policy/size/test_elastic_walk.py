"""Elastic jobs: bases first, sizes by rule, and a resize as a stop and a start that keeps the
base.
"""

from __future__ import annotations

import pytest

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.cluster import drive
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import HoldKind, Job, JobState
from dlq_master.model.lease import LeaseKind
from dlq_master.model.nodes.node import NodePool
from dlq_master.model.plan import Plan, Resize
from dlq_master.model.resources import Allocation, Request
from dlq_master.model.transitions import StopCause
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy import pipeline
from dlq_master.policy.legal.check import IllegalPlan, check_delta
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.size import elastic as elastic_size
from support.builders import World, a_job, a_node, an_allocation
from support.validate import validate


def elastic(job_id: int, *sizes: int, nodes: int | None = None, estimate_s: float = 1000.0) -> Job:
    """A job that asks for the first of its sizes."""
    request = Request(gpus=sizes[0], nodes=nodes, sizes=sizes)
    return a_job(job_id, request=request, duration_estimate_s=estimate_s)


def gpus(world: World, job_id: int) -> dict[str, list[int]]:
    held = world.attempt(job_id).lease.allocation
    return {slot.node_id: list(slot.gpu_indices) for slot in held.slots}


def width(world: World, job_id: int) -> int:
    return world.attempt(job_id).lease.allocation.width


def grown(policy: str = "gandiva-elastic") -> World:
    """Job 1 (2 to 6 GPUs) has grown to 6 of 8."""
    world = World(policy, nodes=1).submit(elastic(1, 2, 4, 6)).decide()
    assert width(world, 1) == 6
    return world


# --- with preemption free -------------------------------------------------------------------------


def test_who_waits_gets_what_others_hold_beyond_their_base_at_once() -> None:
    world = World("gandiva-elastic", nodes=1, preempt="free").submit(elastic(1, 2, 4, 6)).decide()
    before = gpus(world, 1)["n1"]
    world.submit(a_job(2, 4)).decide()
    assert (width(world, 1), width(world, 2)) == (4, 4)
    assert set(gpus(world, 1)["n1"]) < set(before)
    assert (world.job(1).preemptions, world.job(1).attempts) == (1, 2)


def test_nobody_gives_more_than_is_needed_nor_below_its_base() -> None:
    world = World("gandiva-elastic", nodes=1, preempt="free")
    world.submit(elastic(1, 2, 4, 6)).decide().submit(a_job(2, 2)).decide()
    assert width(world, 1) == 6
    world.submit(a_job(3, 7)).decide()
    assert (width(world, 1), world.running) == (6, [1, 2])


def test_gpus_that_come_free_go_to_who_can_grow() -> None:
    world = World("afs", nodes=1, preempt="free").submit(elastic(1, 2, 4, 6), a_job(2, 4)).decide()
    assert width(world, 1) == 4
    world.finish(2).decide()
    assert width(world, 1) == 6


def test_attained_service_and_work_count_the_gpus_really_held() -> None:
    world = World("afs", nodes=1, preempt="free").submit(elastic(1, 2, 4, 6)).decide()
    world.at(101.0).submit(a_job(2, 4, duration_estimate_s=5.0)).decide()
    job = world.job(1)
    assert (job.total_gpu_s, job.total_executed_s, job.worked_s) == (600.0, 100.0, 300.0)


# --- on the term grid -----------------------------------------------------------------------------


def test_a_resize_waits_for_the_boundary_keeps_its_gpus_and_goes_on_at_once() -> None:
    world = grown().submit(a_job(2, 4)).decide()
    assert (width(world, 1), world.running) == (6, [1]), "within a term nothing is taken"
    world.at(270.0)
    attempt = world.attempt(1)
    assert attempt.state is AttemptState.PAUSING
    assert attempt.regrant is not None
    assert attempt.regrant.width == 4
    world.at(280.0).submit(a_job(3, 2)).decide()
    assert world.running == [], "two GPUs are free, and job 2 waits for them and for two of job 1's"
    world.at(300.0).leave(1).decide()
    assert (width(world, 1), world.running) == (4, [1, 2])
    assert world.job(1).preemptions == 1
    assert world.attempt(1).lease.term_end_s == 600.0


def test_a_start_takes_free_gpus_before_those_that_somebody_has_grown_into() -> None:
    world = World("gandiva-elastic", nodes=1, preempt="free").submit(
        a_job(1, 2), elastic(2, 2, 4, 6)
    )
    world.decide().finish(1).submit(a_job(3, 2)).decide()
    assert (width(world, 2), world.job(2).attempts, world.running) == (6, 1, [2, 3])


def test_who_grows_keeps_the_gpus_that_it_has_and_nobody_else_gets_the_new_ones_meanwhile() -> None:
    world = World("gandiva-elastic", nodes=1).submit(elastic(1, 2, 4, 6), a_job(2, 4)).decide()
    before = gpus(world, 1)["n1"]
    world.finish(2).at(270.0)
    assert world.attempt(1).regrant is not None
    world.submit(a_job(3, 4)).decide()
    assert world.running == [], "two GPUs are free, the others are kept"
    world.at(300.0).leave(1).decide()
    assert width(world, 1) == 6
    assert set(before) < set(gpus(world, 1)["n1"])


def test_a_job_that_is_held_cancelled_or_done_meanwhile_does_not_go_on() -> None:
    for act in ("hold", "cancel", "done"):
        world = grown().submit(a_job(2, 4)).decide().at(270.0)
        if act == "hold":
            world.hold(1, HoldKind.USER).leave(1)
            assert world.job(1).state is JobState.HELD
        elif act == "cancel":
            key = world.attempt(1).key
            stop = attempt_steps.StopRequested(cause=StopCause.CANCEL, grace_s=1.0)
            drive.step_attempt(world.cluster, key, stop, world.now_s)
            validate(world.cluster)
            assert world.attempt(1).regrant is None
            continue
        else:
            world.finish(1)
        world.at(300.0)
        assert world.job(1).live_attempt is None
        assert width(world, 2) == 4


def test_a_node_that_closes_meanwhile_takes_the_place_away_but_not_the_turn() -> None:
    world = World("gandiva-elastic", nodes=2).submit(elastic(1, 4, 8), a_job(2, 4), a_job(3, 8))
    world.decide().finish(2).at(270.0)
    attempt = world.attempt(1)
    assert attempt.regrant is not None
    world.drain(attempt.lease.allocation.node_ids[0])
    world.at(300.0).leave(1).decide()
    assert world.job(1).state is JobState.QUEUED
    assert world.job(1).live_attempt is None


def test_of_two_that_were_granted_the_same_gpus_the_last_goes_on() -> None:
    world = World("gandiva-elastic", nodes=2).submit(elastic(1, 4, 8), elastic(2, 4, 8)).decide()
    asked = world.attempt(1).lease.allocation
    for job_id, at_s in ((1, 10.0), (2, 20.0)):
        world.now_s = at_s  # and nothing is decided: as in a pause of starts
        stop = attempt_steps.StopRequested(cause=StopCause.PREEMPT, grace_s=1.0, regrant=asked)
        drive.step_attempt(world.cluster, world.attempt(job_id).key, stop, world.now_s)
        world.leave(job_id)
    assert set(world.cluster.returning) == {1, 2}
    world.decide()
    assert world.attempt(2).lease.allocation == asked
    assert world.attempt(1).lease.allocation.node_ids != asked.node_ids


def test_growth_that_saves_less_than_the_interruption_costs_is_left() -> None:
    def after(estimate_s: float) -> bool:
        jobs = (elastic(1, 4, 8, estimate_s=estimate_s), a_job(2, 4, duration_estimate_s=1.0))
        world = World("afs", nodes=1).submit(*jobs).decide().finish(2).at(270.0)
        return world.attempt(1).regrant is not None

    # 269 s have run at 270; a resize takes 2 x 30 s and halves what is left.
    assert not after(269.0 + 119.0)
    assert after(269.0 + 121.0)


def test_gangs_grow_and_shrink_by_whole_nodes() -> None:
    nodes = [a_node(f"n{i}", 4) for i in range(1, 4)]
    world = World("afs", nodes, preempt="free").submit(elastic(1, 2, 4, 6, nodes=1)).decide()
    assert sorted(map(len, gpus(world, 1).values())) == [2, 2, 2]
    first = next(iter(gpus(world, 1)))
    world.submit(*(a_job(number, 3, duration_estimate_s=1.0) for number in (2, 3))).decide()
    assert {name: len(held) for name, held in gpus(world, 1).items()} == {first: 2}
    assert world.running == [1, 2, 3]


def test_who_waits_is_told_of_the_base_and_of_the_boundary() -> None:
    world = World("gandiva-elastic", nodes=1).submit(elastic(1, 4, 8)).decide()
    world.submit(elastic(2, 4, 8)).decide()
    codes = [r.code for r in explain(View(world.cluster, world.now_s), world.policy, JobId(2))]
    assert codes == [ReasonCode.RESOURCES, ReasonCode.WAITING_FOR_BOUNDARY]


# --- legality -------------------------------------------------------------------------------------


def checked(world: World, policy_time: float, allocation: Allocation, **more: float) -> None:
    world.now_s = policy_time
    key = AttemptKey(JobId(1), 1)
    reason = Reason(ReasonCode.RESIZED)
    change = Resize(
        key,
        allocation,
        LeaseKind.BE,
        more.get("at_s", 300.0),
        more.get("grace_s", 60.0),
        600.0,
        reason,
    )
    check_delta(View(world.cluster, world.now_s), Plan((change,)), world.policy)


def two_nodes() -> World:
    """Job 1 has the last two GPUs of n1; n2 is free."""
    world = World("gandiva-elastic", [a_node("n1", 8), a_node("n2", 8)])
    world.submit(a_job(9, 6), a_job(8, 8), elastic(1, 2, 4, 6)).decide().finish(8)
    assert gpus(world, 1) == {"n1": [6, 7]}
    return world


def test_a_legal_resize() -> None:
    checked(two_nodes(), 270.0, an_allocation(("n1", 0b11000000), ("n2", 0b11)))


def test_nobody_grows_onto_a_rented_machine() -> None:
    """So who is on one came there when it was placed, and comes there once: its stay has no gap
    (table `stays`).
    """
    world = two_nodes()
    world.cluster.put_node(world.cluster.nodes[NodeId("n2")]._replace(pool=NodePool.PRICED))
    with pytest.raises(IllegalPlan, match="node n2 is not open"):
        checked(world, 270.0, an_allocation(("n1", 0b11000000), ("n2", 0b11)))
    assert not any(isinstance(change, Resize) for change in world.plan().changes)


@pytest.mark.parametrize(("pool", "grows"), [(NodePool.TRAINING, True), (NodePool.PRICED, False)])
def test_who_runs_on_a_rented_machine_keeps_what_it_has_there(pool: NodePool, grows: bool) -> None:
    """It takes no others, although there are some, of it and of an own node."""
    world = two_nodes()
    world.cluster.put_node(world.cluster.nodes[NodeId("n1")]._replace(pool=pool))
    world.finish(9).at(270.0)
    assert (world.attempt(1).regrant is not None) is grows


@pytest.mark.parametrize(
    ("allocation", "at_s", "says"),
    [
        (an_allocation(("n1", 0b11000000), ("n2", 0b1)), 270.0, "3 GPUs given, only"),
        (an_allocation(("n1", 0b11000000)), 270.0, "nothing would change"),
        (an_allocation(("n2", 0b1111)), 270.0, "0 GPUs stay, fewer than its base of 2"),
        (an_allocation(("n1", 0b11000011)), 270.0, "are in use"),
        (an_allocation(("n1", 0b11000000), ("n2", 0b11)), 200.0, "too far ahead"),
    ],
)
def test_an_illegal_resize_is_named(allocation: Allocation, at_s: float, says: str) -> None:
    with pytest.raises(IllegalPlan, match=says):
        checked(two_nodes(), at_s, allocation)


def test_a_resize_needs_time_to_save_its_boundary_and_a_job_that_goes_on() -> None:
    then = an_allocation(("n1", 0b11000000), ("n2", 0b11))
    with pytest.raises(IllegalPlan, match="no time to save"):
        checked(two_nodes(), 270.0, then, grace_s=0.0)
    with pytest.raises(IllegalPlan, match="only when its term ends"):
        checked(two_nodes(), 270.0, then, at_s=280.0)
    with pytest.raises(IllegalPlan, match="it would not go on"):
        checked(two_nodes().hold(1, HoldKind.USER), 270.0, then)


def test_a_policy_without_sizes_never_resizes() -> None:
    world = World("tiresias-las", nodes=2).submit(elastic(1, 2, 4)).decide()
    with pytest.raises(IllegalPlan, match="4 GPUs given"):
        checked(world, 270.0, an_allocation(("n1", 0b1111)))


# --- what a job may declare -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_of", "says"),
    [
        ({"gpus": 3, "sizes": (2, 4)}, "asks for 3 GPUs, which is none of its sizes"),
        ({"gpus": 2, "sizes": (4, 2)}, "must be positive and rise"),
        (
            {"gpus": 4, "nodes": 2, "sizes": (3, 4)},
            "size 3 is no whole number of nodes with 2 GPUs",
        ),
    ],
)
def test_sizes_that_make_no_sense_are_refused(request_of: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Request(**request_of)  # type: ignore[arg-type]  # whatever is asked


# --- nothing to decide ----------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["dlq", "afs", "aryl", "gandiva-elastic"])
def test_a_boundary_at_which_all_have_their_most_gpus_and_nobody_waits_is_not_walked(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk that is left out would have changed nothing."""
    world = World(policy, nodes=1).submit(elastic(1, 2, 4), elastic(2, 1, 2)).decide()
    world.at(300.0).at(600.0)
    assert (width(world, 1), width(world, 2)) == (4, 2)
    walked = pipeline.at_boundary(View(world.cluster, 900.0), world.policy)
    monkeypatch.setattr(elastic_size, "somebody", lambda *_: True)
    anyway = pipeline.at_boundary(View(world.cluster, 900.0), world.policy)
    for outcome in (walked, anyway):
        changes = (outcome.chosen, outcome.outranked, outcome.resized, outcome.claims)
        assert not any(changes)
    monkeypatch.undo()

    def never(_walk: object) -> None:
        raise AssertionError("it was walked")

    monkeypatch.setattr(elastic_size.ElasticWalk, "walked", never)
    assert not world.at(900.0).leaving


def test_one_that_could_have_more_gpus_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("afs", nodes=1).submit(elastic(1, 2, 4, 6), elastic(2, 2, 4)).decide()
    sizes = {1: width(world, 1), 2: width(world, 2)}
    assert sum(sizes.values()) == 8
    assert elastic_size.somebody(world.cluster, [JobId(1), JobId(2)])
    full = [JobId(job_id) for job_id, size in sizes.items() if size == (6 if job_id == 1 else 4)]
    assert not elastic_size.somebody(world.cluster, full)
