"""The input and the output of a priced method: jobs and nodes in, an allocation of each job out.

Each job runs on one node (P1m of the path relinking paper). Each decision may give it another node,
another number of GPUs, or none. Times are in seconds, weights in $ per second of tardiness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Catalogue, Floats

_HOUR_S = 3600.0


class PricedJob(NamedTuple):
    """A job. `whole_s[k, g - 1]`: its whole run time on g GPUs of kind k; inf: not allowed.

    `left`: the share of it that is not done yet. `due_s` is an instant. Keys rise with the
    submissions.
    """

    key: int
    due_s: float
    weight: float
    whole_s: Floats
    left: float = 1.0


class Grant(NamedTuple):
    """GPUs of one node."""

    node: int
    gpus: int


class Schedule(NamedTuple):
    """The allocation of jobs to nodes.

    `types`: the type of each open node, as its place in the catalogue. `grants`: the GPUs of each
    running job. A job without a grant waits.
    """

    types: Mapping[int, int]
    grants: Mapping[int, Grant]


EMPTY = Schedule({}, {})


@dataclass(frozen=True)
class Situation:
    """The input of one decision: jobs, at most `nodes` nodes, and the present schedule.

    `interval_s`: the time until the next decision if nothing happens (H of the paper). `resume_s`:
    the seconds that a job loses when its GPUs change.
    """

    now_s: float
    jobs: tuple[PricedJob, ...]
    catalogue: Catalogue
    nodes: int
    running: Schedule = EMPTY
    interval_s: float = _HOUR_S
    resume_s: float = 0.0
    time: Floats = field(init=False)  # [job, kind, GPUs - 1], what is left of it
    due: Floats = field(init=False)  # from now; negative: it is late
    weight: Floats = field(init=False)

    def __post_init__(self) -> None:
        """ValueError: a job fits on no node."""
        cut = self.catalogue.smallest.shape[1] - 1
        shape = (len(self.jobs), len(self.catalogue.kinds), cut)
        time = np.full(shape, np.inf)
        if self.jobs:
            whole = np.array([job.whole_s[:, :cut] for job in self.jobs])
            time[:, :, : whole.shape[2]] = (
                whole * np.array([job.left for job in self.jobs])[:, None, None]
            )
            time[:, self.catalogue.smallest[:, 1:] < 0] = np.inf
        if not np.isfinite(time).any(axis=(1, 2)).all():
            raise ValueError("a job fits on no node of the catalogue")
        due = np.array([job.due_s for job in self.jobs]) - self.now_s
        weight = np.array([job.weight for job in self.jobs])
        for name, value in (("time", time), ("due", due), ("weight", weight)):
            object.__setattr__(self, name, value)

    @property
    def slowest(self) -> Floats:
        """M_j: the longest time that each job may need from now on."""
        longest: Floats = np.where(np.isfinite(self.time), self.time, 0.0).max(axis=(1, 2))
        return longest

    @property
    def fastest(self) -> Floats:
        """The shortest time that each job may need from now on."""
        shortest: Floats = self.time.min(axis=(1, 2))
        return shortest


Solver: TypeAlias = "Callable[[Situation, np.random.Generator], Schedule]"
