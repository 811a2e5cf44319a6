"""Is a plan legal? O(changes)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import assert_never

from dlq_master.model.attempts.attempt import ACTIVE, Attempt
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.lease import decision_time_s
from dlq_master.model.nodes.node import Node, NodePool
from dlq_master.model.plan import (
    Admit,
    Change,
    Demote,
    Estimate,
    Lapse,
    Loan,
    Migrate,
    NextSlot,
    Plan,
    Profile,
    Promote,
    Provision,
    Reclaim,
    Reject,
    Release,
    Renew,
    Repack,
    Reserve,
    Resize,
    Return,
    Revoke,
    Scale,
    Start,
    Weigh,
)
from dlq_master.model.resources import Allocation, Request, Slot
from dlq_master.model.traits import has_all
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy.legal.machines import MachinesBook
from dlq_master.policy.legal.servers import Servers, job_fault, scale_fault
from dlq_master.policy.place.allocation.together import torn
from dlq_master.policy.policy import Policy
from dlq_master.policy.promise.capacity.types import types_for
from dlq_master.policy.promise.verdicts.reading import may_grow
from dlq_master.policy.transit.guards import protects
from dlq_master.policy.transit.taking import Taking

_LIMIT = Band.LIMIT  # looking a member up costs more than comparing it


class IllegalPlan(Exception):
    """A change that must not be made. A plan with one is not applied at all."""

    def __init__(self, change: Change, why: str) -> None:
        super().__init__(f"{why}: {change}")
        self.change = change
        self.why = why


def check_delta(view: View, plan: Plan, policy: Policy) -> None:
    """Raise IllegalPlan at the first change that is not legal for the view. Costs O(changes)."""
    book = CheckBook(view, policy)
    if policy.resizing is Taking.FREE:
        book.shrink(change for change in plan.changes if isinstance(change, Resize))
    for change in plan.changes:
        book.enter(change)
    for start in book.torn():
        raise IllegalPlan(start, "members of a group start together")


class CheckBook:
    """The capacity that the plan's earlier changes have used up. It reads values, never the
    planner's pools.
    """

    def __init__(self, view: View, policy: Policy) -> None:
        self.view = view
        self.policy = policy
        self.cluster = view.cluster
        self.taken: dict[NodeId, int] = {}  # by earlier starts
        self.freed: dict[NodeId, int] = {}  # by lapses at no cost
        self.jobs: set[JobId] = set()  # that an earlier change names
        self.grouped: dict[JobId, Start] = {}  # of these the members of groups that start

    @cached_property
    def servers(self) -> Servers:
        return Servers(self.cluster)

    @cached_property
    def machines(self) -> MachinesBook:
        return MachinesBook(self.view, self.policy)

    def enter(self, change: Change) -> None:
        """Count the change as made. Raises IllegalPlan if it is not legal beside those before
        it.
        """
        match change:
            case Start():
                self.start(change)
            case Renew():
                self.renew(change)
            case Lapse():
                self.lapse(change)
            case Resize():
                self.resize(change)
            case Revoke() | Migrate():
                self.revoke(change)
            case Demote() | Promote():
                self.move(change)
            case Admit() | Reject():
                self.admit(change)
            case Reserve():
                self.reserve(change)
            case Profile() | Estimate() | Scale():
                self.profile(change)
            case NextSlot() | Repack() | Weigh():
                self.whole(change)
            case Loan() | Reclaim() | Return() | Provision() | Release():
                self.server(change)
            case _:
                assert_never(change)

    def start(self, start: Start) -> None:
        job_id, (slots,), _, term_end_s, _, _ = start
        job = self._once(start, job_id)
        if not job.waiting:
            raise IllegalPlan(start, f"job {job_id} is {job.state.value}, not waiting")
        if job.band is _LIMIT:
            raise IllegalPlan(start, f"the team of job {job_id} holds as much as it may")
        if term_end_s <= self.view.now_s:
            raise IllegalPlan(start, "its term is over already")
        request = job.request
        width = 0
        promised = job.gpu_type_promised
        gpu_types = (promised,) if promised else request.gpu_types
        for node_id, mask in slots:
            found = self._use(start, node_id, mask, gpu_types)
            gpu_types = None if request.mixed and not promised else (found,)
            width += mask.bit_count()
        if width != job.gpus_now and not self._may_have(request, width):
            raise IllegalPlan(start, f"all or nothing: {job.gpus_now} GPUs asked, {width} given")
        nodes = job.shape_now.nodes if job.reduced else request.shape_on(width).nodes
        self._nodes(start, request, slots, nodes)
        if job.array is not None and job.array.members:
            self.grouped[job_id] = start

    def torn(self) -> list[Start]:
        """Starts of members of a group that do not all start."""
        if not self.grouped:
            return []
        return [self.grouped[job_id] for job_id in torn(self.cluster, self.grouped)]

    def _may_have(self, request: Request, gpus: int) -> bool:
        """Whether the policy may give it other GPUs in number than it asked for."""
        return self.policy.sizing is not None and gpus in request.sizes

    def _nodes(
        self,
        change: Start | Resize,
        request: Request,
        slots: tuple[Slot, ...],
        nodes: int | None,
    ) -> None:
        """Nodes that it may have, and as many GPUs of each as it asks."""
        if request.avoid and any(node_id in request.avoid for node_id, _ in slots):
            raise IllegalPlan(change, "attempts of it have failed on that node")
        traits = request.shape.traits
        if traits is not None and not self._have(slots, traits):
            raise IllegalPlan(change, f"a node has not what it asks for: {traits}")
        if len(slots) > 1 and len({slot.node_id for slot in slots}) != len(slots):
            raise IllegalPlan(change, "a node appears twice")
        if nodes is not None and not self.policy.placement.counts_only:
            shares = [slot.mask.bit_count() for slot in slots]
            if len(shares) != nodes or len(set(shares)) != 1:
                raise IllegalPlan(change, f"{nodes} equal shares asked, {shares} given")

    def _have(self, slots: tuple[Slot, ...], traits: str) -> bool:
        nodes = self.cluster.nodes
        return all(has_all(nodes[node_id], traits) for node_id, _ in slots)

    def _use(
        self,
        start: Start | Resize,
        node_id: NodeId,
        mask: int,
        gpu_types: Collection[str] | None,
    ) -> str:
        """The type of these GPUs, which nobody else may have and which an open node must own."""
        node = self.cluster.nodes.get(node_id)
        if node is None or not self._admits(node, start):
            raise IllegalPlan(start, f"node {node_id} is not open")
        capacity = self.cluster.capacity
        for node_type, owned in capacity.masks_of(node_id).items():
            if mask and mask & owned == mask and (gpu_types is None or node_type in gpu_types):
                break
        else:
            raise IllegalPlan(
                start, f"node {node_id} has no such {' or '.join(gpu_types or ()) or 'GPUs'}"
            )
        taken = self.taken.get(node_id, 0)
        used = capacity.claimed(node_id) & ~self.freed.get(node_id, 0) | taken | node.withheld
        if used & mask:
            raise IllegalPlan(start, f"GPUs of node {node_id} are in use")
        self.taken[node_id] = taken | mask
        return node_type

    def _admits(self, node: Node, change: Start | Resize) -> bool:
        """Whether the node takes the job. An open node takes any; a rented machine takes only the
        job for which it was rented. A check may look at a node that is closed for a suspicion.
        """
        if not isinstance(change, Start):
            return node.open
        if change.rented:
            return node.pool is NodePool.PRICED and node.takes_work
        return node.open or (node.may_be_checked and bool(self.cluster.jobs[change.job_id].check))

    def renew(self, renew: Renew) -> None:
        key, term_end_s, _, _ = renew
        attempt = self.cluster.attempts.get(key)
        if attempt is None or attempt.state not in ACTIVE or key.job_id in self.jobs:
            attempt = self.leaves(renew, key)  # it says what is wrong
        self.jobs.add(key.job_id)
        if term_end_s <= attempt.lease.term_end_s or term_end_s <= self.view.now_s:
            raise IllegalPlan(renew, "the new term ends no later than the old one")

    def lapse(self, lapse: Lapse) -> None:
        attempt = self.leaves(lapse, lapse.key)
        if self.policy.taking is Taking.NEVER:
            raise IllegalPlan(lapse, f"policy {self.policy.name} takes no work away")
        if self._guarded(lapse, attempt):
            raise IllegalPlan(lapse, "it is protected from the order")
        if self.policy.taking is Taking.FREE:
            self._free(attempt.lease.allocation)
        elif self.policy.taking is Taking.AT_ONCE:
            self._may_save(lapse)
        else:
            self._in_time(lapse, attempt)

    def _guarded(self, lapse: Lapse, attempt: Attempt) -> bool:
        """Promises and trials come before guards; a job that makes way is nobody's victim."""
        jobs = self.cluster.jobs
        winner = jobs.get(lapse.for_job)
        if winner is None or winner.band < Band.SPOT:
            return False
        if lapse.reason.code is ReasonCode.MAKES_WAY:
            return False
        by_s = self.policy.transit.judged_s(self.view)
        return protects(self.cluster, self.policy.guards, jobs[lapse.key.job_id], attempt, by_s)

    def shrink(self, resizes: Iterable[Resize]) -> None:
        """The GPUs of stopping jobs are free before any job goes on."""
        for resize in resizes:
            attempt = self.cluster.attempts.get(resize.key)
            if attempt is not None:
                self._free(attempt.lease.allocation - resize.allocation)

    def resize(self, resize: Resize) -> None:
        attempt = self.leaves(resize, resize.key)
        job = self.cluster.jobs[resize.key.job_id]
        if job.state is not JobState.QUEUED:
            raise IllegalPlan(resize, f"job {job.job_id} is {job.state.value}: it would not go on")
        if attempt.resize is not None:
            raise IllegalPlan(resize, f"attempt {resize.key} is being resized")
        request = job.request
        held, then = attempt.lease.allocation, resize.allocation
        width = then.width
        if not self._may_have(request, width):
            sizes = request.sizes or (request.gpus,)
            raise IllegalPlan(resize, f"{width} GPUs given, only {sizes} will do")
        stays = (held - (held - then)).width
        if stays == width == held.width:
            raise IllegalPlan(resize, "nothing would change")
        if stays < request.base:
            raise IllegalPlan(resize, f"{stays} GPUs stay, fewer than its base of {request.base}")
        back, rules = self._gives_back(resize, held - then), self.policy.promises
        if rules and width > request.base and not (back or may_grow(self.cluster, job, rules)):
            raise IllegalPlan(resize, f"job {job.job_id} needs the time for what it is promised")
        if not back and self.policy.resizing is not Taking.FREE:
            self._in_time(resize, attempt)
        gpu_types = self.cluster.capacity.parts(held).keys() or None
        for node_id, mask in (then - held).slots:
            self._use(resize, node_id, mask, gpu_types)
        self._nodes(resize, request, then.slots, request.shape_on(width).nodes)

    def _gives_back(self, resize: Resize, gone: Allocation) -> bool:
        """Whether it only gives up all its GPUs on reclaimed servers, and goes on elsewhere.

        It may do so at any time at one of its sizes, if it may save first.
        """
        left = self.cluster.attempts[resize.key].lease.allocation - gone
        asked_back = self.servers.asked_back
        leaves = any(map(asked_back, gone.node_ids)) and not any(map(asked_back, left.node_ids))
        return leaves and resize.grace_s > 0.0 and resize.allocation.width == left.width

    def _free(self, allocation: Allocation) -> None:
        for node_id, mask in allocation.slots:
            self.freed[node_id] = self.freed.get(node_id, 0) | mask

    def _may_save(self, change: Lapse | Resize) -> None:
        if change.grace_s <= 0.0:
            raise IllegalPlan(change, "no time to save")

    def _in_time(self, change: Lapse | Resize, attempt: Attempt) -> None:
        self._may_save(change)
        term_end_s = attempt.lease.term_end_s
        if change.at_s < term_end_s:
            raise IllegalPlan(change, "work is taken away only when its term ends")
        if decision_time_s(term_end_s, self.cluster.saves.lead_s) > self.view.now_s:
            raise IllegalPlan(change, "the boundary is too far ahead to decide")

    def revoke(self, change: Revoke | Migrate) -> None:
        self.leaves(change, change.key)
        if isinstance(change, Revoke):
            return
        job = self.cluster.jobs[change.key.job_id]
        if change.gpus != job.gpus_now and not self._may_have(job.request, change.gpus):
            raise IllegalPlan(change, f"{job.gpus_now} GPUs asked, {change.gpus} given")
        if fault := self.machines.fault(change, self.taken):
            raise IllegalPlan(change, fault)

    def leaves(self, change: Renew | Lapse | Resize | Revoke | Migrate, key: AttemptKey) -> Attempt:
        self._once(change, key.job_id)
        return self._active(change, key)

    def move(self, change: Demote | Promote) -> None:
        job = self._once(change, change.job_id)
        if job.ended:
            raise IllegalPlan(change, f"job {job.job_id} has ended")
        if isinstance(change, Promote):
            if not job.waiting:
                raise IllegalPlan(change, "only a waiting job is promoted")
        elif change.level != job.level + 1 or change.level >= self.cluster.ordering.levels:
            raise IllegalPlan(change, f"from level {job.level} of {self.cluster.ordering.levels}")

    def admit(self, change: Admit | Reject) -> None:
        job = self._once(change, change.job_id)
        if job.state is not JobState.PENDING:
            raise IllegalPlan(change, f"job {job.job_id} is {job.state.value}, not pending")

    def reserve(self, change: Reserve) -> None:
        job = self._once(change, change.job_id)
        if job.ended:
            raise IllegalPlan(change, f"job {job.job_id} has ended")
        if self.policy.promises is None:
            raise IllegalPlan(change, f"policy {self.policy.name} promises nothing")
        if change.promised is not None and not change.promised < len(job.steps):
            raise IllegalPlan(change, f"job {job.job_id} has {len(job.steps)} deadlines")
        if change.gpu_type and change.gpu_type not in types_for(self.cluster, job):
            raise IllegalPlan(change, f"job {job.job_id} is promised no {change.gpu_type}")

    def profile(self, change: Profile | Estimate | Scale) -> None:
        """How long somebody runs is to be found out, or is known."""
        profiling = self.cluster.profiling
        told = isinstance(change, Estimate) and self.policy.profile_s is not None
        if self.policy.profiling is None and not told:
            raise IllegalPlan(change, f"policy {self.policy.name} profiles nobody")
        if isinstance(change, Scale):
            fault = scale_fault(change, profiling)
        else:
            fault = job_fault(change, self._once(change, change.job_id), profiling)
        if fault:
            raise IllegalPlan(change, fault)

    def server(self, change: Loan | Reclaim | Return | Provision | Release) -> None:
        """Servers that are lent, and machines that are rented."""
        if isinstance(change, Provision | Release):
            fault = self.machines.fault(change, self.taken)
        else:
            fault = self.servers.fault(change)
        if fault:
            raise IllegalPlan(change, fault)

    def whole(self, change: NextSlot | Repack | Weigh) -> None:
        """Changes that concern no single job."""
        if isinstance(change, NextSlot):
            if change.slot <= self.cluster.slot:
                raise IllegalPlan(change, f"slot {self.cluster.slot} has been decided already")
        elif isinstance(change, Weigh):
            if self.cluster.shares is None:
                raise IllegalPlan(change, f"policy {self.policy.name} knows no shares")
        elif change.packing is not None and self.policy.packing is None:
            raise IllegalPlan(change, f"policy {self.policy.name} keeps nobody together")

    def _once(self, change: Change, job_id: JobId) -> Job:
        job = self.cluster.jobs.get(job_id)
        if job is None:
            raise IllegalPlan(change, f"there is no job {job_id}")
        if job_id in self.jobs and not isinstance(change, Demote | Promote):
            raise IllegalPlan(change, f"job {job_id} is named twice")
        self.jobs.add(job_id)
        return job

    def _active(self, change: Change, key: AttemptKey) -> Attempt:
        attempt = self.cluster.attempts.get(key)
        if attempt is None or attempt.state not in ACTIVE:
            state = "not live" if attempt is None else attempt.state.value
            raise IllegalPlan(change, f"attempt {key} is {state}")
        return attempt
