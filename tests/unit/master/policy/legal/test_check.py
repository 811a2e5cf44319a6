"""An illegal change is named and nothing of its plan is applied."""

import pytest

from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.lease import LeaseKind
from dlq_master.model.plan import (
    Admit,
    Change,
    Demote,
    Lapse,
    Plan,
    Promote,
    Reject,
    Renew,
    Revoke,
    Start,
)
from dlq_master.model.transitions import StopCause
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.legal.check import IllegalPlan, check_delta
from support.builders import World, a_job, a_node, an_allocation
from support.validate import validate

WHY = Reason(ReasonCode.FITS)


def world_with_work(policy: str = "tiresias-las") -> World:
    """Job 1 runs on all of n1 and n2, job 2 on half of n3; 3 waits for 8 GPUs, 4 for two; 5 is
    new.
    """
    world = World(policy, [a_node("n1"), a_node("n2"), a_node("n3"), a_node("small", 2, "A100")])
    world.submit(a_job(1, 16), a_job(2, 4)).decide()
    world.submit(a_job(3, 8), a_job(4, 8, 2)).decide()
    world.submit(a_job(5, 1))
    return world


def start(job_id: int, *slots: tuple[str, int], term_end_s: float = 300.0) -> Start:
    return Start(JobId(job_id), an_allocation(*slots), LeaseKind.BE, term_end_s, WHY)


def key(job_id: int, number: int = 1) -> AttemptKey:
    return AttemptKey(JobId(job_id), number)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (start(3, ("n1", 0xFF)), "GPUs of node n1 are in use"),
        (start(3, ("n3", 0xF0)), "8 GPUs asked, 4 given"),
        (start(3, ("n9", 0xFF)), "node n9 is not open"),
        (start(3, ("n3", 0xFF0)), "has no such GPUs"),
        (start(3, ("n3", 0xF0), ("small", 0b11)), "node small has no such H100"),
        (start(3, ("n3", 0xF0), ("n3", 0xF0)), "in use"),
        (start(4, ("n3", 0b11110000)), "8 GPUs asked"),
        (start(3, ("n3", 0)), "has no such GPUs"),
        (start(1, ("n3", 0xF0)), "job 1 is queued, not waiting"),
        (start(5, ("n3", 0x10)), "job 5 is pending, not waiting"),
        (start(99, ("n3", 0x10)), "there is no job 99"),
        (start(3, ("n3", 0xFF), term_end_s=0.5), "over already"),
        (Renew(key(1), 300.0, WHY), "ends no later"),
        (Renew(key(1, 2), 600.0, WHY), r"attempt 1\.2 is not live"),
        (Lapse(key(1), 299.0, 60.0, JobId(3), WHY), "only when its term ends"),
        (Lapse(key(1), 300.0, 60.0, JobId(3), WHY), "too far ahead"),
        (Lapse(key(1), 300.0, 0.0, JobId(3), WHY), "no time to save"),
        (Revoke(key(7), StopCause.DRAIN, 60.0, WHY), "no job 7"),
        (Demote(JobId(1), 2, WHY), "from level 0 of 2"),
        (Promote(JobId(1), WHY), "only a waiting job"),
        (Admit(JobId(3), WHY), "not pending"),
        (Reject(JobId(3), WHY), "not pending"),
    ],
)
def test_an_illegal_change_is_named(change: Change, why: str) -> None:
    world = world_with_work()
    with pytest.raises(IllegalPlan, match=why) as caught:
        check_delta(View(world.cluster, world.now_s), Plan((change,)), world.policy)
    assert caught.value.change is change


def test_one_gpu_is_not_given_twice_by_one_plan() -> None:
    world = World("best-effort").submit(a_job(1, 2), a_job(2, 2)).settle_moves()
    plan = Plan((start(1, ("n1", 0b0011)), start(2, ("n1", 0b0110))))
    with pytest.raises(IllegalPlan, match="in use"):
        check_delta(View(world.cluster, world.now_s), plan, world.policy)


def test_one_job_is_not_started_twice_by_one_plan() -> None:
    world = World("best-effort").submit(a_job(1, 1)).settle_moves()
    plan = Plan((start(1, ("n1", 0b01)), start(1, ("n1", 0b10))))
    with pytest.raises(IllegalPlan, match="named twice"):
        check_delta(View(world.cluster, world.now_s), plan, world.policy)


def test_a_closed_node_gets_nothing() -> None:
    world = World("best-effort").submit(a_job(1, 1)).settle_moves().drain("n1")
    with pytest.raises(IllegalPlan, match="not open"):
        check_delta(View(world.cluster, world.now_s), Plan((start(1, ("n1", 1)),)), world.policy)


def test_a_gpu_that_is_withheld_gets_nothing() -> None:
    world = World("best-effort").submit(a_job(1, 1)).settle_moves()
    (node,) = world.cluster.nodes.values()
    world.cluster.put_node(node._replace(withheld=0b1000))
    view = View(world.cluster, world.now_s)
    check_delta(view, Plan((start(1, ("n1", 0b0100)),)), world.policy)
    with pytest.raises(IllegalPlan, match="in use"):
        check_delta(view, Plan((start(1, ("n1", 0b1000)),)), world.policy)


def test_a_policy_that_never_preempts_may_not_lapse() -> None:
    world = world_with_work("best-effort")
    lapse = Lapse(key(1), 300.0, 60.0, JobId(3), WHY)
    with pytest.raises(IllegalPlan, match="takes no work away"):
        check_delta(View(world.cluster, 290.0), Plan((lapse,)), world.policy)


def test_equal_shares_are_demanded_of_an_explicit_gang() -> None:
    world = World("best-effort", 2).submit(a_job(1, 4, 2)).settle_moves()
    view = View(world.cluster, world.now_s)
    check_delta(view, Plan((start(1, ("n1", 0b11), ("n2", 0b11)),)), world.policy)
    with pytest.raises(IllegalPlan, match="equal shares"):
        check_delta(view, Plan((start(1, ("n1", 0b111), ("n2", 0b1)),)), world.policy)


def test_the_full_check_sees_an_index_that_has_drifted() -> None:
    world = world_with_work()
    validate(world.cluster)
    world.cluster.capacity.free["H100-80GB"].set(0, 0b1)
    with pytest.raises(AssertionError, match="free H100-80GB of n1"):
        validate(world.cluster)
