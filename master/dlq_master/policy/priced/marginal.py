"""Marginal allocation by apparent tardiness cost: the own method of dlq.

1. *Wish*: the cheapest shape of each job that makes its due date, else its fastest kind and as many
   GPUs as help. Nobody is given more. If that is more than all nodes have, GPUs are short, not
   money. Each job then asks for its fastest kind, and the fewest GPUs of it that make the due date.
2. *Worth*: the worth of a GPU more for job j is a product. Its factors are w_j exp(-slack_j / (k
   mean t)) and the share of j that is then done sooner per second. Slack is the due date minus the
   fastest end, and t the fastest run time.
   If the wishes are still more, the GPUs go to the greatest worths. As throughput is concave in the
   GPUs, they fall from GPU to GPU of a job, and the greatest of all are an allocation. The GPUs
   that a job holds already count for more (`HOLD`), so that GPUs do not change hands for next to
   nothing.
3. *Packing*: a job that keeps its kind and number of GPUs stays in place. Then come the widest jobs
   first, each where it adds least to the price; a job that does not fit is shrunk.
4. GPUs that are paid for but idle go, one by one, to whom they save most.

The worth of the second step counts only jobs that would be late. The paper's objective of a single
decision does not see the price of waiting. It costs more in the long run however well it is solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Catalogue, Floats, Ints
from dlq_master.policy.priced.situation import EMPTY, Grant, Schedule, Situation

_HOUR_S = 3600.0
LOOKAHEAD = 1.5  # mean run times; anything from 0.5 to 3 costs within a few percent of it
HOLD = 0.3  # of its worth, on top of it, for a GPU that the job holds


class MarginalWish(NamedTuple):
    """By job: `kind`; `gpus` at most; `rate[j, g]` the share of the job done per second on g GPUs
    of the kind (0 on none); `cost` $ to its end in that shape; `urgency` $ per second of being
    late, discounted by slack."""

    kind: Ints
    gpus: Ints
    rate: Floats
    cost: Floats
    urgency: Floats


def marginal(
    situation: Situation, draw: np.random.Generator, *, lookahead: float = LOOKAHEAD
) -> Schedule:
    """`lookahead`: k, how far ahead tardiness is seen, in mean run times. Nothing is drawn."""
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
    """The most that each job is to have, and its worth."""
    time, due = situation.time, situation.due[:, None, None]
    each = _per_gpu(situation)
    with np.errstate(invalid="ignore"):  # where it may not run, for nothing
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
    """Of the fastest kind, the fewest GPUs that make the due date; where none do, the fastest
    number.
    """
    kind = situation.time.min(axis=2).argmin(axis=1)
    mine = situation.time[np.arange(len(kind)), kind]
    makes = mine <= situation.due[:, None]
    gpus = np.where(makes.any(axis=1), makes.argmax(axis=1), mine.argmin(axis=1)) + 1
    return wish._replace(kind=kind, gpus=gpus, rate=_rates(mine))


def _rates(mine: Floats) -> Floats:
    """`Wish.rate` of run times by GPUs; a size that a job may not have is as fast as the next
    smaller one that it may.
    """
    rate = np.zeros((len(mine), mine.shape[1] + 1))
    rate[:, 1:] = np.maximum.accumulate(1.0 / mine, axis=1)
    return rate


class HeldNode(NamedTuple):
    """By job: its present allocation; kind and node are -1 and GPUs 0 where it waits."""

    kind: Ints
    gpus: Ints
    node: Ints


def held(situation: Situation) -> HeldNode:
    """Who runs where."""
    running, catalogue = situation.running, situation.catalogue
    found = HeldNode(*np.full((3, len(situation.jobs)), -1, dtype=np.int64))
    found.gpus[:] = 0
    for number, job in enumerate(situation.jobs):
        if (grant := running.grants.get(job.key)) is not None:
            kind = catalogue.types[running.types[grant.node]].kind
            found.kind[number] = catalogue.kinds.index(kind)
            found.gpus[number], found.node[number] = grant.gpus, grant.node
    return found


def _per_gpu(situation: Situation) -> Floats:
    """$ per second and GPU of each kind, where nothing is idle."""
    price = situation.catalogue.price[:, 1:]
    gpus = np.maximum(1, situation.catalogue.room[:, 1:])
    each: Floats = np.where(price > 0, price / gpus, np.inf).min(axis=1) / _HOUR_S
    return np.where(np.isfinite(each), each, 0.0)


def allocate(wish: MarginalWish, capacity: int, mine: Ints) -> Ints:
    """GPUs of each job: its wish, or what the greatest worths add up to if that is more than there
    is.

    `mine`: how many of the kind it has already."""
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
    """The fastest number of GPUs that each may have of those that it was given; 0: none of them."""
    mine = situation.time[np.arange(len(given)), wish.kind]
    within = np.where(np.arange(1, mine.shape[1] + 1) <= given[:, None], mine, np.inf)
    fastest: Ints = np.where(np.isfinite(within).any(axis=1), within.argmin(axis=1) + 1, 0)
    return fastest


def concave(rate: Floats) -> Floats:
    """The least concave curve above each row; the row itself where throughput is concave
    already.
    """
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
    """Nodes that grow with what is put on them, up to the largest type of their kind.

    Equal nodes are interchangeable: only their kind and the number of used GPUs matter. So choosing
    one takes as many steps as there are such states, not as there are nodes.
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
        """The addition to the price per hour, and the node (-1: a new one); the fullest of equals;
        None: it fits on none.
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
        """Whether so many GPUs more fit on the node (-1: a new one) of that kind."""
        return (0 if node < 0 else self.used[node]) + gpus <= self.most[kind]

    def put(self, job: int, kind: int, gpus: int, node: int) -> int:
        """On that node, or on a new one if it is -1; returns which."""
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
        """(GPUs that are free, node) on the emptiest node, a new one (-1) before all; None: all are
        full.
        """
        if len(self.kind) < self.nodes:
            return self.most[kind], -1
        for used, at in enumerate(self.states[kind][:-1]):
            if at:
                return self.most[kind] - used, min(at)
        return None

    def idle(self, node: int) -> int:
        """GPUs of the cheapest type that holds what is used, beyond that."""
        return self.room[self.kind[node]][self.used[node]] - self.used[node]

    def schedule(self, keys: Sequence[int]) -> Schedule:
        """`keys` of the jobs by their numbers."""
        types = {
            n: self.smallest[k][u]
            for n, (k, u) in enumerate(zip(self.kind, self.used, strict=True))
        }
        grants = {
            keys[job]: Grant(n, gpus) for n, on in enumerate(self.on) for job, gpus in on.items()
        }
        return Schedule(types, grants)


def _pack(situation: Situation, wish: MarginalWish, gpus: Ints, stays: Ints) -> NodePacking:
    """Jobs that stay, on their nodes; then the widest first, among equals the most urgent. A job
    that fits nowhere gets the rest of a node.
    """
    packing = NodePacking(situation.catalogue, situation.nodes)
    kinds, widths, node_of = wish.kind.tolist(), gpus.tolist(), stays.tolist()
    order = [job for job in np.lexsort((-wish.urgency, -gpus)).tolist() if widths[job]]
    names: dict[int, int] = {}  # of the nodes that there are, in the packing
    others, left = [], []
    for job in order:
        at = names.get(node_of[job], -1)
        # The type may have been taken back, and the largest that is left have fewer GPUs.
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
    """On at most so many GPUs of any kind, as fast as can be."""
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
    """GPUs that are paid for go where each saves most: time of being late, and of renting."""
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
