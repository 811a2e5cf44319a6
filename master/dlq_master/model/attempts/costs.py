"""The measured cost of stopping a job and letting it go on: its own, else its family's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from dlq_master.model.attempts.grace import percentile_95
from dlq_master.model.jobs.job import Job, Pause
from dlq_master.model.lease import Terms
from dlq_master.model.values import median

KEPT = 20  # of a family
FAMILIES_KEPT = 10_000


class KnownCosts(NamedTuple):
    """The last pauses and resumes of a family, in seconds."""

    pauses: tuple[float, ...] = ()
    resumes: tuple[float, ...] = ()


class StopCosts:
    """Every job keeps its own (`Job.saves`, `Job.resumes`). Those of families lie in rows
    (`model/cluster/learned.py`).
    """

    __slots__ = ("_families", "changes")

    def __init__(self) -> None:
        self._families: dict[str, KnownCosts] = {}
        self.changes = 0
        """Rises with every change of what is known."""

    def index(self, before: Job | None, job: Job) -> None:
        """The job of a family, which has some, has another value or is new."""
        pauses = _new(() if before is None else before.saves, job.saves)
        resumes = _new(() if before is None else before.resumes, job.resumes)
        if not pauses and not resumes:
            return
        self.changes += 1
        known = self._families.pop(job.family, _NOTHING)  # the latest stands last
        self._families[job.family] = KnownCosts(
            (*known.pauses, *pauses)[-KEPT:], (*known.resumes, *resumes)[-KEPT:]
        )
        if len(self._families) > FAMILIES_KEPT:
            del self._families[next(iter(self._families))]

    @property
    def families(self) -> dict[str, KnownCosts]:
        """The family whose costs changed last stands last."""
        return self._families

    def recollect(self, families: Mapping[str, KnownCosts], changes: int) -> None:
        """Know these, as another master did after so many changes."""
        self._families, self.changes = dict(families), changes

    def pause_s(self, job: Job, terms: Terms) -> float:
        """From the notice until it has saved: the median of its own saves, or else of its family's.
        Before any save was seen, the time that plans assume.
        """
        seen = job.saves or self._known(job).pauses
        return _median(seen) if seen else terms.save_lead_s

    def resume_s(self, job: Job, terms: Terms) -> float:
        """From given GPUs until it goes on, likewise."""
        seen = job.resumes or self._known(job).resumes
        return _median(seen) if seen else terms.resume_s

    def charged(self, job: Job, terms: Terms) -> Pause:
        """The cost that a promise assumes: 95 % took no longer. Few count as the usual time."""
        known = self._known(job)
        save_s = _most(job.saves or known.pauses, terms.save_lead_s)
        return Pause(save_s, _most(job.resumes or known.resumes, terms.resume_s))

    def of(self, families: Iterable[str]) -> StopCosts:
        """No more than what is known of these."""
        less = StopCosts()
        less._families = {name: self._families[name] for name in families if name in self._families}
        return less

    def _known(self, job: Job) -> KnownCosts:
        return self._families.get(job.family, _NOTHING) if job.family else _NOTHING


_NOTHING = KnownCosts()
FEW = 5


def measured(job: Job, reserved: Pause) -> Pause:
    """The costs assumed by a promise, or the job's own saves and resumes if longer."""
    if not (job.saves or job.resumes):
        return reserved
    save_s, resume_s = reserved
    return Pause(max(save_s, _most(job.saves, save_s)), max(resume_s, _most(job.resumes, resume_s)))


def _most(seen: tuple[float, ...], usual_s: float) -> float:
    """The 95th percentile of `seen`; while `seen` is short, no less than `usual_s`."""
    if not seen:
        return usual_s
    most_s = percentile_95(seen)
    return most_s if len(seen) >= FEW else max(usual_s, most_s)


def _new(before: tuple[float, ...], now: tuple[float, ...]) -> tuple[float, ...]:
    """Later ones: they come one by one, behind the others."""
    if now is before:
        return ()
    return now[-1:] if before else now


@lru_cache(maxsize=1 << 14)  # asked for everybody who runs, at every boundary
def _median(seen: tuple[float, ...]) -> float:
    return median(seen)
