"""The best that any policy can do on the small instances without run times, in the mean.

`Blind` solves a Markov decision problem exactly. The policy knows the widths and the
distribution of run times: each of 1 to `LONGEST_H` hours is as likely. It may be told all arrivals.
It decides at each whole hour, preempts for nothing, and sees only ends. Over all run times that an
instance may have, no policy without run times has a smaller mean than `Blind` with told arrivals.

Of jobs of one width the one with more hours behind it goes first. Its rest is the smaller one in
likelihood ratio, since this distribution has a rising hazard rate. A test compares this with the
search over all choices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from benchmarks.papers.small.cases import GPUS, LONGEST_H, Instance

Present = tuple[tuple[int, int], ...]  # width and hours had of each job that is there, sorted
Coming = tuple[tuple[int, int], ...]  # hour and width of each job that is still to come
Found = tuple[float, Present]


class Blind:
    """`oldest_first`: of jobs of one width; False: all choices are compared."""

    def __init__(self, *, oldest_first: bool = True) -> None:
        self._oldest_first = oldest_first
        self._settled: dict[Present, Found] = {}  # nobody is to come: the same for all instances
        self._found: dict[tuple[int, Present, Coming], Found] = {}

    def begin(self) -> None:
        """Another instance: its arrivals are of no use to others."""
        self._found.clear()

    def plan(self, now_h: int, present: Present, coming: Coming) -> Found:
        """The least mean of the hours that jobs spend here from now on, and the jobs to run."""
        found = self._found.get((now_h, present, coming)) if coming else self._settled.get(present)
        if found is None:
            found = self._plan(now_h, present, coming)
            if coming:
                self._found[now_h, present, coming] = found
            else:
                self._settled[present] = found
        return found

    def _plan(self, now_h: int, present: Present, coming: Coming) -> Found:
        if not present:
            if not coming:
                return 0.0, ()
            at_h = coming[0][0]
            return self.plan(at_h, *_arrived(at_h, (), coming))
        return min(
            (self._mean_h(now_h, present, coming, chosen), chosen)
            for chosen in self._choices(present)
        )

    def _mean_h(self, now_h: int, present: Present, coming: Coming, chosen: Present) -> float:
        """With these jobs in the next hour."""
        mean_h, rest = float(len(present)), _without(present, chosen)
        for chance, alive in _outcomes(chosen):
            there = _arrived(now_h + 1, (*rest, *alive), coming)
            mean_h += chance * self.plan(now_h + 1, *there)[0]
        return mean_h

    def _choices(self, present: Present) -> Iterator[Present]:
        """Sets that leave room for no other job."""
        found: set[Present] = set()
        for size in range(1, min(GPUS, len(present)) + 1):
            for chosen in combinations(present, size):
                left = GPUS - sum(width for width, _ in chosen)
                rest = _without(present, chosen)
                if left < 0 or any(width <= left for width, _ in rest):
                    continue
                if self._oldest_first and any(
                    other[0] == one[0] and other[1] > one[1] for one in chosen for other in rest
                ):
                    continue
                found.add(chosen)
        yield from sorted(found)


def reached_blind_h(case: Instance, blind: Blind, *, told: bool) -> int:
    """The sum of the completion times, in hours, of the best policy without run times.

    `told`: of all arrivals to come. Otherwise each hour is planned as if nobody came.
    """
    blind.begin()
    left = [job.hours for job in case]
    now_h = total_h = 0
    while any(left):
        there = [at for at, job in enumerate(case) if left[at] and job.submit_h <= now_h]
        later = sorted((job.submit_h, job.gpus) for job in case if job.submit_h > now_h)
        present = tuple(sorted(_seen(case, left, at) for at in there))
        total_h += len(there)
        chosen = blind.plan(now_h, present, tuple(later) if told else ())[1] if there else ()
        for one in chosen:
            at = next(at for at in there if _seen(case, left, at) == one)
            there.remove(at)
            left[at] -= 1
        now_h += 1
    return total_h


# --- helpers, in order of use ---------------------------------------------------------------------


def _arrived(now_h: int, present: Present, coming: Coming) -> tuple[Present, Coming]:
    """Jobs that have come by now are there."""
    new = [(width, 0) for at_h, width in coming if at_h <= now_h]
    return tuple(sorted((*present, *new))), coming[len(new) :]


def _without(present: Present, chosen: Present) -> Present:
    rest = list(present)
    for one in chosen:
        rest.remove(one)
    return tuple(rest)


def _outcomes(chosen: Present) -> Iterator[tuple[float, Present]]:
    """Each set of jobs that have not ended an hour later, with its chance."""
    for ends in product((True, False), repeat=len(chosen)):
        chance, alive = 1.0, []
        for (width, had_h), ended in zip(chosen, ends, strict=True):
            ending = 1.0 / (LONGEST_H - had_h)
            chance *= ending if ended else 1.0 - ending
            if not ended:
                alive.append((width, had_h + 1))
        if chance:
            yield chance, tuple(alive)


def _seen(case: Instance, left: Sequence[int], at: int) -> tuple[int, int]:
    return case[at].gpus, case[at].hours - left[at]
