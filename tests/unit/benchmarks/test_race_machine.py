"""CPU time of a turn goes to whoever used it: the controller, the rest of the side, and others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from benchmarks.race.machine import (
    CORES,
    TICK_S,
    Process,
    Snapshot,
    cores_s,
    parsed,
    processes,
    shared,
    snapshot,
    tree,
)

STAT = "42 (a (strange) name) S 7 42 42 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 100"


def shot(
    at_s: float, busy_s: float, ours_s: float, stolen_s: float = 0.0, **trees: float
) -> Snapshot:
    return Snapshot(at_s, busy_s, stolen_s, ours_s, trees)


def test_a_process_counts_its_children_that_it_has_reaped() -> None:
    assert parsed(STAT) == Process(parent=7, cpu_s=100 * TICK_S)
    assert parsed(STAT.replace(" S 7", " Z 7")).dead


def test_a_tree_is_the_roots_and_all_below_them() -> None:
    parents = {1: 0, 2: 1, 3: 2, 4: 1, 5: 4, 9: 8}
    found = {pid: Process(parent, 0.0) for pid, parent in parents.items()}
    assert tree(found, [2, 4]) == {2, 3, 4, 5}
    assert tree(found, [77]) == set()


def test_busy_time_leaves_idle_and_waiting_out_and_tells_stolen_apart() -> None:
    busy_s, stolen_s = cores_s("cpu  1 2 3 1000 2000 4 5 6 0 0")
    assert busy_s == pytest.approx(15 * TICK_S)
    assert stolen_s == pytest.approx(6 * TICK_S)


def test_a_turn_is_shared_out_between_controller_the_rest_and_others() -> None:
    before = shot(10.0, 100.0, 50.0, **{"dlq controller": 1.0, "slurm": 4.0})
    after = shot(12.0, 103.0, 51.5, 0.1 * CORES, **{"dlq controller": 1.4, "slurm": 4.1})
    found = shared(7.0, 10, before, after, 0.5, "dlq", "slurm")
    assert found.value == 7.0
    assert found.controller_ms == pytest.approx(40.0)
    assert found.beside_ms == pytest.approx(100.0)  # 1.5 s less 0.4 and the rival's 0.1
    assert found.others == pytest.approx((3.0 - 1.5 - 0.5) / (2.0 * CORES))
    assert found.stolen == pytest.approx(0.05)


def test_a_controller_that_started_in_the_turn_began_at_nothing() -> None:
    before, after = shot(0.0, 0.0, 0.0), shot(1.0, 0.5, 0.5, **{"dlq controller": 0.5})
    found = shared(1.0, 1, before, after, 0.0, "dlq", "slurm")
    assert found.controller_ms == pytest.approx(500.0)
    assert found.beside_ms == 0.0


def test_our_tree_is_that_of_this_process_without_itself() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        found = processes()
        assert found[child.pid].parent == os.getpid()
        assert child.pid in tree(found, [os.getpid()])
        counted = snapshot({"child": [child.pid], "gone": []})
        assert counted.trees_s["gone"] == 0.0
        assert counted.ours_s >= counted.trees_s["child"]
    finally:
        child.communicate()
