"""The pace on many nodes from trials on one and two, and run times of families that have run
alike.
"""

from __future__ import annotations

import pytest

from dlq_master.model.estimates.estimate import Confidence
from dlq_master.policy.admit.estimates import on_nodes
from dlq_master.policy.admit.family_runs import trusted


@pytest.mark.parametrize(("nodes", "takes_s"), [(1, 1.0), (2, 1.2), (4, 1.4), (8, 1.6)])
def test_every_doubling_adds_what_the_second_node_added(nodes: int, takes_s: float) -> None:
    assert on_nodes(1.0, 1.2, nodes) == pytest.approx(takes_s)


def test_more_nodes_are_never_faster_an_iteration_than_one() -> None:
    assert on_nodes(1.0, 0.9, 8) == 1.0  # a slip of the clock


@pytest.mark.parametrize(
    ("one_s", "two_s", "nodes"), [(0.0, 1.0, 2), (1.0, -1.0, 2), (1.0, 1.0, 0)]
)
def test_what_is_no_pace_is_refused(one_s: float, two_s: float, nodes: int) -> None:
    with pytest.raises(ValueError, match="no pace"):
        on_nodes(one_s, two_s, nodes)


def test_five_runs_within_a_fifth_of_their_median_are_trusted() -> None:
    assert trusted([100.0, 105.0, 100.0, 120.0, 90.0]) == (100.0, Confidence.MEDIUM)
    assert trusted([100.0] * 9 + [110.0]) == (100.0, Confidence.HIGH)


def test_fewer_runs_or_wider_ones_are_not() -> None:
    assert trusted([100.0] * 4) is None
    assert trusted([100.0, 105.0, 100.0, 121.0, 90.0]) is None
    # One of ten may be anything: nine tenths stay within.
    assert trusted([100.0] * 9 + [5000.0]) == (100.0, Confidence.HIGH)
