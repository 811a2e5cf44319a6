"""The starts to record, the evidence of their nodes, and the beliefs about jobs after it.

An order is a row, written with the launch. Evidence counts if its fence is that of the order and it
comes from the node of its rank. Repeats change nothing, and all evidence is acknowledged. When an
agent restarts, or the line is silent, it sends its evidence later, also after the job has ended.
When the master restarts, orders, evidence and beliefs are on disk. When a node is lost, its
evidence never comes, and the recording is closed for that reason. Evidence that comes after the
close is taken nevertheless.
"""

from dlq_master.control.loop.incidents import sheltered
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import TakeEvidence
from dlq_master.control.trials.evidence import found_of
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.recording import Cause, Evidence, Found, Recording, Told, family_of
from dlq_master.model.resources import Allocation
from dlq_master.policy.sensitivity.traffic_estimates import RecordedStart
from dlq_profiler.results import TrafficReason

ASKED, OFF = "asked", "off"
# Of a node that is lost, or whose rank could never be started.
NOT_TOLD = Told("none", "unknown", TrafficReason.NOT_TOLD.value)
SETTLED_S = 60.0  # after its start a master hears first what agents have kept for it


def order(turn: Turn, job: Job, attempt: Attempt) -> None:
    """With a launch: record the start, if there is anything to learn from it."""
    cause = _why(turn, job, attempt)
    if cause is None:
        return
    allocation = attempt.lease.allocation
    recording = Recording(
        key=attempt.key,
        epoch=attempt.epoch,
        family=family_of(job),
        gpu_type=gpu_type_of(turn.state.cluster, allocation),
        gpus=allocation.width,
        node_ids=allocation.node_ids,
        spread=is_spread(turn.state.cluster, allocation),
        cause=cause,
        order_time_s=turn.now_s,
        window_s=turn.state.config.profiler.window,
    )
    _put(turn, recording)
    turn.note(
        "profile_ordered",
        key=attempt.key,
        cause=cause.value,
        spread=recording.spread,
    )


def take(turn: Turn, said: TakeEvidence) -> None:
    """One node's evidence takes effect, once."""
    evidence = said.evidence._replace(time_s=turn.now_s - said.age_s)
    recording = _ordered(turn, evidence.key)
    if recording is None or recording.epoch != said.epoch or not _is_from(recording, evidence):
        if turn.known_job(evidence.key.job_id) is not None:
            turn.note(
                "profile_refused",
                key=evidence.key,
                node_id=evidence.node_id,
                cause="nobody ordered it" if recording is None else "another fence",
            )
        return
    if evidence.node_rank in recording.told:
        return
    turn.batch.evidence.append(evidence)
    told = tuple(sorted((*recording.told, evidence.node_rank)))
    recording = recording._replace(told=told)
    if not recording.complete:
        _put(turn, recording)
        return
    recording = recording._replace(found=_found(turn, recording.key), found_time_s=turn.now_s)
    _put(turn, recording)
    _learn(turn, recording.family)
    _note_found(turn, recording)


def close_overdue(turn: Turn) -> None:
    """Nodes that have not reported by now count as unknown, and are waited for no more."""
    if turn.now_s < turn.state.started_s + SETTLED_S:
        return
    for recording in turn.state.trials.traffic.overdue(turn.now_s):
        unknown = Found(NOT_TOLD, NOT_TOLD, recorded_s=0.0)
        recording = recording._replace(found=unknown, found_time_s=turn.now_s)
        _put(turn, recording)
        _note_found(turn, recording)


def is_spread(cluster: Cluster, allocation: Allocation) -> bool:
    """Whether these GPUs are on more nodes than so many need."""
    if len(allocation.slots) == 1:
        return False
    cluster.capacity.ready()
    pool = cluster.capacity.total.get(gpu_type_of(cluster, allocation))
    return pool is not None and len(allocation.slots) > pool.fewest_nodes(allocation.width)


def gpu_type_of(cluster: Cluster, allocation: Allocation) -> str:
    """Of the first of these GPUs; "" if its node is gone, or has none."""
    slot = allocation.slots[0]
    node = cluster.nodes.get(slot.node_id)
    gpus = () if node is None else node.gpus
    return next((gpu.gpu_type for gpu in gpus if slot.mask >> gpu.index & 1), "")


# --- helpers, in order of use ---------------------------------------------------------------------


def _why(turn: Turn, job: Job, attempt: Attempt) -> Cause | None:
    """One GPU sends nothing to anybody, unless its user knows better."""
    mode, state = turn.state.config.profiler.mode, turn.state
    allocation = attempt.lease.allocation
    if mode == OFF or job.records is False:
        return None
    if not job.records and (mode == ASKED or allocation.width == 1):
        return None
    start = RecordedStart(
        job,
        gpu_type_of(state.cluster, allocation),
        allocation.width,
        is_spread(state.cluster, allocation),
        turn.now_s,
    )
    return state.trials.traffic.why_record(start, asked=bool(job.records))


def _put(turn: Turn, recording: Recording) -> None:
    run = turn.state.trials.traffic.put(recording)
    if run is not None:
        turn.state.cluster.slowdowns.add(run)
    turn.batch.recordings.append(recording)


def _ordered(turn: Turn, key: AttemptKey) -> Recording | None:
    known = turn.state.trials.traffic.get(key)
    if known is not None:
        return known
    past = turn.archive.recordings(key.job_id)
    return next((one for one in past if one.key == key), None)


def _is_from(recording: Recording, evidence: Evidence) -> bool:
    rank, nodes = evidence.node_rank, recording.node_ids
    return 0 <= rank < len(nodes) and nodes[rank] == evidence.node_id


def _found(turn: Turn, key: AttemptKey) -> Found:
    """All evidence of the attempt merged, what came in this turn included."""
    parts = {part.node_rank: part for part in turn.archive.evidence(key)}
    parts |= {part.node_rank: part for part in turn.batch.evidence if part.key == key}
    every = [parts[rank] for rank in sorted(parts)]
    unknown = Told("none", "unknown", "self-check")
    return sheltered(lambda: found_of(every), lambda _: Found(unknown, unknown))


def _learn(turn: Turn, family: str) -> None:
    """Living jobs of this family use the new figures from the next plan on."""
    for job in list(turn.state.cluster.jobs.values()):
        if family_of(job) == family and not job.ended:
            believing = turn.state.trials.with_traffic(job)
            if believing is not job:
                turn.state.cluster.put_job(believing)
    turn.plan_due = True


def _note_found(turn: Turn, recording: Recording) -> None:
    found = recording.found
    assert found is not None
    kind = "profile_found" if found.timed or not found.sizes.reason else "profile_unknown"
    profile = turn.state.trials.traffic.profile(recording)
    turn.note(
        kind,
        key=recording.key,
        cause=found.traffic.reason or found.traffic.method,
        confidence=found.traffic.confidence,
        period_s=found.period_s,
        bytes_per_iteration=found.bytes_per_iteration,
        skew=found.skew_high,
        rho=profile.rho,
        slowdown=profile.slowdown,
    )
