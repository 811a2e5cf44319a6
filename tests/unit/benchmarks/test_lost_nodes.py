"""Nodes that fail in a replay: the same failures for both ways, and every job ends."""

from __future__ import annotations

from argparse import Namespace
from itertools import pairwise

from benchmarks.planning.lost_nodes import PHILLY, drawn, interval, told

ASKED = Namespace(nodes=6, jobs=150, repair=0.2, load=1.3, seeds=1)
DAYS = 0.05


def test_a_seed_says_everything_and_nothing_is_kept_without_the_setting() -> None:
    kept = told(ASKED, 2, DAYS, [])
    assert kept == told(ASKED, 2, DAYS, [])
    assert kept.losses > 0
    assert kept.kept > 0.0
    plain = told(ASKED, 2, DAYS, ["keep_gpus_s=off"])
    assert plain.kept == 0.0
    assert plain.losses > 0


def test_the_rate_of_philly_is_one_failure_of_a_node_in_65_days() -> None:
    assert PHILLY == 65


def test_the_interval_holds_the_mean_and_is_a_point_for_equal_values() -> None:
    assert interval([2.0] * 8) == (2.0, 2.0)
    low, high = interval([0.0, 1.0, 2.0, 3.0, 10.0])
    assert 0.0 < low < 3.2 < high < 10.0


def test_a_node_that_is_away_does_not_fail() -> None:
    failures = drawn(ASKED, DAYS, 100_000.0, 1)
    for number in range(ASKED.nodes):
        own = [at_s for at_s, node in failures if node == number]
        assert all(later - at_s >= 720.0 for at_s, later in pairwise(own))
