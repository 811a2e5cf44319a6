"""The knowledge of a cluster as rows: the changes since the last write, and the restore.

A master killed at any instant decides after its next start as it would have before. The rows are
written with the change that taught them, so they are as true as the jobs. Their number is bounded:
rings for the newest facts of a kind, and one row for each family, of which the latest are kept.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, NamedTuple

from dlq_master.model.attempts import costs
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates import demand, first_steps, history
from dlq_master.model.estimates.demand import Offer
from dlq_master.model.estimates.first_steps import FirstSteps
from dlq_master.model.estimates.lessons import Lesson, Newest, Ring, newest_of
from dlq_master.model.jobs import machine_runs, trials, type_paces
from dlq_master.model.jobs.likeness import Likeness
from dlq_master.model.jobs.machine_runs import MachineRun
from dlq_master.model.jobs.trials import Remembered, Runs, Sent
from dlq_master.model.jobs.type_paces import Stepped, TypePaces, TypeSteps, paces_of


def _number(fact: float) -> tuple[Sequence[float], Sequence[str]]:
    return (fact,), ()


def _sent(fact: Sent) -> tuple[Sequence[float], Sequence[str]]:
    return (fact.at_s, fact.gpus), (fact.user,)


_RATIOS: Final = Ring[float]("ratio", trials.RATIOS_KEPT, _number, lambda of, _: of[0])
_OUTCOMES: Final = Ring[float]("outcome", trials.OUTCOMES_KEPT, _number, lambda of, _: of[0])
# Beyond the newest ones, those from which the distribution was learned last.
_SERVICES: Final = Ring[float]("service", history.KEPT * 5 // 4, _number, lambda of, _: of[0])
_SENT: Final = Ring[Sent](
    "sent", trials.SENT_KEPT, _sent, lambda of, words: Sent(of[0], words[0], int(of[1]))
)
_OFFERS: Final = Ring[Offer](
    "offer", demand.KEPT, lambda fact: (fact, ()), lambda of, _: Offer(of[0], int(of[1]), *of[2:])
)
_RAN: Final = Ring[MachineRun](
    "machine",
    machine_runs.RING,
    lambda fact: (fact[:-2], fact[-2:]),
    lambda of, words: MachineRun(of[0], int(of[1]), of[2], of[3], of[4], of[5], *words),
)
# Kinds of the rows of families.
RUNS, COSTS, ERRORS, PACES, FIRST_STEPS = "run", "cost", "error", "pace", "first"
SCALE, DEMAND, DISTRIBUTION = "scale", "demand", "distribution"  # rows of which there is one
_MOST: Final = {
    RUNS: trials.FAMILIES_KEPT,
    COSTS: costs.FAMILIES_KEPT,
    ERRORS: trials.ERRING_KEPT,
    PACES: type_paces.KINDS_KEPT,
    FIRST_STEPS: first_steps.FAMILIES_KEPT,
}


class ChangedLessons(NamedTuple):
    """Rows to write, and names of rows to drop."""

    rows: list[Lesson]
    dropped: list[str]


class LearnedRows:
    """The part of a cluster's knowledge that is in rows."""

    def __init__(self) -> None:
        self._told: dict[str, int] = defaultdict(int)  # kind -> facts that are in rows
        self._families: dict[str, dict[str, None]] = {kind: {} for kind in _MOST}  # the latest last
        self._singles: dict[str, Lesson] = {}

    def changed(self, cluster: Cluster) -> ChangedLessons:
        """The difference to what this said before; costs nothing if there is none."""
        rows: list[Lesson] = []
        dropped: list[str] = []
        known, told = cluster.profiling.remembered, self._told
        rings: Sequence[tuple[Ring[Any], Newest[Any]]] = (
            (_RATIOS, known.ratios),
            (_OUTCOMES, known.outcomes),
            (_SERVICES, cluster.history.newest),
            (_SENT, known.sent),
            (_OFFERS, cluster.offers.newest),
            (_RAN, cluster.ran),
        )
        for ring, newest in rings:
            if newest.total != told[ring.kind]:
                rows += ring.rows(newest, told[ring.kind])
                told[ring.kind] = newest.total
        if known.taught != told[RUNS]:
            self._of_families(RUNS, known.taught, _run_rows(known, told[RUNS]), rows, dropped)
        if known.erred != told[ERRORS]:
            self._of_families(ERRORS, known.erred, _error_rows(known, told[ERRORS]), rows, dropped)
        paces = known.paces
        if paces.told != told[PACES]:
            self._of_families(PACES, paces.told, _pace_rows(paces, told[PACES]), rows, dropped)
        changes = cluster.costs.changes
        if changes != told[COSTS]:
            self._of_families(COSTS, changes, _cost_rows(cluster, told[COSTS]), rows, dropped)
        begun = cluster.first_steps
        if begun.changes != told[FIRST_STEPS]:
            new = _first_step_rows(begun, told[FIRST_STEPS])
            self._of_families(FIRST_STEPS, begun.changes, new, rows, dropped)
        rows += self._changed_singles(cluster, known)
        return ChangedLessons(rows, dropped)

    def _of_families(
        self, kind: str, count: int, new: Iterable[Lesson], rows: list[Lesson], dropped: list[str]
    ) -> None:
        """Rows of the families that have another value, and which go for them."""
        names = self._families[kind]
        for row in new:
            names.pop(row.name, None)
            names[row.name] = None
            rows.append(row)
        while len(names) > _MOST[kind]:
            oldest = next(iter(names))
            del names[oldest]
            dropped.append(oldest)
        self._told[kind] = count

    def _changed_singles(self, cluster: Cluster, known: Remembered) -> Iterator[Lesson]:
        singles = self._singles
        scale = singles.get(SCALE)
        if known.hour != (-1 if scale is None else scale.number):
            singles[SCALE] = Lesson(SCALE, known.hour, (float(known.gpus),))
            yield singles[SCALE]
        begin_s = cluster.offers.begin_s
        if begin_s is not None and DEMAND not in singles:
            singles[DEMAND] = Lesson(DEMAND, 0, (begin_s,))
            yield singles[DEMAND]
        refreshed = cluster.history.refreshed
        learned = singles.get(DISTRIBUTION)
        if refreshed != (0 if learned is None else learned.number):
            thresholds = cluster.ordering.thresholds if cluster.ordering.quantiles else ()
            singles[DISTRIBUTION] = Lesson(DISTRIBUTION, refreshed, tuple(thresholds))
            yield singles[DISTRIBUTION]

    def restore(self, cluster: Cluster, rows: Iterable[Lesson]) -> None:
        """The cluster knows what these rows say, before any job is put."""
        by_kind: dict[str, list[Lesson]] = defaultdict(list)
        for row in rows:
            by_kind[row.kind].append(row)
        for kind, names in self._families.items():
            of_kind = sorted(by_kind[kind], key=_by_number)
            names.update((row.name, None) for row in of_kind)
            self._told[kind] = of_kind[-1].number if of_kind else 0
        for kind in (SCALE, DEMAND, DISTRIBUTION):
            self._singles.update((row.name, row) for row in by_kind[kind])
        self._recollect_history(cluster, by_kind)
        self._recollect_trials(cluster, by_kind)
        begin, offers = _OFFERS.facts(by_kind[_OFFERS.kind], 4)
        first = self._singles.get(DEMAND)
        cluster.offers.recollect(begin, offers, None if first is None else first.numbers[0])
        cluster.ran = newest_of(*_RAN.facts(by_kind[_RAN.kind], 6, 2), machine_runs.RING)
        families = {name: _costs(row) for name, row in _in_order(by_kind[COSTS])}
        cluster.costs.recollect(families, self._told[COSTS])
        begun = {name: row.numbers for name, row in _in_order(by_kind[FIRST_STEPS])}
        cluster.first_steps.recollect(begun, self._told[FIRST_STEPS])
        known = cluster.profiling.remembered
        self._told |= {
            _RATIOS.kind: known.ratios.total,
            _OUTCOMES.kind: known.outcomes.total,
            _SERVICES.kind: cluster.history.newest.total,
            _SENT.kind: known.sent.total,
            _OFFERS.kind: cluster.offers.newest.total,
            _RAN.kind: cluster.ran.total,
        }

    def _recollect_history(self, cluster: Cluster, rows: Mapping[str, list[Lesson]]) -> None:
        begin, services = _SERVICES.facts(rows[_SERVICES.kind], 1)
        learned = self._singles.get(DISTRIBUTION)
        cluster.history.recollect(begin, services, 0 if learned is None else learned.number)
        ordering = cluster.ordering
        thresholds = () if learned is None else learned.numbers
        if thresholds and len(ordering.quantiles) == len(thresholds):
            cluster.ordering = replace(ordering, thresholds=thresholds)
            cluster.levels.thresholds = thresholds
        cluster.know()

    def _recollect_trials(self, cluster: Cluster, rows: Mapping[str, list[Lesson]]) -> None:
        ratios: Newest[float] = newest_of(*_RATIOS.facts(rows[_RATIOS.kind], 1), trials.RATIOS_KEPT)
        sent: Newest[Sent] = newest_of(*_SENT.facts(rows[_SENT.kind], 2, 1), trials.SENT_KEPT)
        runs = {_likeness(name): _runs(row) for name, row in _in_order(rows[RUNS])}
        scale = self._singles.get(SCALE)
        hour, gpus = (-1, 0) if scale is None else (scale.number, int(scale.numbers[0]))
        errors = {name: row.numbers for name, row in _in_order(rows[ERRORS])}
        found = _OUTCOMES.facts(rows[_OUTCOMES.kind], 1)
        outcomes: Newest[float] = newest_of(*found, trials.OUTCOMES_KEPT)
        known = (hour, gpus, ratios, sent, runs, self._told[RUNS])
        kinds = ((_likeness(name), _type_steps(row)) for name, row in _in_order(rows[PACES]))
        paces = paces_of(kinds, self._told[PACES])
        cluster.profiling.remember(Remembered(*known, errors, self._told[ERRORS], outcomes, paces))


# --- helpers, in order of use ---------------------------------------------------------------------


def _run_rows(known: Remembered, told: int) -> Iterator[Lesson]:
    """Of the families that were taught last, the latest last."""
    new = list(islice(reversed(known.runs.items()), known.taught - told))
    for back, (key, runs) in zip(range(len(new) - 1, -1, -1), reversed(new), strict=True):
        numbers = [number for times in runs.values() for number in (float(len(times)), *times)]
        name = f"{RUNS}/{_name_of(key)}"
        yield Lesson(name, known.taught - back, tuple(numbers), tuple(runs))


def _error_rows(known: Remembered, told: int) -> Iterator[Lesson]:
    """Likewise of the errors of estimates."""
    new = list(islice(reversed(known.errors.items()), known.erred - told))
    for back, (family, ratios) in zip(range(len(new) - 1, -1, -1), reversed(new), strict=True):
        yield Lesson(f"{ERRORS}/{family}", known.erred - back, ratios)


def _pace_rows(known: TypePaces, told: int) -> Iterator[Lesson]:
    """Likewise of the paces of steps."""
    new = list(islice(reversed(known.by_kind.items()), known.told - told))
    for back, (kind, types) in zip(range(len(new) - 1, -1, -1), reversed(new), strict=True):
        numbers = [
            number
            for steps in types.values()
            for number in (float(len(steps)), *(float(it) for one in steps for it in one))
        ]
        yield Lesson(f"{PACES}/{_name_of(kind)}", known.told - back, tuple(numbers), tuple(types))


def _cost_rows(cluster: Cluster, told: int) -> Iterator[Lesson]:
    """Likewise of the costs of stops."""
    known, count = cluster.costs.families, cluster.costs.changes
    new = list(islice(reversed(known.items()), count - told))
    for back, (family, seen) in zip(range(len(new) - 1, -1, -1), reversed(new), strict=True):
        numbers = (float(len(seen.pauses)), *seen.pauses, *seen.resumes)
        yield Lesson(f"{COSTS}/{family}", count - back, numbers)


def _first_step_rows(known: FirstSteps, told: int) -> Iterator[Lesson]:
    """Likewise of first steps."""
    new = list(islice(reversed(known.families.items()), known.changes - told))
    for back, (family, times) in zip(range(len(new) - 1, -1, -1), reversed(new), strict=True):
        yield Lesson(f"{FIRST_STEPS}/{family}", known.changes - back, times)


def _by_number(row: Lesson) -> int:
    return row.number


def _in_order(rows: list[Lesson]) -> Iterator[tuple[str, Lesson]]:
    """The names of families, and their rows, the latest last."""
    for row in sorted(rows, key=_by_number):
        yield row.name.partition("/")[2], row


def _name_of(key: Likeness) -> str:
    """Without a program it is that of a former release, which can read it then."""
    return json.dumps(list(key if key.program else key[:-1]))


def _likeness(name: str) -> Likeness:
    return Likeness(*json.loads(name))


def _runs(row: Lesson) -> Runs:
    found: Runs = {}
    at = 0
    for gpu_type in row.words:
        begin, at = at + 1, at + 1 + int(row.numbers[at])
        found[gpu_type] = row.numbers[begin:at]
    return found


def _type_steps(row: Lesson) -> TypeSteps:
    found: dict[str, tuple[Stepped, ...]] = {}
    at = 0
    for gpu_type in row.words:
        begin, at = at + 1, at + 1 + 2 * int(row.numbers[at])
        pairs = row.numbers[begin:at]
        found[gpu_type] = tuple(
            [Stepped(int(job), step_s) for job, step_s in zip(pairs[::2], pairs[1::2], strict=True)]
        )
    return found


def _costs(row: Lesson) -> costs.KnownCosts:
    first = 1 + int(row.numbers[0])
    return costs.KnownCosts(row.numbers[1:first], row.numbers[first:])
