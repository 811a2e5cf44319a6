"""Values of the core with sane defaults, and a small world to put them in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.attempts.attempt import Attempt, AttemptState, RankStatus
from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, Fence, JobId, NodeId
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.job import HoldKind, Job, JobState
from dlq_master.model.lease import Lease, LeaseKind, Terms
from dlq_master.model.nodes.node import Gpu, Node, NodeFlag
from dlq_master.model.nodes.node_steps import FlagSet
from dlq_master.model.plan import Plan
from dlq_master.model.resources import Allocation, Request, Slot
from dlq_master.model.view import View
from dlq_master.policy.pipeline import plan, wake_at_s
from dlq_master.policy.policy import Policy
from dlq_master.policy.registry.registry import build
from dlq_master.policy.turn import decide
from support.validate import validate

H100 = "H100-80GB"


def a_request(gpus: int = 1, nodes: int | None = None, gpu_type: str | None = None) -> Request:
    return Request(gpus=gpus, nodes=nodes, gpu_type=gpu_type)


def a_job(job_id: int = 1, gpus: int = 1, nodes: int | None = None, **fields: object) -> Job:
    """A PENDING job, or whatever the fields say."""
    request = fields.pop("request", None) or a_request(gpus, nodes)
    base = Job(JobId(job_id), "ada", f"job-{job_id}", request, 0.0)  # type: ignore[arg-type]
    return base._replace(**fields)  # type: ignore[arg-type]  # a builder takes any field


def a_waiting_job(job_id: int = 1, gpus: int = 1, **fields: object) -> Job:
    return a_job(job_id, gpus, **{"state": JobState.QUEUED, "queued_since_s": 0.0, **fields})  # type: ignore[arg-type]


def a_node(name: str = "n1", gpus: int = 8, gpu_type: str = H100, **fields: object) -> Node:
    node = Node(NodeId(name), tuple(Gpu(index=i, gpu_type=gpu_type) for i in range(gpus)))
    return node._replace(**fields)  # type: ignore[arg-type]  # a builder takes any field


def an_allocation(*slots: tuple[str, int]) -> Allocation:
    return Allocation(tuple(Slot(NodeId(name), mask) for name, mask in slots))


def an_attempt(
    job_id: int = 1,
    number: int = 1,
    slots: Iterable[tuple[str, int]] = (("n1", 1),),
    **fields: object,
) -> Attempt:
    allocation = an_allocation(*slots)
    base = Attempt(
        key=AttemptKey(JobId(job_id), number),
        epoch=1,
        lease=Lease(LeaseKind.BE, allocation, Fence(1, number), 300.0, 3600.0),
        state=AttemptState.ASSIGNED,
        assigned_time_s=0.0,
        ranks=tuple(RankStatus(slot.node_id) for slot in allocation.slots),
    )
    return base._replace(**fields)  # type: ignore[arg-type]  # a builder takes any field


class World:
    """A cluster under one policy at one instant; every act is checked from scratch.

    Jobs run until told to end: `world.finish(3)`. Time moves only by `world.now_s = ...`.
    """

    def __init__(
        self,
        policy: str = "best-effort",
        nodes: Iterable[Node] | int = 1,
        terms: Terms | None = None,
        **settings: str,
    ) -> None:
        self.policy: Policy = build(policy, settings)
        self.cluster = Cluster(self.policy.ordering, terms or Terms())
        self.now_s = 1.0
        self.wake_at_s: float | None = None
        every = [a_node(f"n{i + 1}") for i in range(nodes)] if isinstance(nodes, int) else nodes
        for node in every:
            self.cluster.put_node(node)

    def submit(self, *jobs: Job) -> World:
        for job in jobs:
            drive.submit(self.cluster, job._replace(submit_time_s=self.now_s))
        return self

    def plan(self) -> Plan:
        """What would change now; nothing does."""
        return plan(View(self.cluster, self.now_s), self.policy)

    def decide(self) -> World:
        """Plan, check and apply; what is placed runs at once."""
        decided = decide(self.cluster, self.policy, self.now_s, epoch=1)
        if decided.fault is not None:
            raise decided.fault
        for happened in decided.happened:
            self.run_if_placed(happened)
        self.wake_at_s = wake_at_s(self.cluster, self.policy, self.now_s)
        validate(self.cluster)
        return self

    def run_if_placed(self, happened: drive.Happened) -> None:
        """What is placed runs at once."""
        if isinstance(happened.event, job_steps.Placed) and happened.job_id is not None:
            self._run(happened.job_id)

    def at(self, now_s: float) -> World:
        self.now_s = now_s
        return self.decide()

    def finish(self, *job_ids: int) -> World:
        return self._end(job_ids, attempt_steps.Succeeded())

    def leave(self, *job_ids: int) -> World:
        """Jobs that were told to leave have saved and left."""
        return self._end(job_ids, attempt_steps.Preempted())

    def lose(self, *job_ids: int) -> World:
        """Their nodes are lost."""
        return self._end(job_ids, attempt_steps.NodeLost())

    def pause(self, *job_ids: int) -> World:
        """Users pause them: they are told to save and leave."""
        for job_id in job_ids:
            self.hold(job_id, HoldKind.PAUSED)
        return self

    def hold(self, job_id: int, kind: HoldKind, reason: str = "", by: str = "") -> World:
        event = job_steps.Held(kind=kind, reason=reason, by=by)
        drive.step_job(self.cluster, JobId(job_id), event, self.now_s)
        return self

    def silence(self, job_id: int) -> World:
        """A node of its attempt is UNREACHABLE."""
        key = self.attempt(job_id).key
        drive.step_attempt(self.cluster, key, attempt_steps.NodeSilent(), self.now_s)
        return self

    def drain(self, name: str) -> World:
        event = FlagSet(flag=NodeFlag.DRAINING)
        drive.step_node(self.cluster, NodeId(name), event, self.now_s)
        return self

    def settle_moves(self) -> World:
        """Admissions, demotions and promotions, but no starts."""
        while (planned := self.plan()).again:
            drive.apply(self.cluster, planned, self.now_s, epoch=1)
        return self

    def job(self, job_id: int) -> Job:
        return self.cluster.jobs[JobId(job_id)]

    def attempt(self, job_id: int) -> Attempt:
        attempt = self.cluster.live_attempt(self.job(job_id))
        assert attempt is not None, f"job {job_id} has no live attempt: {self.job(job_id)}"
        return attempt

    @property
    def running(self) -> list[int]:
        """Jobs that hold GPUs and are not leaving, by id."""
        return sorted(self.cluster.running.places)

    @property
    def leaving(self) -> list[int]:
        """Jobs that were told to save and leave, by id."""
        attempts: Mapping[AttemptKey, Attempt] = self.cluster.attempts
        return sorted(k.job_id for k, a in attempts.items() if a.state is AttemptState.PAUSING)

    def _run(self, job_id: JobId) -> None:
        key = self.cluster.jobs[job_id].live_key
        if key is not None:
            drive.step_attempt(self.cluster, key, attempt_steps.Running(), self.now_s)

    def _end(self, job_ids: Iterable[int], event: attempt_steps.AttemptEvent) -> World:
        for job_id in job_ids:
            drive.step_attempt(self.cluster, self.attempt(job_id).key, event, self.now_s)
        return self
