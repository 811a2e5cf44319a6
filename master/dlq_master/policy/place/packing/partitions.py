"""In which parts a number of GPUs can be cut, a part for each node."""

from __future__ import annotations

from functools import lru_cache

Partition = tuple[int, ...]  # falling


@lru_cache(maxsize=1 << 10)
def partitions(gpus: int, most: int, parts: int | None = None) -> tuple[Partition, ...]:
    """All of them with no part above `most`, in exactly `parts` parts or any number; fewest
    first.
    """
    found = _cut(gpus, most, gpus if parts is None else parts)
    if parts is not None:
        found = [cut for cut in found if len(cut) == parts]
    return tuple(sorted(found, key=lambda cut: (len(cut), cut)))


@lru_cache(maxsize=1 << 10)
def count(gpus: int, most: int) -> int:
    """How many `partitions` there are, without making them."""
    ways = [1] + [0] * gpus
    for part in range(1, min(most, gpus) + 1):
        for total in range(part, gpus + 1):
            ways[total] += ways[total - part]
    return ways[gpus]


@lru_cache(maxsize=1 << 10)
def cuts(free: int, pieces: tuple[int, ...]) -> tuple[Partition, ...]:
    """How a node can be cut into these pieces (falling) so that no further one fits."""
    if not pieces or free < pieces[-1]:
        return ((),)
    first, rest = pieces[0], pieces[1:]
    found = []
    for times in range(free // first, -1, -1):
        for cut in cuts(free - times * first, rest):
            made = (first,) * times + cut
            if free - sum(made) < pieces[-1]:
                found.append(made)
    return tuple(found)


def _cut(gpus: int, most: int, parts: int) -> list[Partition]:
    if not gpus:
        return [()]
    found: list[Partition] = []
    for first in range(min(gpus, most), 0, -1):
        if first * parts < gpus:
            break
        found += [(first, *rest) for rest in _cut(gpus - first, first, parts - 1)]
    return found
