"""A listed cluster over the SDK: the port of `doors` on real calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import grpc

from dlq.v1 import forecast_pb2, job_pb2
from dlq.v1 import forecast_service_pb2 as forecasts
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.forecast_service_pb2_grpc import ForecastServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_broker.doors import (
    Accepted,
    Declined,
    JobWait,
    Left,
    Proof,
    SavedThere,
    StillLeaves,
    Tried,
    Unheard,
    WaitState,
    Withdrawn,
)
from dlq_broker.offers import (
    FORMER_RELEASE,
    GUARANTEED,
    UNGUARANTEED,
    ClusterOffer,
    NoOffer,
    OfferAnswer,
    TimeSpan,
)
from dlq_client.line.connection import CALL_DEADLINE_S, Connection
from dlq_client.line.errors import did_nothing, from_rpc_error, is_lost
from dlq_common.errors import DlqError, InternalError, TryAgain, Unauthenticated, Unavailable
from dlq_common.text.wire import from_timestamp, to_duration, to_timestamp

# Of the bound, so much is for the way there and back.
_WAY_SHARE = 0.1
# A master waits at least so long for its twin.
_SHORT_S = 0.1
# The clock of a cluster may be ahead of this one.
_SOON_S = 60.0
# Refusals that say nothing about the job: a later try may be answered.
_NOT_NOW = (InternalError, TryAgain, Unauthenticated)


class WireCluster:
    """One cluster. `connect` makes its connection on demand, and may raise a DlqError."""

    def __init__(
        self,
        name: str,
        site: str,
        connect: Callable[[], Connection],
        now_s: float,
        price: float | None = None,
    ) -> None:
        """`now_s`: the caller's UTC clock, the same for all clusters of a question.

        A cluster's clock may differ.
        """
        self._name = name
        self._site = site
        self._connect = connect
        self._now_s = now_s
        self._price = price

    @property
    def name(self) -> str:
        return self._name

    @property
    def site(self) -> str:
        return self._site

    def offer(self, spec: bytes, within_s: float) -> OfferAnswer:
        return self._asked(
            forecasts.EstimateJobRequest(spec=job_pb2.JobSpec.FromString(spec)), within_s
        )

    def offer_of(self, job: str, within_s: float, *, looks: bool = True) -> OfferAnswer:
        asked = forecasts.EstimateJobRequest(job_id=job)
        return self._asked(asked, within_s, looks=looks)

    def _asked(
        self, asked: forecasts.EstimateJobRequest, within_s: float, *, looks: bool = True
    ) -> OfferAnswer:
        wait_s = max(_SHORT_S, within_s * (1 - _WAY_SHARE)) if looks else _SHORT_S
        asked.wait_duration.CopyFrom(to_duration(wait_s))
        try:
            line = self._connect()
        except DlqError as error:
            return self._no_offer(error, silent=isinstance(error, Unavailable))
        stub = ForecastServiceStub(line.channel)
        try:
            answer = self._once(line, stub.EstimateJob, asked, within_s)
        except grpc.RpcError as error:
            failure = from_rpc_error(error, line.identity.address)
            return self._no_offer(failure, silent=is_lost(error))
        saves = answer.job.checkpoint.path or answer.job.HasField("attempt_state")
        if (saves or asked.spec.checkpoint.resume_from) and not answer.knows_resume_from:
            why = "it is of a former release, and would begin without the checkpoint"
            return NoOffer(self._name, why, FORMER_RELEASE)
        return self._offered(answer)

    def waits(self, jobs: Sequence[str], within_s: float) -> Mapping[str, JobWait]:
        found: dict[str, JobWait] = {}
        try:
            line = self._connect()
            stub = JobServiceStub(line.channel)
            for job in jobs:
                # The first start of an array comes first.
                asked = wire.ListJobsRequest(job_ids=[job], order="start", page_size=1)
                for there in self._once(line, stub.ListJobs, asked, within_s / len(jobs)).jobs:
                    found[job] = _wait_of(there)
        except (DlqError, grpc.RpcError):
            pass  # what is not told now is asked for again at the next offer
        return found

    def submit(self, spec: bytes, key: str) -> Tried:
        asked = wire.SubmitJobRequest(request_id=key, spec=job_pb2.JobSpec.FromString(spec))
        asked.brief = True
        return self._changed("SubmitJob", asked)

    def take(self, job: str, version: int, key: str) -> Tried:
        asked = wire.CancelJobRequest(request_id=key, job_id=job, expected_version=version)
        return self._changed("CancelJob", asked)

    def pause(self, job: str, key: str) -> Tried:
        return self._changed("PauseJob", wire.PauseJobRequest(request_id=key, job_id=job))

    def left(self, job: str) -> Left:
        try:
            line = self._connect()
        except DlqError as error:
            return Unheard(error.what)
        asked = wire.GetJobRequest(job_id=job)
        try:
            there = self._once(line, JobServiceStub(line.channel).GetJob, asked)
        except grpc.RpcError as error:
            failure = from_rpc_error(error, line.identity.address)
            if is_lost(error) or isinstance(failure, _NOT_NOW):
                return Unheard(failure.what)
            return Declined(failure.what, failure.reason)
        if there.job.hold_kind != job_pb2.HOLD_KIND_PAUSED:
            return Declined("it is paused no more")
        if there.job.HasField("attempt_state"):
            return StillLeaves()
        return SavedThere(there.job.version, from_checkpoint(there, f"{self._name}-{job}"))

    def resume(self, job: str, key: str) -> Tried:
        answer = self._changed("ResumeJob", wire.ResumeJobRequest(request_id=key, job_id=job))
        if isinstance(answer, Declined) and answer.reason in [one.reason for one in _NOT_NOW]:
            return Unheard(answer.why)  # else the job that was paused would stay so
        return answer

    def _changed(self, method: str, asked: Any) -> Tried:
        """One try of a request that is answered with a job."""
        try:
            line = self._connect()
        except DlqError as error:
            return Unheard(error.what, left=False)
        try:
            answer = self._once(line, getattr(JobServiceStub(line.channel), method), asked)
        except grpc.RpcError as error:
            failure = from_rpc_error(error, line.identity.address)
            if is_lost(error) or isinstance(failure, InternalError):
                return Unheard(failure.what, left=not did_nothing(error))
            return Declined("; ".join(filter(None, (failure.what, failure.hint))), failure.reason)
        job = answer.job
        return Accepted(job.array_task.array_id if job.HasField("array_task") else job.job_id)

    def withdraw(self, key: str) -> Proof:
        asked = wire.WithdrawSubmissionRequest(request_id=key)
        try:
            line = self._connect()
        except DlqError as error:
            return Unheard(error.what)
        stub = JobServiceStub(line.channel)
        try:
            job_id = self._once(line, stub.WithdrawSubmission, asked).job_id
        except grpc.RpcError as error:
            return Unheard(_words(error, line))
        return Accepted(self._named(line, stub, job_id)) if job_id else Withdrawn()

    def _no_offer(self, error: DlqError, *, silent: bool) -> NoOffer:
        return NoOffer(self._name, error.what, error.reason, silent=silent)

    def _once(
        self, line: Connection, method: Any, request: Any, deadline_s: float = CALL_DEADLINE_S
    ) -> Any:
        """One try; a hand-over repeats it itself."""
        return line.asking(partial(method, request, timeout=deadline_s))

    def _named(self, line: Connection, stub: JobServiceStub, job_id: str) -> str:
        """The number of a job; of a task that of its array, as a submission answers."""
        try:
            job = self._once(line, stub.GetJob, wire.GetJobRequest(job_id=job_id)).job
        except grpc.RpcError:  # its events are gone, or the line: the number is right all the same
            return job_id
        return str(job.array_task.array_id) if job.HasField("array_task") else job_id

    def _offered(self, answer: forecasts.EstimateJobResponse) -> ClusterOffer:
        has, promise = answer.HasField, answer.job.promise
        # The forecast begins when its cluster was looked at, by the clock there. It is taken to
        # begin now: else an old look, or a clock that is behind, would make the earliest offer.
        shift_s = self._now_s - from_timestamp(answer.estimate_time)
        state, due = answer.promise_state, answer.promised_time
        if promise.state == GUARANTEED and promise.HasField("guaranteed_index"):
            state, due = GUARANTEED, promise.deadlines[promise.guaranteed_index].due_time
        elif promise.state == UNGUARANTEED:
            state = UNGUARANTEED
        return ClusterOffer(
            self._name,
            _span(answer.start, shift_s) if has("start") else None,
            _span(answer.end, shift_s) if has("end") else None,
            answer.basis,
            answer.missing,
            state,
            from_timestamp(due) if state == GUARANTEED else None,
            answer.job.resources.gpu_count,
            self._price,
        )


def leave_out_passed(spec: job_pb2.JobSpec, now_s: float) -> None:
    """Remove deadlines that have passed, which no cluster accepts.

    A due date that has passed becomes the present: each later hour costs as much as before.
    """
    for place in reversed(range(len(spec.deadlines))):
        step = spec.deadlines[place]
        if step.HasField("due_time") and from_timestamp(step.due_time) <= now_s:
            del spec.deadlines[place]
    if not spec.deadlines:
        spec.ClearField("on_miss")
    due = spec.lateness
    if due.HasField("due_time") and from_timestamp(due.due_time) <= now_s:
        due.due_time.CopyFrom(to_timestamp(now_s + _SOON_S))


def from_checkpoint(there: wire.GetJobResponse, place: str) -> bytes:
    """Fields of a spec, serialized, with which a job goes on elsewhere from its newest checkpoint.

    A script with a marker finds its own directory. Any other program is told the checkpoint, and
    saves in `place` below its directory, since job numbers of two clusters may be the same.
    """
    spec, saved = there.spec.checkpoint, there.job.checkpoint.path
    if spec.marker or not saved:
        return b""
    more = job_pb2.JobSpec()
    more.checkpoint.directory = f"{spec.directory.rstrip('/')}/{place}"
    more.checkpoint.resume_from = saved
    return more.SerializeToString(deterministic=True)


def _wait_of(job: job_pb2.Job) -> JobWait:
    if job.HasField("start_time"):
        waited_s = from_timestamp(job.start_time) - from_timestamp(job.submit_time)
        return JobWait(WaitState.STARTED, max(0.0, waited_s))
    waits = job.state in (job_pb2.JOB_STATE_PENDING, job_pb2.JOB_STATE_QUEUED)
    return JobWait(WaitState.WAITS if waits else WaitState.LEFT)


def _words(error: grpc.RpcError, line: Connection) -> str:
    failed: Any = error  # it is a grpc.Call too, as the stubs do not say
    if failed.code() is grpc.StatusCode.UNIMPLEMENTED:
        return "it is of a former release, and cannot say whether it has the job"
    return from_rpc_error(error, line.identity.address).what


def _span(told: forecast_pb2.TimeRange, shift_s: float) -> TimeSpan:
    has = told.HasField
    return TimeSpan(
        from_timestamp(told.earliest_time) + shift_s if has("earliest_time") else _NEVER,
        from_timestamp(told.likely_time) + shift_s if has("likely_time") else _NEVER,
        from_timestamp(told.latest_time) + shift_s if has("latest_time") else _NEVER,
    )


_NEVER = float("inf")
