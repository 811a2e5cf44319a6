"""The promises that a planner already knows, so that the next question carries only the changes.

Jobs with deadlines come by the thousand and few of them change between two questions: writing and
reading them all would take longer than deciding. So each end keeps what it told, or was told, last.
The values are frozen: one that is still the same object has not changed. The planner's copy is no
second truth. The master checks its answers again, and after every fault sends everything anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.cluster.frozen import Frozen, thaw
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.view import View
from dlq_master.planner.snapshot import Snapshot, Unreadable, dumps, loads
from dlq_master.policy.policy import Policy
from dlq_master.policy.registry.registry import build


class StateDifference(NamedTuple):
    """A snapshot of which only those jobs, attempts and nodes are there that are new, or other than
    before.

    `fresh`: nothing was told before, or nothing of it counts any more.
    """

    fresh: bool
    shot: Snapshot
    jobs: tuple[JobId, ...]  # that are gone
    attempts: tuple[AttemptKey, ...]
    nodes: tuple[NodeId, ...]


# The values of a state of which only changes are told, and the key of each.
_KEYS: Mapping[str, Callable[[Any], Any]] = {
    "jobs": attrgetter("job_id"),
    "attempts": attrgetter("key"),
    "nodes": attrgetter("node_id"),
}


class StateTold:
    """The master's end."""

    def __init__(self) -> None:
        self._head: tuple[object, ...] = ()
        self._known: dict[str, dict[Any, Any]] = {}

    def forget(self) -> None:
        """The planner that knew them is gone, or cannot be relied on."""
        self._head = ()

    def difference(self, shot: Snapshot) -> bytes:
        """The difference from the previous one, ready to send, in O(its size)."""
        state = shot.state
        head = (shot.policy, shot.settings, state.terms, state.thresholds, state.packing)
        fresh, self._head = head != self._head, head
        new: dict[str, Any] = {}
        gone: list[tuple[Any, ...]] = []
        for name, key_of in _KEYS.items():
            before = {} if fresh else self._known[name]
            now = self._known[name] = {key_of(value): value for value in getattr(state, name)}
            new[name] = tuple([one for key, one in now.items() if before.get(key) is not one])
            gone.append(tuple(before.keys() - now.keys()))
        less = shot._replace(state=state._replace(**new))
        return dumps(tuple(StateDifference(fresh, less, *gone)))


class KeptState:
    """The planner's end: a cluster that follows what is told."""

    def __init__(self) -> None:
        self._known: tuple[Cluster, Policy] | None = None
        self._jobs: dict[JobId, Job] = {}

    def forget(self) -> None:
        """Something went wrong: only a fresh one will do."""
        self._known = None

    def look(self, data: bytes) -> tuple[View, Policy]:
        """The view and the policy of this instant. Raises Unreadable."""
        told = _read(data)
        shot = told.shot
        if told.fresh:
            policy = build(shot.policy, shot.settings)
            self._jobs = {}
            self._known = (thaw(shot.state, policy.ordering), policy)
        elif self._known is None:
            raise Unreadable("a change of what is not known")
        else:
            _follow(self._known[0], told)
        cluster, policy = self._known
        for job in shot.state.jobs:
            self._jobs[job.job_id] = job
        for job_id in told.jobs:
            del self._jobs[job_id]
        cluster.take_touched()
        return View(cluster, shot.now_s, shot.pause_starts), policy

    def take_back(self) -> None:
        """Only the master carries out decisions, so jobs are again as the master described them."""
        if self._known is None:
            return
        cluster, _ = self._known
        for job in cluster.take_touched().jobs:
            cluster.put_job(self._jobs[job.job_id])
        cluster.take_touched()


def _read(data: bytes) -> StateDifference:
    said: Any = loads(data)
    whole = isinstance(said, tuple) and len(said) == len(StateDifference._fields)
    if not whole or not isinstance(said[1], Snapshot):
        raise Unreadable(f"a {type(said).__name__} does not say what has changed")
    return StateDifference(*said)


def _follow(cluster: Cluster, told: StateDifference) -> None:
    """From one instant to the next, as if everything had been put anew."""
    state = told.shot.state
    for key in told.attempts:
        cluster.put_attempt(cluster.attempts[key]._replace(state=AttemptState.SUCCEEDED))
    for node in state.nodes:
        cluster.put_node(node)
    cluster.capacity.ready()
    for job in state.jobs:
        cluster.put_job(job)
    for attempt in state.attempts:
        cluster.put_attempt(attempt)
    for job_id in told.jobs:
        _drop(cluster, job_id)
    for node_id in told.nodes:
        cluster.remove_node(node_id)
    _learn(cluster, state)


def _drop(cluster: Cluster, job_id: JobId) -> None:
    """It has no more to do with promises, whatever has become of it."""
    job = cluster.jobs[job_id]
    ended = job._replace(state=JobState.CANCELLED, live_attempt=None, trial_time_s=None)
    cluster.put_job(ended)
    cluster.forget(job_id)


def _learn(cluster: Cluster, state: Frozen) -> None:
    """The parts that each question carries whole."""
    cluster.slot = state.slot
    cluster.offers = state.offers
    cluster.costs = state.costs
    cluster.profiling.remember(state.profiled)
    cluster.moves.positions = state.positions
    cluster.moves.unsettled = dict.fromkeys(state.unsettled)
