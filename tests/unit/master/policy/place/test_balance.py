"""Appendix D's placement program against the enumeration of every placement."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.policy.place.balance import BalanceProgram, load, solve
from support.builders import World, a_job, a_node
from support.extent import times


def every(program: BalanceProgram) -> list[tuple[float, float]]:
    """(max T, total added) of every placement there is."""
    found = []
    for workers in product(*(range(free + 1) for free in program.free)):
        if sum(workers) != program.workers:
            continue
        if program.each and set(workers) - {0, program.each}:
            continue
        for servers in product(range(len(program.free)), repeat=len(program.servers)):
            if program.beside and any(not workers[node] for node in servers):
                continue
            loads = load(program, workers, servers)
            found.append((max(loads), sum(loads) - sum(program.traffic)))
    return found


@given(
    nodes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), min_size=1, max_size=3),
    servers=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    workers=st.integers(1, 5),
    each=st.sampled_from([None, None, 1, 2]),
    beside=st.booleans(),
)
@settings(max_examples=times(20, 60), deadline=None)
def test_no_placement_is_better(
    nodes: list[tuple[int, int]],
    servers: list[int],
    workers: int,
    each: int | None,
    beside: bool,
) -> None:
    free, traffic = zip(*nodes, strict=True)
    program = BalanceProgram(free, traffic, servers, workers, each, beside)
    found, all_of_them = solve(program), every(program)
    assert (found is None) == (not all_of_them)
    if found is not None:
        assert (found.busiest, found.total) == pytest.approx(min(all_of_them), abs=1e-5)
        assert sum(found.workers) == workers
        assert all(w <= g for w, g in zip(found.workers, free, strict=True))
        loads = load(program, found.workers, found.servers)
        assert max(loads) == pytest.approx(found.busiest)


def test_a_job_that_fits_on_one_node_adds_nothing_to_any_network() -> None:
    found = solve(BalanceProgram([2, 4, 3], [0.0, 90.0, 10.0], [25.0] * 4, 4))
    assert found is not None
    assert (found.workers, found.servers) == ((0, 4, 0), (1, 1, 1, 1))
    assert (found.busiest, found.total) == (90.0, 0.0)


def test_the_idle_network_is_preferred_and_the_total_decides_below_the_busiest() -> None:
    found = solve(BalanceProgram([2, 2, 2], [100.0, 0.0, 0.0], [1.0] * 4, 4))
    assert found is not None
    assert found.workers == (0, 2, 2)
    assert (found.busiest, found.total) == (100.0, 16.0)


def test_beside_keeps_servers_off_a_node_without_workers_though_its_network_is_idle() -> None:
    """One worker on each of three busy nodes sends M = 10. A server beside one of them makes that
    node send 2 M, 120 with its traffic; on the idle node, which has no GPU free, it sends 3 M and
    the busiest has 110."""
    program = BalanceProgram([1, 1, 1, 0], [100.0, 100.0, 100.0, 0.0], [10.0], 3)
    found, beside = solve(program), solve(program._replace(beside=True))
    assert found is not None
    assert (found.servers, found.busiest, found.total) == ((3,), 110.0, 60.0)
    assert beside is not None
    assert beside.workers == (1, 1, 1, 0)
    assert beside.servers[0] != 3
    assert (beside.busiest, beside.total) == (120.0, 40.0)


def test_the_same_program_has_the_same_answer() -> None:
    program = BalanceProgram(
        [2, 3, 4, 2, 1], [5.0, 0.0, 3.0, 1.0, 0.0], [4.0, 1.0, 1.0, 1.0, 1.0, 1.0], 6
    )
    assert solve(program) == solve(program)


def test_beyond_its_limits_it_says_so() -> None:
    assert solve(BalanceProgram([4] * 30, [0.0] * 30, [1.0] * 32, 32)) is None
    assert solve(BalanceProgram([1, 1], [0.0, 0.0], [1.0] * 3, 3)) is None
    assert solve(BalanceProgram([2, 3, 4, 2, 1], [5.0, 0, 3, 1, 0], [1.0] * 7, 7), 1e-6) is None


def test_the_starts_of_one_plan_keep_off_the_nodes_that_earlier_ones_load() -> None:
    nodes = [a_node(f"n{number}", 2) for number in range(1, 7)]
    world = World("best-effort", nodes, None, place="ilp").submit(a_job(1, 4), a_job(2, 4)).decide()
    used = [{slot.node_id for slot in world.attempt(job).lease.allocation.slots} for job in (1, 2)]
    assert used[0].isdisjoint(used[1])
