"""Forecasts of job starts by the twin, as messages. Nothing here changes anything."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from google.protobuf.duration_pb2 import Duration

from dlq.v1 import forecast_pb2
from dlq.v1 import forecast_service_pb2 as wire
from dlq.v1 import job_service_pb2 as jobs
from dlq.v1.forecast_service_pb2_grpc import ForecastServiceServicer
from dlq_common.clock import Clock
from dlq_common.errors import ConfigError, InvalidRequest, TryAgain
from dlq_common.text.names import shown
from dlq_common.text.wire import from_duration, to_duration, to_timestamp
from dlq_master.control.forecast.forecasts import NOT_SUBMITTED, Unknown
from dlq_master.control.loop.ports import Control, Foresight, ReadModel
from dlq_master.control.placement.policies import live_policy
from dlq_master.control.stimuli import Caller, Submitted
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.node import Gpu, Node, NodeState
from dlq_master.planner.forecasts import Changes, Range
from dlq_master.rpc.calls.auth import caller_of
from dlq_master.rpc.calls.call import Context
from dlq_master.rpc.jobs.visible import visible_job
from dlq_master.rpc.specs.intake import node_id_of, submit_stimulus
from dlq_master.rpc.views.convert import job_message, range_message

USUAL_WAIT_S, LONGEST_WAIT_S = 20.0, 60.0
MOST_NODES, MOST_GPUS = 10_000, 64


class ForecastService(ForecastServiceServicer):
    """dlq.v1.ForecastService."""

    def __init__(self, control: Control, foresight: Foresight, clock: Clock) -> None:
        self._control = control
        self._foresight = foresight
        self._clock = clock

    async def EstimateJob(
        self, request: wire.EstimateJobRequest, context: Context
    ) -> wire.EstimateJobResponse:
        caller = caller_of(context)
        job = await self._asked(request, caller)
        message = job_message(job, self._control.published, self._clock.now_s())
        answer = wire.EstimateJobResponse(job=message)
        if job.ended:
            answer.missing = f"it has ended: {job.state.value}"
            return answer
        if not job.job_id or request.HasField("spec"):
            job = job._replace(job_id=NOT_SUBMITTED)
        try:
            found = await self._foresight.estimate(job, _wait_s(request))
        except Unknown as error:
            answer.missing = str(error)
            return answer
        answer.estimate_time.CopyFrom(to_timestamp(found.at_s))
        answer.basis = found.basis
        if found.start is not None:
            answer.start.CopyFrom(range_message(found.start))
        if found.end is not None:
            answer.end.CopyFrom(range_message(found.end))
        return answer

    async def GetForecastQuality(
        self, request: wire.GetForecastQualityRequest, context: Context
    ) -> wire.GetForecastQualityResponse:
        quality, latest = self._foresight.quality(), self._foresight.latest
        answer = wire.GetForecastQualityResponse(
            job_count=quality.jobs,
            error_median_duration=_span(quality.median_s),
            error_p90_duration=_span(quality.p90_s),
            late_median_duration=_span(quality.late_median_s),
            within_ratio=quality.within_share or 0.0,
            wait_median_duration=_span(quality.wait_median_s),
        )
        if latest is not None:
            answer.look_time.CopyFrom(to_timestamp(latest.at_s))
            answer.world_count = latest.worlds
            answer.cpu_duration.CopyFrom(to_duration(latest.cpu_s))
            answer.estimate_count = len(latest.starts)
        return answer

    async def CompareForecasts(
        self, request: wire.CompareForecastsRequest, context: Context
    ) -> wire.CompareForecastsResponse:
        changes = changes_of(request, self._control.published)
        try:
            found = await self._foresight.what_if(changes, LONGEST_WAIT_S)
        except Unknown as error:
            raise TryAgain(f"no forecast: {error}") from None
        now, then = found.now.starts, found.then.starts
        return wire.CompareForecastsResponse(
            estimate_time=to_timestamp(found.now.at_s),
            starts=[
                wire.ComparedStart(
                    job_id=str(job_id),
                    start=_range(now.get(job_id)),
                    other_start=_range(then.get(job_id)),
                )
                for job_id in sorted({*now, *then})
            ],
        )

    async def _asked(self, request: wire.EstimateJobRequest, caller: Caller) -> Job:
        """The job that is there, or the one that would be accepted."""
        if bool(request.job_id) == request.HasField("spec"):
            raise InvalidRequest("name a job or give a spec, one of them", field="job_id")
        if request.job_id:
            return visible_job(self._control.published, caller, request.job_id)
        submission = jobs.SubmitJobRequest(spec=request.spec, validate_only=True)
        submitted = await self._control.ask(submit_stimulus(submission, caller))
        assert isinstance(submitted, Submitted)
        return submitted.job


def changes_of(request: wire.CompareForecastsRequest, read: ReadModel) -> Changes:
    """The changed assumption, checked. Raises InvalidRequest."""
    if not (request.added_nodes or request.closed_node_ids or request.policy):
        raise InvalidRequest("nothing would be otherwise: name nodes or a policy")
    closed = [node_id_of(text, "closed_node_ids") for text in request.closed_node_ids]
    for node_id in closed:
        if read.node(node_id) is None:
            raise InvalidRequest(f"there is no node {node_id}", field="closed_node_ids")
    settings: Mapping[str, str] = {}
    if request.policy:
        try:
            told = dict(request.policy_settings)
            settings = live_policy(request.policy, told, read.teams()).settings
        except ConfigError as error:
            raise InvalidRequest(error.what, field="policy") from None
    return Changes(
        more=tuple(_added(request.added_nodes, read.nodes())),
        closed=tuple(closed),
        policy=request.policy,
        settings=dict(settings),
    )


def _added(asked: Iterable[wire.AddedNodes], nodes: Iterable[Node]) -> Iterator[Node]:
    """Nodes like those that are there, as far as there are any of their kind."""
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
    """A node with such GPUs, the first that is up."""
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
    if not request.HasField("wait_duration"):
        return USUAL_WAIT_S
    wait_s = from_duration(request.wait_duration)
    if not (math.isfinite(wait_s) and 0.0 < wait_s <= LONGEST_WAIT_S):
        why = f"wait_duration is above 0, up to {LONGEST_WAIT_S:g} s"
        raise InvalidRequest(why, field="wait_duration")
    return wait_s


def _span(seconds: float | None) -> Duration | None:
    return None if seconds is None else to_duration(seconds)


def _range(range_: Range | None) -> forecast_pb2.TimeRange | None:
    return None if range_ is None else range_message(range_)
