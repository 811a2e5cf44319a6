"""Elastic jobs on lent servers: they give up what they hold there as long as enough is left
elsewhere.
"""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.cluster import drive
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.lease import LeaseKind
from dlq_master.model.nodes.node import NodeFlag, NodePool
from dlq_master.model.plan import Plan, Resize, Revoke, Start
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.legal.check import check_delta
from dlq_master.policy.reclaim.choices import ALGORITHM_1
from dlq_master.policy.reclaim.demand import Choice
from dlq_master.policy.reclaim.whitelist import TakenServers, demand_of, dice, take_back, taking
from support.builders import World, a_job, a_node, an_allocation
from support.validate import validate

OWN, LENT = ("n1", "n2"), ("t1", "t2", "t3", "t4")
GPUS = 4  # of each node


class Tenants(World):
    """Own nodes and lent servers of four GPUs each, and jobs that are put where a test wants
    them.
    """

    def __init__(self, policy: str = "dlq", own: int = 2, lent: int = 4) -> None:
        flags = frozenset([NodeFlag.LOANED])
        servers = [a_node(it, GPUS, pool=NodePool.INFERENCE, flags=flags) for it in LENT[:lent]]
        super().__init__(policy, [*(a_node(it, GPUS) for it in OWN[:own]), *servers])
        self.servers = [server.node_id for server in servers]
        self.free = {name: list(range(GPUS)) for name in (*OWN[:own], *LENT[:lent])}

    def put(self, job_id: int, where: dict[str, int], base: int = 0) -> Tenants:
        """It runs there; with a base it is elastic, between that and what it has."""
        width = sum(where.values())
        sizes = (base, width) if 0 < base < width else ()
        job = a_job(job_id, request=Request(gpus=width, sizes=sizes))
        self.submit(job).settle_moves()
        slots = []
        for name, gpus in where.items():
            taken, self.free[name] = self.free[name][:gpus], self.free[name][gpus:]
            slots.append((name, sum(1 << gpu for gpu in taken)))
        why = Reason(ReasonCode.RESIZED)
        start = Start(JobId(job_id), an_allocation(*slots), LeaseKind.BE, 300.0, why)
        return self.carry_out(Plan((start,)))

    def carry_out(self, plan: Plan) -> Tenants:
        check_delta(View(self.cluster, self.now_s), plan, self.policy)
        for one in drive.apply(self.cluster, plan, self.now_s, epoch=1):
            self.run_if_placed(one)
        validate(self.cluster)
        return self

    def cordon(self, name: str) -> Tenants:
        node = self.cluster.nodes[NodeId(name)]
        self.cluster.put_node(node._replace(flags=node.flags | {NodeFlag.CORDONED}))
        return self

    def taken(self, fewer: int) -> TakenServers:
        return take_back(
            View(self.cluster, self.now_s), self.policy.reclaiming, self.servers, fewer
        )

    def by(self, choice: Choice) -> TakenServers:
        view = View(self.cluster, self.now_s)
        demand = demand_of(view, self.policy.reclaiming, self.servers, len(choice.servers))
        return taking(view, self.policy.reclaiming, demand, choice)

    def algorithm_1(self, fewer: int) -> TakenServers:
        view = View(self.cluster, self.now_s)
        demand = demand_of(view, self.policy.reclaiming, self.servers, fewer)
        return taking(view, self.policy.reclaiming, demand, ALGORITHM_1.choose(demand, dice(view)))


def ended(taken: TakenServers) -> list[int]:
    return [change.key.job_id for change in taken.plan.changes if isinstance(change, Revoke)]


def shrunk(taken: TakenServers) -> dict[int, dict[str, int]]:
    """What is left to each that goes on."""
    return {
        change.key.job_id: {it.node_id: it.mask.bit_count() for it in change.allocation.slots}
        for change in taken.plan.changes
        if isinstance(change, Resize)
    }


def test_who_holds_its_base_on_an_own_node_is_shrunk_and_nobody_else_is_preempted() -> None:
    """Most of it is on t1, so that its base would be, too; t2 goes last among equals."""
    world = Tenants(lent=2).put(1, {"n1": 2, "t1": 4}, base=2).put(2, {"t2": 4})
    for rule in (world.taken(1), world.algorithm_1(1)):
        assert rule.choice.servers == ("t1",)
        assert (ended(rule), shrunk(rule)) == ([], {1: {"n1": 2}})
        assert rule.toll.preempted == 0
    world.carry_out(world.taken(1).plan)


def test_any_server_of_a_job_may_go_as_long_as_another_stays() -> None:
    """Its base is counted on t1, and somebody else is on t2: Algorithm 1 sees one job on each."""
    world = Tenants(own=0, lent=3).put(1, {"t1": 2, "t2": 2}, base=2).put(2, {"t2": 2})
    world.put(3, {"t3": 4})
    taken = world.taken(1)
    assert (taken.choice.servers, taken.choice.cost, taken.choice.proven) == (("t1",), 0, True)
    assert (ended(taken), shrunk(taken)) == ([], {1: {"t2": 2}})
    assert ended(world.algorithm_1(1)) != []


def test_it_is_preempted_when_less_than_its_base_is_left() -> None:
    world = Tenants(own=1, lent=2).put(1, {"n1": 1, "t1": 4, "t2": 4}, base=4)
    assert shrunk(world.taken(1)) == {1: {"n1": 1, "t1": 3}}
    taken = world.taken(2)
    assert (ended(taken), taken.choice.cost) == ([1], 1)


def test_a_base_on_a_node_that_takes_no_work_is_none() -> None:
    """Nor does that node stand in the way of shrinking it to what it has on others."""
    world = Tenants(lent=2).put(1, {"n1": 4, "t1": 2}, base=4).put(2, {"n2": 2, "t2": 2}, base=2)
    world.cordon("n1")
    taken = world.taken(1)
    assert (taken.choice.servers, ended(taken), shrunk(taken)) == (("t2",), [], {2: {"n2": 2}})
    wide = Tenants(lent=1).put(1, {"n1": 4, "n2": 4, "t1": 4}, base=4).cordon("n1")
    taken = wide.taken(1)
    assert shrunk(taken) == {1: {"n2": 4}}
    wide.carry_out(taken.plan)


def test_a_job_of_whole_nodes_goes_on_with_whole_nodes() -> None:
    """A GPU of each own node has been withheld meanwhile: of neither enough is left."""
    world = Tenants(lent=2)
    slots = an_allocation(*((name, 0b1111) for name in ("n1", "n2", "t1", "t2")))
    request = Request(gpus=4, nodes=1, sizes=(4, 8, 12, 16))
    world.submit(a_job(1, request=request)).settle_moves()
    why = Reason(ReasonCode.RESIZED)
    world.carry_out(Plan((Start(JobId(1), slots, LeaseKind.BE, 300.0, why),)))
    assert shrunk(world.taken(1))[1].keys() == {"n1", "n2", "t1"}
    for name in OWN:
        node = world.cluster.nodes[NodeId(name)]
        world.cluster.put_node(node._replace(withheld=0b0001))
    assert shrunk(world.taken(1)) == {1: {"t1": 4}}
    world.carry_out(world.taken(1).plan)
    assert ended(world.taken(1)) == [], "it leaves already"


def test_between_two_of_its_sizes_it_gives_up_what_is_over() -> None:
    world = Tenants(own=1, lent=2).put(1, {"n1": 4, "t1": 2, "t2": 2}, base=4)
    taken = world.taken(1)
    assert shrunk(taken) == {1: {"n1": 4}}
    world.carry_out(taken.plan)


@st.composite
def worlds(draw: st.DrawFn) -> Tenants:
    """Up to six jobs on two own nodes, one of them perhaps cordoned, and four servers."""
    world = Tenants()
    for job_id in range(1, draw(st.integers(1, 6)) + 1):
        left = [name for name, free in world.free.items() if free]
        names = draw(st.lists(st.sampled_from(left), min_size=1, max_size=3, unique=True))
        where = {name: draw(st.integers(1, len(world.free[name]))) for name in names}
        world.put(job_id, where, draw(st.integers(0, sum(where.values()))))
        if not any(world.free.values()):
            break
    return world.cordon("n2") if draw(st.booleans()) else world


@given(worlds(), st.integers(1, 4))
def test_nobody_is_preempted_whom_another_choice_would_spare(world: Tenants, fewer: int) -> None:
    taken = world.taken(fewer)
    assert len(ended(taken)) == taken.choice.cost == taken.toll.preempted
    assert taken.choice.proven
    choices = combinations(world.servers, fewer)
    assert len(ended(taken)) == min(len(ended(world.by(Choice(some, 0.0)))) for some in choices)
    assert len(ended(taken)) <= len(ended(world.algorithm_1(fewer)))
    for job_id in ended(taken):
        job, gone = world.job(job_id), set(taken.choice.servers)
        left = sum(
            slot.mask.bit_count()
            for slot in world.attempt(job_id).lease.allocation.slots
            if slot.node_id not in gone and world.cluster.nodes[slot.node_id].open
        )
        assert left < job.request.base
    world.carry_out(taken.plan)
