"""Jobs that leave their GPUs without a save in a replay, and come back.

The rules are the master's (model/attempts/suspending.py). A move takes as long as its bytes over
the bandwidth. A job makes no progress from when it is told to leave until it is back. It holds its
GPUs for the first move, and for the second one. Nobody is thrown back: no host runs out of memory
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from dlq_master.model.attempts import suspending
from dlq_master.model.attempts.attempt import Attempt, AttemptState, SuspensionPhase
from dlq_master.model.attempts.attempt_steps import ResumeAsked, Suspended, Unsuspended
from dlq_master.model.attempts.suspending import Next, SuspendRules
from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.lease import first_term_end_s
from dlq_simulator.replay.events import Agenda, InstantKind
from dlq_simulator.world.course import Course, Seconds
from dlq_simulator.world.world import WorkRates


class Suspending:
    """`count`: how often a job left its GPUs so."""

    __slots__ = ("_agenda", "_cluster", "_courses", "_rates", "_rules", "count")

    def __init__(
        self,
        cluster: Cluster,
        courses: Mapping[JobId, Course],
        agenda: Agenda,
        rates: WorkRates,
        rules: SuspendRules | None,
    ) -> None:
        self._cluster, self._courses, self._agenda = cluster, courses, agenda
        self._rates = rates
        self._rules = (rules or SuspendRules())._replace(longest_s=inf)
        self.count = 0

    def leave(self, key: AttemptKey, now_s: Seconds) -> None:
        """It is told to leave."""
        self.count += 1
        self._courses[key.job_id].stop(now_s)
        self._agenda.foresee(now_s + self._move_s(key), InstantKind.MOVE, *key)

    def moved(self, key: AttemptKey, now_s: Seconds) -> None:
        """A move is over, or it is time to look again."""
        attempt = self._cluster.attempts.get(key)
        if attempt is None or attempt.state is not AttemptState.SUSPENDED:
            return
        out = attempt.suspension
        if out is None or now_s < out.since_s + self._move_s(key):
            return
        if out.phase is SuspensionPhase.LEAVING:
            drive.step_attempt(self._cluster, key, Suspended(), now_s)
            self._courses[key.job_id].leave(now_s)
            self._agenda.foresee(now_s + self._rules.wait_s, InstantKind.MOVE, *key)
        elif out.phase is SuspensionPhase.COMING:
            drive.step_attempt(self._cluster, key, Unsuspended(), now_s)

    def settle(self, now_s: Seconds, *, planned: bool) -> None:
        """Jobs that are out come back to their GPUs. Before a decision only those that stand before
        all waiting jobs; after one, those whose GPUs are left.
        """
        cluster = self._cluster
        for key in sorted(cluster.claims.out):
            attempt = cluster.attempts[key]
            first = planned or cluster.stands_first(cluster.jobs[key.job_id])
            if first and self._comes_back(attempt, now_s):
                self._come(attempt, now_s)

    def _comes_back(self, attempt: Attempt, now_s: Seconds) -> bool:
        out = attempt.suspension
        if out is None:
            return False
        cluster = self._cluster
        guest = None if out.for_job is None else cluster.jobs.get(out.for_job)
        nodes = [cluster.nodes[it] for it in out.allocation.node_ids if it in cluster.nodes]
        free = all(
            node_id in cluster.nodes
            and cluster.nodes[node_id].takes_work
            and not cluster.capacity.claimed(node_id) & mask
            for node_id, mask in out.allocation.slots
        )
        step, _ = suspending.next_step(
            attempt,
            nodes,
            guest_waits=guest is not None and guest.waiting,
            gpus_free=free,
            now_s=now_s,
            rules=self._rules,
        )
        return step is Next.RESUME

    def _come(self, attempt: Attempt, now_s: Seconds) -> None:
        cluster, key = self._cluster, attempt.key
        kind, lead_s = attempt.lease.kind, cluster.saves.lead_s
        end_s = first_term_end_s(now_s, kind, cluster.terms, lead_s)
        drive.step_attempt(cluster, key, ResumeAsked(term_end_s=end_s), now_s)
        course, move_s = self._courses[key.job_id], self._move_s(key)
        allocation = cluster.attempts[key].lease.allocation
        rate = self._rates.rate(course.row, allocation, allocation.width)
        finish_s = course.start(key.number, now_s, move_s, rate, allocation.width)
        self._agenda.foresee(now_s + move_s, InstantKind.MOVE, *key)
        self._agenda.foresee(finish_s, InstantKind.FINISH, *key)

    def _move_s(self, key: AttemptKey) -> float:
        attempt = self._cluster.attempts[key]
        nodes = [self._cluster.nodes[it] for it in attempt.place.node_ids]
        return self._cluster.move_costs.seconds(attempt, nodes)
