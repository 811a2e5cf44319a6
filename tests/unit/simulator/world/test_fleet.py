"""Which lent servers go when some are reclaimed."""

from __future__ import annotations

import pytest

from dlq_master.model.ids import NodeId
from dlq_master.model.lease import Terms
from dlq_master.model.order.order import Ordering
from dlq_master.model.plan import Loan, Reclaim
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.registry.registry import build
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from dlq_simulator.world.fleet import FleetChange, SimulatedFleet
from dlq_simulator.world.loans import LoanStep
from dlq_simulator.world.world import build_cluster

LENT = Reason(ReasonCode.LENT)


def lent(*steps: tuple[float, int]) -> NodeGroup:
    given = tuple(LoanStep(*step) for step in steps)
    return NodeGroup(name="lent", count=3, gpus=1, lent=given)


def a_job(name: str, duration: float) -> TraceJob:
    return TraceJob(job_id=name, submit_time_s=0, num_gpus=1, duration_s=duration)


@pytest.mark.parametrize(
    ("left", "gone"),
    [(3, []), (2, ["lent-3"]), (1, ["lent-3", "lent-2"]), (0, ["lent-3", "lent-2", "lent-1"])],
)
def test_of_idle_servers_the_last_of_the_group_go_first(left: int, gone: list[str]) -> None:
    group = lent((0, 3))
    spec = ClusterSpec(name="c", groups=(group,))
    cluster = build_cluster(spec, Ordering(), Terms())
    fleet, policy = SimulatedFleet(spec, cluster, 0), build("fifo")
    joined = fleet.apply(FleetChange(0, group, 3), policy)
    assert {one.change for one in joined} == {Loan(NodeId(f"lent-{n}"), LENT) for n in (1, 2, 3)}
    left_at_10 = fleet.apply(FleetChange(10, group, left), policy)
    named = [one.node_id for one in left_at_10 if isinstance(one.change, Reclaim)]
    assert named == gone
    still = [node_id for node_id in sorted(cluster.nodes) if cluster.nodes[node_id].open]
    assert still == [NodeId(f"lent-{number}") for number in range(1, left + 1)]


def test_an_idle_server_goes_before_a_later_one_that_is_busy() -> None:
    """The first of three servers is idle from 10 s on: the reclaim at 40 s disturbs nobody."""
    jobs = [a_job("a", 10), a_job("b", 100), a_job("c", 100)]
    spec = ClusterSpec(name="c", groups=(lent((0, 3), (40, 2)),))
    (chosen,) = read_settings(["fifo"], [])
    result = replay(Trace.of("t", jobs), spec, chosen)
    assert [(o.finish_s, o.preemptions) for o in result.outcomes] == [(10, 0), (100, 0), (100, 0)]


def test_of_busy_servers_the_last_of_the_group_goes_first() -> None:
    jobs = [a_job("a", 100), a_job("b", 100), a_job("c", 100)]
    spec = ClusterSpec(name="c", groups=(lent((0, 3), (40, 2)),))
    (chosen,) = read_settings(["fifo"], [])
    result = replay(Trace.of("t", jobs), spec, chosen)
    assert [outcome.preemptions for outcome in result.outcomes] == [0, 0, 1]
