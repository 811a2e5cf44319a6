"""A gang that a node has failed keeps its other GPUs, and comes first for a spare node."""

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.attempts.attempt import AttemptState, RankPhase
from dlq_master.model.cluster import drive
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.band import Band, Segment
from dlq_master.model.jobs.job import HoldKind
from dlq_master.model.jobs.job_steps import Avoids, Reserved
from dlq_master.model.jobs.reward import strict
from dlq_master.model.lease import LeaseKind
from dlq_master.model.nodes.node import NodeState
from dlq_master.model.resources import Request
from dlq_master.model.transitions import StopCause
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.model.words.sentence import sentence
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.transit import kept_gpus
from support.builders import World, a_job, a_node

UNKNOWN = {"know": "unknown"}


def gangs(nodes: int, *jobs: tuple[int, int], **settings: str) -> World:
    """A cluster of nodes with eight GPUs, with these gangs of whole nodes: number, nodes."""
    world = World("dlq", nodes, None, **UNKNOWN, **settings)
    for number, width in jobs:
        world.submit(a_job(number, 8 * width, width)).decide()
    return world


def lose(world: World, job_id: int, *nodes: str) -> None:
    """These nodes are gone, and every rank of the job has ended."""
    for name in nodes:
        node = world.cluster.nodes[NodeId(name)]
        world.cluster.put_node(node._replace(state=NodeState.DOWN))
    attempt = world.attempt(job_id)
    ranks = [
        rank._replace(phase=RankPhase.EXITED, lost=rank.node_id in nodes) for rank in attempt.ranks
    ]
    world.cluster.put_attempt(attempt._replace(ranks=tuple(ranks)))
    world.lose(job_id)


def back(world: World, *nodes: str) -> None:
    for name in nodes:
        node = world.cluster.nodes[NodeId(name)]
        world.cluster.put_node(node._replace(state=NodeState.UP))


def on(world: World, job_id: int) -> list[str]:
    """The nodes of a job, in the order of its ranks."""
    return [str(slot.node_id) for slot in world.attempt(job_id).lease.allocation.slots]


def codes(world: World, job_id: int) -> list[ReasonCode]:
    view = View(world.cluster, world.now_s)
    return [reason.code for reason in explain(view, world.policy, world.job(job_id).job_id)]


def test_a_spare_node_takes_the_place_of_the_lost_one_and_the_others_keep_their_ranks() -> None:
    world = gangs(4, (1, 3))
    lose(world, 1, "n2")
    planned = world.plan()
    (start,) = planned.changes
    assert start.reason.code is ReasonCode.KEPT_GPUS
    assert sentence(start.reason, world.job(1)) == (
        "it goes on with 24 GPUs; 16 were kept for it on n1, n3; n4 is new"
    )
    world.decide()
    assert on(world, 1) == ["n1", "n4", "n3"]
    assert world.attempt(1).lease.kind is LeaseKind.BE
    assert world.job(1).kept is None


def test_without_a_spare_node_the_rest_is_for_nobody_else_and_the_first_free_node_is_its() -> None:
    world = gangs(4, (1, 3), (2, 1))
    lose(world, 1, "n2")
    world.submit(a_job(3, 8, 1, duration_estimate_s=60.0))
    world.decide()
    assert world.running == [2]
    assert codes(world, 1)[0] is ReasonCode.KEPT_GPUS
    assert ReasonCode.KEPT_GPUS in codes(world, 3)

    world.finish(2).decide()
    assert world.running == [1]
    assert on(world, 1) == ["n1", "n4", "n3"]


def test_it_is_told_in_words() -> None:
    world = gangs(4, (1, 3), (2, 1))
    lose(world, 1, "n2")
    world.submit(a_job(3, 8, 1)).decide()
    view = View(world.cluster, world.now_s)
    own = explain(view, world.policy, world.job(1).job_id)[0]
    assert sentence(own, world.job(1)) == (
        "it lost a node: 16 of its 24 GPUs are kept for it on n1, n3 until 1970-01-01T00:05:01Z, "
        "and it is first in line for the others"
    )
    other = [it for it in explain(view, world.policy, world.job(3).job_id) if it.blocking_jobs]
    assert sentence(other[0], world.job(3)) == "16 free GPUs are kept for job 1, which lost a node"


def test_the_claim_runs_out_and_the_plan_wakes_up_for_that() -> None:
    world = gangs(4, (1, 3), (2, 1))
    lose(world, 1, "n2")
    world.submit(a_job(3, 8, 1)).decide()
    kept = world.job(1).kept
    assert kept is not None
    assert kept.until_s == 301.0
    world.at(300.9)
    assert 3 not in world.running
    assert world.wake_at_s == 301.0
    world.at(301.0)
    assert 3 in world.running


def test_the_setting_says_how_long_and_off_is_a_plain_requeue() -> None:
    world = gangs(4, (1, 3), (2, 1), keep_gpus_s="60")
    lose(world, 1, "n2")
    kept = world.job(1).kept
    assert kept is not None
    assert kept.until_s == 61.0

    for world in (gangs(4, (1, 3), (2, 1), keep_gpus_s="off"), World("chronus", 4)):
        if not world.cluster.jobs:
            world.submit(a_job(1, 24, 3, duration_estimate_s=900.0)).decide()
        lose(world, 1, "n2")
        assert world.job(1).kept is None
        world.submit(a_job(3, 8, 1, duration_estimate_s=60.0)).decide()
        assert 3 in world.running


def test_a_drained_node_does_the_same_and_a_preemption_does_not() -> None:
    world = gangs(4, (1, 3))
    key = world.attempt(1).key
    world.drain("n1")
    drive.stop_attempt(world.cluster, key, StopCause.DRAIN, world.now_s)
    world.leave(1).decide()
    assert on(world, 1) == ["n4", "n2", "n3"]

    drive.stop_attempt(world.cluster, world.attempt(1).key, StopCause.REQUEUE, world.now_s)
    world.leave(1)
    assert world.job(1).kept is None


def test_a_job_of_one_node_keeps_nothing() -> None:
    world = gangs(2, (1, 1))
    lose(world, 1, "n1")
    assert world.job(1).kept is None


def test_it_is_first_in_line_at_once_without_a_pause_before_the_next_try() -> None:
    world = World("dlq", 4, None, **UNKNOWN)
    job = a_job(1, 24, 3)
    world.submit(job._replace(rules=job.rules._replace(retry_backoff_s=10.0))).decide()
    lose(world, 1, "n3")
    assert world.job(1).blocked is None
    world.decide()
    assert world.running == [1]


def test_a_hold_or_a_cancel_ends_the_claim() -> None:
    for kind in (HoldKind.USER, HoldKind.PAUSED):
        world = gangs(4, (1, 3), (2, 1))
        lose(world, 1, "n2")
        world.hold(1, kind)
        assert world.job(1).kept is None
        world.submit(a_job(3, 8, 1)).decide()
        assert 3 in world.running


def test_beyond_the_quota_of_its_team_it_keeps_nothing_from_others() -> None:
    world = gangs(4, (1, 3), (2, 1))
    lose(world, 1, "n2")
    reserved = Reserved(band=Band.BORROW)
    drive.step_job(world.cluster, world.job(1).job_id, reserved, world.now_s)
    view = View(world.cluster, world.now_s)
    assert kept_gpus.claims(view) == []
    world.submit(a_job(3, 8, 1)).decide()
    assert 3 in world.running


def test_a_promised_job_whose_slot_it_is_takes_the_kept_gpus() -> None:
    world = gangs(4, (1, 3), (2, 1))
    lose(world, 1, "n2")
    slot = world.cluster.slot
    seat = a_job(3, 8, 1, duration_estimate_s=600.0, steps=strict(1e6), promised=0)
    world.submit(seat._replace(verdict="holes", band=Band.SLO, slots=(Segment(slot, slot + 1),)))
    world.decide()
    assert world.attempt(3).lease.kind is LeaseKind.SLO
    (claim,) = kept_gpus.claims(View(world.cluster, world.now_s))
    assert claim.width == 8
    assert world.running == [2, 3]


def test_a_closed_node_and_one_that_it_avoids_are_not_kept() -> None:
    world = gangs(4, (1, 3), (2, 1))
    lose(world, 1, "n2")
    world.drain("n1")
    (claim,) = kept_gpus.claims(View(world.cluster, world.now_s))
    assert claim.stays == (False, False, True)
    avoids = Avoids(node_ids=(NodeId("n3"),))
    drive.step_job(world.cluster, world.job(1).job_id, avoids, world.now_s)
    assert kept_gpus.claims(View(world.cluster, world.now_s)) == []


def test_an_elastic_job_goes_on_at_once_on_what_is_left_and_grows_again() -> None:
    world = World("dlq", 3, None, **UNKNOWN, cooldown_s="0")
    world.submit(a_job(1, request=Request(gpus=24, nodes=3, sizes=(8, 16, 24)))).decide()
    assert world.attempt(1).lease.allocation.width == 24
    lose(world, 1, "n2")
    world.decide()
    assert on(world, 1) == ["n1", "n3"]


def test_two_gangs_never_keep_the_same_gpus_and_the_first_to_wait_comes_first() -> None:
    world = gangs(6, (1, 3), (2, 3))
    lose(world, 1, "n1")
    world.now_s = 2.0
    lose(world, 2, "n4")
    held = kept_gpus.claims(View(world.cluster, world.now_s))
    assert [claim.job.job_id for claim in held] == [1, 2]
    world.decide()
    assert world.running == []
    back(world, "n1")
    world.decide()
    assert on(world, 1) == ["n1", "n2", "n3"]
    back(world, "n4")
    world.decide()
    assert on(world, 2) == ["n4", "n5", "n6"]


def test_a_node_that_somebody_leaves_is_its_next_node() -> None:
    world = gangs(4, (1, 3), (2, 1))
    lose(world, 1, "n2")
    key = world.attempt(2).key
    drive.stop_attempt(world.cluster, key, StopCause.REQUEUE, world.now_s)
    world.submit(a_job(3, 8, 1, duration_estimate_s=1.0)).decide()
    assert ReasonCode.WAITING_FOR_RELEASE in codes(world, 1)
    world.leave(2).decide()
    assert on(world, 1) == ["n1", "n4", "n3"]


def test_at_a_boundary_it_takes_no_more_from_lesser_jobs_than_the_lost_node() -> None:
    world = World("dlq", 6, None, **UNKNOWN, min_run="off", hysteresis="off")
    world.submit(a_job(1, 24, 3, duration_estimate_s=100.0)).decide()
    for number in (2, 3, 4):
        world.submit(a_job(number, 8, 1, duration_estimate_s=90_000.0))
    world.decide().now_s = 269.0
    lose(world, 1, "n2")
    (victim,) = world.at(270.0).leaving
    assert ReasonCode.WAITING_FOR_RELEASE in codes(world, 1)
    (node,) = on(world, victim)
    world.now_s = 300.0
    world.leave(victim).decide()
    assert on(world, 1) == ["n1", node, "n3"]


def test_a_failed_start_on_one_node_keeps_the_others_and_a_mistake_in_the_spec_does_not() -> None:
    for nowhere in (False, True):
        world = gangs(4, (1, 3))
        attempt = world.attempt(1)
        ranks = list(attempt.ranks)
        ranks[1] = ranks[1]._replace(phase=RankPhase.EXITED, start_error="no disk", nowhere=nowhere)
        world.cluster.put_attempt(
            attempt._replace(ranks=tuple(ranks), state=AttemptState.PREPARING, started_time_s=None)
        )
        key, failed = attempt.key, attempt_steps.StartFailed(detail="no disk")
        drive.step_attempt(world.cluster, key, failed, world.now_s)
        assert (world.job(1).kept is None) is nowhere


def test_the_spare_node_is_none_that_the_floor_of_a_queue_needs() -> None:
    world = gangs(4, (1, 3), queue_floor="desk:8")
    lose(world, 1, "n2")
    world.decide()
    assert world.running == []
    back(world, "n2")
    world.decide()
    assert on(world, 1) == ["n2", "n3", "n4"]


def test_where_no_node_can_take_the_place_it_goes_on_in_smaller_pieces() -> None:
    nodes = [a_node(name, gpus) for name, gpus in (("n1", 8), ("n2", 8), ("n3", 4), ("n4", 4))]
    world = World("dlq", nodes, None, **UNKNOWN)
    world.submit(a_job(1, 16)).decide()
    lose(world, 1, "n2")
    (start,) = world.plan().changes
    assert start.reason.code is ReasonCode.KEPT_GPUS
    world.decide()
    assert on(world, 1) == ["n1", "n3", "n4"]
