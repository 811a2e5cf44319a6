"""Jobs that leave their GPUs without a save in a replay (suspend), and come back.

The rules are the master's (model/attempts/suspending.py). A move takes its bytes divided by the
bandwidth. A job makes no progress from the order to leave until it is back. It holds its GPUs
during both moves. A job that is off its GPUs for too long is thrown back to its last save. So is
the job that was suspended last on a host whose memory has become too small.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dlq_master.model.attempts import suspending
from dlq_master.model.attempts.attempt import Attempt, AttemptState, SuspensionPhase
from dlq_master.model.attempts.attempt_steps import ResumeAsked, Suspended, Unsuspended
from dlq_master.model.attempts.suspending import Next, SuspendRules
from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.lease import first_term_end_s
from dlq_master.model.nodes.node import Node
from dlq_master.model.transitions import StopCause
from dlq_master.model.view import View
from dlq_master.policy import pipeline
from dlq_master.policy.policy import Policy
from dlq_simulator.replay.events import Agenda, InstantKind
from dlq_simulator.replay.leaving import Leaving
from dlq_simulator.world.course import Course, Seconds
from dlq_simulator.world.world import WorkRates
from dlq_simulator.world_settings import MoveSettings

_NOTHING_ABOVE: Mapping[NodeId, int] = MappingProxyType({})


class Suspending:
    """`count`: how often a job was suspended; `thrown`: how often one was thrown back."""

    __slots__ = (
        *("_agenda", "_cluster", "_courses", "_leaving", "_policy", "_rates", "_rules"),
        *("_settings", "count", "thrown"),
    )

    def __init__(
        self,
        cluster: Cluster,
        courses: Mapping[JobId, Course],
        agenda: Agenda,
        rates: WorkRates,
        leaving: Leaving,
        policy: Policy,
        settings: MoveSettings,
    ) -> None:
        self._cluster, self._courses, self._agenda = cluster, courses, agenda
        self._rates, self._leaving, self._settings = rates, leaving, settings
        self._policy = policy
        self._rules = (policy.suspends or SuspendRules())._replace(longest_s=settings.longest_s)
        self.count = self.thrown = 0

    def leave(self, key: AttemptKey, now_s: Seconds) -> None:
        """The job was told to leave."""
        self.count += 1
        self._courses[key.job_id].stop(now_s)
        self._agenda.foresee(now_s + self._move_s(key), InstantKind.MOVE, *key)

    def moved(self, key: AttemptKey, now_s: Seconds) -> None:
        """A move has ended, or it is time to decide again."""
        attempt = self._cluster.attempts.get(key)
        if attempt is None or attempt.state is not AttemptState.SUSPENDED:
            return
        out = attempt.suspension
        if out is None or now_s < out.since_s + self._move_s(key):
            return
        if out.phase is SuspensionPhase.LEAVING:
            drive.step_attempt(self._cluster, key, Suspended(), now_s)
            self._courses[key.job_id].leave(now_s)
            for later_s in (self._rules.wait_s, self._rules.longest_s):
                self._agenda.foresee(now_s + later_s, InstantKind.MOVE, *key)
        elif out.phase is SuspensionPhase.COMING:
            drive.step_attempt(self._cluster, key, Unsuspended(), now_s)
            if suspending.emptied(self._nodes(attempt)) is not None:
                drive.stop_attempt(self._cluster, key, StopCause.DRAIN, now_s)
                self._leaving.drained(key, now_s)

    def settle(self, now_s: Seconds) -> None:
        """After a decision: bring suspended jobs back to their GPUs if these are free.

        GPUs to which a job that ranks above comes back are kept for it.
        """
        cluster = self._cluster
        above: dict[NodeId, int] = {}
        view = View(cluster, now_s)
        for key in pipeline.returning(view, self._policy, [*cluster.claims.out]):
            attempt = cluster.attempts[key]
            if self._next(attempt, now_s, above) in (Next.RESUME, Next.SAVE):
                self._come(attempt, now_s)
            suspending.add_kept(cluster.attempts[key], above)

    def throw_back(self, now_s: Seconds) -> None:
        """Before a decision: jobs that can stay suspended no longer wait again."""
        attempts, out = self._cluster.attempts, sorted(self._cluster.claims.out)
        late = [key for key in out if self._next(attempts[key], now_s) is Next.THROW_BACK]
        if self._settings.job_bytes:
            late += [it for it in self._last_of_full_hosts() if it not in late]
        for key in late:
            self.thrown += 1
            self._leaving.throw_back(key, self._settings.saved_s, now_s)

    def _last_of_full_hosts(self) -> list[AttemptKey]:
        """The job that was suspended last on each host with too little memory."""
        cluster, each = self._cluster, self._settings.job_bytes
        moved: dict[NodeId, int] = {}
        last: dict[NodeId, tuple[float, AttemptKey]] = {}
        for key, place in cluster.claims.out.items():
            out = cluster.attempts[key].suspension
            assert out is not None
            for node_id, mask in place.slots:
                there = out.memory_bytes // len(place.slots) + each * mask.bit_count()
                moved[node_id] = moved.get(node_id, 0) + there
                last[node_id] = max(last.get(node_id, (-1.0, key)), (out.out_s or 0.0, key))
        full = [
            node_id
            for node_id, nbytes in moved.items()
            if nbytes + each * cluster.capacity.claimed(node_id).bit_count()
            > self._settings.host_bytes
        ]
        return sorted({last[node_id][1] for node_id in full})

    def _next(
        self, attempt: Attempt, now_s: Seconds, above: Mapping[NodeId, int] = _NOTHING_ABOVE
    ) -> Next:
        """The next step of a suspended attempt. `above`: masks of the GPUs to which attempts that
        rank above it come back, by node.
        """
        out, cluster = attempt.suspension, self._cluster
        assert out is not None
        taken = suspending.taken_above(out.allocation, above)
        step, _ = suspending.next_step(
            attempt,
            self._nodes(attempt),
            guest_waits=suspending.guest_waits(cluster.jobs, out.for_job),
            others_leave=suspending.others_leave(cluster.attempts, cluster.claims, out.for_job),
            gpus_free=not taken and cluster.is_free(out.allocation),
            now_s=now_s,
            rules=self._rules,
            grace_s=cluster.jobs[attempt.key.job_id].rules.grace_cap_s,
        )
        return step

    def _nodes(self, attempt: Attempt) -> list[Node]:
        nodes = self._cluster.nodes
        return [nodes[it] for it in attempt.place.node_ids if it in nodes]

    def _come(self, attempt: Attempt, now_s: Seconds) -> None:
        """The attempt comes back to its GPUs."""
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
        """The seconds of a move one way."""
        attempt = self._cluster.attempts[key]
        nodes = [self._cluster.nodes[it] for it in attempt.place.node_ids]
        return self._cluster.move_costs.seconds(attempt, nodes)
