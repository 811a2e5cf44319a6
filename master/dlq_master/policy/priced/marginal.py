"""Marginal allocation by apparent tardiness cost: dlq's own method.

1. *Wish*: each job asks for the cheapest shape that meets its due date, else for its fastest shape.
   No job gets more. If the wishes exceed all nodes, GPUs are scarce, not money. Each job then asks
   for its fastest kind, and the fewest GPUs of it that meet the due date.
2. *Worth*: the worth of one more GPU for job j is a product. One factor is the urgency w_j
   exp(-slack_j / (k mean t)), the other the share of j that is then done sooner per second. Slack
   is the due date minus the fastest end, and t is the fastest run time. If the wishes still exceed
   all nodes, the GPUs go to the greatest worths. Throughput is concave in GPUs, so worths fall from
   each GPU of a job to the next, and the greatest ones form an allocation. GPUs that a job holds
   already are worth more (`HOLD`), so that GPUs rarely change hands for little.
3. *Packing*: a job that keeps its kind and number of GPUs stays in place. Then the widest jobs come
   first, each where it adds least to the price. A job that does not fit is shrunk.
4. Idle GPUs that are paid for go, one by one, to the job that saves most by them.

The worth in step 2 counts only tardiness. The paper's objective of a single decision does not see
the price of waiting. It costs more in the long run, however well it is solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Catalogue, Floats, Ints
from dlq_master.policy.priced.situation import EMPTY, Grant, Schedule, Situation

_HOUR_S = 3600.0
LOOKAHEAD = 1.5  # mean run times; anything from 0.5 to 3 costs within a few percent of it
HOLD = 0.3  # added to the worth of a GPU that the job holds already, as a share of it


class MarginalWish(NamedTuple):
    """The wish of each job j: `gpus[j]` GPUs of `kind[j]` at most.

    `rate[j, g]`: the share of the job done per second on g GPUs of the kind; 0 for g = 0.
    `cost[j]`: $ until its end in that shape. `urgency[j]`: $ per second of tardiness, discounted by
    slack.
    """

    kind: Ints
    gpus: Ints
    rate: Floats
    cost: Floats
    urgency: Floats


def marginal(
    situation: Situation, draw: np.random.Generator, *, lookahead: float = LOOKAHEAD
) -> Schedule:
    """`lookahead`: k, in mean run times, how far ahead tardiness counts. Uses no random numbers."""
    if not situation.jobs:
        return EMPTY
    wish = wishes(situation, lookahead)
    capacity = int(situation.catalogue.most.max()) * situation.nodes
    if int(wish.gpus.sum()) > capacity:
        wish = hurried(situation, wish)
    has = held(situation)
    mine = np.where(has.kind == wish.kind, has.gpus, 0)
    given = allocate(wish, capacity, mine)
    gpus = _allowed(situation, wish, given)
    packing = _pack(situation, wish, gpus, np.where(gpus == mine, has.node, -1))
    _give_idle(packing, situation, wish)
    return packing.schedule([job.key for job in situation.jobs])


def wishes(situation: Situation, lookahead: float) -> MarginalWish:
    """Step 1: the shape that each job asks for, and the urgency of step 2."""
    time, due = situation.time, situation.due[:, None, None]
    each = _per_gpu(situation)
    with np.errstate(invalid="ignore"):  # inf times a price of 0
        cost = time * each[:, None] * np.arange(1, time.shape[2] + 1)
    makes = time <= due
    jobs, shape = np.arange(len(time)), time.shape[1:]
    in_time = np.where(makes, cost, np.inf).reshape(len(time), -1).argmin(axis=1)
    fastest = time.reshape(len(time), -1).argmin(axis=1)
    best = np.where(makes.any(axis=(1, 2)), in_time, fastest)
    kind, gpus = np.unravel_index(best, shape)
    short = situation.fastest
    scale = lookahead * max(float(short.mean()), 1e-9)
    slack = np.maximum(0.0, situation.due - short)
    urgency = situation.weight * np.exp(-slack / scale)
    return MarginalWish(kind, gpus + 1, _rates(time[jobs, kind]), cost[jobs, kind, gpus], urgency)


def hurried(situation: Situation, wish: MarginalWish) -> MarginalWish:
    """Step 1 where GPUs are scarce: the fewest GPUs of the fastest kind that meet the due date.

    If none do, the fastest number of GPUs.
    """
    kind = situation.time.min(axis=2).argmin(axis=1)
    mine = situation.time[np.arange(len(kind)), kind]
    makes = mine <= situation.due[:, None]
    gpus = np.where(makes.any(axis=1), makes.argmax(axis=1), mine.argmin(axis=1)) + 1
    return wish._replace(kind=kind, gpus=gpus, rate=_rates(mine))


def _rates(mine: Floats) -> Floats:
    """`MarginalWish.rate` for run times by GPUs. A size that the job may not have counts as the
    next smaller one that it may have.
    """
    rate = np.zeros((len(mine), mine.shape[1] + 1))
    rate[:, 1:] = np.maximum.accumulate(1.0 / mine, axis=1)
    return rate


class HeldAllocation(NamedTuple):
    """The present allocation by job. A waiting job has kind and node -1 and 0 GPUs."""

    kind: Ints
    gpus: Ints
    node: Ints


def held(situation: Situation) -> HeldAllocation:
    """The present allocation of each job."""
    running, catalogue = situation.running, situation.catalogue
    found = HeldAllocation(*np.full((3, len(situation.jobs)), -1, dtype=np.int64))
    found.gpus[:] = 0
    for number, job in enumerate(situation.jobs):
        if (grant := running.grants.get(job.key)) is not None:
            kind = catalogue.types[running.types[grant.node]].kind
            found.kind[number] = catalogue.kinds.index(kind)
            found.gpus[number], found.node[number] = grant.gpus, grant.node
    return found


def _per_gpu(situation: Situation) -> Floats:
    """[kind]: $ per second and GPU on a node without idle GPUs."""
    price = situation.catalogue.price[:, 1:]
    gpus = np.maximum(1, situation.catalogue.room[:, 1:])
    each: Floats = np.where(price > 0, price / gpus, np.inf).min(axis=1) / _HOUR_S
    return np.where(np.isfinite(each), each, 0.0)


def allocate(wish: MarginalWish, capacity: int, mine: Ints) -> Ints:
    """Step 2: the GPUs of each job, `capacity` at most.

    That is its wish, or the GPUs of the greatest worths. `mine`: GPUs of the wished kind that it
    holds.
    """
    if int(wish.gpus.sum()) <= capacity:
        return wish.gpus
    worth = wish.urgency[:, None] * np.diff(concave(wish.rate), axis=1)
    count = np.arange(1, wish.rate.shape[1])
    worth = np.where(count <= mine[:, None], worth * (1 + HOLD), worth)
    wanted = count <= wish.gpus[:, None]
    flat = np.where(wanted, worth, -1.0).ravel()
    chosen = np.argpartition(-flat, capacity - 1)[:capacity]
    given: Ints = np.bincount(chosen // worth.shape[1], minlength=len(worth))
    return np.minimum(given, wish.gpus)


def _allowed(situation: Situation, wish: MarginalWish, given: Ints) -> Ints:
    """The fastest size that each job may have within the GPUs given to it; 0: none."""
    mine = situation.time[np.arange(len(given)), wish.kind]
    within = np.where(np.arange(1, mine.shape[1] + 1) <= given[:, None], mine, np.inf)
    fastest: Ints = np.where(np.isfinite(within).any(axis=1), within.argmin(axis=1) + 1, 0)
    return fastest


def concave(rate: Floats) -> Floats:
    """The least concave curve above each row; the row itself if it is concave already."""
    step = np.diff(rate, axis=1)
    if (step[:, 1:] <= step[:, :-1] + 1e-15).all():
        return rate
    hull, last = rate.copy(), rate.shape[1] - 1
    for at in range(1, last):
        for low in range(at):
            for high in range(at + 1, last + 1):
                part = (at - low) / (high - low)
                hull[:, at] = np.maximum(
                    hull[:, at], rate[:, low] * (1 - part) + rate[:, high] * part
                )
    return hull


class NodePacking:
    """Step 3: nodes that grow with the jobs put on them, up to the largest type of their kind.

    Nodes of one kind with as many used GPUs are interchangeable. So a choice takes as many steps as
    there are such states, not as there are nodes.
    """

    def __init__(self, catalogue: Catalogue, nodes: int) -> None:
        self.price: list[list[float]] = catalogue.price.tolist()
        self.most: list[int] = catalogue.most.tolist()
        self.room: list[list[int]] = catalogue.room.tolist()
        self.smallest: list[list[int]] = catalogue.smallest.tolist()
        self.nodes = nodes
        self.kind: list[int] = []  # of each open node
        self.used: list[int] = []
        self.on: list[dict[int, int]] = []  # job -> GPUs
        self.states = [[set[int]() for _ in range(most + 1)] for most in self.most]

    def cheapest(self, kind: int, gpus: int) -> tuple[float, int] | None:
        """The node (-1: a new one) where `gpus` more add least to the price per hour, and that
        addition.

        Of equals the fullest node. None: they fit on no node.
        """
        price, found, node = self.price[kind], float("inf"), None
        for used in range(self.most[kind] - gpus, 0, -1):
            at = self.states[kind][used]
            if at and (more := price[used + gpus] - price[used]) < found - 1e-9:
                found, node = more, min(at)
        if len(self.kind) < self.nodes and price[gpus] < found - 1e-9:
            found, node = price[gpus], -1
        return None if node is None else (found, node)

    def holds(self, kind: int, gpus: int, node: int) -> bool:
        """Whether `gpus` more fit on the node (-1: a new one) of that kind."""
        return (0 if node < 0 else self.used[node]) + gpus <= self.most[kind]

    def put(self, job: int, kind: int, gpus: int, node: int) -> int:
        """Put GPUs of a job on a node (-1: a new one); return the node."""
        if node < 0:
            node = len(self.kind)
            self.kind.append(kind)
            self.used.append(0)
            self.on.append({})
        used = self.used[node]
        self.states[kind][used].discard(node)
        self.states[kind][used + gpus].add(node)
        self.used[node] = used + gpus
        self.on[node][job] = self.on[node].get(job, 0) + gpus
        return node

    def largest_hole(self, kind: int) -> tuple[int, int] | None:
        """(free GPUs, node) of a new node (-1) if one may open, else of the emptiest one; None: all
        are full.
        """
        if len(self.kind) < self.nodes:
            return self.most[kind], -1
        for used, at in enumerate(self.states[kind][:-1]):
            if at:
                return self.most[kind] - used, min(at)
        return None

    def idle(self, node: int) -> int:
        """The GPUs of the cheapest type that holds the used ones, less these."""
        return self.room[self.kind[node]][self.used[node]] - self.used[node]

    def schedule(self, keys: Sequence[int]) -> Schedule:
        """The packing as a schedule; `keys` of the jobs by their numbers."""
        types = {
            n: self.smallest[k][u]
            for n, (k, u) in enumerate(zip(self.kind, self.used, strict=True))
        }
        grants = {
            keys[job]: Grant(n, gpus) for n, on in enumerate(self.on) for job, gpus in on.items()
        }
        return Schedule(types, grants)


def _pack(situation: Situation, wish: MarginalWish, gpus: Ints, stays: Ints) -> NodePacking:
    """Step 3: jobs that stay, then the widest jobs first, the most urgent of equals. A job that
    fits nowhere is shrunk into the rest of a node. `stays`: the node on which each job stays; -1:
    none.
    """
    packing = NodePacking(situation.catalogue, situation.nodes)
    kinds, widths, node_of = wish.kind.tolist(), gpus.tolist(), stays.tolist()
    order = [job for job in np.lexsort((-wish.urgency, -gpus)).tolist() if widths[job]]
    names: dict[int, int] = {}  # a present node -> its number in the packing
    others, left = [], []
    for job in order:
        at = names.get(node_of[job], -1)
        # The provider may have taken the type back, and other types may be smaller.
        if node_of[job] >= 0 and packing.holds(kinds[job], widths[job], at):
            names[node_of[job]] = packing.put(job, kinds[job], widths[job], at)
        else:
            others.append(job)
    for job in others:
        found = packing.cheapest(kinds[job], widths[job])
        if found is None:
            left.append(job)
        else:
            packing.put(job, kinds[job], widths[job], found[1])
    for job in left:
        _shrink(packing, situation, job, widths[job])
    return packing


def _shrink(packing: NodePacking, situation: Situation, job: int, gpus: int) -> None:
    """Put a job on its fastest shape of at most `gpus` GPUs that fits, if any does."""
    best: tuple[float, int, int, int] | None = None
    for kind in range(len(packing.most)):
        hole = packing.largest_hole(kind)
        if hole is None or not hole[0]:
            continue
        width = min(gpus, hole[0])
        time = situation.time[job, kind, :width]
        fast = int(time.argmin())
        if np.isfinite(time[fast]) and (best is None or time[fast] < best[0]):
            best = float(time[fast]), kind, fast + 1, hole[1]
    if best is not None:
        packing.put(job, *best[1:])


def _give_idle(packing: NodePacking, situation: Situation, wish: MarginalWish) -> None:
    """Step 4: give idle GPUs of open nodes to the jobs that save most, in tardiness and rent."""
    value = (wish.urgency * situation.fastest + wish.cost).tolist()
    for node, on in enumerate(packing.on):
        if not packing.idle(node):
            continue
        rates = (1 / situation.time[list(on), packing.kind[node]]).tolist()
        rate = dict(zip(on, rates, strict=True))
        while idle := packing.idle(node):
            found = [
                (
                    value[job] * (rate[job][gpus + more - 1] - rate[job][gpus - 1]) / more,
                    job,
                    more,
                )
                for job, gpus in on.items()
                for more in range(1, min(idle, len(rate[job]) - gpus) + 1)
            ]
            gain, job, more = max(found, default=(0.0, 0, 0))
            if gain <= 0:
                break
            packing.put(job, packing.kind[node], more, node)
