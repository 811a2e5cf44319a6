"""Which GPUs each placement takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.free_gpus import Pool
from dlq_master.model.nodes.node import Doubt, Node
from dlq_master.model.resources import Shape
from dlq_master.model.traits import Traits
from dlq_master.policy.place.consolidate import CONSOLIDATE
from dlq_master.policy.place.halving import HALVING
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.place.skew import SKEW
from dlq_master.policy.place.spread import COUNT, SPREAD

ALL = (CONSOLIDATE, SPREAD, COUNT)


def a_pool(*masks: int, size: int = 8) -> Pool:
    pool = Pool([size] * len(masks))
    for node, mask in enumerate(masks):
        pool.set(node, mask)
    return pool


def placed(
    placement: Placement, pool: Pool, gpus: int, nodes: int | None = None
) -> dict[int, int] | None:
    """Node -> mask."""
    parts = placement.find(pool, Shape(gpus, nodes, None))
    return None if parts is None else dict(parts)


def test_consolidate_takes_the_tightest_node() -> None:
    pool = a_pool(0b11111111, 0b00000111, 0b00001111)
    assert placed(CONSOLIDATE, pool, 3) == {1: 0b111}
    assert placed(CONSOLIDATE, pool, 4) == {2: 0b1111}


def test_consolidate_waits_rather_than_split_what_one_node_could_hold() -> None:
    pool = a_pool(0b1111, 0b1111)
    assert placed(CONSOLIDATE, pool, 8) is None
    assert placed(SPREAD, pool, 8) == {0: 0b1111, 1: 0b1111}


def test_consolidate_fills_whole_nodes_and_puts_the_rest_where_it_fits_tightest() -> None:
    pool = a_pool(0xFF, 0b111111, 0xFF, 0b1111)
    assert placed(CONSOLIDATE, pool, 12) == {0: 0xFF, 3: 0b1111}
    assert placed(CONSOLIDATE, pool, 16) == {0: 0xFF, 2: 0xFF}


def test_consolidate_may_use_two_busy_nodes_if_two_are_needed_anyway() -> None:
    pool = a_pool(0b111111, 0b111111, 0b1)
    assert placed(CONSOLIDATE, pool, 12) == {0: 0b111111, 1: 0b111111}
    assert placed(CONSOLIDATE, pool, 13) is None


def test_spread_uses_leftovers_first_and_count_the_emptiest_nodes() -> None:
    pool = a_pool(0xFF, 0b1, 0b11)
    assert placed(SPREAD, pool, 3) == {1: 0b1, 2: 0b11}
    assert placed(COUNT, pool, 3) == {0: 0b111}


@pytest.mark.parametrize("placement", [CONSOLIDATE, SPREAD])
def test_an_explicit_number_of_nodes_gets_equal_shares_on_exactly_that_many(
    placement: Placement,
) -> None:
    pool = a_pool(0xFF, 0b11, 0b111, 0b1)
    assert placed(placement, pool, 4, nodes=2) == {1: 0b11, 2: 0b11}
    assert placed(placement, pool, 8, nodes=4) is None


def test_counting_ignores_nodes() -> None:
    assert placed(COUNT, a_pool(0b1, 0b1, 0b1), 3, nodes=1) == {0: 1, 1: 1, 2: 1}


MASKS = st.lists(st.integers(0, 255), min_size=1, max_size=6)


@given(MASKS, st.integers(1, 24), st.sampled_from(ALL))
def test_what_is_found_is_free_and_exactly_as_wide_as_asked(
    masks: list[int], gpus: int, placement: Placement
) -> None:
    pool = a_pool(*masks)
    found = placed(placement, pool, gpus)
    if found is None:
        assert placement is CONSOLIDATE or pool.total < gpus
        return
    assert sum(mask.bit_count() for mask in found.values()) == gpus
    assert all(mask and masks[node] & mask == mask for node, mask in found.items())
    assert list(found) == sorted(found)
    if placement is CONSOLIDATE:
        assert len(found) == pool.fewest_nodes(gpus)


@given(MASKS, st.integers(1, 24), st.sampled_from(ALL), st.randoms(use_true_random=False))
def test_the_choice_depends_on_what_is_free_and_not_on_how_it_came_to_be(
    masks: list[int], gpus: int, placement: Placement, random: object
) -> None:
    straight, winding = a_pool(*masks), a_pool(*([255] * len(masks)))
    order = list(range(len(masks)))
    random.shuffle(order)  # type: ignore[attr-defined]  # hypothesis's own Random
    for node in order:
        winding.set(node, masks[node] ^ 255)
        winding.set(node, masks[node])
    assert placed(placement, winding, gpus) == placed(placement, straight, gpus)
    assert winding.buckets == straight.buckets


@pytest.mark.parametrize("placement", [CONSOLIDATE, SPREAD, HALVING, SKEW], ids=lambda it: it.name)
def test_a_gang_gets_a_suspected_straggler_only_where_it_fits_nowhere_else(
    placement: Placement,
) -> None:
    nodes = [
        Node(NodeId(f"n{number}"), (), doubt=Doubt(1.0, "alice") if number == 1 else None)
        for number in range(4)
    ]
    pool = Pool([8] * 4, [node.node_id for node in nodes], Traits({}, nodes))
    for number in range(4):
        pool.set(number, 0xFF)
    before = list(pool.buckets)
    assert placed(placement, pool, 16, 2) == {0: 0xFF, 2: 0xFF}
    assert placed(placement, pool, 24) == {0: 0xFF, 2: 0xFF, 3: 0xFF}
    assert placed(placement, pool, 32, 4) == dict.fromkeys(range(4), 0xFF)
    pool.set(0, 0)
    assert placed(placement, pool, 24, 3) == {1: 0xFF, 2: 0xFF, 3: 0xFF}
    assert placed(placement, pool, 8, 1) == {1: 0xFF}  # alone, it slows no other down
    pool.set(0, 0xFF)
    assert pool.buckets == before


def test_the_mark_of_a_suspected_straggler_moves_with_its_place() -> None:
    def node(name: str, *, doubted: bool = False) -> Node:
        return Node(NodeId(name), (), doubt=Doubt(1.0, "alice") if doubted else None)

    traits = Traits({}, [node("b"), node("d", doubted=True)])
    assert traits.doubted == 0b10
    traits.insert(0, node("a"))
    assert traits.doubted == 0b100
    traits.change(0, node("a", doubted=True))
    assert traits.doubted == 0b101
    traits.delete(0)
    assert traits.doubted == 0b10
    traits.change(1, node("d"))
    assert traits.doubted == 0
