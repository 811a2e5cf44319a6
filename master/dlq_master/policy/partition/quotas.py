"""Static quotas: each queue has its share of the GPUs, and nobody lends or borrows (YARN's capacity
scheduler, as Chronus compares with in section 4.3). And the floor of a queue, which is kept free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import floor
from typing import NamedTuple

from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey
from dlq_master.policy.promise.capacity.rules import gpus_of

REST = ""  # all queues that no quota names, as one


class Room(NamedTuple):
    """How many GPUs each part may hold, and how many it holds."""

    limits: dict[str, int]
    held: Counter[str]

    def allows(self, part: str, gpus: int) -> bool:
        """Whether so many more are within its quota. A part that holds nothing may begin with any
        number: a job that is wider than its quota would wait for ever."""
        held = self.held[part]
        return not gpus or not held or held + gpus <= self.limits[part]


class QueueFloor(NamedTuple):
    """GPUs that are kept free for the jobs of one queue; below 1: that share of all GPUs."""

    queue: str
    amount: float

    def gpus(self, total: int) -> int:
        """How many of so many GPUs the floor is, with those that its jobs hold."""
        return gpus_of(self.amount, total)


class Quotas(NamedTuple):
    """Queue -> its share of the cluster, each above 0, at most 1 in all. The rest belongs to the
    queues that are not named, together. Each queue stands in priorities of its own.
    """

    shares: tuple[tuple[str, float], ...] = ()

    def part_of(self, queue: str) -> str:
        """Under whose quota the jobs of this queue run."""
        return queue if any(queue == name for name, _ in self.shares) else REST

    def limits(self, gpus: int) -> dict[str, int]:
        """How many of so many GPUs each part may hold, in the order in which they were named.

        Whole GPUs by the largest remainder, so that shares that make up 1 leave none over.
        """
        rest = max(0.0, 1.0 - sum(share for _, share in self.shares))
        exact = {**dict(self.shares), REST: rest if rest > 1e-9 else 0.0}
        limits = {name: floor(share * gpus + 1e-9) for name, share in exact.items()}
        over = gpus - sum(limits.values())
        by_remainder = sorted(exact, key=lambda name: limits[name] - exact[name] * gpus)
        for name in by_remainder[:over]:
            limits[name] += 1
        return limits

    def room(self, cluster: Cluster) -> Room:
        """How much each part may hold of the registered nodes, and how much it holds."""
        gpus = cluster.capacity.all_gpus
        return Room(self.limits(gpus), self.held(cluster))

    def held(self, cluster: Cluster) -> Counter[str]:
        """How many GPUs each part holds, with those that it is about to leave.

        Costs O(priorities) beside the jobs that leave, are silent, or have no GPUs.
        """
        return held_by(cluster, self.part_of)


def held_by(cluster: Cluster, part_of: Callable[[str], str]) -> Counter[str]:
    """How many GPUs the queues of each part hold, with those that they are about to leave, and
    those to which suspended jobs come back."""
    held: Counter[str] = Counter()
    jobs, running = cluster.jobs, cluster.running
    for priority, members in running.by_priority.items():
        part = part_of(jobs[next(iter(members))].queue)
        held[part] += running.gpus_by_priority[priority]
    for job_id in running.without_gpus:
        held[part_of(jobs[job_id].queue)] -= running.places[job_id].gpus
    for key in {*cluster.claims.silent, *cluster.claims.suspended, *pausing(cluster)}:
        job = jobs[key.job_id]
        if not job.request.without_gpus:
            held[part_of(job.queue)] += cluster.attempts[key].place.width
    return held


def parsed_floor(text: str) -> QueueFloor:
    """`QUEUE:GPUS` or `QUEUE:SHARE`; ValueError says what is wrong."""
    name, colon, amount = text.rpartition(":")
    if not (name and colon):
        raise ValueError(f"{text!r} is not QUEUE:GPUS or QUEUE:SHARE, such as interactive:8")
    try:
        value = float(amount)
    except ValueError:
        raise ValueError(f"{amount!r} is not a number") from None
    if not 0.0 <= value < float("inf") or (value >= 1.0 and value != int(value)):
        raise ValueError(f"expected whole GPUs, or a share below 1, not {amount}")
    return QueueFloor(name, value)


def parsed(text: str) -> Quotas:
    """`QUEUE:SHARE,...`; ValueError says which word is wrong."""
    shares: dict[str, float] = {}
    for word in text.split(","):
        name, colon, share = word.rpartition(":")
        if not colon or not name:
            raise ValueError(f"{word!r} is not QUEUE:SHARE, such as slo:0.8,be:0.2")
        if name in shares:
            raise ValueError(f"queue {name!r} has two quotas")
        shares[name] = _share(name, share)
    total = sum(shares.values())
    if total > 1.0 + 1e-9:
        raise ValueError(f"the shares make up {total:g}, more than 1")
    return Quotas(tuple(shares.items()))


def _share(name: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        raise ValueError(f"the share of {name!r}, {text!r}, is not a number") from None
    if not 0.0 < share <= 1.0:
        raise ValueError(f"the share of {name!r} must be above 0 and at most 1, not {text}")
    return share


def pausing(cluster: Cluster) -> set[AttemptKey]:
    """Attempts that were told to leave."""
    claims = cluster.capacity.claims
    return {
        key
        for node_id in cluster.capacity.soon
        for key in claims[node_id]
        if cluster.attempts[key].state is AttemptState.PAUSING
    }
