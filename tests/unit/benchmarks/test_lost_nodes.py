"""Nodes that fail in a replay: the same failures for both ways, and every job ends."""

from __future__ import annotations

from argparse import Namespace
from itertools import pairwise

from benchmarks.planning.lost_nodes import drawn, told

ASKED = Namespace(nodes=6, jobs=150, days=0.05, repair=0.2, load=1.3, seeds=1)


def test_a_seed_says_everything_and_nothing_is_kept_without_the_setting() -> None:
    kept = told(ASKED, 2, [])
    assert kept == told(ASKED, 2, [])
    assert kept.losses > 0
    assert kept.kept > 0.0
    plain = told(ASKED, 2, ["keep_gpus_s=off"])
    assert plain.kept == 0.0
    assert plain.losses > 0


def test_a_node_that_is_away_does_not_fail() -> None:
    failures = drawn(ASKED, 100_000.0, 1)
    for number in range(ASKED.nodes):
        own = [at_s for at_s, node in failures if node == number]
        assert all(later - at_s >= 720.0 for at_s, later in pairwise(own))
