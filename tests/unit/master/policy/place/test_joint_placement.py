"""Batches of small jobs: Algorithm 1 and the placement program against the enumeration of
everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.policy.place.packing import named, pattern
from dlq_master.policy.place.packing.joint import (
    Arrangement,
    BatchMember,
    Joint,
    by_potential,
    iteration_time,
    total_reward,
)
from dlq_master.policy.place.packing.partitions import count, cuts, partitions
from dlq_master.policy.place.packing.spare import arranged, quasi_consolidate
from dlq_master.policy.place.whole.best import best
from dlq_master.policy.place.whole.local_search import local_search
from support.extent import times


def ways(gpus: int, free: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every division of so many GPUs over these nodes."""
    for taken in product(*(range(min(gpus, has) + 1) for has in free)):
        if sum(taken) == gpus:
            yield taken


def greatest(joint: Joint) -> float:
    """The best total reward there is, by trying everything."""

    @cache
    def from_here(at: int, free: tuple[int, ...]) -> float:
        if at == len(joint.members):
            return 0.0
        member = joint.members[at]
        return max(
            member.reward(sum(map(bool, taken)))
            + from_here(at + 1, tuple(sorted(h - t for h, t in zip(free, taken, strict=True))))
            for taken in ways(member.gpus, free)
        )

    return from_here(0, tuple(sorted(joint.free)))


def plain_algorithm_1(joint: Joint, space: int) -> float:
    """As printed, every combination on its own; quasi-consolidation after the enumerated jobs."""
    order = by_potential(joint.members)
    largest, combinations, options = max(joint.free), 1, []
    for at in order:
        combinations *= count(joint.members[at].gpus, largest)
        if combinations > space:
            break
        options.append(partitions(joint.members[at].gpus, largest))
    found = float("-inf")
    for cut in product(*options):
        try:
            made = arranged(joint, dict(zip(order, cut, strict=False)), order, joint.most, "")
        except ValueError:
            continue  # these do not fit beside each other
        found = max(found, made.reward)
    return found


def is_sound(joint: Joint, made: Arrangement) -> None:
    left = list(joint.free)
    for member, where in zip(joint.members, made.spots, strict=True):
        assert sum(gpus for _, gpus in where) == member.gpus
        assert len({node for node, _ in where}) == len(where)
        for node, gpus in where:
            assert gpus > 0
            left[node] -= gpus
    assert min(left, default=0) >= 0
    assert made.reward == pytest.approx(total_reward(joint.members, made.spots))
    assert made.reward <= made.bound + 1e-6 * abs(made.bound)


@st.composite
def joints(draw: st.DrawFn, nodes: int = 4, size: int = 4, most: int = 7) -> Joint:
    free = draw(st.lists(st.integers(0, size), min_size=1, max_size=nodes))
    room, members = sum(free), []
    for width in draw(st.lists(st.integers(1, most), max_size=6)):
        if width <= room:
            room -= width
            stretch = draw(st.sampled_from([1.0, 1.05, 1.3, 2.0]))
            together = draw(st.sampled_from([False, False, False, True]))
            members.append(BatchMember(width, -(-width // size), stretch, together))
    return Joint(tuple(members), tuple(free))


def test_an_iteration_takes_longer_with_each_doubling_of_the_nodes() -> None:
    assert [iteration_time(1.0, 1.2, n) for n in (1, 2, 4, 8)] == pytest.approx([1, 1.2, 1.4, 1.6])


def test_the_reward_is_relative_to_the_fewest_nodes() -> None:
    four, wide = BatchMember(4, 1, 1.2), BatchMember(12, 2, 1.2)
    assert four.reward(1) == 4.0
    assert four.reward(4) == pytest.approx(4 / 1.4)
    assert four.potential == pytest.approx(4 - 4 / 1.4)
    assert wide.reward(2) == 12.0
    assert wide.reward(4) == pytest.approx(12 * 1.2 / 1.4)


def test_partitions_and_their_number_agree() -> None:
    assert len(partitions(8, 8)) == count(8, 8) == 22
    assert len(partitions(15, 8)) == count(15, 8) == 146
    assert partitions(4, 2) == ((2, 2), (2, 1, 1), (1, 1, 1, 1))
    assert partitions(10, 6, 2) == ((5, 5), (6, 4))
    assert cuts(8, (8, 5, 3, 2)) == ((8,), (5, 3), (5, 2), (3, 3, 2), (3, 2, 2), (2, 2, 2, 2))


@given(joint=joints())
@settings(max_examples=times(50, 150), deadline=None)
def test_the_program_is_exact(joint: Joint) -> None:
    made = best(joint)
    is_sound(joint, made)
    assert made.proven
    assert made.reward == pytest.approx(greatest(joint), rel=1e-5)


@given(joint=joints(nodes=4, size=4, most=7), space=st.sampled_from([1, 20, 1_000]))
@settings(max_examples=times(33, 100), deadline=None)
def test_local_search_is_algorithm_1(joint: Joint, space: int) -> None:
    made = local_search(joint, space)
    is_sound(joint, made)
    assert made.reward == pytest.approx(plain_algorithm_1(joint, space))
    assert made.reward >= quasi_consolidate(joint).reward - 1e-9
    assert best(joint).reward >= made.reward - 1e-6 * abs(made.reward)


@given(joint=joints(nodes=12, size=8, most=15))
@settings(max_examples=times(16, 50), deadline=None)
def test_the_program_is_never_below_algorithm_1_on_larger_nodes(joint: Joint) -> None:
    made, searched = best(joint), local_search(joint, 2_000)
    is_sound(joint, made)
    is_sound(joint, searched)
    assert made.proven
    assert made.reward >= searched.reward - 1e-6 * abs(searched.reward)


def test_local_search_may_split_who_has_most_to_lose() -> None:
    """The 6 loses most, but less than both 3s together."""
    joint = Joint(
        (BatchMember(6, 1, 1.2), BatchMember(3, 1, 1.4), BatchMember(3, 1, 1.4)),
        (6, 1, 1, 1, 1, 1, 1),
    )
    made = local_search(joint)
    assert [len(where) for where in made.spots] == [6, 1, 1]
    assert made.reward > quasi_consolidate(joint).reward
    assert made.how == "local search over 3 of 3 jobs"


def test_a_job_that_must_not_be_spread_is_not_whatever_others_would_gain() -> None:
    """One node with 4 and single GPUs: two 2s that suffer much against a 4 that hardly does."""
    two = BatchMember(2, 1, 2.0)
    free = (4, 1, 1, 1, 1)
    made = best(Joint((BatchMember(4, 1, 1.01), two, two), free))
    assert [len(where) for where in made.spots] == [4, 1, 1]
    made = best(Joint((BatchMember(4, 1, 1.01, together=True), two, two), free))
    assert [len(where) for where in made.spots] == [1, 2, 2]


def test_the_others_are_consolidated_on_what_the_enumerated_leave() -> None:
    """Nodes 4 and 5. The sensitive 4 belongs on the first, so that the 5 has a node of its own
    too.
    """
    joint = Joint((BatchMember(5, 1, 1.3), BatchMember(4, 1, 2.0)), (4, 5))
    made = local_search(joint)
    assert made.spots == (((1, 5),), ((0, 4),))
    assert made.reward == 9.0


def test_greedy_can_be_wrong_and_the_program_says_how_good_it_is() -> None:
    """4, 3, 3 and 2, 2, 2 on 6 + 5 + 5: best fit puts the 4 beside nobody."""
    members = tuple(BatchMember(width, 1, 1.5) for width in (4, 3, 3, 2, 2, 2))
    joint = Joint(members, (6, 5, 5))
    assert quasi_consolidate(joint).reward < joint.most
    made = best(joint)
    assert made.reward == joint.most
    assert made.how == "placement program"


def test_at_a_limit_it_is_as_good_as_algorithm_1_and_the_bound_is_told() -> None:
    members = tuple(BatchMember(width, 1, 1.5) for width in (4, 3, 3, 2, 2, 2))
    joint = Joint(members, (6, 5, 5))
    made = best(joint, time_limit_s=0.0)
    is_sound(joint, made)
    assert made.reward == local_search(joint).reward
    assert made.bound == joint.most
    assert not made.proven


def test_too_large_a_program_is_not_tried() -> None:
    joint = Joint((BatchMember(60, 1, 1.5), BatchMember(50, 1, 1.5)), (64, 30, 30))
    assert pattern.solve(joint) is None
    made = best(joint)
    is_sound(joint, made)
    assert made.bound == 110.0
    assert made.reward == pytest.approx(60 + 50 / 1.5)


def test_what_does_not_fit_is_named() -> None:
    joint = Joint((BatchMember(3), BatchMember(2)), (4,))
    for place in (quasi_consolidate, local_search, best):
        with pytest.raises(ValueError, match="ask for 5 GPUs together, 4 are free"):
            place(joint)


def test_nodes_are_cut_as_the_solution_says_where_best_fit_would_fail() -> None:
    """The widest first would put 5 and 4 on one node, and have no room for the 2."""
    widths = (5, 4, 3, 3, 3, 2)
    joint = Joint(tuple(BatchMember(width) for width in widths), (10, 10))
    parts = tuple((width,) for width in widths)
    spots = named.spots(joint, parts, {10: [(5, 3, 2), (4, 3, 3)]})
    assert [node for ((node, _),) in spots] == [0, 1, 0, 1, 1, 0]


@given(joint=joints(nodes=6, size=8, most=9))
@settings(max_examples=times(15, 40), deadline=None)
def test_the_same_batch_is_placed_the_same(joint: Joint) -> None:
    assert best(joint) == best(joint)
    assert local_search(joint) == local_search(joint)
