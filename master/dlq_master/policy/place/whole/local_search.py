"""Chronus' Algorithm 1: all placements of the jobs that could lose most, the others in between.

The K jobs with the greatest potential are tried in all combinations of their placements, K being as
great as keeps the combinations below |S|. A placement is a partition of its GPUs over nodes, each
part on the tightest node that holds it: nodes with as many GPUs left are interchangeable. The
others are quasi-consolidated on what is left after that; the algorithm prints the call without what
it depends on.

Combinations that leave the same numbers of nodes with the same numbers of GPUs go on as one, the
best of them. The others do not differ in any later step. So the result is that of trying all of
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dlq_master.model.late import np
from dlq_master.policy.place.packing.joint import (
    SPACE,
    Arrangement,
    BatchMember,
    Joint,
    by_potential,
)
from dlq_master.policy.place.packing.partitions import Partition, count, partitions
from dlq_master.policy.place.packing.spare import arranged

if TYPE_CHECKING:
    from numpy.typing import NDArray

# After so many jobs states that have become the same are merged anew.
_MERGE_EVERY = 8

Counts: TypeAlias = "NDArray[np.int16]"  # [state, GPUs left]: nodes
Rewards: TypeAlias = "NDArray[np.float64]"  # [state]


class _Layer(NamedTuple):
    """After a job: for each state the one it came from, and the partition that led here."""

    parents: NDArray[np.int64]
    choices: NDArray[np.int64]


def local_search(joint: Joint, space: int = SPACE) -> Arrangement:
    """The best of the enumerated combinations. Raises ValueError if they ask for more than is
    free.
    """
    joint.check()
    order = by_potential(joint.members)
    largest = max(joint.free, default=0)
    options = _options(joint, order, largest, space)
    counts = np.zeros((1, largest + 1), dtype=np.int16)
    for left in joint.free:
        counts[0, left] += 1
    rewards = np.zeros(1)
    layers: list[_Layer] = []
    for at, cuts in zip(order, options, strict=False):
        counts, rewards, layer = _enumerate(counts, rewards, joint.members[at], cuts)
        layers.append(layer)
    best = _best(counts, rewards, [joint.members[at] for at in order[len(options) :]])
    chosen: dict[int, Partition] = {}
    for depth in reversed(range(len(layers))):
        chosen[order[depth]] = options[depth][layers[depth].choices[best]]
        best = int(layers[depth].parents[best])
    how = f"local search over {len(options)} of {len(order)} jobs"
    return arranged(joint, chosen, order, joint.most, how)


def _options(
    joint: Joint, order: list[int], largest: int, space: int
) -> list[tuple[Partition, ...]]:
    """The placements of the first K jobs."""
    combinations, options = 1, []
    for at in order:
        gpus = joint.members[at].gpus
        combinations *= count(gpus, largest)
        if combinations > space:
            break
        options.append(partitions(gpus, largest))
    return options


def _enumerate(
    counts: Counts, rewards: Rewards, member: BatchMember, cuts: tuple[Partition, ...]
) -> tuple[Counts, Rewards, _Layer]:
    """Every state with every partition of this job."""
    made, gains, parents, choices = [], [], [], []
    for choice, cut in enumerate(cuts):
        after, fits = _placed(counts, cut)
        rows = np.flatnonzero(fits)
        made.append(after[rows])
        gains.append(rewards[rows] + member.reward(len(cut)))
        parents.append(rows)
        choices.append(np.full(len(rows), choice))
    states, gained = np.concatenate(made), np.concatenate(gains)
    kept = _distinct(states, gained)
    layer = _Layer(np.concatenate(parents)[kept], np.concatenate(choices)[kept])
    return states[kept], gained[kept], layer


def _placed(counts: Counts, cut: Partition) -> tuple[Counts, NDArray[np.bool_]]:
    """The states after these parts, and which of them have room; each part on a node of its own."""
    after = counts.copy()
    rows = np.arange(len(counts))
    fits = np.ones(len(counts), dtype=np.bool_)
    emptier: list[NDArray[np.int64]] = []
    for part in cut:
        offers = after[:, part:] > 0
        fits &= offers.any(axis=1)
        left = part + offers.argmax(axis=1)
        after[rows, left] -= 1
        emptier.append(left - part)
    for column in emptier:
        after[rows, column] += 1
    return after, fits


def _best(counts: Counts, rewards: Rewards, others: list[BatchMember]) -> int:
    """The state from which quasi-consolidating the others in this order ends with the most."""
    came_from = np.arange(len(counts))
    rewards = rewards.copy()
    for number, member in enumerate(others, start=1):
        if member.gpus == 1:  # it finds a GPU wherever one is left, and that is all it needs
            continue
        nodes = _gather(counts, member.gpus)
        gains = np.array([member.reward(n) for n in range(int(nodes.max()) + 1)])
        rewards += gains[nodes]
        if not number % _MERGE_EVERY:
            kept = _distinct(counts, rewards)
            counts, rewards, came_from = counts[kept], rewards[kept], came_from[kept]
    return int(came_from[rewards.argmax()])


def _gather(counts: Counts, gpus: int) -> NDArray[np.int64]:
    """Take so many GPUs of as few nodes as can be had, in place; on how many nodes that is."""
    nodes = np.zeros(len(counts), dtype=np.int64)
    need = np.full(len(counts), gpus)
    rows = np.arange(len(counts))
    width = counts.shape[1]
    sizes = np.arange(width)
    while len(rows):
        here = counts[rows] > 0
        wide = here & (sizes >= need[rows, None])
        together = wide.any(axis=1)
        # The tightest that holds the rest, or else the one with the most.
        left = np.where(together, wide.argmax(axis=1), width - 1 - here[:, ::-1].argmax(axis=1))
        counts[rows, left] -= 1
        nodes[rows] += 1
        taken = np.minimum(left, need[rows])
        counts[rows, left - taken] += 1
        need[rows] -= taken
        rows = rows[~together]
    return nodes


def _distinct(counts: Counts, rewards: Rewards) -> NDArray[np.int64]:
    """One row of each state, the one with the greatest reward."""
    falling = np.argsort(-rewards, kind="stable")
    rows = np.ascontiguousarray(counts[falling])
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first = np.unique(keys, return_index=True)
    return falling[np.sort(first)]
