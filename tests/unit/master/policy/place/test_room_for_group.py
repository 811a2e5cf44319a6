"""Room for all members of a group: found where it is, excluded where it cannot be."""

import random
from itertools import combinations

import pytest

from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import Request, Shape
from dlq_master.policy.place.allocation.room_for_group import could_hold
from support.builders import a_node


def shape(gpus: int, nodes: int | None = None, **more: object) -> Shape:
    return Request(gpus=gpus, nodes=nodes, **more).shape  # type: ignore[arg-type]  # any field


def rooms(*gpus: int) -> list[Node]:
    return [a_node(f"n{at}", wide) for at, wide in enumerate(gpus)]


@pytest.mark.parametrize(
    ("gpus", "shapes", "holds"),
    [
        ((2, 2, 2), [shape(2, 2), shape(2), shape(2)], False),  # three whole nodes and two parts
        ((2, 2, 2, 2), [shape(2, 2), shape(2), shape(2)], True),
        ((2, 4), [shape(1), shape(2, 2), shape(2)], True),
        ((2, 4), [shape(1), shape(2, 2), shape(2, avoid=("n1",))], False),
        ((8, 8), [shape(5), shape(5), shape(5)], False),
        ((8, 8), [shape(5), shape(3), shape(5), shape(3)], True),
        ((8, 8), [shape(16), shape(1)], True),  # a member that spreads counts as placed
        ((8,) * 1000, [shape(32, 8)] * 100, True),
        ((8,) * 1000, [shape(8)] * 1000, None),  # too many members to look at
    ],
)
def test_members_are_placed_at_one_time(
    gpus: tuple[int, ...], shapes: list[Shape], holds: bool | None
) -> None:
    assert could_hold(rooms(*gpus), shapes) is holds


def brute(free: list[int], members: list[tuple[int, int]]) -> bool:
    if not members:
        return True
    (part, count), rest = members[0], members[1:]
    for chosen in combinations([at for at, it in enumerate(free) if it >= part], count):
        left = [it - part * (at in chosen) for at, it in enumerate(free)]
        if brute(left, rest):
            return True
    return False


@pytest.mark.parametrize("seed", range(40))
def test_it_says_what_a_look_at_every_placement_says(seed: int) -> None:
    dice = random.Random(seed)
    gpus = [dice.choice((2, 4)) for _ in range(dice.randint(2, 4))]
    members = [(dice.randint(1, 4), dice.randint(1, 2)) for _ in range(dice.randint(2, 4))]
    shapes = [shape(part * count, count) for part, count in members]
    assert could_hold(rooms(*gpus), shapes) is brute(gpus, members)
