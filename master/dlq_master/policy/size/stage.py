"""The size stage: the slot of a policy that gives elastic jobs their numbers of GPUs."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.values import maker
from dlq_master.model.view import View
from dlq_master.policy.partition.reserved.slot_begin import ServedFirst
from dlq_master.policy.partition.stage import Partition
from dlq_master.policy.place.allocation.outcome import Walk
from dlq_master.policy.place.placement import PlaceStage
from dlq_master.policy.promise.capacity.rules import Promises
from dlq_master.policy.promise.verdicts.reading import tied
from dlq_master.policy.size import elastic
from dlq_master.policy.size.growth import ElasticQuestion
from dlq_master.policy.size.sizing import Sizing
from dlq_master.policy.transit.guards import Guards, cooling, protected, within_min_run
from dlq_master.policy.transit.stage import KeepsRunning

_NOBODY: frozenset[JobId] = frozenset()
_question = maker(ElasticQuestion)


class SizeInputs(NamedTuple):
    """The findings of the other stages. `keys`: the attempts that the plan may change; `movable`:
    of their jobs, those that this stage may. `first`: jobs that are served before the order."""

    view: View
    keys: Collection[AttemptKey]
    movable: frozenset[JobId]
    lineup: Lineup
    first: ServedFirst | None
    partition: Partition
    place: PlaceStage
    transit: KeepsRunning


class Size(Protocol):
    """The questions of the pipeline to the size stage."""

    def touched(
        self, cluster: Cluster, ending: Collection[AttemptKey], *, at_once: bool
    ) -> tuple[Collection[AttemptKey], frozenset[JobId]]:
        """The attempts that the plan may change, of all or of those whose terms end. Also those of
        their jobs that this stage may change."""

    def asks(self, cluster: Cluster, movable: Collection[JobId]) -> bool:
        """Whether there is something to decide though no job waits."""

    def walk(self, asked: SizeInputs) -> Walk:
        """The walk in which each job stands with the GPUs that it is to get."""


class AsAsked:
    """The null object: every job gets the GPUs that it asked for."""

    def touched(
        self, cluster: Cluster, ending: Collection[AttemptKey], *, at_once: bool
    ) -> tuple[Collection[AttemptKey], frozenset[JobId]]:
        return ending, _NOBODY

    def asks(self, cluster: Cluster, movable: Collection[JobId]) -> bool:
        return False

    def walk(self, asked: SizeInputs) -> Walk:
        view, lineup, place, keys = asked.view, asked.lineup, asked.place, asked.keys
        if asked.first is not None:
            return asked.first.allocator(view, lineup, place.placement, keys)
        contest = asked.transit.contest(view, lineup, place.placement, keys)
        return asked.partition.free(view.cluster, lineup, place) if contest is None else contest


class ElasticSizes(NamedTuple):
    """Elastic jobs get their bases in the order, and share what is left by `sizing`."""

    sizing: Sizing
    guards: Guards
    promises: Promises | None

    def touched(
        self, cluster: Cluster, ending: Collection[AttemptKey], *, at_once: bool
    ) -> tuple[Collection[AttemptKey], frozenset[JobId]]:
        keys = [attempt.key for attempt in cluster.attempts.values()] if at_once else ending
        if not keys:
            return keys, _NOBODY
        stay = within_min_run(cluster, self.guards, keys) if self.promises is None else _NOBODY
        return keys, elastic.movable(cluster, keys, stay)

    def asks(self, cluster: Cluster, movable: Collection[JobId]) -> bool:
        return elastic.somebody(cluster, movable)

    def walk(self, asked: SizeInputs) -> Walk:
        cluster, guards, keys, movable = asked.view.cluster, self.guards, asked.keys, asked.movable
        cool, new, safe, held = _NOBODY, _NOBODY, _NOBODY, _NOBODY
        if keys:
            cool = cooling(cluster, guards, keys)
            if self.promises is None:
                safe = frozenset(protected(cluster, guards, keys).values())
            else:
                new = movable & within_min_run(cluster, guards, keys)
        if self.promises is not None and cluster.promised:
            runs = cluster.running.places  # those that may not be resized are not asked about
            asked_of = [it for it in cluster.promised if it in movable or it not in runs]
            held = tied(cluster, asked_of, self.promises)
        transit = asked.transit
        question = (
            *(cluster, asked.view.now_s, asked.lineup, asked.place.placement, self.sizing),
            *(movable, transit.preempts, transit.at_once, asked.first),
            *(safe, cool | new if new else cool, new, held, self.promises),
        )
        return elastic.ElasticWalk(_question(question))
