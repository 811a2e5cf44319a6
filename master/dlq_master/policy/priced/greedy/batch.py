"""Many schedules of one situation, as rows of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Bools, Floats, Ints
from dlq_master.policy.priced.situation import Grant, Schedule, Situation

if TYPE_CHECKING:
    from numpy.typing import NDArray

Small: TypeAlias = "NDArray[np.int16]"
NOWHERE = -1


@dataclass
class ScheduleRows:
    """Schedules by row. `node[r, j]` and `gpus[r, j]` of each job; node -1: it waits.

    `kind[r, n]` of each node, -1: closed; `used[r, n]`: its used GPUs.
    """

    situation: Situation
    node: Small
    gpus: Small
    kind: Small
    used: Small

    @classmethod
    def empty(cls, situation: Situation, rows: int) -> ScheduleRows:
        """Schedules in which every job waits."""
        jobs, nodes = (rows, len(situation.jobs)), (rows, situation.nodes)
        return cls(
            situation,
            np.full(jobs, NOWHERE, dtype=np.int16),
            np.zeros(jobs, dtype=np.int16),
            np.full(nodes, NOWHERE, dtype=np.int16),
            np.zeros(nodes, dtype=np.int16),
        )

    @property
    def runs(self) -> Bools:
        """[row, job]: whether it runs."""
        found: Bools = self.node >= 0
        return found

    def idle(self) -> Ints:
        """[row, node]: the GPUs of the cheapest type that holds the used ones, less these."""
        room: Ints = self.situation.catalogue.room[self.kind, self.used]
        return np.where(self.used > 0, room - self.used, 0)

    def node_prices(self) -> Floats:
        """[row, node], $ per hour."""
        price: Floats = self.situation.catalogue.price[self.kind, self.used]
        return np.where(self.used > 0, price, 0.0)

    def kinds(self) -> Small:
        """[row, job]: the kind of its GPUs; undefined where it waits."""
        found: Small = np.take_along_axis(
            self.kind, np.maximum(self.node, 0).astype(np.intp), axis=1
        )
        return found

    def times(self) -> Floats:
        """[row, job]: seconds to its end with these GPUs; inf where it waits."""
        jobs = np.arange(self.node.shape[1])
        time: Floats = self.situation.time[jobs, self.kinds(), np.maximum(self.gpus, 1) - 1]
        return np.where(self.runs, time, np.inf)

    def rows(self, at: Ints) -> ScheduleRows:
        """Copies of some rows."""
        return ScheduleRows(
            self.situation, self.node[at], self.gpus[at], self.kind[at], self.used[at]
        )

    def schedule(self, row: int) -> Schedule:
        """One row as a schedule; each node has the cheapest type that holds its used GPUs."""
        jobs, smallest = self.situation.jobs, self.situation.catalogue.smallest
        types = {
            int(n): int(smallest[self.kind[row, n], self.used[row, n]])
            for n in np.flatnonzero(self.used[row] > 0)
        }
        grants = {
            jobs[j].key: Grant(int(self.node[row, j]), int(self.gpus[row, j]))
            for j in np.flatnonzero(self.runs[row])
        }
        return Schedule(types, grants)
