"""What every solver keeps to, whatever the situation."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.policy.priced.catalogue import Catalogue, NodeType
from dlq_master.policy.priced.compared import dp, first_principle
from dlq_master.policy.priced.compared.hierarchical import hierarchical
from dlq_master.policy.priced.greedy import greedy
from dlq_master.policy.priced.marginal import marginal
from dlq_master.policy.priced.rules import PaperReading, Proxy
from dlq_master.policy.priced.schedules import faults, settled
from dlq_master.policy.priced.situation import EMPTY, Schedule, Situation, Solver
from support.extent import times
from unit.master.policy.priced.drawing import PLAIN, chance, drawn, job, situation

FEW = greedy.RANDOMIZED._replace(iterations=12)
SOLVERS: dict[str, Solver] = {
    "marginal": marginal,
    "greedy": greedy.greedy,
    "randomized": partial(greedy.randomized, rules=FEW),
    "as-released": partial(greedy.randomized, rules=FEW._replace(reading=PaperReading.REFERENCE)),
    "relinking": partial(
        greedy.path_relinking, rules=FEW._replace(proxy=Proxy.EFFICIENCY, alpha=0.4)
    ),
    "local-search": partial(
        greedy.local_search, rules=greedy.LOCAL_SEARCH._replace(iterations=12, alpha=0.4)
    ),
    "relinking-cost": partial(greedy.path_relinking, rules=FEW._replace(alpha=0.4)),
    "hierarchical": hierarchical,
    "fifo": first_principle.fifo,
    "edf": first_principle.edf,
    "ps": first_principle.ps,
    **{f"dp-{variant}": partial(dp.dp, variant=variant) for variant in dp.Variant},
}
EACH = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


@EACH
@given(seed=st.integers(0, 10**6), count=st.integers(1, 14), nodes=st.integers(1, 5))
@settings(max_examples=times(8, 25))
def test_no_node_is_overfull_and_no_job_runs_where_it_may_not(
    solver: Solver, seed: int, count: int, nodes: int
) -> None:
    asked = drawn(seed, count, nodes)
    made = solver(asked, chance(seed))
    assert faults(asked, made) == []
    postpones = isinstance(solver, partial) and solver.func is dp.dp
    assert made.grants or postpones, "nobody runs although nodes are free"


@EACH
def test_the_same_seed_gives_the_same_schedule(solver: Solver) -> None:
    asked = drawn(7, 12, 3)
    assert solver(asked, chance(3)) == solver(asked, chance(3))


@EACH
def test_without_jobs_nothing_is_rented(solver: Solver) -> None:
    assert solver(Situation(0.0, (), PLAIN, 3), chance()) == EMPTY


@EACH
def test_no_type_is_larger_than_its_jobs_need(solver: Solver) -> None:
    asked = drawn(11, 3, 5)
    made = solver(asked, chance())
    for node, n in made.types.items():
        used = sum(gpus for at, gpus in made.grants.values() if at == node)
        kind = asked.catalogue.kinds.index(asked.catalogue.types[n].kind)
        assert asked.catalogue.room[kind, used] == asked.catalogue.types[n].gpus


def test_a_job_that_fits_nowhere_is_refused() -> None:
    with pytest.raises(ValueError, match="fits on no node"):
        situation(job(0, 10, np.inf, np.inf, np.inf, np.inf))


def test_a_kind_with_holes_in_its_sizes_is_used_where_it_fits() -> None:
    catalogue = Catalogue((NodeType("b8", "B", 8, 8.0), NodeType("a2", "A", 2, 2.0)))
    asked = drawn(5, 9, 3, catalogue=catalogue)
    for solver in SOLVERS.values():
        assert faults(asked, solver(asked, chance())) == []


@EACH
@given(seed=st.integers(0, 10**6))
@settings(max_examples=times(6, 15))
def test_nothing_is_rented_that_the_provider_has_taken_back(solver: Solver, seed: int) -> None:
    whole = drawn(seed, 9, 3)
    types = tuple(
        rented._replace(until_s=whole.now_s) if rented.name in ("NV48", "NC6", "NC24") else rented
        for rented in whole.catalogue.types
    )
    had = solver(whole, chance())
    left = Catalogue(types).at(whole.now_s)
    asked = Situation(whole.now_s, whole.jobs, left, whole.nodes, had)
    assert faults(asked, settled(asked, solver(asked, chance()))) == []


def test_faults_are_named() -> None:
    asked = situation(job(0, 10, 4, 3, 2, 2), nodes=1)
    assert faults(asked, Schedule({0: 0}, {0: (0, 2)})) == [  # type: ignore[dict-item]
        "job 0 may not run on 2 GPUs of A",
        "node 0 has fewer than 2 GPUs",
    ]
    assert faults(asked, Schedule({}, {0: (0, 1)})) == ["job 0 is on node 0, which is closed"]  # type: ignore[dict-item]
    gone = Situation(
        0.0, asked.jobs, Catalogue(tuple(t._replace(until_s=t.gpus) for t in PLAIN.types)).at(2), 1
    )
    assert faults(gone, Schedule({0: 1}, {})) == ["A2 cannot be had any more"]
    assert faults(asked, Schedule({0: 2, 1: 2}, {}))[0] == "2 nodes of 1"
    assert faults(asked, Schedule({0: 2}, {9: (0, 1)})) == ["job 9 is not there"]  # type: ignore[dict-item]


@given(seed=st.integers(0, 10**6), count=st.integers(1, 12))
@settings(max_examples=times(15, 40))
def test_renaming_nodes_changes_nothing_but_their_names(seed: int, count: int) -> None:
    asked = drawn(seed, count, 5)
    before = marginal(asked, chance())
    later = Situation(
        asked.now_s + 500, asked.jobs[: max(1, count - 2)], asked.catalogue, 5, before
    )
    made = marginal(later, chance())
    named = settled(later, made)
    assert faults(later, named) == []
    assert sorted(named.types.values()) == sorted(made.types.values())
    assert {key: gpus for key, (_, gpus) in named.grants.items()} == {
        key: gpus for key, (_, gpus) in made.grants.items()
    }
    together = {
        (a, b) for a, x in made.grants.items() for b, y in made.grants.items() if x[0] == y[0]
    }
    assert together == {
        (a, b) for a, x in named.grants.items() for b, y in named.grants.items() if x[0] == y[0]
    }


def test_a_schedule_that_stays_keeps_its_nodes() -> None:
    asked = drawn(3, 8, 4)
    first = settled(asked, marginal(asked, chance()))
    again = Situation(asked.now_s, asked.jobs, asked.catalogue, asked.nodes, first)
    shuffled = Schedule(
        {3 - node: n for node, n in first.types.items()},
        {key: grant._replace(node=3 - grant.node) for key, grant in first.grants.items()},
    )
    assert settled(again, shuffled) == first
