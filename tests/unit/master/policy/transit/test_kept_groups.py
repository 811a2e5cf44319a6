"""A group that a node has failed keeps the other GPUs of all its members, and comes first."""

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.cluster import drive
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import HoldKind
from dlq_master.model.jobs.job_steps import Cancelled, Reserved
from dlq_master.model.resources import Request
from dlq_master.model.transitions import StopCause
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.model.words.sentence import sentence
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.transit import kept_gpus
from support.builders import World, a_job
from unit.master.policy.place.test_together import a_group
from unit.master.policy.transit.test_kept_gpus import UNKNOWN, lose, on

TOLD = "member m0 of its group has left its GPUs"


def at_work(nodes: int, *firsts: int, **settings: str) -> World:
    """Groups with a member of two nodes and one of a node, of nodes with eight GPUs."""
    world = World("dlq", nodes, None, **UNKNOWN, **settings)
    for first in firsts:
        wide, narrow = a_group(first, 16, 8)
        wide = wide._replace(request=Request(gpus=16, nodes=2))
        world.submit(wide, narrow).decide()
        assert {wide.job_id, narrow.job_id} <= {*world.running}
    return world


def told_to_leave(world: World, *job_ids: int) -> None:
    """As the master tells them in the same turn."""
    for job_id in job_ids:
        stop = attempt_steps.StopRequested(cause=StopCause.PREEMPT, grace_s=5.0, detail=TOLD)
        drive.step_attempt(world.cluster, world.attempt(job_id).key, stop, world.now_s)


def kept(world: World) -> dict[int, int]:
    """How many GPUs are kept for each job that keeps some."""
    held = kept_gpus.claims(View(world.cluster, world.now_s))
    return {claim.job.job_id: claim.width for claim in held if claim.parts}


def lost_one(nodes: int = 4, **settings: str) -> World:
    """A group that has lost n2, has left n1 and n3, and a job on n4."""
    world = at_work(nodes, 10, **settings)
    assert (on(world, 11), on(world, 12)) == (["n2", "n3"], ["n1"])
    world.submit(a_job(1, 8, 1)).decide()
    lose(world, 11, "n2")
    told_to_leave(world, 12)
    world.leave(12)
    return world


def test_all_members_go_on_with_what_they_had_and_a_spare_node() -> None:
    world = lost_one(5)
    world.decide()
    assert (on(world, 11), on(world, 12)) == (["n5", "n3"], ["n1"])
    assert world.job(11).kept is world.job(12).kept is None


def test_without_a_spare_node_nobody_else_gets_theirs_and_the_first_free_one_is_theirs() -> None:
    world = lost_one()
    world.submit(a_job(2, 8, 1, duration_estimate_s=1.0)).decide()
    assert (world.running, kept(world)) == ([1], {11: 8, 12: 8})
    view = View(world.cluster, world.now_s)
    own = explain(view, world.policy, JobId(12))[0]
    assert own.code is ReasonCode.KEPT_GPUS
    assert sentence(own, world.job(12)).startswith("its group lost a node: 8 of its 8 GPUs are")
    world.finish(1).decide()
    assert (on(world, 11), on(world, 12)) == (["n4", "n3"], ["n1"])


def test_while_a_member_still_leaves_the_gpus_of_the_others_wait_for_all() -> None:
    world = at_work(5, 10)
    lose(world, 11, "n2")
    told_to_leave(world, 12)
    world.submit(*[a_job(number, 8, 1) for number in (1, 2, 3)]).decide()
    assert kept(world) == {11: 8}
    assert len(world.running) == 2, "n4 and n5 are free to all"
    world.now_s = 50.0
    world.leave(12)
    until_s = {world.job(it).kept.until_s for it in (11, 12)}  # type: ignore[union-attr]
    assert until_s == {301.0}, "one instant for all: that of the first"


def test_a_member_that_has_lost_all_is_first_in_line_with_the_others() -> None:
    world = at_work(4, 10)
    world.submit(a_job(1, 8, 1)).decide()
    lose(world, 12, "n1")
    told_to_leave(world, 11)
    world.leave(11).submit(a_job(2, 8, 1)).decide()
    assert kept(world) == {11: 16}
    world.finish(1).decide()
    assert (on(world, 11), on(world, 12)) == (["n2", "n3"], ["n4"])


def test_a_node_that_drains_does_the_same_whichever_member_leaves_first() -> None:
    world = at_work(4, 10)
    world.drain("n2")
    drive.stop_attempt(world.cluster, world.attempt(11).key, StopCause.DRAIN, world.now_s)
    told_to_leave(world, 12)
    world.leave(12)
    assert world.job(12).kept is not None
    world.leave(11).decide()
    assert (on(world, 11), on(world, 12)) == (["n4", "n3"], ["n1"])


def test_a_stop_that_no_node_has_caused_keeps_nothing() -> None:
    world = at_work(4, 10)
    drive.stop_attempt(world.cluster, world.attempt(11).key, StopCause.REQUEUE, world.now_s)
    told_to_leave(world, 12)
    world.leave(11, 12)
    assert world.job(11).kept is world.job(12).kept is None


def test_two_groups_that_each_keep_what_the_other_lacks_wait_no_longer_than_the_bound() -> None:
    world = at_work(6, 10, 20)
    assert (on(world, 11), on(world, 21)) == (["n2", "n3"], ["n5", "n6"])
    for at_s, (wide, narrow, name) in enumerate(((11, 12, "n2"), (21, 22, "n5"))):
        world.now_s = 1.0 + 9.0 * at_s
        lose(world, wide, name)
        told_to_leave(world, narrow)
        world.leave(narrow)
    world.submit(a_job(1, 8, 1)).decide()
    assert (world.running, kept(world)) == ([], {11: 8, 12: 8, 21: 8, 22: 8})
    world.at(300.9)
    assert world.running == []
    assert world.wake_at_s == 301.0
    world.at(301.0)  # the first claim is over: its GPUs are for the second, which is first in line
    assert {21, 22} <= {*world.running}
    assert kept(world) == {}


def test_a_set_that_can_never_be_completed_is_given_back() -> None:
    world = lost_one()
    world.submit(a_job(2, 8, 1)).decide()
    world.at(300.9)
    assert world.running == [1]
    world.at(301.0)
    assert 2 in world.running


def test_a_hold_of_one_member_a_cancel_and_a_team_at_its_limit_end_what_all_keep() -> None:
    for case in ("hold", "pause", "cancel", "borrow"):
        world = lost_one()
        if case == "cancel":
            drive.step_job(world.cluster, JobId(12), Cancelled(), world.now_s)
            drive.step_job(world.cluster, JobId(11), Cancelled(), world.now_s)
        elif case == "borrow":
            drive.step_job(world.cluster, JobId(12), Reserved(band=Band.BORROW), world.now_s)
            assert kept(world) == {}
            continue
        else:
            world.hold(12, HoldKind.USER if case == "hold" else HoldKind.PAUSED)
        assert kept(world) == {}
        world.submit(a_job(2, 8, 1), a_job(3, 8, 1)).decide()
        assert {2, 3} <= {*world.running}, case


def test_a_member_that_asks_for_less_meanwhile_ends_what_all_keep() -> None:
    world = lost_one()
    job = world.job(12)
    world.cluster.put_job(job._replace(request=Request(gpus=2)))
    assert kept(world) == {}


def test_a_member_that_has_completed_is_not_waited_for() -> None:
    world = at_work(4, 10)
    world.submit(a_job(1, 8, 1)).finish(12)
    lose(world, 11, "n2")
    world.decide()
    assert (on(world, 11), on(world, 1)) == (["n1", "n3"], ["n4"])


def test_the_setting_off_is_a_plain_requeue() -> None:
    world = lost_one(keep_gpus_s="off")
    assert world.job(11).kept is world.job(12).kept is None
