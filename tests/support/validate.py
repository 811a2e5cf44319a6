"""The whole state from scratch: is it sound, and does every index equal what its values say?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from dlq_master.model.attempts.attempt import ACTIVE, AttemptState
from dlq_master.model.attempts.grace import SAVE_FACTOR, percentile_95
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.nodes.host_sizes import CountedSizes, HostSizes
from dlq_master.model.nodes.node import NodeState
from dlq_master.model.nodes.owned import OwnGpus
from dlq_master.model.order.keys import STARTED_BASE, STARTED_END, had, position
from dlq_master.model.order.levels import held_gpus
from dlq_master.model.order.running import Place
from dlq_master.model.order.waiting import WaitingByTeam
from dlq_master.model.resources import Shape


def validate(cluster: Cluster) -> None:
    """Raise AssertionError naming the first thing that is wrong. Costs O(jobs + GPUs)."""
    _no_gpu_twice(cluster)
    _attempts_and_jobs_agree(cluster)
    _claims(cluster)
    _pools(cluster)
    _own(cluster)
    _waiting(cluster)
    _running(cluster)
    _timers(cluster)
    _slow_saves(cluster)


def _slow_saves(cluster: Cluster) -> None:
    slow = {
        job_id: save_s
        for job_id, job in cluster.jobs.items()
        if job.saves
        and job.live_attempt is not None
        and (save_s := SAVE_FACTOR * percentile_95(job.saves)) > cluster.terms.save_lead_s
    }
    _equal("jobs with slow saves", cluster.saves.needs_s, slow)


def _no_gpu_twice(cluster: Cluster) -> None:
    holder: dict[tuple[NodeId, int], AttemptKey] = {}
    for key, attempt in cluster.attempts.items():
        for slot in attempt.claims.slots:
            for index in slot.gpu_indices:
                other = holder.setdefault((slot.node_id, index), key)
                _equal(f"holder of GPU {index} of {slot.node_id}", key, other)


def _attempts_and_jobs_agree(cluster: Cluster) -> None:
    for key, attempt in cluster.attempts.items():
        _equal(f"key of attempt {key}", attempt.key, key)
        _equal(f"attempt {key} is live", attempt.live, True)
        job = cluster.jobs[key.job_id]
        _equal(f"live attempt of job {key.job_id}", job.live_attempt, key.number)
        width, sizes = attempt.place.width, job.request.sizes
        _equal(f"width of attempt {key}", width, width if width in sizes else job.gpus_now)
        _equal(f"fence of attempt {key}", attempt.fence, (attempt.epoch, key.number))
    for job_id, job in cluster.jobs.items():
        _equal(f"id of job {job_id}", job.job_id, job_id)
        if job.live_attempt is not None:
            _equal(f"job {job_id} has its attempt", job.live_key in cluster.attempts, True)
            _equal(f"number of job {job_id}'s attempt", job.live_attempt, job.attempts)
        if job.state is JobState.QUEUED:
            _equal(f"job {job_id} waits", job.queued_since_s is not None, job.waiting)
        if job.blocked is not None:
            _equal(f"live attempt of job {job_id}, which may not start", job.live_attempt, None)
    pending = {
        job_id
        for job_id, job in cluster.jobs.items()
        if job.state is JobState.PENDING and job.blocked is None
    }
    _equal("pending jobs", set(cluster.pending), pending)


def _claims(cluster: Cluster) -> None:
    claims: dict[NodeId, dict[AttemptKey, int]] = defaultdict(dict)
    soon: dict[NodeId, int] = {}
    for key, attempt in cluster.attempts.items():
        for node_id, mask in attempt.claims.slots:
            claims[node_id][key] = mask
        for node_id, mask in attempt.leaves.slots:
            if attempt.frees:
                soon[node_id] = soon.get(node_id, 0) | mask
    capacity = cluster.capacity
    kept = {node_id: held for node_id, held in capacity.claims.items() if held}
    _equal("claims", kept, dict(claims))
    _equal("GPUs that are soon free", capacity.soon, soon)
    closed = {node_id for node_id, node in capacity.nodes.items() if not node.open}
    _equal("closed nodes", capacity.closed, closed)
    marked = {
        node_id
        for node_id, node in capacity.nodes.items()
        if node.flags or node.state is not NodeState.UP
    }
    _equal("nodes that are not UP, or have flags", capacity.marked, marked)


def _pools(cluster: Cluster) -> None:
    capacity = cluster.capacity
    capacity.ready()
    _equal("node order", capacity.node_ids, sorted(capacity.nodes))
    for gpu_type in capacity.free:
        for ordinal, node_id in enumerate(capacity.node_ids):
            node = capacity.nodes[node_id]
            owned = node.masks().get(gpu_type, 0)
            opened = owned & ~node.withheld if node.open else 0
            free = opened & ~capacity.claimed(node_id)
            where = f"{gpu_type} of {node_id}"
            _equal(f"total {where}", capacity.total[gpu_type].masks[ordinal], owned)
            _equal(f"open {where}", capacity.open[gpu_type].masks[ordinal], opened)
            _equal(f"free {where}", capacity.free[gpu_type].masks[ordinal], free)
        for pools in (capacity.free, capacity.open, capacity.total):
            pool = pools[gpu_type]
            counts = [mask.bit_count() for mask in pool.masks]
            _equal(f"sum of {gpu_type}", pool.total, sum(counts))
            for gpus, bucket in enumerate(pool.buckets):
                nodes = sum(1 << node for node, count in enumerate(counts) if count == gpus)
                _equal(f"nodes with {gpus} x {gpu_type}", bucket, nodes)


def _own(cluster: Cluster) -> None:
    own, nodes = OwnGpus(), cluster.nodes
    for node_id in sorted(nodes):
        own.change(None, nodes[node_id])
    found = cluster.own
    _equal("own types, and other nodes", (found.types, found.foreign), (own.types, own.foreign))
    _equal("home type", found.home, own.home)


def _waiting(cluster: Cluster) -> None:
    expected: dict[tuple[int, Shape], list[tuple[int, JobId]]] = defaultdict(list)
    sizes, counted = HostSizes({}), CountedSizes()
    for node in cluster.nodes.values():
        sizes = counted.change(None, node)
    for job_id, job in cluster.jobs.items():
        if job.waiting:
            shape = cluster.asked(job)
            if shape.traits is not None:
                shape = shape._replace(traits=sizes.alike(shape.traits))
            expected[cluster.priority(job), shape].append((_stands(cluster, job), job_id))
    found = {
        (priority, shape): [(position, job_id) for job_id, position in fifo.items()]
        for priority, fifos in cluster.waiting.by_priority.items()
        for shape, fifo in fifos.items()
    }
    _equal("waiting jobs", found, {key: sorted(jobs) for key, jobs in expected.items()})
    _equal("ranks", cluster.waiting.priorities, sorted({priority for priority, _ in expected}))
    if isinstance(cluster.waiting, WaitingByTeam):
        _teams(cluster, cluster.waiting, found)
    returning = {job_id for job_id, job in cluster.jobs.items() if job.waiting and job.regrant}
    if cluster.ordering.by_base:
        _equal("returning jobs", set(cluster.returning), returning)
    keeping = {job_id for job_id, job in cluster.jobs.items() if job.waiting and job.kept}
    _equal(
        "jobs with kept GPUs", set(cluster.keeping), keeping if cluster.ordering.keep_s else set()
    )
    _costly(cluster)
    if cluster.ordering.bands:
        _judged(cluster)
        _profiled(cluster)
    _equal("number of waiting jobs", cluster.waiting.count, sum(map(len, expected.values())))


def _teams(
    cluster: Cluster,
    waiting: WaitingByTeam,
    expected: Mapping[tuple[int, Shape], list[tuple[int, JobId]]],
) -> None:
    """Each team's lines hold those of all that are its own, in their order."""
    own: dict[str, dict[tuple[int, Shape], list[tuple[int, JobId]]]] = {}
    for line, jobs in expected.items():
        for at, job_id in jobs:
            lines = own.setdefault(cluster.counted_to(cluster.jobs[job_id]), {})
            lines.setdefault(line, []).append((at, job_id))
    found = {
        team: {
            (priority, shape): [(at, job_id) for job_id, at in fifo.items()]
            for priority, shapes in lines.by_priority.items()
            for shape, fifo in shapes.items()
        }
        for team, lines in waiting.teams.items()
    }
    _equal("lines of teams", found, own)


def _costly(cluster: Cluster) -> None:
    queued = [job for job in cluster.jobs.values() if job.state is JobState.QUEUED]
    costly = {job.job_id for job in queued if job.lateness is not None}
    _equal("queued jobs with a cost of being late", set(cluster.costly), costly)


def _judged(cluster: Cluster) -> None:
    jobs = [job for job in cluster.jobs.values() if job.steps and job.state is JobState.QUEUED]
    judged = {job.job_id for job in jobs if job.verdict}
    told = {job.job_id for job in jobs if job.timed}
    _equal("judged jobs", set(cluster.judged), judged)
    _equal("queued jobs with deadlines", set(cluster.due), {job.job_id for job in jobs})
    promised = {job.job_id for job in jobs if job.promised is not None}
    _equal("jobs with a promise", set(cluster.promised), promised)
    seated = {job.job_id for job in jobs if job.band is Band.SLO}
    _equal("jobs whose slot is now", set(cluster.seated), seated)
    _equal("unjudged jobs", set(cluster.unjudged), told - judged)


def _profiled(cluster: Cluster) -> None:
    unknown = set()
    for job_id, job in cluster.jobs.items():
        if job.ended:
            continue
        _equal(f"band of job {job_id} is for trials", job.band is Band.PROFILE, bool(job.trials))
        rests = job.state is JobState.QUEUED and job.live_attempt is None
        told = job.timed or job.basis.unmeasured is not None
        if rests and not told and not job.trials and not job.request.without_gpus:
            unknown.add(job_id)
    _equal("jobs that nobody profiles", set(cluster.profiling.unknown), unknown)
    alike = {job_id for jobs in cluster.profiling.of_family.values() for job_id in jobs}
    _equal("those with a family", alike, {it for it in unknown if cluster.jobs[it].family})


def _stands(cluster: Cluster, job: Job) -> int:
    rule = cluster.ordering.key
    if rule is None:
        return job.sequence
    if job.band is Band.PROFILE:
        return position(job, (job.trial_time_s or 0.0,))
    return position(job, rule(cluster.learned)(job, had(job, None, 0.0)))


def _running(cluster: Cluster) -> None:
    active = {key: value for key, value in cluster.attempts.items() if value.state in ACTIVE}
    places: dict[JobId, Place] = {}
    terms: dict[float, set[AttemptKey]] = defaultdict(set)
    for key, attempt in active.items():
        job = cluster.jobs[key.job_id]
        end_s = attempt.lease.term_end_s
        places[key.job_id] = Place(
            cluster.priority(job), job.sequence, held_gpus(job, attempt), end_s
        )
        terms[end_s].add(key)
    running = cluster.running
    _equal("places of running jobs", running.places, places)
    sized = {job_id for job_id in places if cluster.jobs[job_id].request.sizes}
    _equal("running jobs of several sizes", running.sized, sized)
    for priority, members in running.by_priority.items():
        here = [place for place in places.values() if place.priority == priority]
        _equal(f"running in priority {priority}", len(members), len(here))
        _equal(
            f"GPUs of priority {priority}",
            running.gpus_by_priority[priority],
            sum(p.gpus for p in here),
        )
        together = [p.gpus for p in here if STARTED_BASE <= p.sequence < STARTED_END]
        _equal(
            f"GPUs together in priority {priority}", running.gpus_together[priority], sum(together)
        )
    _equal("terms", {end: set(keys) for end, keys in cluster.by_term.items()}, dict(terms))
    silent = {k for k, value in cluster.attempts.items() if value.state is AttemptState.UNKNOWN}
    _equal("silent attempts", set(cluster.claims.silent), silent)
    pausing = {k for k, value in cluster.attempts.items() if value.state is AttemptState.PAUSING}
    _equal("pausing attempts", set(cluster.claims.pausing), pausing)


def _timers(cluster: Cluster) -> None:
    for job_id in (*cluster.levels.crossings.at, *cluster.levels.promotions.at):
        _equal(f"job {job_id} with a timer has ended", cluster.jobs[job_id].ended, False)
    thresholds = cluster.ordering.thresholds
    for job_id, job in cluster.jobs.items():
        attempt = cluster.live_attempt(job)
        runs = attempt is not None and attempt.started_time_s is not None
        if runs and not job.ended and job.level < len(thresholds):
            _equal(f"job {job_id} has a crossing", job_id in cluster.levels.crossings.at, True)


def _equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"{what}: {found!r}, expected {expected!r}")
