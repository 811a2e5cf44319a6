"""Lent servers as changes of a plan: from away to lent, asked back, and away again when they are
empty.
"""

from __future__ import annotations

import pytest

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.cluster import drive
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.node import NodeFlag, NodePool
from dlq_master.model.plan import Change, Loan, Plan, Reclaim, Resize, Return, Revoke
from dlq_master.model.resources import Request
from dlq_master.model.transitions import StopCause
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.legal.check import IllegalPlan, check_delta
from dlq_master.policy.reclaim.whitelist import TakenServers, lend, returns, take_back
from support.builders import World, a_job, a_node, an_allocation
from support.validate import validate

WHY = Reason(ReasonCode.ASKED_BACK)
LENT = [NodeId(f"t{number}") for number in (1, 2, 3)]


class Lent(World):
    """One own node, n1, and three servers that others lend; all with 8 GPUs."""

    def __init__(self, policy: str = "best-effort", **settings: str) -> None:
        servers = [a_node(name, gpu_type="T4", pool=NodePool.INFERENCE) for name in LENT]
        super().__init__(policy, [a_node("n1"), *servers], None, **settings)

    def carry_out(self, plan: Plan) -> Lent:
        check_delta(View(self.cluster, self.now_s), plan, self.policy)
        for one in drive.apply(self.cluster, plan, self.now_s, epoch=1):
            self.run_if_placed(one)
        validate(self.cluster)
        return self

    def lend(self, more: int) -> Lent:
        return self.carry_out(lend(self.cluster, LENT, more))

    def taken(self, fewer: int) -> TakenServers:
        return take_back(View(self.cluster, self.now_s), self.policy.reclaiming, LENT, fewer)

    def open(self) -> list[str]:
        return [name for name in LENT if self.cluster.nodes[name].open]


def tesla(job_id: int, gpus: int, *sizes: int) -> Job:
    """A job for the lent servers alone."""
    request = Request(gpus=gpus, gpu_type="T4", sizes=sizes)
    return a_job(job_id, request=request, duration_estimate_s=1000.0)


def verbs(plan: Plan) -> list[str]:
    return [type(change).__name__ for change in plan.changes]


def test_servers_join_in_their_order_and_jobs_run_there_at_once() -> None:
    world = Lent().lend(2)
    assert world.open() == ["t1", "t2"]
    assert world.cluster.nodes[LENT[0]].flags == {NodeFlag.LOANED}
    world.submit(tesla(1, 16)).decide()
    assert world.running == [1]
    assert world.lend(5).open() == ["t1", "t2", "t3"], "all that there are"


def test_an_idle_server_goes_at_once_and_the_last_one_first() -> None:
    world = Lent().lend(3)
    taken = world.taken(2)
    assert verbs(taken.plan) == ["Reclaim", "Reclaim", "Return", "Return"]
    assert taken.choice.servers == ("t3", "t2")
    assert taken.toll == (0, 0, 0.0, 0.0, 1.0)
    world.carry_out(taken.plan)
    assert world.open() == ["t1"]
    assert not world.cluster.nodes[NodeId("t3")].flags


def test_a_server_that_is_asked_back_takes_nothing_new_and_leaves_only_when_it_is_empty() -> None:
    world = Lent().lend(1)
    world.submit(tesla(1, 4)).decide()
    taken = world.taken(1)
    assert verbs(taken.plan) == ["Reclaim", "Revoke"]
    world.carry_out(taken.plan)
    assert world.attempt(1).state is AttemptState.PAUSING
    server = world.cluster.nodes[LENT[0]]
    assert server.flags == {NodeFlag.LOANED, NodeFlag.RECLAIMED}
    world.submit(tesla(2, 1)).decide()
    assert (world.running, world.leaving) == ([], [1])
    assert returns(world.cluster, LENT).changes == ()
    world.leave(1)
    gone = returns(world.cluster, LENT)
    assert verbs(gone) == ["Return"]
    assert not world.carry_out(gone).cluster.nodes[LENT[0]].flags
    assert world.decide().running == []


def test_who_is_asked_back_may_be_lent_again_before_it_is_empty() -> None:
    world = Lent().lend(1)
    world.submit(tesla(1, 4)).decide()
    world.carry_out(world.taken(1).plan)
    assert world.lend(1).open() == ["t1"]
    assert returns(world.cluster, LENT).changes == ()


def test_the_rule_of_the_policy_says_which() -> None:
    """t1 has two jobs, t2 and t3 one between them."""
    for rule, expected in {
        "exact": {"t2", "t3"},
        "static": {"t3", "t2"},
        "lsf": {"t1", "t3"},
    }.items():
        world = Lent(reclaim=rule).lend(3)
        world.submit(tesla(1, 5), tesla(2, 3), tesla(3, 16)).decide()
        assert set(world.taken(2).choice.servers) == expected
        assert world.taken(1).choice.servers == (("t1",) if rule == "lsf" else ("t3",))


def grown() -> Lent:
    """Job 1 (4, 8 or 12 GPUs) has 8 on t1 and 4 on t2."""
    world = Lent("aryl", place="consolidate").lend(2)
    world.submit(tesla(1, 4, 4, 8, 12)).decide()
    assert world.attempt(1).lease.allocation == an_allocation(("t1", 0xFF), ("t2", 0x0F))
    return world


def test_who_keeps_enough_elsewhere_goes_on_with_that_and_is_not_preempted() -> None:
    world = grown()
    taken = world.taken(1)
    (resize,) = [change for change in taken.plan.changes if isinstance(change, Resize)]
    assert resize.allocation == an_allocation(("t1", 0xFF))
    assert taken.toll == (0, 1, 0.0, 1.0, 0.0), "a server of flexible workers"
    world.carry_out(taken.plan)
    assert world.attempt(1).regrant == an_allocation(("t1", 0xFF))
    world.leave(1)
    world.carry_out(returns(world.cluster, LENT)).decide()
    assert world.attempt(1).lease.allocation == an_allocation(("t1", 0xFF))
    assert world.open() == ["t1"]


def test_with_groups_a_server_of_flexible_workers_goes_before_one_with_a_base() -> None:
    world = Lent("aryl").lend(3)
    world.submit(tesla(1, 6, 6, 14), tesla(2, 1)).decide()
    assert world.attempt(1).lease.allocation == an_allocation(("t1", 0x3F), ("t2", 0xFF))
    assert world.attempt(2).lease.allocation == an_allocation(("t1", 0x40))
    taken = world.taken(2)
    assert taken.choice.servers == ("t3", "t2")
    assert taken.toll == (0, 1, 0.0, 0.5, 0.5)
    (resize,) = [change for change in taken.plan.changes if isinstance(change, Resize)]
    assert resize.allocation == an_allocation(("t1", 0x3F))


def test_whose_base_goes_too_has_to_stop() -> None:
    taken = grown().taken(2)
    (revoke,) = [change for change in taken.plan.changes if isinstance(change, Revoke)]
    assert (revoke.key, revoke.cause) == (AttemptKey(JobId(1), 1), StopCause.RECLAIM)
    assert revoke.grace_s > 0


def test_a_job_goes_on_with_one_of_its_sizes() -> None:
    world = Lent("aryl").lend(2)
    world.submit(tesla(1, 3, 3, 11)).decide()
    assert world.attempt(1).lease.allocation.width == 11
    plan = world.taken(1).plan
    (resize,) = [c for c in plan.changes if isinstance(c, Resize)]
    assert resize.allocation.width == 3
    assert {slot.node_id for slot in resize.allocation.slots} == {"t1"}
    world.carry_out(plan)


def test_a_policy_without_a_size_stage_shrinks_nobody() -> None:
    world = Lent().lend(2)
    world.submit(tesla(1, 12, 4, 8, 12)).decide()
    assert verbs(world.taken(1).plan) == ["Reclaim", "Revoke"]


def test_who_is_leaving_already_costs_nothing_more() -> None:
    world = Lent().lend(2)
    world.submit(tesla(1, 8), tesla(2, 8)).decide()
    stop = attempt_steps.StopRequested(cause=StopCause.RECLAIM, grace_s=30.0)
    drive.step_attempt(world.cluster, AttemptKey(JobId(1), 1), stop, world.now_s)
    taken = world.taken(1)
    assert (taken.choice.servers, taken.choice.cost) == (("t1",), 0)
    assert verbs(taken.plan) == ["Reclaim"], "it is still there"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (Loan(LENT[0], WHY), "is lent already"),
        (Loan(NodeId("nowhere"), WHY), "there is no node"),
        (Reclaim(LENT[2], WHY), "is not lent"),
        (Reclaim(NodeId("n1"), WHY), "is not lent"),
        (Return(LENT[0], WHY), "was not asked back"),
        (Return(NodeId("n1"), WHY), "was not asked back"),
    ],
)
def test_changes_of_servers_that_make_no_sense_are_illegal(change: Change, why: str) -> None:
    world = Lent().lend(2)
    with pytest.raises(IllegalPlan, match=why):
        world.carry_out(Plan((change,)))


def test_a_server_does_not_leave_while_somebody_is_there() -> None:
    world = Lent().lend(1)
    world.submit(tesla(1, 4)).decide()
    with pytest.raises(IllegalPlan, match="is still held"):
        world.carry_out(Plan((Reclaim(LENT[0], WHY), Return(LENT[0], WHY))))
    with pytest.raises(IllegalPlan, match="is not lent"):
        world.carry_out(Plan((Reclaim(LENT[0], WHY), Reclaim(LENT[0], WHY))))


def test_nobody_is_shrunk_in_the_middle_of_a_term_but_for_a_reclaim() -> None:
    world = grown()
    (resize,) = [change for change in world.taken(1).plan.changes if isinstance(change, Resize)]
    with pytest.raises(IllegalPlan, match="only when its term ends"):
        world.carry_out(Plan((resize,)))
    with pytest.raises(IllegalPlan, match="no time to save"):
        world.carry_out(Plan((Reclaim(LENT[1], WHY), resize._replace(grace_s=0.0))))
    elsewhere = resize._replace(allocation=an_allocation(("t2", 0x0F)))
    with pytest.raises(IllegalPlan, match="only when its term ends"):
        world.carry_out(Plan((Reclaim(LENT[1], WHY), elsewhere)))


def test_of_two_jobs_that_look_alike_the_one_that_cannot_save_stays() -> None:
    """The last server would go among equals; the job there has run for long, and would lose it
    all.
    """
    for keeps, goes in ((True, "t2"), (False, "t1")):
        world = Lent().lend(2)
        world.submit(tesla(1, 8), tesla(2, 8)._replace(keeps_work=keeps)).decide()
        world.at(500.0)
        assert world.taken(1).choice.servers == (goes,)


def test_that_has_only_begun_it_loses_less_than_saving_takes() -> None:
    world = Lent().lend(2)
    world.submit(tesla(1, 8), tesla(2, 8)._replace(keeps_work=False)).decide()
    world.at(10.0)
    assert world.taken(1).choice.servers == ("t2",)
