"""The parts of a state that take a look at each job, made before they are needed: a standby's.

They are made once, from the rows that a standby keeps warm, and follow these rows from then on. So
a takeover costs the last changes, and not 100,000 jobs. These parts are the same as those of a
start. Jobs, attempts and nodes are put by the operations of a leader, and the lessons are read anew
each time. Where they cannot be the same they are made anew. That is so under another policy, other
rules of teams or other bounds of levels, and where a job is gone without its end. A failure here
costs a takeover its head start, and nothing else.

Nothing here knows an instant: a state gets its own when a master starts.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlq_common.daemon.logs import get_logger
from dlq_master.control.composition.state import (
    BuiltAhead,
    as_restored,
    queue_places,
    restore_cluster,
)
from dlq_master.control.config import MasterConfig
from dlq_master.control.jobs.waits import Waits
from dlq_master.control.people.counts import JobCounts
from dlq_master.control.placement import usage
from dlq_master.control.placement.policies import choose
from dlq_master.control.read_model.tally import CountedJobs
from dlq_master.control.trials.state import TrialsState
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.policy.sensitivity.traffic_estimates import TrafficEstimates
from dlq_master.store.batch import TAUGHT, Loaded
from dlq_master.store.tables.chosen_policy import CHOSEN

_log = get_logger("master.ahead")


class NotTheSame(Exception):
    """The parts that were made cannot follow these rows."""


class Ahead:
    """Follows the rows of a leader. Not for several threads at a time."""

    def __init__(self, config: MasterConfig) -> None:
        """Nothing is made yet."""
        self._config = config
        self._made: _Made | None = None
        self.builds = 0  # how often all of it was made anew

    def follow(self, loaded: Loaded) -> None:
        """Make it, or bring it up to these rows."""
        if TAUGHT not in loaded.meta:
            self._made = None  # a database of an earlier version: its first leader teaches it
            return
        if self._followed(loaded):
            return
        self.builds += 1
        try:
            self._made = _Made(self._config, loaded)
        except Exception:  # noqa: BLE001 - a start will say what is wrong
            _log.exception("not_built_ahead", jobs=len(loaded.jobs))

    def taken(self, loaded: Loaded) -> BuiltAhead | None:
        """As of exactly these rows, for a master that starts; None: it has to look at each job
        itself. Nothing is left here.
        """
        followed = self._followed(loaded)
        made, self._made = self._made, None
        if not followed or made is None:
            return None
        if not made.is_of(loaded):
            _log.error("built_ahead_differs", jobs=len(loaded.jobs))
            return None
        return made.parts()

    def _followed(self, loaded: Loaded) -> bool:
        made, self._made = self._made, None  # a failure leaves nothing
        if made is None:
            return False
        try:
            made.follow(loaded)
        except NotTheSame as told:
            _log.info("built_anew", cause=str(told))
            return False
        except Exception:  # noqa: BLE001 - whatever it is, a start does without
            _log.exception("built_anew", cause="it cannot follow")
            return False
        self._made = made
        return True


class _Made:
    """The parts as of the last rows."""

    def __init__(self, config: MasterConfig, loaded: Loaded) -> None:
        self._config, self._loaded = config, loaded
        self._places = queue_places(config)
        self._policy, _ = choose(config, loaded.meta.get(CHOSEN), 0.0, loaded.teams)
        self._cluster, self._trials = self._empty()
        restore_cluster(self._cluster, self._trials, config, loaded)
        jobs = self._cluster.jobs
        self._waits = Waits(loaded.waited, jobs.values())
        self._counted = CountedJobs(jobs, JobCounts(config.interactive.queue))

    def _empty(self) -> tuple[Cluster, TrialsState]:
        config = self._config
        cluster = Cluster(self._policy.ordering, config.lease.terms(), config.type_speeds())
        return cluster, TrialsState(TrafficEstimates(config.profiler.bytes_per_s))

    def follow(self, loaded: Loaded) -> None:
        """Raises NotTheSame; then it is of no use any more."""
        before, cluster = self._loaded, self._cluster
        if loaded is before:
            return
        self._check(before, loaded)
        learned, trials = self._empty()
        usage.restore(learned, loaded.meta.get(usage.USAGE))
        trials.restore(loaded, learned)
        if learned.ordering.thresholds != cluster.ordering.thresholds:
            raise NotTheSame("levels have other bounds")
        cluster.unlearn()
        self._end_attempts(loaded)
        for node in loaded.nodes:
            if _differ(cluster.nodes.get(node.node_id), node):
                cluster.put_node(node)
        changed = self._put_jobs(loaded, trials, all_of_them=loaded.recordings != before.recordings)
        for attempt in loaded.attempts:
            if _differ(cluster.attempts.get(attempt.key), attempt):
                cluster.put_attempt(attempt)
        self._drop_nodes(loaded)
        changed |= self._forget_jobs(loaded)
        cluster.relearn_from(learned)
        cluster.take_touched()
        self._renew_waits(loaded, changed)
        self._trials, self._loaded = trials, loaded

    def is_of(self, loaded: Loaded) -> bool:
        """Whether its values are these, and as many wait as there should."""
        cluster = self._cluster
        others = [row for row in loaded.jobs if cluster.jobs.get(row.job_id) is not row]
        rows = [as_restored(row, self._trials, self._places) for row in others]
        jobs = all(cluster.jobs.get(job.job_id) == job for job in rows)
        waits = sum(job.waiting for job in cluster.jobs.values())
        return (
            jobs
            and len(cluster.jobs) == len(loaded.jobs) == len(self._counted.jobs)
            and waits == cluster.waiting.count
            and dict(cluster.attempts) == {one.key: one for one in loaded.attempts if one.live}
            and dict(cluster.nodes) == {node.node_id: node for node in loaded.nodes}
        )

    def parts(self) -> BuiltAhead:
        """For one state."""
        self._cluster.reposition()
        self._waits.line_up(self._cluster.jobs.values())
        return BuiltAhead(self._policy, self._cluster, self._trials, self._waits, self._counted)

    @staticmethod
    def _check(before: Loaded, loaded: Loaded) -> None:
        if TAUGHT not in loaded.meta:
            raise NotTheSame("the database is of an earlier version")
        if loaded.meta.get(CHOSEN) != before.meta.get(CHOSEN):
            raise NotTheSame("another policy decides")
        if loaded.teams != before.teams:
            raise NotTheSame("teams have other rules")

    def _end_attempts(self, loaded: Loaded) -> None:
        """Those whose rows are not of living ones any more."""
        cluster, living = self._cluster, {one.key for one in loaded.attempts}
        for key in [key for key in cluster.attempts if key not in living]:
            over = cluster.attempts[key]._replace(state=AttemptState.NODE_LOST)
            cluster.put(cluster.jobs[key.job_id], over)

    def _put_jobs(self, loaded: Loaded, trials: TrialsState, *, all_of_them: bool) -> set[JobId]:
        """The ids of those that have another value. `all_of_them`: more is known of how jobs
        communicate, and each may have another value by that.
        """
        found, changed = self._cluster.jobs, set[JobId]()
        for row in loaded.jobs:
            known = found.get(row.job_id)
            if known is row and not all_of_them:
                continue
            job = as_restored(row, trials, self._places)
            if known is not job and known != job:
                if not job.sequence:
                    raise NotTheSame(f"job {job.job_id} has no position")
                self._cluster.put_job(job)
                self._counted.put(job)
                changed.add(job.job_id)
        return changed

    def _drop_nodes(self, loaded: Loaded) -> None:
        cluster, there = self._cluster, {node.node_id for node in loaded.nodes}
        for node_id in [node_id for node_id in cluster.nodes if node_id not in there]:
            if cluster.capacity.claims.get(node_id) or cluster.attempts_on(node_id):
                raise NotTheSame(f"{node_id} is gone, and an attempt holds GPUs of it")
            cluster.remove_node(node_id)

    def _forget_jobs(self, loaded: Loaded) -> set[JobId]:
        """The ids of those that are not in memory any more."""
        cluster = self._cluster
        if len(cluster.jobs) == len(loaded.jobs):
            return set()
        gone = cluster.jobs.keys() - {job.job_id for job in loaded.jobs}
        for job_id in gone:
            job = cluster.jobs[job_id]
            if not job.ended or job.live_attempt is not None:
                raise NotTheSame(f"job {job_id} is gone, and its end was not seen")
            cluster.forget(job_id)
            self._counted.forget(job_id)
        return gone

    def _renew_waits(self, loaded: Loaded, changed: Iterable[JobId]) -> None:
        jobs, before = self._cluster.jobs, {row.job_id: row for row in self._loaded.waited}
        rows = {row.job_id: row for row in loaded.waited}
        other = {job_id for job_id, row in rows.items() if _differ(before.get(job_id), row)}
        for job_id in {*other, *(before.keys() - rows.keys()), *changed}:
            self._waits.renew(job_id, jobs.get(job_id), rows.get(job_id))


def _differ(one: object, other: object) -> bool:
    """Two values; most are one object."""
    return one is not other and one != other
