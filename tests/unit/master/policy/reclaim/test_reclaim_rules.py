"""Which servers go back: Aryl's example (Figure 5, Table 1), and what holds for every rule and the
proof.
"""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.ids import JobId, NodeId
from dlq_master.policy.reclaim import rules
from dlq_master.policy.reclaim.demand import Demand, Tenant, toll
from dlq_master.policy.reclaim.exact import exact, least_lost


def server(number: int) -> NodeId:
    return NodeId(f"s{number}")


def tenant(number: int, base: dict[int, int], flexible: dict[int, int] | None = None) -> Tenant:
    return Tenant(
        JobId(number),
        {server(at): gpus for at, gpus in base.items()},
        {server(at): gpus for at, gpus in (flexible or {}).items()},
    )


A, B, C, D = (
    tenant(1, {1: 4, 2: 4}),
    tenant(2, {3: 4}),
    tenant(3, {4: 8, 5: 2}),
    tenant(4, {6: 8, 5: 2}),
)


def figure_5(wanted: int) -> Demand:
    return Demand({server(at): 8 for at in range(1, 7)}, (A, B, C, D), wanted)


def names(demand: Demand, servers: tuple[NodeId, ...]) -> str:
    gone = set(servers)
    return "".join(
        "abcd"[one.job_id - 1] for one in demand.tenants if not gone.isdisjoint(one.base)
    )


def test_table_1() -> None:
    demand = figure_5(1)
    of_gpus = rules.fractions(demand, of_gpus=True)
    assert list(of_gpus.values()) == pytest.approx([0.5, 0.5, 1, 0.8, 0.4, 0.8])
    assert list(rules.fractions(demand).values()) == [0.5, 0.5, 1, 0.5, 1, 0.5]


@pytest.mark.parametrize(
    ("wanted", "preempted"), [(1, "a"), (2, "a"), (3, "ac"), (4, "acd"), (5, "acd"), (6, "abcd")]
)
def test_figure_5(wanted: int, preempted: str) -> None:
    demand = figure_5(wanted)
    chosen = rules.algorithm_1(demand)
    assert chosen.servers == tuple(map(server, (1, 2, 4, 5, 6, 3)))[:wanted]
    assert names(demand, chosen.servers) == preempted
    assert exact(demand).cost == chosen.cost == len(preempted)


def test_two_servers_of_figure_5_that_preempt_one_job_are_the_only_ones() -> None:
    demand = figure_5(2)
    assert set(exact(demand).servers) == {server(1), server(2)}
    least = [pair for pair in combinations(demand.servers, 2) if demand.cost(pair) == 1]
    assert least == [(server(1), server(2))]


def test_gpu_fractions_would_take_server_5_and_preempt_two_jobs() -> None:
    demand = figure_5(1)
    of_gpus = rules.fractions(demand, of_gpus=True)
    assert demand.cost([min(of_gpus, key=of_gpus.__getitem__)]) == 2


def test_other_rules_on_figure_5() -> None:
    demand = figure_5(2)
    assert rules.static(demand).servers == (server(1), server(2))
    assert rules.smallest_count(demand).servers == (server(1), server(2))
    assert rules.smallest_fraction(demand).servers == (server(1), server(2))
    assert rules.largest_fraction(demand).servers == (server(3), server(5))
    assert rules.largest_fraction(demand).cost == 3


def test_costs_that_are_not_brought_up_to_date_tell_ssf_from_algorithm_1() -> None:
    """Servers 1 and 4 look as cheap as 1 and 2, but 2 is empty once 1 has gone."""
    there = C._replace(base={server(4): 8}, elsewhere=1)
    demand = Demand({server(at): 8 for at in (1, 4, 2)}, (A, there), 2)
    assert rules.smallest_fraction(demand).cost == 2
    assert rules.algorithm_1(demand).cost == 1


def test_random_is_the_same_for_the_same_dice() -> None:
    demand = figure_5(3)
    one, other = rules.at_random(Random(7))(demand), rules.at_random(Random(7))(demand)
    assert one == other
    assert len(set(one.servers)) == 3
    assert len({rules.at_random(Random(seed))(demand).servers for seed in range(20)}) > 1


def test_flexible_workers_go_first_and_nobody_is_preempted() -> None:
    elastic = tenant(5, {1: 2}, {2: 6, 3: 2})
    demand = Demand({server(at): 8 for at in (1, 2, 3, 4)}, (elastic,), 3)
    chosen = rules.algorithm_1(demand).servers
    assert chosen == (server(4), server(3), server(2)), "idle, then the fewest flexible GPUs"
    assert exact(demand).servers == chosen
    assert toll(demand, chosen) == (0, 1, 0.0, 2 / 3, 1 / 3)


def test_a_job_that_is_on_other_servers_too_makes_each_of_its_own_cheaper() -> None:
    wide = A._replace(base={server(1): 4}, elsewhere=3)
    demand = Demand({server(2): 8, server(1): 8, server(3): 8}, (tenant(9, {2: 1}), wide), 1)
    assert rules.fractions(demand)[server(1)] == 0.25


def test_what_a_reclaim_costs() -> None:
    """Server 5 is asked back: c and d are preempted, and vacate 8 GPUs each besides its 8."""
    demand = figure_5(1)
    assert toll(demand, [server(5)]) == (2, 0, 16 / 8, 0.0, 0.0)
    assert toll(demand, []) == (0, 0, 0.0, 0.0, 0.0)


def test_a_preemption_that_loses_work_counts_for_more() -> None:
    lossy = tenant(1, {1: 8})._replace(cost=3.0)
    demand = Demand(
        {server(at): 8 for at in (1, 2)}, (lossy, tenant(2, {2: 1}), tenant(3, {2: 1})), 1
    )
    assert exact(demand).servers == rules.algorithm_1(demand).servers == (server(2),)


def test_among_as_few_jobs_those_go_that_lose_least() -> None:
    """Algorithm 1 takes the first of two servers that look alike."""
    lossy, cheap = tenant(1, {1: 8})._replace(lost_gpu_s=9e5), tenant(2, {2: 8})
    demand = Demand({server(at): 8 for at in (1, 2)}, (lossy, cheap._replace(lost_gpu_s=480)), 1)
    assert rules.algorithm_1(demand).servers == (server(1),)
    found = exact(demand)
    assert (found.servers, found.cost, found.proven) == ((server(2),), 1, True)


def test_one_job_that_loses_much_may_be_spared_for_two_only_where_losses_count() -> None:
    lossy = tenant(1, {1: 8})._replace(lost_gpu_s=9e5)
    two = [tenant(at, {2: 1})._replace(lost_gpu_s=60.0) for at in (2, 3)]
    demand = Demand({server(at): 8 for at in (1, 2)}, (lossy, *two), 1)
    assert exact(demand).servers == (server(1),)
    assert least_lost(demand).servers == (server(2),)


# --- whatever the placement -----------------------------------------------------------------------


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    count = draw(st.integers(1, 7))
    numbers, gpus = st.integers(1, count), st.integers(1, 4)
    base = st.dictionaries(numbers, gpus, min_size=1, max_size=3)
    flexible = st.dictionaries(numbers, gpus, max_size=3)
    counts, losses = st.sampled_from([1.0, 1.0, 2.5]), st.sampled_from([0.0, 60.0, 120.0, 7e5])
    more = st.sampled_from([None, None, 0, 1, 3])  # that it can spare beside what is flexible
    jobs = draw(st.lists(st.tuples(base, flexible, counts, losses, more), max_size=7))
    tenants = [
        tenant(at, *held)._replace(
            cost=cost,
            lost_gpu_s=lost,
            spare=None if extra is None else sum(held[1].values()) + extra,
        )
        for at, (*held, cost, lost, extra) in enumerate(jobs, 1)
    ]
    wanted = draw(st.integers(0, count))
    return Demand({server(at): 8 for at in range(1, count + 1)}, tenants, wanted)


@given(demands())
def test_the_proven_best_is_the_best_of_all(demand: Demand) -> None:
    found = exact(demand)
    every = list(combinations(demand.servers, demand.wanted))
    least = min(demand.cost(some) for some in every)
    assert found.cost == pytest.approx(least)
    lost = min(demand.lost_gpu_s(some) for some in every if demand.cost(some) <= least + 1e-6)
    assert demand.lost_gpu_s(found.servers) == pytest.approx(lost)
    assert found.proven
    assert found.bound <= least + 1e-6


@given(demands())
def test_where_losses_count_nothing_loses_less(demand: Demand) -> None:
    every = combinations(demand.servers, demand.wanted)
    lost = min(demand.lost_gpu_s(some) for some in every)
    assert demand.lost_gpu_s(least_lost(demand).servers) == pytest.approx(lost)


@given(demands())
def test_every_rule_takes_as_many_servers_as_are_wanted(demand: Demand) -> None:
    for rule in (
        rules.algorithm_1,
        rules.static,
        rules.smallest_count,
        rules.smallest_fraction,
        rules.largest_fraction,
        rules.at_random(Random(3)),
        exact,
        least_lost,
    ):
        found = rule(demand)
        assert len(set(found.servers)) == len(found.servers) == demand.wanted
        assert set(found.servers) <= set(demand.servers)
        counted = demand.by_loss() if rule is least_lost else demand
        assert found.cost == pytest.approx(counted.cost(found.servers))


@given(demands())
def test_algorithm_1_is_its_pseudocode(demand: Demand) -> None:
    """Word by word, on what servers without base workers leave to be asked for."""
    free = demand.free()[: demand.wanted]
    wanted = demand.wanted - len(free)
    jobs = {one.job_id: one for one in demand.tenants}
    on = {
        at: {one.job_id for one in demand.tenants if at in one.base}
        for at in demand.servers
        if at not in free
    }
    expected = list(free)
    if wanted == 1:
        left = [at for at in on if on[at]]
        expected.append(min(left, key=lambda at: sum(jobs[job].cost for job in on[at])))
    else:
        for _ in range(wanted):
            cost = {at: sum(jobs[job].cost / len(jobs[job].base) for job in on[at]) for at in on}
            least = min(cost.values(), default=0)
            top = next(at for at in on if cost[at] <= least + 1e-9)
            expected.append(top)
            fallen = on.pop(top)
            for who in on.values():
                who -= fallen
    assert rules.algorithm_1(demand).cost == pytest.approx(demand.cost(expected))


@given(demands())
def test_nobody_is_preempted_as_long_as_servers_without_base_workers_suffice(
    demand: Demand,
) -> None:
    found = toll(demand, exact(demand).servers)
    if demand.wanted <= len(demand.free()):
        assert found.preempted == 0
        assert found.collateral == 0
        assert not demand.wanted or found.flexible + found.idle == pytest.approx(1)
    elif all(one.spare is None for one in demand.tenants):
        assert found.preempted > 0
