"""Local search, the fourth method of the released program: it climbs f-bar from the best schedule.

Each change is the best of six neighbourhoods (`_NEIGHBOURHOODS`). One gives the place of a running
job to a waiting job of no smaller pressure. Two swap a late job with another job, and take the
first swap that gains. Three change a node with late jobs: to another kind, to twice its GPUs, or to
half of them. The search ends when no change gains, or after `MOST_CHANGES`.

The program has a seventh neighbourhood, which is left out. It gives a job all GPUs of its node
while the node's other jobs keep theirs. More GPUs would be in use than exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Floats, Ints
from dlq_master.policy.priced.greedy.batch import NOWHERE, ScheduleRows
from dlq_master.policy.priced.greedy.proxy import efficiency

MOST_CHANGES = 10
_WIDEST = 10  # late jobs, and dear ones, that are looked at
_HOUR_S = 3600.0
_LEAST = 1e-12
_NOISE = 1e-12  # of the score

_Change = tuple[float, ScheduleRows]  # the new score, and the new schedule
_Neighbourhood = Callable[["LocalView"], "_Change | None"]


def climb(batch: ScheduleRows, most_changes: int) -> ScheduleRows:
    """The schedule of a batch with one row after the search; the batch is not changed."""
    for _ in range(most_changes):
        view = LocalView(batch)
        best: _Change | None = None
        for found in view.changes():
            if best is None or found[0] > best[0]:
                best = found
        if best is None:
            break
        batch = best[1]
    return batch


class LocalView:
    """A schedule as the neighbourhoods read it. `value[j, s]`: job j's part of f-bar in the place
    of running job s.
    """

    def __init__(self, batch: ScheduleRows) -> None:
        self.batch, situation = batch, batch.situation
        self.score = float(efficiency(batch)[0])
        node, gpus = batch.node[0], batch.gpus[0].astype(np.int64)
        self.pressure = situation.fastest - situation.due
        line = np.argsort(-self.pressure, kind="stable")
        self.running, self.waiting = line[node[line] != NOWHERE], line[node[line] == NOWHERE]
        self.node = node[self.running].astype(np.int64)
        kind, used = batch.kind[0, self.node], batch.used[0, self.node].astype(np.int64)
        price = situation.catalogue.price[kind, used] / _HOUR_S * gpus[self.running] / used
        time = situation.time[:, kind, gpus[self.running] - 1]  # [job, place]
        late_s = np.maximum(0.0, time - situation.due[:, None])
        with np.errstate(invalid="ignore"):
            cost = time * price + late_s * situation.weight[:, None]
            value = situation.slowest[:, None] / np.maximum(cost, _LEAST)
        self.value: Floats = np.where(np.isfinite(time), value, -np.inf)
        own = self.running, np.arange(len(self.running))
        self.late_s, self.rent = late_s[own], time[own] * price
        self.now = self.value[own]

    def changes(self) -> Iterator[_Change]:
        """The best change of each neighbourhood that has one, in the order of the program."""
        for neighbourhood in _NEIGHBOURHOODS:
            found = neighbourhood(self)
            if found is not None and found[0] > self.score * (1 + _NOISE):
                yield found

    def late(self) -> Ints:
        """The places of the latest jobs, the latest first."""
        order: Ints = np.argsort(-self.late_s, kind="stable")
        late: Ints = order[self.late_s[order] > 0.0][:_WIDEST]
        return late

    def dear(self) -> Ints:
        """The places of the dearest jobs that are in time, the dearest first."""
        order: Ints = np.argsort(-self.rent, kind="stable")
        in_time: Ints = order[self.late_s[order] <= 0.0][:_WIDEST]
        return in_time

    def late_nodes(self) -> list[int]:
        """The nodes of the latest jobs, each once."""
        return list(dict.fromkeys(self.node[self.late()].tolist()))


def _postponed(view: LocalView) -> _Change | None:
    """The best exchange of a running job, which then waits, for a waiting job."""
    if not len(view.waiting) or not len(view.running):
        return None
    gain = view.value[view.waiting] - view.now
    before = view.pressure[view.waiting][:, None] >= view.pressure[view.running]
    gain = np.where(before, gain, -np.inf)[:, ::-1]  # of equals the least pressing one goes
    first, place = np.unravel_index(int(gain.argmax()), gain.shape)
    new, old = view.waiting[first], view.running[::-1][place]
    made = view.batch.rows(np.array([0]))
    made.node[0, new], made.gpus[0, new] = made.node[0, old], made.gpus[0, old]
    made.node[0, old], made.gpus[0, old] = NOWHERE, 0
    return view.score + float(gain[first, place]), made


def _late_for_dear(view: LocalView) -> _Change | None:
    return _swapped(view, view.dear())


def _late_for_patient(view: LocalView) -> _Change | None:
    return _swapped(view, np.arange(len(view.running))[::-1])


def _swapped(view: LocalView, others: Ints) -> _Change | None:
    """The first swap of a late job with one of the others that gains, on more than two nodes."""
    late = view.late()
    if not len(late) or not len(others) or int((view.batch.used[0] > 0).sum()) <= 2:
        return None
    ours, theirs = view.running[late], view.running[others]
    gain = view.value[ours][:, others] - view.now[late][:, None]
    gain = gain + (view.value[theirs][:, late] - view.now[others][:, None]).T
    apart = view.node[late][:, None] != view.node[others]
    good = (apart & (gain > _NOISE * view.score)).ravel()
    if not good.any():
        return None
    first, second = np.unravel_index(int(good.argmax()), gain.shape)
    one, two = ours[first], theirs[second]
    made = view.batch.rows(np.array([0]))
    for column in (made.node, made.gpus):
        column[0, one], column[0, two] = column[0, two], column[0, one]
    return view.score + float(gain[first, second]), made


def _other_kind(view: LocalView) -> _Change | None:
    """Another kind for a node, with as many GPUs, if its jobs take less time together."""
    batch, catalogue = view.batch, view.batch.situation.catalogue
    found = []
    for node in view.late_nodes():
        had, used = int(batch.kind[0, node]), int(batch.used[0, node])
        time = batch.situation.time[batch.node[0] == node]
        gpus = batch.gpus[0, batch.node[0] == node]
        each = np.arange(len(gpus))
        now_s = time[each, had, gpus - 1].sum()
        for kind in range(len(catalogue.kinds)):
            as_large = catalogue.room[kind, used] == catalogue.room[had, used]
            if kind != had and as_large and time[each, kind, gpus - 1].sum() < now_s:
                made = batch.rows(np.array([0]))
                made.kind[0, node] = kind
                found.append(made)
    return _best(found)


def _twice(view: LocalView) -> _Change | None:
    """Twice the GPUs for a node and each of its jobs, if there is such a type."""
    return _scaled(view, 2, 1)


def _half(view: LocalView) -> _Change | None:
    """Half the GPUs for a node and each of its jobs, if all numbers are even."""
    return _scaled(view, 1, 2)


def _scaled(view: LocalView, times: int, over: int) -> _Change | None:
    batch, catalogue = view.batch, view.batch.situation.catalogue
    found = []
    for node in view.late_nodes():
        kind, used = int(batch.kind[0, node]), int(batch.used[0, node])
        jobs = np.flatnonzero(batch.node[0] == node)
        gpus, room = batch.gpus[0, jobs], int(catalogue.room[kind, used]) * times
        scaled = used * times // over
        if (gpus % over).any() or scaled >= catalogue.room.shape[1]:
            continue
        if int(catalogue.room[kind, scaled]) * over == room:
            made = batch.rows(np.array([0]))
            made.gpus[0, jobs] = gpus * times // over
            made.used[0, node] = scaled
            found.append(made)
    return _best(found)


def _best(found: list[ScheduleRows]) -> _Change | None:
    """The possible schedule with the highest score; the first of equals."""
    scored = [
        (float(efficiency(made)[0]), made)
        for made in found
        if np.isfinite(made.times()[made.runs]).all()
    ]
    return max(scored, key=lambda change: change[0], default=None)


_NEIGHBOURHOODS: tuple[_Neighbourhood, ...] = (
    _postponed, _late_for_dear, _late_for_patient, _other_kind, _twice, _half
)  # fmt: skip
