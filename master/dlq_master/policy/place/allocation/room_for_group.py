"""Whether nodes could hold all members of a group at one time, if nothing else ran on them.

The number of GPUs says too little: a member on two nodes leaves no whole node in a cluster of two.
The search places members from the widest part to the smallest, and tries the fullest nodes first.
Nodes of one type with as many free GPUs are alike, so that a thousand nodes are a few kinds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import Shape

# Members placed, also those that were taken back. A search that takes more is not decided.
MOST_STEPS = 2_000
# The search goes as deep as there are members.
MOST_MEMBERS = 200


class _Kind(NamedTuple):
    """Nodes that are alike."""

    free: int
    gpu_type: str
    avoided_by: tuple[int, ...]


class _Member(NamedTuple):
    """GPUs on each of its nodes, the number of these, and its place among the shapes."""

    part: int
    nodes: int
    place: int


class _Undecided(Exception):
    """The search has taken too many steps."""


def could_hold(nodes: Collection[Node], shapes: Sequence[Shape]) -> bool | None:
    """Whether a placement of all shapes exists; None: not found, and not excluded.

    It takes types, numbers of nodes and nodes to avoid into account. Shapes that may spread over
    several types, or that no single node holds, count as placed. So False is certain.
    """
    room = _kinds(nodes, shapes)
    members = sorted(_members(shapes, room), reverse=True)
    if len(members) > MOST_MEMBERS:
        return None
    try:
        return _place(room, members, shapes, [MOST_STEPS])
    except _Undecided:
        return None


def _kinds(nodes: Collection[Node], shapes: Sequence[Shape]) -> Counter[_Kind]:
    room = Counter[_Kind]()
    for node in nodes:
        avoided_by = tuple(at for at, it in enumerate(shapes) if node.node_id in it.avoid)
        for gpu_type, free in Counter(gpu.gpu_type for gpu in node.gpus).items():
            room[_Kind(free, gpu_type, avoided_by)] += 1
    return room


def _members(shapes: Sequence[Shape], room: Collection[_Kind]) -> Iterator[_Member]:
    for index, shape in enumerate(shapes):
        whole = any(it.free >= shape.gpus and _suits(it, shape, index) for it in room)
        if shape.nodes is not None:
            yield _Member(shape.gpus // shape.nodes, shape.nodes, index)
        elif whole and not shape.mixed:
            yield _Member(shape.gpus, 1, index)


def _suits(kind: _Kind, shape: Shape, index: int) -> bool:
    is_type = not shape.gpu_types or kind.gpu_type in shape.gpu_types
    return is_type and index not in kind.avoided_by


def _place(
    room: Counter[_Kind], members: Sequence[_Member], shapes: Sequence[Shape], steps: list[int]
) -> bool:
    """Place the first member in every way, and the others after it. Leaves `room` as it was,
    unless all are placed.
    """
    if not members:
        return True
    steps[0] -= 1
    if steps[0] < 0:
        raise _Undecided
    part, count, place = members[0]
    kinds = sorted(
        it
        for it, number in room.items()
        if number and it.free >= part and _suits(it, shapes[place], place)
    )
    for chosen in _choices(kinds, room, count):
        for kind, number in chosen:
            room[kind] -= number
            room[kind._replace(free=kind.free - part)] += number
        if _place(room, members[1:], shapes, steps):
            return True
        for kind, number in chosen:
            room[kind] += number
            room[kind._replace(free=kind.free - part)] -= number
    return False


def _choices(
    kinds: Sequence[_Kind], room: Counter[_Kind], count: int
) -> Iterator[tuple[tuple[_Kind, int], ...]]:
    """All ways to take so many different nodes, those of the first kinds before others."""
    if not count:
        yield ()
    elif kinds:
        first, rest = kinds[0], kinds[1:]
        for number in range(min(count, room[first]), -1, -1):
            for more in _choices(rest, room, count - number):
                yield ((first, number), *more) if number else more
