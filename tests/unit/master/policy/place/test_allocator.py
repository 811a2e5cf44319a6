"""The pools of a walk: each says what its name says, whatever is taken, given or named."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.nodes.free_gpus import Part, Pool
from dlq_master.model.order.running import Place
from dlq_master.model.order.waiting import Fifo, WaitingLines
from dlq_master.model.resources import Shape, Slot
from dlq_master.policy.place.allocation.line import (
    Blocks,
    Head,
    RankedBlocks,
    RunningBlock,
    Unrolled,
    heads,
    line,
)
from dlq_master.policy.place.allocation.type_capacity import TypeCapacity
from dlq_master.policy.place.spread import SPREAD
from dlq_master.policy.transit.front import PreemptibleCapacity
from support.builders import World, a_job

NODES, GPUS = 3, 4
FULL = (1 << GPUS) - 1


def a_pool(*masks: int) -> Pool:
    pool = Pool([GPUS] * len(masks))
    for ordinal, mask in enumerate(masks):
        pool.set(ordinal, mask)
    return pool


def sound(pool: Pool, masks: list[int]) -> bool:
    """The masks, and the sums and buckets that belong to them."""
    expected = a_pool(*masks)
    return (pool.masks, pool.buckets, pool.total) == (masks, expected.buckets, expected.total)


def test_a_plan_takes_from_copies_of_the_clusters_pools() -> None:
    pool = a_pool(FULL, 0b11, 0)
    type_capacity = TypeCapacity(pool)
    type_capacity.take((Part(0, 0b1), Part(1, 0b11)))
    type_capacity.give_later((Part(2, FULL),))
    type_capacity.give_free((Part(1, 0b1),))
    assert sound(pool, [FULL, 0b11, 0])
    assert sound(type_capacity.free, [0b1110, 0b1, 0])
    assert sound(type_capacity.later, [0b1110, 0b1, FULL])


def test_until_somebody_leaves_later_is_what_is_free() -> None:
    type_capacity = TypeCapacity(a_pool(FULL, FULL, FULL))
    assert type_capacity.find_later(SPREAD, Shape(1, None, None)) is None
    type_capacity.take((Part(0, FULL),))
    assert type_capacity.later is type_capacity.free


def test_who_waits_anyway_leaves_what_is_free_now_to_others() -> None:
    type_capacity = TypeCapacity(a_pool(0b11, 0, 0))
    type_capacity.give_later((Part(1, 0b111),))
    assert type_capacity.find_later(SPREAD, Shape(4, None, None)) == (Part(0, 0b1), Part(1, 0b111))
    type_capacity.take((Part(1, 0b1),))
    assert type_capacity.find_later(SPREAD, Shape(2, None, None)) == (Part(1, 0b110),)
    assert type_capacity.find_later(SPREAD, Shape(5, None, None)) is None


def test_gpus_that_are_withheld_are_not_given_on_by_who_leaves() -> None:
    world = World("tiresias-las", nodes=2, thresholds="80", preempt="free")
    world.submit(a_job(1, 16)).at(0.0).at(10.0)
    node = world.cluster.nodes[NodeId("n1")]
    world.cluster.put_node(node._replace(withheld=0b1))
    world.submit(a_job(2, 16), a_job(3, 7), a_job(4, 8)).decide()
    assert world.running == [3, 4]
    slots = [world.attempt(job_id).lease.allocation.slots for job_id in (3, 4)]
    assert slots == [(Slot(NodeId("n1"), 0xFE),), (Slot(NodeId("n2"), 0xFF),)]


Move = tuple[str, int, int]
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["take", "free", "later", "add", "drop", "look"]),
        st.integers(0, NODES - 1),
        st.integers(1, FULL),
    ),
    max_size=30,
)


@given(moves=MOVES, at_once=st.booleans())
def test_what_is_in_reach_is_what_is_left_and_what_the_named_hold(
    moves: list[Move], at_once: bool
) -> None:
    type_capacity = TypeCapacity(a_pool(0b1, 0, FULL))
    reaches = [
        PreemptibleCapacity(type_capacity, at_once=at_once),
        PreemptibleCapacity(type_capacity, at_once=at_once),
    ]
    held = [[0] * NODES, [0] * NODES]
    for number, (what, node, mask) in enumerate(moves):
        parts, which = (Part(node, mask),), number % 2
        if what == "take":
            type_capacity.take(parts)
        elif what == "free":
            type_capacity.give_free(parts)
        elif what == "later":
            type_capacity.give_later(parts)
        elif what == "add":
            reaches[which].add(parts)
            held[which][node] |= mask
        elif what == "drop":
            reaches[which].drop(parts)
            held[which][node] &= ~mask
        else:
            reaches[which].pool()
    base = type_capacity.free if at_once else type_capacity.later
    for reach, named in zip(reaches, held, strict=True):
        assert sound(reach.pool(), [a | b for a, b in zip(base.masks, named, strict=True)])


def fifos(*rows: tuple[int, int, int]) -> dict[Shape, Fifo]:
    found: dict[Shape, Fifo] = {}
    for job_id, gpus, position in rows:
        found.setdefault(Shape(gpus, None, None), {})[JobId(job_id)] = position
    return found


def test_a_line_is_in_the_order_of_positions_with_running_blocks_between() -> None:
    heap = heads(fifos((1, 1, 10), (2, 1, 40), (3, 2, 20), (4, 8, 5)), set(), 4)
    block = RunningBlock(15, 3, None)
    assert [
        member if isinstance(member, RunningBlock) else member[1]
        for member in line(heap, Blocks([block]), set())
    ] == [1, block, 3, 2]


@pytest.mark.parametrize("singly", [False, True])
def test_running_jobs_between_two_waiting_jobs_are_one_block(singly: bool) -> None:
    places = {JobId(number): Place(0, 0, number, 300.0) for number in range(11, 17)}
    ranks = [5, 10, 12, 13, 25, 30], [*places]
    heap = heads(fifos((1, 1, 10), (2, 2, 20)), set(), 4)
    met = [
        [*(member.job_ids or ()), member.gpus] if isinstance(member, RunningBlock) else member[1]
        for member in line(heap, RankedBlocks(ranks, places, singly=singly), set())
    ]
    if singly:
        assert met == [[11, 11], [12, 12], 1, [13, 13], [14, 14], 2, [15, 15], [16, 16]]
    else:
        assert met == [[11, 12, 23], 1, [13, 14, 27], 2, [15, 16, 31]]


def test_a_shape_that_does_not_fit_is_struck_off_the_line() -> None:
    closed: set[Shape] = set()
    seen = []
    heap = heads(fifos((1, 1, 10), (2, 2, 20), (3, 2, 30), (4, 1, 40)), closed, 4)
    for member in line(heap, Blocks(), closed):
        assert not isinstance(member, RunningBlock)
        seen.append(member[1])
        if member[2].gpus == 2:
            closed.add(member[2])
    assert seen == [1, 2, 4]
    assert heads(fifos((5, 2, 50)), closed, 4) == []


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 99)), min_size=1, unique_by=lambda x: x[1]
    ),
    st.sets(st.integers(0, 99)),
    st.integers(0, 6),
)
def test_many_lines_are_walked_as_few_are(
    rows: list[tuple[int, int]], full: set[int], widest: int
) -> None:
    """A job at a position in `full` finds its shape closed from then on."""
    few: Mapping[Shape, Fifo] = fifos(
        *((at, gpus, at) for gpus, at in sorted(rows, key=lambda row: row[1]))
    )

    def walked(heap: list[Head], closed: set[Shape]) -> list[JobId]:
        seen = []
        for member in line(heap, Blocks(), closed):
            assert not isinstance(member, RunningBlock)
            seen.append(member[1])
            if member[0] in full:
                closed.add(member[2])
        return seen

    one, other = set[Shape](), set[Shape]()
    assert walked(heads(few, one, widest), one) == walked(
        Unrolled(WaitingLines(few), other, widest), other
    )
