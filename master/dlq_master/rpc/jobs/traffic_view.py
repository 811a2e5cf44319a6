"""The communication of a job for its owner: the verdict, its source, and the profile itself."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import profile_pb2 as wire
from dlq_common.text.wire import filled, to_duration, to_timestamp
from dlq_master.control.read_model.published import Published
from dlq_master.control.trials.evidence import job_profile
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.recording import Belief, Recording

_PLACEMENTS = {True: "together", False: "anywhere", None: "fewest"}


def traffic_message(job: Job, read: Published) -> wire.JobTraffic:
    """The known traffic; empty for a job without a recording."""
    belief = read.belief(job)
    message = wire.JobTraffic(starts=[_start(one) for one in read.recordings(job.job_id)])
    if belief is not None:
        message.belief.CopyFrom(_belief(belief))
    packing, shape = read.packing(), job.request.shape
    if packing is not None and shape.gpus > 1 and shape.nodes is None:
        together = packing.together(job.profile)
        message.placement = _PLACEMENTS[together]
        if together:
            message.placement_reason = packing.cause(job.profile)
    return message


def profile_of(job: Job, read: Published) -> tuple[AttemptKey, bytes] | None:
    """The profile of the start that the verdict uses, else of the job's last start with one."""
    belief = read.belief(job)
    if belief is not None:
        keys: Sequence[AttemptKey] = [belief.basis.key]
    else:
        keys = [one.key for one in read.recordings(job.job_id) if one.complete]
    for key in reversed(keys):
        parts = read.evidence(key)
        if parts:
            return key, job_profile(parts).json().encode()
    return None


def _start(recording: Recording) -> wire.RecordedStart:
    found = recording.found
    return wire.RecordedStart(
        attempt=recording.key.number,
        cause=recording.cause.value,
        order_time=to_timestamp(recording.order_time_s),
        node_count=len(recording.node_ids),
        told_count=len(recording.told),
        spread=recording.spread,
        traffic=None if found is None else filled(wire.ProfileVerdict, found.traffic),
        sizes=None if found is None else filled(wire.ProfileVerdict, found.sizes),
        found_time=to_timestamp(recording.found_time_s),
    )


def _belief(belief: Belief) -> wire.TrafficBelief:
    basis, profile = belief.basis, belief.profile
    found = basis.found
    assert found is not None
    message = filled(
        wire.TrafficBelief,
        found,
        job_id=str(basis.key.job_id),
        attempt=basis.key.number,
        own=belief.own,
        family=basis.family,
        gpu_type=basis.gpu_type,
        gpu_count=basis.gpus,
        node_count=len(basis.node_ids),
        spread=basis.spread,
        traffic=filled(wire.ProfileVerdict, found.traffic),
        sizes=filled(wire.ProfileVerdict, found.sizes),
        iteration_count=found.iterations,
        rho=profile.rho,
        slowdown=profile.slowdown,
        found_time=to_timestamp(basis.found_time_s),
        period_duration=to_duration(found.period_s),
    )
    if belief.together is not None and belief.spread is not None and profile.slowdown is not None:
        message.together_attempt = str(belief.together.key)
        message.spread_attempt = str(belief.spread.key)
    return message
