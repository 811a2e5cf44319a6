"""Forecasts of job starts by the twin. Nothing here changes anything."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dlq.v1 import forecast_pb2
from dlq.v1 import forecast_service_pb2 as wire
from dlq.v1 import job_service_pb2 as jobs
from dlq_common.errors import ConfigError, InvalidRequest, TryAgain
from dlq_common.text.names import shown
from dlq_common.text.wire import said, to_duration, to_timestamp
from dlq_master.control.forecast.forecasts import NOT_SUBMITTED, Unknown
from dlq_master.control.placement.policies import NO_FLOOR, live_policy
from dlq_master.control.read_model.published import Published
from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.node import Gpu, Node, NodeState
from dlq_master.planner.forecasts import Changes, Forecast, Range, StartEstimate
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.reads import ENCODED
from dlq_master.rpc.jobs.visible import visible_job
from dlq_master.rpc.specs.deadlines import GUARANTEED, UNGUARANTEED
from dlq_master.rpc.specs.intake import node_id_of, submit_stimulus
from dlq_master.rpc.views.convert import range_message
from dlq_master.rpc.views.job_view import job_message

USUAL_WAIT_S, LONGEST_WAIT_S = 20.0, 60.0
MOST_NODES, MOST_GPUS = 10_000, 64
MOST_ADDED_JOBS = 8


async def estimate_job(call: Call, request: wire.EstimateJobRequest) -> wire.EstimateJobResponse:
    job = await _asked(call, request)
    told = job_message(job, call.read, call.now_s)
    answer = wire.EstimateJobResponse(job=told, knows_resume_from=True)
    if job.ended:
        answer.missing = f"it has ended: {job.state.value}"
        return answer
    if not job.job_id or request.HasField("spec"):
        job = job._replace(job_id=NOT_SUBMITTED)
    try:
        found = await call.parts.foresight.estimate(job, _wait_s(request))
    except Unknown as error:
        answer.missing = str(error)
        return answer
    return wire.EstimateJobResponse(
        job=answer.job,
        estimate_time=to_timestamp(found.at_s),
        basis=found.basis,
        start=_range(found.start),
        end=_range(found.end),
        knows_resume_from=True,
        **_verdict(job, found),
    )


def _verdict(job: Job, found: StartEstimate) -> dict[str, Any]:
    """The verdict on the deadlines of a job that is not submitted."""
    if not (found.judged and job.steps):
        return {}
    if found.promised is None or found.promised >= len(job.steps):
        return {"promise_state": UNGUARANTEED}
    due = to_timestamp(due_s(job, found.promised))
    return {"promise_state": GUARANTEED, "promised_time": due}


async def get_forecast_quality(
    call: Call, request: wire.GetForecastQualityRequest
) -> wire.GetForecastQualityResponse:
    quality, latest = call.parts.foresight.quality(), call.parts.foresight.latest
    answer = wire.GetForecastQualityResponse(
        job_count=quality.jobs,
        error_median_duration=to_duration(quality.median_s),
        error_p90_duration=to_duration(quality.p90_s),
        late_median_duration=to_duration(quality.late_median_s),
        within_ratio=quality.within_share or 0.0,
        wait_median_duration=to_duration(quality.wait_median_s),
    )
    if latest is not None:
        answer.look_time.CopyFrom(to_timestamp(latest.at_s))
        answer.world_count = latest.worlds
        answer.cpu_duration.CopyFrom(to_duration(latest.cpu_s))
        answer.estimate_count = len(latest.starts)
    return answer


async def compare_forecasts(
    call: Call, request: wire.CompareForecastsRequest
) -> wire.CompareForecastsResponse:
    changes = changes_of(request, call.read)._replace(come=await _added_jobs(call, request))
    try:
        found = await call.parts.foresight.what_if(changes, LONGEST_WAIT_S)
    except Unknown as error:
        raise TryAgain(f"no forecast: {error}") from None
    now, then = found.now, found.then
    come = {job.job_id: job for job in changes.come}
    breathe = call.breathe()
    answer = wire.CompareForecastsResponse(estimate_time=to_timestamp(now.at_s))
    for job_id in sorted({*now.starts, *then.starts, *now.ends, *then.ends}):
        job = come.get(job_id) or call.read.job(job_id)
        answer.starts.append(_in_both(job_id, job, now, then))
        await breathe(ENCODED)
    return answer


def _in_both(job_id: JobId, job: Job | None, now: Forecast, then: Forecast) -> wire.ComparedStart:
    return wire.ComparedStart(
        job_id=_named(job_id),
        start=_range(now.starts.get(job_id)),
        other_start=_range(then.starts.get(job_id)),
        end=_range(now.ends.get(job_id)),
        other_end=_range(then.ends.get(job_id)),
        due_time=to_timestamp(_due_s(job)),
        running=job is not None and job.live_attempt is not None,
    )


async def _added_jobs(call: Call, request: wire.CompareForecastsRequest) -> tuple[Job, ...]:
    """The jobs as they would be accepted, under ids that no other job has."""
    if len(request.added_jobs) > MOST_ADDED_JOBS:
        raise InvalidRequest(f"at most {MOST_ADDED_JOBS} jobs", field="added_jobs")
    added = []
    for place, spec in enumerate(request.added_jobs):
        submission = jobs.SubmitJobRequest(spec=spec, validate_only=True)
        job = (await call.ask(submit_stimulus(submission, call.caller))).job
        added.append(job._replace(job_id=JobId(NOT_SUBMITTED + place)))
    return tuple(added)


def _named(job_id: JobId) -> str:
    return f"new-{job_id - NOT_SUBMITTED + 1}" if job_id >= NOT_SUBMITTED else str(job_id)


def _due_s(job: Job | None) -> float | None:
    if job is None or not job.steps:
        return None
    return due_s(job, len(job.steps) - 1 if job.promised is None else job.promised)


async def _asked(call: Call, request: wire.EstimateJobRequest) -> Job:
    """The existing job, or the job that would be accepted."""
    if bool(request.job_id) == request.HasField("spec"):
        raise InvalidRequest("name a job or give a spec, one of them", field="job_id")
    if request.job_id:
        return visible_job(call.read, call.caller, request.job_id)
    submission = jobs.SubmitJobRequest(spec=request.spec, validate_only=True)
    return (await call.ask(submit_stimulus(submission, call.caller))).job


def changes_of(request: wire.CompareForecastsRequest, read: Published) -> Changes:
    """The changed assumption, checked. InvalidRequest: it makes no sense."""
    nodes = request.added_nodes or request.closed_node_ids or request.lost_node_ids
    if not (nodes or request.policy or request.added_jobs):
        raise InvalidRequest("nothing would be otherwise: name nodes, jobs or a policy")
    settings: Mapping[str, str] = {}
    if request.policy:
        try:
            told = dict(request.policy_settings)
            classes = [queue.interactive for queue in read.queues() if queue.interactive]
            floor = classes[0].floor_words if classes else NO_FLOOR
            settings = live_policy(request.policy, told, read.teams(), floor).settings
        except ConfigError as error:
            raise InvalidRequest(error.what, field="policy") from None
    return Changes(
        more=tuple(_added(request.added_nodes, read.nodes())),
        closed=_there(request.closed_node_ids, "closed_node_ids", read),
        lost=_there(request.lost_node_ids, "lost_node_ids", read),
        policy=request.policy,
        settings=dict(settings),
    )


def _there(names: Iterable[str], field: str, read: Published) -> tuple[NodeId, ...]:
    node_ids = tuple(node_id_of(text, field) for text in names)
    for node_id in node_ids:
        if read.node(node_id) is None:
            raise InvalidRequest(f"there is no node {node_id}", field=field)
    return node_ids


def _added(asked: Iterable[wire.AddedNodes], nodes: Iterable[Node]) -> Iterator[Node]:
    """Nodes like existing ones, if there are any of their kind."""
    known = list(nodes)
    number = 0
    for group in asked:
        if not 1 <= group.node_count <= MOST_NODES or not 1 <= group.gpu_count <= MOST_GPUS:
            why = f"from 1 to {MOST_NODES} nodes of 1 to {MOST_GPUS} GPUs"
            raise InvalidRequest(f"added nodes are {why}", field="added_nodes")
        gpu_type = group.gpu_type or _usual_type(known)
        alike = _alike(known, gpu_type)
        memory_bytes = alike.gpus[0].memory_bytes
        gpus = tuple(
            Gpu(index=index, gpu_type=gpu_type, memory_bytes=memory_bytes)
            for index in range(group.gpu_count)
        )
        for _ in range(group.node_count):
            number += 1
            if number > MOST_NODES:
                raise InvalidRequest(f"at most {MOST_NODES} nodes", field="added_nodes")
            yield Node(
                node_id=NodeId(f"what-if-{number}"),
                gpus=gpus,
                cpu_count=alike.cpu_count,
                memory_bytes=alike.memory_bytes,
                runtimes=alike.runtimes,
                labels=alike.labels,
                virtual=True,
            )


def _usual_type(nodes: list[Node]) -> str:
    types = Counter(gpu.gpu_type for node in nodes for gpu in node.gpus)
    if not types:
        raise InvalidRequest("say of which type the GPUs are", field="added_nodes")
    return types.most_common(1)[0][0]


def _alike(nodes: list[Node], gpu_type: str) -> Node:
    """A node with such GPUs, the first one that is up."""
    alike = [node for node in nodes if any(gpu.gpu_type == gpu_type for gpu in node.gpus)]
    if not alike:
        known = sorted({gpu.gpu_type for node in nodes for gpu in node.gpus})
        raise InvalidRequest(
            f"no node has GPUs of type {shown(gpu_type)}",
            field="added_nodes",
            hint=f"there are {', '.join(known)}",
        )
    return min(alike, key=lambda node: node.state is not NodeState.UP)


def _wait_s(request: wire.EstimateJobRequest) -> float:
    wait_s: float | None = said(request, "wait_duration")
    if wait_s is None:
        return USUAL_WAIT_S
    if not (math.isfinite(wait_s) and 0.0 < wait_s <= LONGEST_WAIT_S):
        why = f"wait_duration is above 0, up to {LONGEST_WAIT_S:g} s"
        raise InvalidRequest(why, field="wait_duration")
    return wait_s


def _range(range_: Range | None) -> forecast_pb2.TimeRange | None:
    return None if range_ is None else range_message(range_)
