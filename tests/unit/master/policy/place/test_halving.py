"""Rounding up and halving: Chronus' Proposition 1, where it holds and where it does not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.model.nodes.free_gpus import Part, Pool
from dlq_master.model.resources import Shape
from dlq_master.policy.place import consolidate, halving
from dlq_master.policy.place.packing.class_packing import pack
from dlq_master.policy.place.packing.joint import (
    BatchMember,
    Joint,
    Spots,
    round_up,
    tightest_block,
)
from support.extent import times


def halve(widths: Sequence[int], free: Sequence[int], size: int) -> list[Spots] | None:
    """Proposition 1 for a batch: each width rounded up, the widest first, on nodes of `size` GPUs
    with so many free. None: some do not fit so. Spots are of the rounded widths."""
    left = list(free)
    spots: list[Spots] = [()] * len(widths)
    for at in sorted(range(len(widths)), key=lambda at: (-widths[at], at)):
        wanted = round_up(widths[at], size)
        count = max(1, wanted // size)
        fit = size if wanted >= size else tightest_block(left, wanted)
        nodes = [node for node, has in enumerate(left) if has == fit][:count]
        if len(nodes) < count:
            return None
        spots[at] = tuple((node, wanted // count) for node in nodes)
        for node, taken in spots[at]:
            left[node] -= taken
    return spots


def a_pool(free: list[int], size: int) -> Pool:
    pool = Pool([size] * len(free))
    pool.give(tuple(Part(node, (1 << left) - 1) for node, left in enumerate(free)))
    return pool


def a_joint(widths: list[int], free: list[int], size: int) -> Joint:
    return Joint(tuple(BatchMember(width, -(-width // size)) for width in widths), tuple(free))


def holds(spots: tuple[Spots, ...] | list[Spots], widths: list[int], free: list[int]) -> None:
    """Every job has its GPUs and no node gives more than it has."""
    left = list(free)
    for where, width in zip(spots, widths, strict=True):
        assert sum(gpus for _, gpus in where) == width
        for node, gpus in where:
            left[node] -= gpus
    assert min(left) >= 0


def test_widths_round_up_to_1_2_4_and_whole_nodes() -> None:
    assert [round_up(gpus) for gpus in range(1, 9)] == [1, 2, 4, 4, 8, 8, 8, 8]
    assert [round_up(gpus) for gpus in (9, 16, 17, 24, 25)] == [16, 16, 24, 24, 32]
    assert [round_up(gpus, 4) for gpus in (1, 3, 4, 5)] == [1, 4, 4, 8]
    assert [round_up(gpus, 6) for gpus in (3, 4, 5, 6, 7)] == [4, 4, 6, 6, 12]
    with pytest.raises(ValueError, match="less than 1 GPU"):
        round_up(0)


def test_proposition_1_in_random_friendly_sets() -> None:
    """Largest first as the proof goes, and one by one in any order as a scheduler meets them."""
    dice = random.Random(20_000)
    for _ in range(times(4_000, 20_000)):
        nodes = dice.randint(1, 6)
        room, widths = 8 * nodes, []
        while room:
            fits = [width for width in (1, 2, 4, 8, 16, 24) if width <= room]
            widths.append(dice.choice(fits))
            room -= widths[-1]
        free = [8] * nodes
        spots = halve(widths, free, 8)
        assert spots is not None, widths
        holds(spots, widths, free)
        assert all(len(where) == -(-width // 8) for where, width in zip(spots, widths, strict=True))
        pool = a_pool(free, 8)
        for width in widths:
            parts = halving.find(pool, Shape(width, None, None))
            assert parts is not None, widths
            assert len(parts) == -(-width // 8)
            pool.take(parts)


@given(
    widths=st.lists(st.integers(1, 20), min_size=1, max_size=8),
    spare=st.integers(0, 2),
    size=st.sampled_from([1, 2, 4, 8]),
)
@settings(max_examples=times(50, 150), deadline=None)
def test_any_widths_fit_rounded_up_into_the_nodes_that_they_are_rounded_to(
    widths: list[int], spare: int, size: int
) -> None:
    nodes = -(-sum(round_up(width, size) for width in widths) // size) + spare
    pool = a_pool([size] * nodes, size)
    for width in widths:
        parts = halving.find(pool, Shape(width, None, None))
        assert parts is not None
        assert len(parts) == -(-width // size)
        assert sum(mask.bit_count() for _, mask in parts) == width
        pool.take(parts)


def test_unfriendly_widths_fill_nodes_that_cannot_hold_them_together() -> None:
    """16 GPUs on 2 x 8: not as 5 + 5 + 6, in no order and by no other way."""
    assert pack(a_joint([5, 5, 6], [8, 8], 8)) == (None, True)
    assert halve([5, 5, 6], [8, 8], 8) is None


def test_where_nodes_cannot_be_halved_the_proposition_is_false() -> None:
    assert pack(a_joint([4, 4, 4], [6, 6], 6)) == (None, True)
    found = pack(a_joint([2, 4, 2, 4], [6, 6], 6))
    assert found.spots is not None
    holds(found.spots, [2, 4, 2, 4], [6, 6])


def test_a_wide_job_may_be_cut_otherwise_than_in_whole_nodes() -> None:
    found = pack(a_joint([10, 1, 1], [6, 6], 6))
    assert found.spots is not None
    assert pack(a_joint([10], [5, 5], 6)).spots == (((0, 5), (1, 5)),)
    assert pack(a_joint([11], [5, 5], 6)) == (None, True)


def test_widest_first_fails_where_the_program_finds_room() -> None:
    """5 + 3 + 2 and 4 + 3 + 3 on 2 x 10: the widest first would put 5 and 4 together."""
    widths = [5, 4, 3, 3, 3, 2]
    free = [10, 10]
    found = pack(a_joint(widths, free, 10))
    assert found.spots is not None
    holds(found.spots, widths, free)


def fits(widths: list[int], free: list[int]) -> bool:
    """By enumeration, widths up to the largest node."""

    @cache
    def from_here(at: int, left: tuple[int, ...]) -> bool:
        if at == len(widths):
            return True
        return any(
            from_here(at + 1, tuple(sorted((*left[:n], has - widths[at], *left[n + 1 :]))))
            for n, has in enumerate(left)
            if has >= widths[at]
        )

    return from_here(0, tuple(sorted(free)))


@given(
    free=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    widths=st.lists(st.integers(1, 7), min_size=1, max_size=7),
)
@settings(max_examples=times(50, 150), deadline=None)
def test_packing_is_exact(free: list[int], widths: list[int]) -> None:
    found = pack(a_joint(widths, free, 12))
    assert found.proven
    assert (found.spots is not None) == fits(widths, free)
    if found.spots is not None:
        holds(found.spots, widths, free)
        assert all(len(where) == 1 for where in found.spots)


@given(
    free=st.lists(st.integers(0, 8), min_size=1, max_size=4),
    widths=st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=7),
)
@settings(max_examples=times(50, 150), deadline=None)
def test_on_fragments_too_friendly_jobs_fit_one_by_one_if_at_all(
    free: list[int], widths: list[int]
) -> None:
    pool = a_pool(free, 8)
    placed = []
    for width in widths:
        parts = halving.find(pool, Shape(width, None, None))
        placed.append(parts is not None)
        if parts is not None:
            pool.take(parts)
    assert all(placed) == fits(widths, free)


def test_best_fit_by_the_number_left_alone_would_break_the_only_block() -> None:
    """5 = 4 + 1 and 4: the 1 belongs beside the first 4."""
    for find, fit in ((halving.find, 3), (consolidate.find, 2)):
        pool = a_pool([5, 4], 8)
        placed = 0
        for width in (1, 4, 4):
            parts = find(pool, Shape(width, None, None))
            if parts is not None:
                placed += 1
                pool.take(parts)
        assert placed == fit


def test_order_does_not_matter_on_nodes_that_are_halved() -> None:
    for order in set(permutations([3, 1, 2, 7, 1])):
        pool = a_pool([8, 8], 8)
        for width in order:
            parts = halving.find(pool, Shape(width, None, None))
            assert parts is not None
            pool.take(parts)
