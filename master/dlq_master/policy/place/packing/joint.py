"""A batch of jobs that start together, and the free GPUs that they are placed on as a whole.

Nodes with the same number of free GPUs are interchangeable, and so are the GPUs of a node. The
worth of a placement is Chronus' reward (equation 7): RW(j, A) = G_j x RTS(j, A) / RTS(j, A*), with
A* on as few nodes as the width could ever need. The speed model is that of its section 3.2: t_n =
t_1 + log2(n) (t_2 - t_1) for one iteration on n nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log2
from typing import NamedTuple

from dlq_master.model.nodes.free_gpus import Pool

Spots = tuple[tuple[int, int], ...]  # (node, GPUs there) of one job, by node

SPACE = 100_000  # |S| of Chronus' Algorithm 1 in section 5.3


class BatchMember(NamedTuple):
    """One job. `fewest`: nodes that its width could ever do with. `stretch`: t_2 / t_1, at least 1.
    `together`: it must not be on more nodes."""

    gpus: int
    fewest: int = 1
    stretch: float = 1.0
    together: bool = False

    def reward(self, nodes: int) -> float:
        """RW on so many nodes: its GPUs at the least, and less the longer an iteration takes."""
        if nodes <= self.fewest:
            return float(self.gpus)
        if self.together:
            return _FORBIDDEN * self.gpus
        return (
            self.gpus
            * iteration_time(1.0, self.stretch, self.fewest)
            / iteration_time(1.0, self.stretch, nodes)
        )

    @property
    def potential(self) -> float:
        """Its possible loss (equation 8): everything on few nodes, or every GPU on its own."""
        return self.gpus - self.reward(self.gpus)


class Joint(NamedTuple):
    """`free`: GPUs left of each node, all of one type. Every job is to be placed. The starts are
    already decided, so together they ask for no more than is free.
    """

    members: tuple[BatchMember, ...]
    free: tuple[int, ...]

    @property
    def most(self) -> float:
        """The upper bound of any placement: every job on as few nodes as possible."""
        return float(sum(member.gpus for member in self.members))

    def check(self) -> None:
        """Raises ValueError if they cannot all be placed."""
        asked, free = sum(member.gpus for member in self.members), sum(self.free)
        if asked > free:
            raise ValueError(f"the jobs ask for {asked} GPUs together, {free} are free")


class Arrangement(NamedTuple):
    """Where each member goes, and what is known of how good that is.

    `bound`: no placement of these jobs has a greater reward; `proven` if this one has it.
    """

    spots: tuple[Spots, ...]
    reward: float
    bound: float
    how: str

    @property
    def proven(self) -> bool:
        return self.reward >= self.bound - TOLERANCE * abs(self.bound)


TOLERANCE = 1e-6
# Per GPU of a job that must not be spread and is: no gain of others outweighs it.
_FORBIDDEN = -1e3


def iteration_time(t_1: float, t_2: float, nodes: int) -> float:
    """t_n = t_1 + log2(n) (t_2 - t_1): an iteration on n nodes, from those on one and on two."""
    return t_1 + log2(nodes) * (t_2 - t_1)


def total_reward(members: Sequence[BatchMember], spots: Sequence[Spots]) -> float:
    """The sum of RW, from the nodes that each really is on."""
    return sum(member.reward(len(where)) for member, where in zip(members, spots, strict=True))


def by_potential(members: Sequence[BatchMember]) -> list[int]:
    """The job that could lose most first; ties: the widest, then as they stand."""
    return sorted(
        range(len(members)), key=lambda at: (-members[at].potential, -members[at].gpus, at)
    )


def round_up(gpus: int, node_gpus: int = 8) -> int:
    """Chronus' RoundUp (section 3.4.1): the next of 1, 2, 4, ... below a node's GPUs, or else
    whole nodes: {1, 2, 4, 8n} for 8.

    Raises ValueError unless both are positive.
    """
    if gpus < 1 or node_gpus < 1:
        raise ValueError(f"neither a width nor a node has less than 1 GPU: {gpus}, {node_gpus}")
    power = 1 << (gpus - 1).bit_length()
    return power if power < node_gpus else -(-gpus // node_gpus) * node_gpus


def tightest_block(offers: Iterable[int], gpus: int) -> int | None:
    """Of nodes with so many GPUs left the number whose smallest block that holds `gpus`, a power of
    two, is the smallest; None: there is none.

    The rest of a node is blocks as its number is powers of two: 6 = 4 + 2. Taking the smallest
    costs no size of blocks more than any other choice. So jobs of such widths fit in any order if
    they fit at all.
    """
    room = [left for left in offers if left >= gpus]
    return min(room, key=lambda left: (_block(left, gpus), left), default=None)


def halves(pool: Pool) -> int | None:
    """The GPUs of every node of the pool, if all have the same number and it is a power of two."""
    if len(pool.widths) != 1:
        return None
    ((size, _),) = pool.widths
    return size if not size & (size - 1) else None


def block_of(pool: Pool) -> int:
    """The power of two that the nodes with most of the pool's GPUs hold whole: 8 of 8, 4 of 6."""
    most = max([(size * count, size) for size, count in pool.widths], default=(1, 1))
    return 1 << (most[1].bit_length() - 1)


def _block(left: int, gpus: int) -> int:
    blocks = left & -gpus  # no block below `gpus`
    return blocks & -blocks
