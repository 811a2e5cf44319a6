"""How long jobs step on GPUs of each type, and how many times as long one type takes as another.

A job that tells its steps shows the seconds of one on the type of its GPUs. Enough jobs of one
program on two types measure the ratio of these types for that program. Completed runs on both types
measure it too. A measured ratio counts instead of the declared one (`TypeSpeeds`), which is its
prior: until enough is measured, that one counts.

A job tells its pace on a type once. So a master that begins anew counts nothing twice. Of more jobs
than are kept the latest count, by their ids: those before them have told theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dlq_master.model.jobs.likeness import Likeness, typical

FEWEST_STEPPED = 3  # jobs that told their steps on a type before they count: each tells many
KEPT = 20  # jobs of a kind on a type
KINDS_KEPT = 2_000


class Stepped(NamedTuple):
    """A step took this job so long."""

    job_id: int
    step_s: float


TypeSteps = Mapping[str, tuple[Stepped, ...]]  # by GPU type, in the order of the jobs


class TypePaces:
    """By kinds of jobs that differ in no more than their steps, the latest kind last. `told` rises
    with each pace that is learned.
    """

    __slots__ = ("by_kind", "told")

    def __init__(self) -> None:
        self.by_kind: dict[Likeness, TypeSteps] = {}
        self.told = 0

    def knows(self, kind: Likeness, gpu_type: str, job_id: int) -> bool:
        """Whether this job has told its pace on this type, or later jobs have told enough."""
        told = self.by_kind.get(kind._replace(steps=None), {}).get(gpu_type, ())
        if len(told) == KEPT and job_id < told[0].job_id:
            return True
        return any(one.job_id == job_id for one in told)

    def learn(self, kind: Likeness, gpu_type: str, heard: Stepped) -> None:
        """A job has told its pace on this type, for the first time."""
        kind = kind._replace(steps=None)
        known = self.by_kind.pop(kind, {})  # the latest stands last
        of_type = tuple(sorted((*known.get(gpu_type, ()), heard))[-KEPT:])
        self.by_kind[kind] = {**known, gpu_type: of_type}
        self.told += 1
        if len(self.by_kind) > KINDS_KEPT:
            del self.by_kind[next(iter(self.by_kind))]

    def ratios(self, of: Likeness, one: str, other: str) -> Iterator[float]:
        """The time of a step on `other` over that on `one`, by each kind of the same program."""
        for kind, types in self.by_kind.items():
            if (kind.family, kind.program) == (of.family, of.program):
                before = typical(_steps(types, one), FEWEST_STEPPED)
                after = typical(_steps(types, other), FEWEST_STEPPED)
                if before is not None and after is not None:
                    yield after / before


def _steps(types: TypeSteps, gpu_type: str) -> Sequence[float]:
    return [one.step_s for one in types.get(gpu_type, ())]


def paces_of(kinds: Iterable[tuple[Likeness, TypeSteps]], told: int) -> TypePaces:
    """The paces that rows say, the latest kind last."""
    found = TypePaces()
    found.by_kind.update(kinds)
    found.told = told
    return found
