"""Why a job does not run: reasons from the same walk that decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import HoldKind, Job, JobState
from dlq_master.model.jobs.naming import blocks, member_name, shown_dependency
from dlq_master.model.lease import next_boundary_s
from dlq_master.model.nodes.capacity import Capacity, Pools
from dlq_master.model.nodes.free_gpus import Pool
from dlq_master.model.nodes.node import CLOSED, Node, NodePool
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.order.waiting import Fifo, count_before
from dlq_master.model.resources import CORES_ONLY, Shape
from dlq_master.model.traits import has_all
from dlq_master.model.view import View
from dlq_master.model.why import BLOCKERS_NAMED, Kind, Reason, ReasonCode
from dlq_master.model.words.sentence import sentence
from dlq_master.policy import pipeline
from dlq_master.policy.admit.any_that_fits import never, unmet
from dlq_master.policy.admit.submission import late
from dlq_master.policy.place.allocation.outcome import PROFILER, Outcome
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.policy import Policy
from dlq_master.policy.reasons.accounts import over_account
from dlq_master.policy.reasons.decisions import Decisions, shielded, taken_off
from dlq_master.policy.stop_costs import expected_end_s
from dlq_master.policy.transit.taking import Taking

NODES_NAMED = 10
_HOLDS = {
    HoldKind.USER: ReasonCode.HELD_USER,
    HoldKind.ADMIN: ReasonCode.HELD_ADMIN,
    HoldKind.PAUSED: ReasonCode.PAUSED,
    HoldKind.POISON: ReasonCode.POISON,
    HoldKind.DEPENDENCY: ReasonCode.DEPENDENCY,
}


def explain(
    view: View, policy: Policy, job_id: JobId, *, decisions: Decisions | None = None
) -> tuple[Reason, ...]:
    """Every reason why the job does not run; empty only while it holds GPUs.

    STARTS_NEXT means that the plan for this view would start it. `decisions`: those of this view,
    for callers that explain several jobs.
    """
    told = decisions or Decisions(view, policy)
    early = _before_any_decision(view, policy, job_id)
    if early is not None:
        return early
    job = view.cluster.jobs[job_id]
    if view.pause_starts is not None:
        return _paused(view, policy, job, holders=True)
    if job_id in told.now.chosen:
        return (Reason(ReasonCode.STARTS_NEXT),)
    reasons = _waiting(view, policy, job, told.now, told.order, holders=True)
    at_boundary = Taking.BOUNDARY in (policy.taking, policy.resizing)
    takes = at_boundary or policy.taking is Taking.AT_ONCE
    if takes and _is_in_reach(view.cluster, told.order, job):
        if at_boundary and _takes_at_boundary(told.boundaries.guarded, job):
            at_s = next_boundary_s(view.now_s, view.cluster.terms.be_term_s)
            waits = Reason(
                ReasonCode.WAITING_FOR_BOUNDARY, "seconds", have=round(at_s - view.now_s, 3)
            )
            reasons.append(waits)
        else:
            reasons += shielded(told, job)
    return tuple(reasons + taken_off(job))


def explain_briefly(
    view: View, policy: Policy, job_id: JobId, last: Outcome | None, *, holders: bool = False
) -> tuple[Reason, ...]:
    """The reasons by the last decision (None: there was none), without a further one. The cost does
    not grow with the queue, and with the running jobs only if `holders`. It does not say whether
    the job gets GPUs at the next boundary.
    """
    early = _before_any_decision(view, policy, job_id)
    if early is not None:
        return early
    job = view.cluster.jobs[job_id]
    if view.pause_starts is not None:
        return _paused(view, policy, job, holders=holders)
    if last is None:
        short = _shortage_of(view.cluster, policy, job, holders=holders)
        return (*short, *taken_off(job)) if short else (Reason(ReasonCode.NOT_ADMITTED),)
    order = None if policy.order.anew else pipeline.lineup(view, policy)
    return (*_waiting(view, policy, job, last, order, holders=holders), *taken_off(job))


def _before_any_decision(view: View, policy: Policy, job_id: JobId) -> tuple[Reason, ...] | None:
    """The reasons of a job that plans do not decide about; None: they do."""
    job = view.cluster.jobs[job_id]
    if job.ended:
        return (Reason(ReasonCode.ENDED, detail=job.state.value),)
    if job.live_attempt is not None:
        return _suspended(view, job)
    if job.state is JobState.HELD:
        held = Reason(hold_code(job), detail=job.hold_reason)
        # The blocks that remain after a release.
        later = (each for each in _blocks(view, job) if each.code is not held.code)
        return (held, *later)
    if job.blocked is not None:
        return tuple(_blocks(view, job))
    if not view.cluster.nodes:
        return (Reason(ReasonCode.NO_NODES),)
    hopeless = never(view.cluster, policy.placement, view.cluster.asked(job))
    if hopeless is not None:
        return (hopeless,)
    if job.state is JobState.PENDING:
        return (_not_admitted(view, policy, job),)
    return None


def _suspended(view: View, job: Job) -> tuple[Reason, ...]:
    """The reason of a suspended job, with the jobs on its GPUs; empty: it is not suspended."""
    attempt = view.cluster.live_attempt(job)
    out = None if attempt is None else attempt.suspension
    if attempt is None or out is None:
        return ()
    there = {
        key.job_id
        for node_id, mask in out.allocation.slots
        for key, held in view.cluster.capacity.claims.get(node_id, {}).items()
        if held & mask and key != attempt.key
    }
    left = "until dlq resume" if out.for_job is None else f"for job {out.for_job}"
    wanted = out.for_job is None and out.wanted_back
    words = "and comes back when its GPUs are free" if wanted else left
    moves = (status.move for status in attempt.ranks)
    if there and (own_only := next((it.own_only for it in moves if it and it.own_only), "")):
        words += f", to its own GPUs only ({own_only})"
    return (Reason(ReasonCode.SUSPENDED, detail=words, blocking_jobs=tuple(sorted(there))),)


def _paused(view: View, policy: Policy, job: Job, *, holders: bool) -> tuple[Reason, ...]:
    """The reasons during a pause of starts: without a decision, only missing GPUs are known."""
    assert view.pause_starts is not None
    short = _shortage_of(view.cluster, policy, job, holders=holders)
    starting = view.pause_starts is ReasonCode.MASTER_STARTING
    return (Reason(view.pause_starts), *(() if starting else short))


def hold_code(job: Job) -> ReasonCode:
    """The reason of a held job, by the kind of its hold."""
    return ReasonCode.HELD_USER if job.hold is None else _HOLDS[job.hold]


def jobs_ahead(
    view: View, policy: Policy, job_id: JobId, order: Lineup | None = None
) -> int | None:
    """The number of waiting jobs before it; None: it does not wait. `order`: the lineup, if known.

    Costs O(priorities and shapes), and in its own line the distance to the nearer end.
    """
    cluster = view.cluster
    job = cluster.jobs[job_id]
    if not job.waiting:
        return None
    ahead = 0
    own_priority = cluster.priority(job)
    waiting = (order or pipeline.lineup(view, policy)).waiting
    own = waiting.by_priority[own_priority][view.cluster.shape(job)][job_id]
    for priority in waiting.priorities:
        if priority > own_priority or not _same_part(
            view, policy, job, waiting.by_priority[priority]
        ):
            continue
        for fifo in waiting.by_priority[priority].values():
            ahead += len(fifo) if priority < own_priority else count_before(fifo, own)
    return ahead


def _same_part(view: View, policy: Policy, job: Job, shapes: Mapping[Shape, Fifo]) -> bool:
    part_of = policy.partition.part_of
    first = next(iter(next(iter(shapes.values()))))
    return part_of(view.cluster.jobs[first].queue) == part_of(job.queue)


def _blocks(view: View, job: Job) -> Iterator[Reason]:
    jobs = view.cluster.jobs
    return blocks(job, view.now_s, lambda depends: shown_dependency(depends, jobs.get))


def _waiting(
    view: View, policy: Policy, job: Job, outcome: Outcome, order: Lineup | None, *, holders: bool
) -> list[Reason]:
    """Missing quota, missing GPUs, and the jobs before it (`order` None: these are not named)."""
    reasons = [*_quota(view.cluster, policy, job), *_room(job, outcome)]
    reasons += _kept(view, job)
    reasons += _shortage_of(view.cluster, policy, job, holders=holders)
    reasons += group_obstacle(view, policy, job, short=bool(reasons))
    return reasons + _order(view, policy, job, outcome, order, short=bool(reasons))


def _kept(view: View, job: Job) -> list[Reason]:
    """The GPUs that are kept for it since it lost a node."""
    return [reason for reason in _kept_gpus(view) if job.job_id in reason.blocking_jobs]


def _kept_gpus(view: View) -> list[Reason]:
    if not view.cluster.keeping:
        return []
    from dlq_master.policy.transit import kept_gpus

    return [kept_gpus.told(claim) for claim in kept_gpus.claims(view) if claim.parts]


def group_obstacle(view: View, policy: Policy, job: Job, *, short: bool) -> list[Reason]:
    """The other members of its group that cannot start now, and why the first of them cannot.
    `short`: it lacks something itself.
    """
    group, cluster = job.group, view.cluster
    if group is None:
        return []
    others = [cluster.jobs[it] for it in cluster.groups[group.array_id] if it != job.job_id]
    told = [(other, why) for other in others if (why := _hindrance(view, policy, other))]
    if not told and (short or not others):
        return []
    detail = "its members fit one by one, and not at one time"
    if told:
        detail = f"member {member_name(told[0][0])} cannot start: {told[0][1]}"
    named = tuple(other.job_id for other, _ in told[:BLOCKERS_NAMED])
    have = len(others) + 1 - len(told) - short
    return [Reason(ReasonCode.GROUP, "members", len(others) + 1, have, named, detail)]


def _hindrance(view: View, policy: Policy, job: Job) -> str:
    """Why this member could not start alone now; empty: it could."""
    if job.live_attempt is not None:
        return "it has not left its last GPUs yet"
    early = _before_any_decision(view, policy, job.job_id)
    if early is None:
        early = tuple(_shortage_of(view.cluster, policy, job, holders=False))
    return sentence(early[0], job) if early else ""


def _not_admitted(view: View, policy: Policy, job: Job) -> Reason:
    waits = {} if policy.profiling is None else late(view, policy.profiling)
    held, rules = waits.get(job.job_id), policy.profiling
    if held is None or rules is None:
        return Reason(ReasonCode.NOT_ADMITTED)
    detail = f"in {held.opens_s - view.now_s:.0f} s or later"
    return Reason(ReasonCode.SUBMIT_LIMIT, "gpus", rules.submit_gpus, held.sent_gpus, (), detail)


def over_room(job: Job, outcome: Outcome) -> bool:
    """Whether running trials leave no room for a trial of this job."""
    room = outcome.room
    waits = job.band is Band.PROFILE and job.job_id not in outcome.claims
    return waits and room is not None and not room.allows(job.gpus_now)


def kept_from(job: Job, outcome: Outcome) -> bool:
    """Whether free GPUs are kept for trials of others."""
    kept = bool(outcome.withheld) and job.band >= Band.SPOT
    return kept and not job.request.without_gpus


def kept_for_queue(job: Job, outcome: Outcome) -> bool:
    """Whether free GPUs are kept for jobs of another queue."""
    if outcome.floor is None or job.request.without_gpus or job.band < Band.SPOT:
        return False
    gpus, queue = outcome.floor
    return gpus > 0 and (job.queue != queue or job.band is not Band.SPOT)


def head_of(policy: Policy, job: Job, outcome: Outcome) -> JobId | None:
    """The job that it may not pass, if there is one."""
    line = PROFILER if job.band is Band.PROFILE else policy.partition.part_of(job.queue)
    head = outcome.heads.get(line)
    return None if head == job.job_id else head


def _room(job: Job, outcome: Outcome) -> list[Reason]:
    room = outcome.room
    if room is None or not over_room(job, outcome):
        return []
    return [Reason(ReasonCode.PROFILER_FULL, "gpus", room.gpus, room.held)]


def _quota(cluster: Cluster, policy: Policy, job: Job) -> list[Reason]:
    """The quota of its queue, or the quota or limit of its team, if that is used up."""
    if job.band in (Band.BORROW, Band.LIMIT):
        return over_account(cluster, policy, job)
    part, room = policy.partition.part_of(job.queue), policy.partition.room(cluster)
    if room is None or room.allows(part, job.request.real_gpus):
        return []
    limit = room.limits[part]
    who = f"queue {part}" if part else "the queues without a quota"
    return [Reason(ReasonCode.QUOTA, "gpus", limit, room.held[part], detail=who)]


def shortages(cluster: Cluster, policy: Policy, shape: Shape) -> tuple[Kind, ...]:
    """The shortage of a job of this shape if it were alone in the queue."""
    return tuple([it.kind for it in _shortage(cluster, policy, shape, holders=False)])


def _shortage_of(cluster: Cluster, policy: Policy, job: Job, *, holders: bool) -> list[Reason]:
    """The shortage of the job if it were alone in the queue, and why it needs few nodes."""
    reasons = _shortage(cluster, policy, cluster.asked(job), holders=holders)
    if job.gpu_type_promised:
        why = (
            "GPUs of another type are free, but its deadline is promised on "
            f"{job.gpu_type_promised}"
        )
        reasons = [
            reason._replace(detail=why) if reason.code is ReasonCode.GPU_TYPE else reason
            for reason in reasons
        ]
    if cluster.packing is None:
        return reasons
    cause = cluster.packing.cause(job.profile)
    return [
        reason._replace(detail=f"{reason.detail}; {cause}")
        if reason.code is ReasonCode.CONSOLIDATION
        else reason
        for reason in reasons
    ]


def _shortage(cluster: Cluster, policy: Policy, shape: Shape, *, holders: bool) -> list[Reason]:
    """The missing part, were a job of this shape alone in the queue; its holders cost
    O(attempts).
    """
    capacity = cluster.capacity
    capacity.ready()
    if _fits(capacity.free, shape, policy):
        return []
    reasons: list[Reason] = []
    reasons += unmet(
        capacity.nodes.values(), shape, lambda other: _fits(capacity.free, other, policy)
    )
    if shape.avoid:
        reasons += _avoided(cluster, policy, shape)
    shut = "" if _fits(capacity.open, shape, policy) else _shut(capacity)
    if shut:  # else it is for what it avoids
        reasons.append(Reason(ReasonCode.NODES_CLOSED, "nodes", detail=shut))
    pool = _best(capacity.free, shape)
    have = 0 if pool is None else pool.total
    who = _holders(cluster, shape) if holders else ()
    if pool is not None and have >= shape.gpus:
        reason = _rounded(policy.placement, pool, shape, _fragmented(capacity, pool, shape))
        reasons.append(reason._replace(blocking_jobs=who))
    else:
        block = f"the largest free block is {_block(capacity, pool)}" if pool and have else ""
        reasons.append(Reason(ReasonCode.RESOURCES, "gpus", shape.gpus, have, who, block))
    other_types = shape.gpu_types not in (None, CORES_ONLY)
    if (
        shape.gpu_types
        and other_types
        and _fits(capacity.free, shape._replace(gpu_types=None), policy)
    ):
        asked = " or ".join(shape.gpu_types)
        detail = f"GPUs of another type are free, but it asks for {asked}"
        reasons.append(Reason(ReasonCode.GPU_TYPE, "gpu_type", shape.gpus, have, (), detail, asked))
    return reasons


def _avoided(cluster: Cluster, policy: Policy, shape: Shape) -> list[Reason]:
    """It fits where it is not to go: on nodes that are not the cluster's own, or where it has
    failed.
    """
    free, others = cluster.capacity.free, cluster.own.foreign
    failed = tuple([node_id for node_id in shape.avoid if node_id not in others])
    if len(failed) < len(shape.avoid) and _fits(free, shape._replace(avoid=failed), policy):
        return [Reason(ReasonCode.OWN_ONLY, "nodes", detail=_named(others))]
    if not failed or not _fits(free, shape._replace(avoid=()), policy):
        return []
    booked = [node_id for node_id in failed if cluster.nodes[node_id].windows]
    if booked:
        return _maintenance(cluster, booked)
    return [Reason(ReasonCode.FAILED_NODES, "nodes", detail=_named(failed))]


def _maintenance(cluster: Cluster, node_ids: Collection[NodeId]) -> list[Reason]:
    """One for each reservation: `gpu01 from 2026-12-01T08:00:00Z (m1)`."""
    by_name: dict[str, list[NodeId]] = {}
    for node_id in sorted(node_ids):
        by_name.setdefault(cluster.nodes[node_id].windows[0].reservation_id, []).append(node_id)
    found = []
    for name, nodes in sorted(by_name.items()):
        from_s = {it: cluster.nodes[it].windows[0].begin_s for it in nodes}
        words = [f"{it} from {_instant(from_s[it])} ({name})" for it in nodes[:NODES_NAMED]]
        detail = _and_more(words, len(nodes) - NODES_NAMED)
        found.append(Reason(ReasonCode.MAINTENANCE, "nodes", detail=detail, subject=name))
    return found


def _instant(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _fragmented(capacity: Capacity, pool: Pool, shape: Shape) -> Reason:
    """GPUs enough, but on too many nodes; `need` and `have` are what the nodes in question lack."""
    if shape.nodes is not None:
        each = shape.gpus // shape.nodes
        fit = sum(1 for _ in pool.nodes_with(each))
        detail = f"in {shape.nodes} equal parts; {each} or more are free on {fit} of the nodes"
        return Reason(ReasonCode.FRAGMENTATION, "nodes", shape.nodes, fit, (), detail)
    fewest = pool.fewest_nodes(shape.gpus)
    most = sum(sorted((mask.bit_count() for mask in pool.masks), reverse=True)[:fewest])
    if fewest == 1:
        detail = f"on one node; the largest free block is {_block(capacity, pool)}"
    else:
        detail = f"on {fewest} nodes; the emptiest {fewest} have {most} free"
    detail += f", {pool.total} are free in all"
    code = ReasonCode.CONSOLIDATION if shape.together else ReasonCode.FRAGMENTATION
    return Reason(code, "gpus", shape.gpus, most, (), detail)


def _rounded(placement: Placement, pool: Pool, shape: Shape, reason: Reason) -> Reason:
    """The same, told that the placement wants room for more than the job gets."""
    room = shape.gpus if placement.room is None else placement.room(pool, shape)
    if room == shape.gpus:
        return reason
    return reason._replace(detail=f"{reason.detail}; place={placement.name} wants room for {room}")


def _block(capacity: Capacity, pool: Pool) -> str:
    """`3 on gpu01`: the node with the most GPUs left."""
    largest = pool.largest_free()
    return f"{largest} on {capacity.node_ids[next(pool.nodes_with(largest))]}"


def _shut(capacity: Capacity) -> str:
    """Nodes that take nothing new, or not on all of their GPUs, each with its flags."""
    nodes = {it.node_id for it in capacity.nodes.values() if it.withheld} | capacity.closed
    first = sorted(nodes)[:NODES_NAMED]
    words = [_with_flags(capacity.nodes[node_id]) for node_id in first]
    return _and_more(words, len(nodes) - len(first))


def _with_flags(node: Node) -> str:
    words = sorted(flag.value for flag in node.flags & CLOSED)
    if node.away:
        words.append("not lent" if node.pool is NodePool.INFERENCE else "not rented for it")
    return f"{node.node_id} ({', '.join(words)})" if words else node.node_id


def _named(node_ids: Collection[NodeId]) -> str:
    return _and_more(sorted(node_ids)[:NODES_NAMED], len(node_ids) - NODES_NAMED)


def _and_more(words: Collection[str], more: int) -> str:
    names = ", ".join(words)
    return f"{names} and {more} more" if more > 0 else names


def _order(
    view: View, policy: Policy, job: Job, outcome: Outcome, order: Lineup | None, *, short: bool
) -> list[Reason]:
    """The jobs before it."""
    reasons = []
    if outcome.claims.get(job.job_id) is False:
        leaving = _leaving(view.cluster)[:BLOCKERS_NAMED]
        need = job.request.gpus
        reasons.append(Reason(ReasonCode.WAITING_FOR_RELEASE, "gpus", need, blocking_jobs=leaving))
    head = head_of(policy, job, outcome)
    if head is not None:
        reasons.append(Reason(ReasonCode.HEAD_OF_LINE, blocking_jobs=(head,)))
    if short or reasons:
        return reasons
    if kept_from(job, outcome):
        reasons.append(Reason(ReasonCode.KEPT_FOR_TRIALS, "gpus", have=outcome.withheld))
    if outcome.floor is not None and kept_for_queue(job, outcome):
        gpus, queue = outcome.floor
        reasons.append(Reason(ReasonCode.KEPT_FOR_QUEUE, "gpus", have=gpus, detail=queue))
    reasons += [it for it in _kept_gpus(view) if job.job_id not in it.blocking_jobs][:1]
    others = [job_id for job_id in outcome.claims if job_id != job.job_id]
    reserved = [job_id for job_id in others if outcome.claims[job_id]]
    if reserved:
        named = tuple(reserved[:BLOCKERS_NAMED])
        reasons.append(Reason(ReasonCode.RESERVED_FOR, "gpus", job.request.gpus, None, named))
    served = [*outcome.chosen, *others]
    before = () if order is None else _before(view.cluster, order, job, served)
    if before or not reasons:
        named = before[:BLOCKERS_NAMED]
        reasons.append(Reason(ReasonCode.BEHIND_HIGHER_RANK, "gpus", job.request.gpus, None, named))
    return reasons


def _before(
    cluster: Cluster, order: Lineup, job: Job, job_ids: Iterable[JobId]
) -> tuple[JobId, ...]:
    """Those of the waiting jobs that rank before this one, the nearest to being served first, and
    suspended ones that come back. Jobs that have ended since are left out."""
    waiting, jobs = order.waiting.by_priority, cluster.jobs

    def place(one: Job) -> tuple[int, int]:
        priority = cluster.priority(one)
        if not one.waiting:  # it is still saving, and its GPUs in the next slot are kept for it
            return priority, cluster.stands(one)
        return priority, waiting[priority][cluster.shape(one)][one.job_id]

    own = place(job)
    there = (other for other in job_ids if other in jobs and not jobs[other].ended)
    places = sorted((place(jobs[other]), other) for other in there)
    waiting_before = [job_id for at, job_id in places if at < own]
    return (*waiting_before, *[out.job_id for out in order.out if out[:2] < own])


def _is_in_reach(cluster: Cluster, order: Lineup, job: Job) -> bool:
    """Whether all GPUs that it may have are enough for it and for jobs alike before it. A walk
    serves those first.
    """
    shape = cluster.shape(job)
    line = order.waiting.by_priority[cluster.priority(job)][shape]
    before = count_before(line, line[job.job_id])
    there = sum(pool.total for _, pool in shape.of_types(cluster.capacity.total))
    return (before + 1) * shape.gpus <= there


def _takes_at_boundary(outcome: Outcome, job: Job) -> bool:
    """Whether it would start if every term ended now, by what is decided then."""
    waits = outcome.claims.get(job.job_id) is False
    return waits and (job.job_id in outcome.outranked.values() or bool(outcome.resized))


def _fits(pools: Pools, shape: Shape, policy: Policy) -> bool:
    return any(policy.placement.find(pool, shape) is not None for _, pool in shape.of_types(pools))


def _best(pools: Pools, shape: Shape) -> Pool | None:
    usable = [pool.allowed(shape) for _, pool in shape.of_types(pools)]
    return max(usable, key=lambda pool: pool.total, default=None)


def _holders(cluster: Cluster, shape: Shape) -> tuple[JobId, ...]:
    """Jobs with GPUs that it could use: first those with a known end, the earliest first."""
    found: list[tuple[float, JobId]] = []
    for key, attempt in cluster.attempts.items():
        types = cluster.capacity.parts(attempt.lease.allocation)
        if any(map(shape.may_be, types)) and _runs_on(cluster, shape, attempt):
            job = cluster.jobs[key.job_id]
            found.append((expected_end_s(job, attempt, attempt.started_time_s), key.job_id))
    return tuple(job_id for _, job_id in sorted(found)[:BLOCKERS_NAMED])


def _runs_on(cluster: Cluster, shape: Shape, attempt: Attempt) -> bool:
    """Whether a node that the attempt holds has what the shape asks for, and is none that it
    avoids.
    """
    node_ids = [it for it in attempt.lease.allocation.node_ids if it not in shape.avoid]
    if shape.traits is None:
        return bool(node_ids)
    held = map(cluster.nodes.get, node_ids)
    return any(has_all(node, shape.traits) for node in held if node is not None)


def _leaving(cluster: Cluster) -> tuple[JobId, ...]:
    soon = cluster.capacity.soon
    jobs = {
        key.job_id
        for node_id in soon
        for key, mask in cluster.capacity.claims[node_id].items()
        if mask & soon[node_id]
    }
    return tuple(sorted(jobs))
