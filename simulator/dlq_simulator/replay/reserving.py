"""Reserved nodes in a replay, and in the twin, on a virtual clock.

It corresponds to the master's control/reservations/reservations.py and avoiding.py.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from math import isfinite

from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.job_steps import Avoids
from dlq_master.model.nodes import node_steps as on_node
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.nodes.reserved import is_reserved, kept_off
from dlq_master.model.timers import Timers
from dlq_master.model.transitions import StopCause
from dlq_simulator.replay.events import NOBODY, Agenda, InstantKind
from dlq_simulator.replay.leaving import Leaving
from dlq_simulator.world.course import Seconds

_MAY_MOVE = (JobState.PENDING, JobState.QUEUED)


class Reserving:
    """Begins and ends reservations of nodes (`Node.windows`), and keeps jobs off nodes where they
    would overlap one. Costs nothing without reservations.
    """

    def __init__(
        self, cluster: Cluster, agenda: Agenda, leaving: Leaving, begin_s: Seconds
    ) -> None:
        self._cluster = cluster
        self._leaving = leaving
        self._node_ids = sorted(node.node_id for node in cluster.nodes.values() if node.windows)
        self._due = Timers()  # of jobs that would come to run into one
        self._changed = bool(self._node_ids)
        windows = [it for node_id in self._node_ids for it in cluster.nodes[node_id].windows]
        later = {at_s for it in windows for at_s in it[:2] if at_s > begin_s}
        self._instants = deque([begin_s, *sorted(later)] if windows else [])
        for at_s in sorted(later):
            agenda.foresee(at_s, InstantKind.RESERVE, NOBODY, 0)

    def begin_and_end(self, now_s: Seconds) -> None:
        """Empty nodes whose reservation has begun, and let nodes whose reservation has ended take
        work.
        """
        if not self._instants or self._instants[0] > now_s:
            return
        while self._instants and self._instants[0] <= now_s:
            self._instants.popleft()
        self._changed = True
        for node_id in self._node_ids:
            self._step(node_id, now_s)

    def steer(self, now_s: Seconds) -> None:
        """Before a plan: keep waiting jobs off nodes where they would run into a reservation.

        That concerns new waiting jobs, or all of them if a reservation has begun or ended.
        """
        if not self._node_ids:
            return
        touched = [job.job_id for job in self._cluster.take_touched().jobs]
        jobs = self._cluster.jobs
        found = list(jobs) if self._changed else [*touched, *self._due.due(now_s)]
        self._changed = False
        for job_id in dict.fromkeys(found):
            self._due.clear(job_id)
            job = jobs.get(job_id)
            if job is not None and job.live_attempt is None and job.state in _MAY_MOVE:
                self._steer(job, now_s)

    def _step(self, node_id: NodeId, now_s: Seconds) -> None:
        node = self._cluster.nodes[node_id]
        ahead = tuple([window for window in node.windows if window.end_s > now_s])
        if ahead != node.windows:
            drive.step_node(self._cluster, node_id, on_node.Booked(windows=ahead), now_s)
        flagged = NodeFlag.RESERVED in node.flags
        if flagged and not is_reserved(node, now_s):
            cleared = on_node.FlagCleared(flag=NodeFlag.RESERVED)
            drive.step_node(self._cluster, node_id, cleared, now_s)
        elif not flagged and is_reserved(node, now_s):
            flag = on_node.FlagSet(flag=NodeFlag.RESERVED)
            drive.step_node(self._cluster, node_id, flag, now_s)
            for key in sorted(self._cluster.attempts_on(node_id)):
                attempt = self._cluster.attempts[key]  # a suspended one comes back first
                if attempt.stop_cause is None and attempt.suspension is None:
                    drive.stop_attempt(self._cluster, key, StopCause.DRAIN, now_s)
                    self._leaving.drained(key, now_s)

    def _steer(self, job: Job, now_s: Seconds) -> None:
        nodes = [self._cluster.nodes[node_id] for node_id in self._node_ids]
        kept = kept_off(job, nodes, now_s, self._cluster.terms, self._cluster.slowest_pace)
        if isfinite(kept.until_s):
            self._due.set(job.job_id, kept.until_s)
        failed = [node_id for node_id in job.request.avoid if node_id in job.failed_nodes]
        avoid = (*failed, *(node_id for node_id in kept.off if node_id not in failed))
        if avoid == job.request.avoid:
            return
        if job.state is JobState.PENDING:  # it may be placed in the plan that lets it in
            self._cluster.put_job(job._replace(request=replace(job.request, avoid=avoid)))
        else:
            drive.step_job(self._cluster, JobId(job.job_id), Avoids(node_ids=avoid), now_s)
