"""The rent stage makes one plan of everything that rented machines do at an instant."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Lateness
from dlq_master.model.jobs.machine_runs import no_runs
from dlq_master.model.machines.rented import Machine, MachineState
from dlq_master.model.machines.renting import RentingView
from dlq_master.model.nodes.node import NodePool
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.plan import Migrate, Plan, Provision, Start
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy import pipeline
from dlq_master.policy.legal.check import check_delta
from dlq_master.policy.order.ordered import lined_up
from dlq_master.policy.policy import Policy
from dlq_master.policy.priced.catalogue import NodeType
from dlq_master.policy.registry.renting import build
from dlq_master.policy.rent.stage import RentDecision, RentMethod
from dlq_master.policy.rent.times import MachineRunTimes
from support.builders import World, a_job, a_node

SPOT = NodeType("spot", "H100", 4, 10.0)
UP = Machine("spot-1", "spot", NodeId("spot-1"), 10.0, 0.0, state=MachineState.UP)
LATE = Lateness(0.0, 1.0)


def world() -> World:
    """Jobs 1 and 2 wait for own GPUs that another job holds; the machine spot-1 is up and idle."""
    made = World("fifo", [a_node("n1", 4), a_node("spot-1", 4)._replace(pool=NodePool.PRICED)])
    made.submit(a_job(9, 4)).decide()
    waiting = [a_job(n, 2, lateness=LATE, duration_estimate_s=3600.0) for n in (1, 2)]
    return made.submit(*waiting).decide()


def renting(made: World) -> Policy:
    return replace(made.policy, renting=RentMethod((SPOT,), build("dlq", {})))


def seen(made: World, *, up: bool = True, left: int = 0) -> View:
    here = {UP.request_id: UP} if up else {}
    machines = RentingView(here, {UP.node_id}, {"spot": left}, 100.0, 1e6)
    return View(made.cluster, made.now_s, machines=machines)


def decided(view: View, policy: Policy) -> RentDecision:
    times = MachineRunTimes([SPOT], [1.0], no_runs())
    return pipeline.rent(view, policy, lambda: times, lambda: np.random.default_rng(0))


def test_jobs_that_start_in_one_plan_share_a_machine() -> None:
    made = world()
    view, policy = seen(made), renting(made)
    plan = decided(view, policy).plan
    check_delta(view, plan, policy)
    starts = [change for change in plan.changes if isinstance(change, Start)]
    assert [start.job_id for start in starts] == [1, 2]
    masks = [slot.mask for start in starts for slot in start.allocation.slots]
    assert masks == [0b0011, 0b1100]
    assert all(start.rented for start in starts)


class MadeForOnePlan(NamedTuple):
    """An order in whose line nobody stands who does not start, as in `3sigma` with its program."""

    anew: bool = True

    def lineup(self, view: View, margin: float) -> Lineup:
        return lined_up(view.cluster, [])


def test_jobs_that_an_order_leaves_out_of_its_line_have_machines_all_the_same() -> None:
    made = world()
    plan = decided(seen(made), replace(renting(made), order=MadeForOnePlan())).plan
    assert [change.job_id for change in plan.changes if isinstance(change, Start)] == [1, 2]


def test_jobs_that_have_left_for_a_machine_start_there() -> None:
    made = world()
    view, policy, why = seen(made), renting(made), Reason(ReasonCode.RENTED, detail="spot")
    arrived = [Migrate(AttemptKey(JobId(n), 1), "spot-1", 2, 30.0, why) for n in (1, 2)]
    plan = policy.rent.arrivals(view, arrived)
    check_delta(view, plan, policy)
    assert [type(change) for change in plan.changes] == [Start, Start]
    assert policy.rent.arrivals(seen(made, up=False), arrived) == Plan()


def test_a_machine_is_rented_where_none_is_there() -> None:
    made = world()
    view, policy = seen(made, up=False, left=1), renting(made)
    plan = decided(view, policy).plan
    check_delta(view, plan, policy)
    (change,) = plan.changes
    assert isinstance(change, Provision)
    assert (change.pool, change.jobs, change.gpus) == ("spot", (1, 2), (2, 2))


def test_a_policy_without_pools_decides_nothing() -> None:
    made = world()
    assert decided(seen(made, left=1), made.policy) == RentDecision()
    assert made.policy.rent.arrivals(seen(made), ()) == Plan()


def test_without_machines_and_late_jobs_there_is_nothing_to_decide() -> None:
    made = World("fifo", [a_node("n1", 4)]).submit(a_job(1, 4)).decide()
    assert decided(seen(made, up=False, left=1), renting(made)).market is None
