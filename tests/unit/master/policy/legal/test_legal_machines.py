"""Plans that rent machines, give them back, or send jobs to them pass the check of every plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.machines.rented import Machine, MachineState
from dlq_master.model.machines.renting import RentingView
from dlq_master.model.nodes.node import NodePool
from dlq_master.model.plan import Change, Migrate, Plan, Provision, Release
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.legal.check import IllegalPlan, check_delta
from dlq_master.policy.priced.catalogue import NodeType
from dlq_master.policy.registry.renting import build
from dlq_master.policy.rent.stage import RentMethod
from dlq_master.policy.turn import carry_out
from support.builders import World, a_job, a_node

WHY = Reason(ReasonCode.RENTED, detail="spot")
METHOD = RentMethod((NodeType("spot", "H100", 4, 10.0),), build("dlq", {}))
UP = Machine("spot-1", "spot", NodeId("spot-1"), 10.0, 0.0, state=MachineState.UP)
ONE_MORE = Provision("spot", (2,), (4,), 5.0, 20.0, WHY)


def world() -> World:
    """Job 1 runs on the own node, job 2 waits, and the machine spot-1 is idle."""
    made = World("fifo", [a_node("n1", 4), a_node("spot-1", 4)._replace(pool=NodePool.PRICED)])
    return made.submit(a_job(1, 4), a_job(2, 4)).decide()


def check(
    made: World, *changes: Change, joined: bool = True, left: int = 2, spare: float = 100.0
) -> None:
    here, nodes = {UP.request_id: UP}, {UP.node_id} if joined else set[NodeId]()
    machines = RentingView(here, nodes, {"spot": left}, 25.0, spare)
    view = View(made.cluster, made.now_s, machines=machines)
    check_delta(view, Plan(changes), replace(made.policy, renting=METHOD))


def migrate(gpus: int = 4, machine: str = "spot-1") -> Migrate:
    return Migrate(AttemptKey(JobId(1), 1), machine, gpus, 30.0, WHY)


def test_machines_are_rented_given_back_and_migrated_to() -> None:
    check(world(), ONE_MORE, ONE_MORE, Release("spot-1", WHY))
    check(world(), migrate())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ((ONE_MORE._replace(pool="rack"),), "rents nothing from pool rack"),
        ((ONE_MORE, ONE_MORE, ONE_MORE), "no more machines of pool spot"),
        ((ONE_MORE._replace(costs=101.0),), "more than may be spent"),
        ((ONE_MORE._replace(jobs=(9,)),), "need no machine"),
        ((Release("spot-2", WHY),), "there is no machine spot-2"),
        ((migrate(), Release("spot-1", WHY)), "machine spot-1 is used"),
        ((migrate(gpus=3),), "4 GPUs asked, 3 given"),
        ((migrate(machine="spot-2"),), "machine spot-2 takes no work"),
        ((migrate(), migrate()), "named twice"),
    ],
)
def test_nothing_else_passes(changes: tuple[Change, ...], why: str) -> None:
    with pytest.raises(IllegalPlan, match=why):
        check(world(), *changes)


def test_no_job_migrates_to_a_machine_whose_agent_is_not_there() -> None:
    with pytest.raises(IllegalPlan, match="takes no work"):
        check(world(), migrate(), joined=False)


def test_a_policy_without_pools_rents_nothing() -> None:
    made = world()
    with pytest.raises(IllegalPlan, match="rents nothing"):
        check_delta(View(made.cluster, made.now_s), Plan((ONE_MORE,)), made.policy)


def test_a_machine_is_kept_while_a_job_is_on_its_way() -> None:
    made = world()
    machines = RentingView({UP.request_id: UP}, {UP.node_id}, {}, 0.0, 0.0)
    view = View(made.cluster, made.now_s, machines=machines)
    happened = carry_out(view, Plan((migrate(),)), replace(made.policy, renting=METHOD), epoch=1)
    assert {one.change for one in happened} == {migrate()}
    assert made.cluster.attempts[migrate().key].stop_cause == "preempt"
    with pytest.raises(IllegalPlan, match="is used"):
        check(made, Release("spot-1", WHY))
