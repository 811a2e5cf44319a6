"""A master that says what a test told it to: real gRPC, real mutual TLS, canned answers.

It keeps what clients must be able to rely on (identity from the certificate, one answer for one
request id, cursors, offsets) and has knobs for what they must survive: lost replies, refusals,
broken streams. It schedules nothing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from dlq.v1 import admin_service_pb2 as admin
from dlq.v1 import admin_service_pb2_grpc as admin_grpc
from dlq.v1 import (
    event_pb2,
    exec_pb2,
    job_pb2,
    master_profile_pb2,
    node_pb2,
    policy_pb2,
    profile_pb2,
    queue_pb2,
    team_pb2,
)
from dlq.v1 import forecast_service_pb2 as forecasts
from dlq.v1 import forecast_service_pb2_grpc as forecasts_grpc
from dlq.v1 import identity_service_pb2 as identity
from dlq.v1 import identity_service_pb2_grpc as identity_grpc
from dlq.v1 import job_service_pb2 as wire
from dlq.v1 import job_service_pb2_grpc as wire_grpc
from dlq.v1 import node_service_pb2 as nodes
from dlq.v1 import node_service_pb2_grpc as nodes_grpc
from dlq.v1 import queue_service_pb2 as queues
from dlq.v1 import queue_service_pb2_grpc as queues_grpc
from dlq.v1 import team_service_pb2 as teams
from dlq.v1 import team_service_pb2_grpc as teams_grpc
from dlq_cli.words import has_ended, shown_state
from dlq_client.line.identity import Identity, save_identity
from dlq_common.clock import SteadyClock
from dlq_common.identity.pki import Authority, Role, new_key_and_csr, parse_identity
from dlq_common.text.wire import to_timestamp
from support.wire_jobs import EPOCH_S

CHUNK = 16


def names_of(job: job_pb2.Job) -> set[str]:
    """The words that mean this job, or the array or group that it is part of."""
    if not job.HasField("array_task"):
        return {job.job_id}
    place = job.array_task
    return {job.job_id, place.array_id, f"{place.array_id}_{place.index}"}


_CHANGES = frozenset({"SubmitJob", "CancelJob", "PauseJob", "ResumeJob", "WithdrawSubmission"})


class FakeMaster(
    wire_grpc.JobServiceServicer,
    nodes_grpc.NodeServiceServicer,
    queues_grpc.QueueServiceServicer,
    admin_grpc.AdminServiceServicer,
    identity_grpc.IdentityServiceServicer,
    forecasts_grpc.ForecastServiceServicer,
    teams_grpc.TeamServiceServicer,
):
    """Fill the dictionaries, then serve. `asked` holds every request with its caller, in order."""

    def __init__(self) -> None:
        self.authority = Authority.create("lab", SteadyClock().now_s())
        self.asked: list[tuple[str, str, Any]] = []
        self.jobs: dict[str, job_pb2.Job] = {}
        self.tries_attempts = True  # with their hooks: a former release tries on_submit instead
        self.knows_lists = True  # their words, orders and totals: a former release does not
        self.specs: dict[str, job_pb2.JobSpec] = {}
        self.attempts: dict[str, list[job_pb2.Attempt]] = {}
        self.reasons: dict[str, list[job_pb2.WaitReason]] = {}
        self.steps: list[wire.AttemptSteps] = []
        self.events: list[event_pb2.Event] = []
        self.logs: dict[tuple[str, int, int], bytes] = {}
        self.log_starts_at = 0  # bytes before it were not kept
        self.log_ended = True
        self.inside: list[exec_pb2.ExecOutput] = []  # what every `dlq exec` is told
        self.traffic: dict[str, profile_pb2.JobTraffic] = {}
        self.profiles: dict[str, bytes] = {}
        self.nodes: dict[str, node_pb2.Node] = {}
        self.queues: list[queue_pb2.Queue] = []
        self.users: dict[str, admin.User] = {}
        self.teams: list[team_pb2.Team] = []
        self.policy = policy_pb2.Policy(policy="fifo")
        self.planner = policy_pb2.Planner(state="off")
        self.ca = admin.AuthorityFacts(
            fingerprint="a1" * 32, expire_time=to_timestamp(EPOCH_S + 86_400 * 365)
        )
        self.hooks = admin.HooksFacts(file="/etc/dlq/my-hooks.py", digest="a1" * 32, start_count=2)
        self.hooks.walls.extend(("network", "account"))
        self.hooks.hooks.add(hook="on_submit", policy="closed", ok_count=7, refused_count=1)
        self.part = admin.MasterPart(address="head1:7320", part="alone", epoch=7)
        self.renewal_wanted = False
        self.revocations: list[admin.Revocation] = []
        self.grants: list[admin.Grant] = []
        self.tokens: dict[str, admin.JoinToken] = {}
        self.freeze_reason = ""
        self.estimate = forecasts.EstimateJobResponse(missing="nobody has looked yet")
        # The answer to each question; None: always `estimate`.
        self.estimate_of: (
            Callable[[forecasts.EstimateJobRequest], forecasts.EstimateJobResponse] | None
        ) = None
        self.compared = forecasts.CompareForecastsResponse()
        self.forecast_quality = forecasts.GetForecastQualityResponse()
        self.own_profile = master_profile_pb2.MasterProfile()
        self.role = "user"  # what the master takes callers for
        self.submitted: dict[str, str] = {}  # request id -> job id
        self.cancelled: dict[str, str] = {}  # the same of CancelJob, and of PauseJob
        self.withdrawn: set[str] = set()  # request ids that are used up
        self._submissions: dict[str, bytes] = {}  # request id -> its spec, without its begin
        # After so many looks a paused job is off its GPUs; 0: it stays as it is.
        self.leaves_after_looks = 0
        self._looks = Counter[str]()
        self.hidden: set[str] = set()  # jobs of others, for CancelJobs
        self._losses: dict[str, int] = {}
        self._cut_at: tuple[int, int, bool] | None = None
        self._once: set[str] = set()
        self._refusals: dict[str, tuple[grpc.StatusCode, str, dict[str, str]]] = {}
        self._stream_cuts = 0
        self._changed = threading.Condition()
        self.stopping = False
        self._start()

    # -- knobs -------------------------------------------------------------------------------

    def lose_replies(self, method: str, count: int) -> None:
        """Act on the next `count` calls of a method, but let their answers get lost."""
        self._losses[method] = count

    def cut(self, first: int, *, answers: bool, times: int = 1) -> None:
        """The line breaks at some requests from now on: `times` of them, after `first` others.
        `answers`: they have arrived, and their answers are lost.
        """
        begin = len(self.asked) + first
        self._cut_at = begin, begin + times, answers

    @property
    def was_cut(self) -> bool:
        """Whether the line has been broken."""
        return self._cut_at is not None and len(self.asked) > self._cut_at[0]

    def refuse(self, method: str, code: grpc.StatusCode, reason: str, **facts: str) -> None:
        """Answer a method with this error from now on; `what` among the facts is the message."""
        self._refusals[method] = (code, reason, facts)

    def refuse_once(self, method: str, code: grpc.StatusCode, reason: str, **facts: str) -> None:
        """Answer the next call of a method with this error."""
        self._once.add(method)
        self.refuse(method, code, reason, **facts)

    def refuse_no_more(self, method: str) -> None:
        """Answer a method again."""
        del self._refusals[method]

    def cut_streams(self, count: int) -> None:
        """Break the next `count` streams after their first message."""
        self._stream_cuts = count

    def tell(self, event: event_pb2.Event, job: job_pb2.Job | None = None) -> None:
        """Something happens: watchers hear of it."""
        with self._changed:
            if job is not None:
                self.jobs[job.job_id] = job
            self.events.append(event)
            self._changed.notify_all()

    def write_log(self, key: tuple[str, int, int], data: bytes, *, ended: bool = False) -> None:
        """More output; `ended` when the attempt has ended with it."""
        with self._changed:
            self.logs[key] = self.logs.get(key, b"") + data
            self.log_ended = self.log_ended or ended
            self._changed.notify_all()

    def identity_of(self, name: str = "alice", role: str = "user") -> Identity:
        """An identity of this cluster, good for 30 days from now."""
        made = new_key_and_csr(name)
        certificate = self.authority.sign_user(
            made.request, name, Role(role), SteadyClock().now_s()
        )
        who = parse_identity(certificate)
        return Identity(
            key=made.key,
            certificate=certificate,
            ca=self.authority.certificate_pem(),
            address=f"127.0.0.1:{self.port}",
            cluster="lab",
            user=name,
            role=role,
            issued_s=who.issued_s,
            expires_s=who.not_after_s,
        )

    def home(self, directory: Path, name: str = "alice", role: str = "user") -> Path:
        """An identity directory of this cluster."""
        save_identity(directory, self.identity_of(name, role))
        return directory

    def requests(self, method: str) -> list[Any]:
        """What was asked of one method."""
        return [request for name, _, request in self.asked if name == method]

    def stop(self) -> None:
        """Answer nothing any more."""
        self.stopping = True
        with self._changed:
            self._changed.notify_all()
        self._server.stop(0).wait()
        self._pool.shutdown()

    # -- jobs --------------------------------------------------------------------------------

    def SubmitJob(self, request: wire.SubmitJobRequest, context: Any) -> wire.SubmitJobResponse:
        user = self._note("SubmitJob", request, context)
        self._check_withdrawn(request.request_id, context)
        self._check_repeat(request, context)
        job_id = self.submitted.get(request.request_id) or str(17 + len(self.submitted))
        job = self.jobs.get(job_id) or job_pb2.Job(
            job_id="" if request.validate_only else job_id,
            user=user,
            name=request.spec.name,
            queue=request.spec.queue or "default",
            state=job_pb2.JOB_STATE_QUEUED,
            resources=request.spec.resources,
            submit_time=to_timestamp(EPOCH_S),
            version=1,
        )
        if request.spec.HasField("array"):
            job.array_task.array_id, job.array_task.task_count = job_id, 10
        if not request.validate_only:
            self.submitted[request.request_id] = job_id
            self.jobs[job_id] = job
            self.specs[job_id] = request.spec
        self._lose("SubmitJob", context)
        return wire.SubmitJobResponse(
            job=job,
            reasons=self.reasons.get(job_id, ()),
            jobs_ahead_count=2 if shown_state(job) == "queued" else None,
        )

    def WithdrawSubmission(
        self, request: wire.WithdrawSubmissionRequest, context: Any
    ) -> wire.WithdrawSubmissionResponse:
        self._note("WithdrawSubmission", request, context)
        job_id = (self.submitted | self.cancelled).get(request.request_id, "")
        if not job_id:
            self.withdrawn.add(request.request_id)
        self._lose("WithdrawSubmission", context)
        return wire.WithdrawSubmissionResponse(job_id=job_id)

    def SubmitJobs(self, request: wire.SubmitJobsRequest, context: Any) -> wire.SubmitJobsResponse:
        self._note("SubmitJobs", request, context)
        response = wire.SubmitJobsResponse()
        for number, spec in enumerate(request.specs):
            key = f"{request.request_id}#{number}"
            one = self.SubmitJob(wire.SubmitJobRequest(request_id=key, spec=spec), context)
            response.jobs.add(job_id=one.job.job_id)
        return response

    def GetJob(self, request: wire.GetJobRequest, context: Any) -> wire.GetJobResponse:
        self._note("GetJob", request, context)
        job = self._job(request.job_id, context)
        if job.hold_kind == job_pb2.HOLD_KIND_PAUSED and self.leaves_after_looks:
            self._looks[job.job_id] += 1
            if self._looks[job.job_id] == self.leaves_after_looks:
                job.ClearField("attempt_state")
                job.version += 1
        return wire.GetJobResponse(
            job=job,
            spec=self.specs.get(job.job_id),
            attempts=self.attempts.get(job.job_id, ()),
            traffic=self.traffic.get(job.job_id),
            profile=self.profiles.get(job.job_id, b"") if request.with_profile else b"",
            profile_attempt=f"{job.job_id}.1" if job.job_id in self.profiles else "",
        )

    def ListJobs(self, request: wire.ListJobsRequest, context: Any) -> wire.ListJobsResponse:
        self._note("ListJobs", request, context)
        wanted = [
            job
            for job in self.jobs.values()
            if (not request.job_ids or names_of(job) & set(request.job_ids))
            and (not request.states or shown_state(job) in request.states)
            and (not request.name or job.name == request.name)
            and (not self.knows_lists or request.text in f"{job.name} {job.user}")
            and _is_in_span(job, request)
        ]
        if self.knows_lists and request.order == "-gpus":
            wanted.sort(key=lambda job: -job.resources.gpu_count)
        after = int(request.page_token or 0)
        page = wanted[after : after + (request.page_size or 1000)]
        left = after + len(page) < len(wanted)
        return wire.ListJobsResponse(
            jobs=page,
            next_page_token=str(after + len(page)) if left else "",
            cursor=self.events[-1].sequence if self.events else 0,
            details=[self._detail(job) for job in page] if request.with_details else [],
            total_count=len(wanted) if request.with_total and self.knows_lists else None,
        )

    def _detail(self, job: job_pb2.Job) -> wire.JobDetail:
        detail = wire.JobDetail(
            spec=self.specs.get(job.job_id), attempts=self.attempts.get(job.job_id, [])
        )
        detail.has_script = bool(detail.spec.script)
        detail.spec.ClearField("script")
        detail.spec.ClearField("environment")
        return detail

    def CancelJob(self, request: wire.CancelJobRequest, context: Any) -> wire.CancelJobResponse:
        self._note("CancelJob", request, context)
        job = self._job(request.job_id, context)
        self._check_withdrawn(request.request_id, context)
        if request.request_id not in self.cancelled:
            if request.expected_version not in (0, job.version):
                _abort(context, grpc.StatusCode.ABORTED, "CONFLICT", what="it has changed")
            self.cancelled[request.request_id] = job.job_id
        if not has_ended(job):
            job.state = job_pb2.JOB_STATE_CANCELLED
        self._lose("CancelJob", context)
        return wire.CancelJobResponse(job=job)

    def CancelJobs(self, request: wire.CancelJobsRequest, context: Any) -> wire.CancelJobsResponse:
        self._note("CancelJobs", request, context)
        response = wire.CancelJobsResponse()
        for job_id in request.job_ids:
            job = next((it for it in self.jobs.values() if job_id in names_of(it)), None)
            if job is None or job_id in self.hidden:
                what = f"there is no job {job_id}"
                response.refusals.add(job_id=job_id, reason="NOT_FOUND", detail=what)
                continue
            if not has_ended(job):
                job.state = job_pb2.JOB_STATE_CANCELLED
            response.jobs.extend([job] if request.with_jobs else [])
        self._lose("CancelJobs", context)
        return response

    def HoldJob(self, request: wire.HoldJobRequest, context: Any) -> wire.HoldJobResponse:
        user = self._note("HoldJob", request, context)
        job = self._job(request.job_id, context)
        job.state = job_pb2.JOB_STATE_HELD
        job.hold_kind = job_pb2.HOLD_KIND_ADMIN if request.admin else job_pb2.HOLD_KIND_USER
        job.hold_reason, job.held_by = request.reason, user
        job.wait_code = "held_admin" if request.admin else "held_user"
        return wire.HoldJobResponse(job=job)

    def ReleaseJob(self, request: wire.ReleaseJobRequest, context: Any) -> wire.ReleaseJobResponse:
        self._note("ReleaseJob", request, context)
        return wire.ReleaseJobResponse(job=self._queued(request.job_id, context))

    def PauseJob(self, request: wire.PauseJobRequest, context: Any) -> wire.PauseJobResponse:
        self._note("PauseJob", request, context)
        job = self._job(request.job_id, context)
        self._check_withdrawn(request.request_id, context)
        if request.request_id not in self.cancelled:
            job.state, job.hold_kind = job_pb2.JOB_STATE_HELD, job_pb2.HOLD_KIND_PAUSED
            self.cancelled[request.request_id] = job.job_id
        self._lose("PauseJob", context)
        return wire.PauseJobResponse(job=job)

    def UpdateJob(self, request: wire.UpdateJobRequest, context: Any) -> wire.UpdateJobResponse:
        self._note("UpdateJob", request, context)
        job = self._job(request.job_id, context)
        change = wire.FieldChange(
            job_id=job.job_id, field="name", before=job.name, after=request.name
        )
        job.name = request.name
        return wire.UpdateJobResponse(job=job, changes=[change] if change.after else [])

    def RequeueJob(self, request: wire.RequeueJobRequest, context: Any) -> wire.RequeueJobResponse:
        self._note("RequeueJob", request, context)
        return wire.RequeueJobResponse(job=self._queued(request.job_id, context))

    def SignalJob(self, request: wire.SignalJobRequest, context: Any) -> wire.SignalJobResponse:
        self._note("SignalJob", request, context)
        return wire.SignalJobResponse(job=self._job(request.job_id, context))

    def CheckpointJob(
        self, request: wire.CheckpointJobRequest, context: Any
    ) -> wire.CheckpointJobResponse:
        self._note("CheckpointJob", request, context)
        return wire.CheckpointJobResponse(job=self._job(request.job_id, context))

    def ResumeJob(self, request: wire.ResumeJobRequest, context: Any) -> wire.ResumeJobResponse:
        self._note("ResumeJob", request, context)
        job = self._queued(request.job_id, context)
        self._lose("ResumeJob", context)
        return wire.ResumeJobResponse(job=job)

    def ExplainJob(self, request: wire.ExplainJobRequest, context: Any) -> wire.ExplainJobResponse:
        self._note("ExplainJob", request, context)
        job = self._job(request.job_id, context)
        reasons = self.reasons.get(job.job_id, [])
        return wire.ExplainJobResponse(
            job=job,
            reasons=reasons,
            jobs_ahead_count=2 if shown_state(job) == "queued" else None,
            traffic=self.traffic.get(job.job_id),
        )

    def AttendJob(self, request: wire.AttendJobRequest, context: Any) -> wire.AttendJobResponse:
        self._note("AttendJob", request, context)
        return wire.AttendJobResponse(job=self._job(request.job_id, context))

    def ListSteps(self, request: wire.ListStepsRequest, context: Any) -> wire.ListStepsResponse:
        self._note("ListSteps", request, context)
        for job_id in request.job_ids:
            self._job(job_id, context)
        found = [one for one in self.steps if one.job_id in (request.job_ids or self.jobs)]
        if not request.all_attempts:
            found = list({one.job_id: one for one in found}.values())
        return wire.ListStepsResponse(attempts=found)

    def ListEvents(self, request: wire.ListEventsRequest, context: Any) -> wire.ListEventsResponse:
        self._note("ListEvents", request, context)
        named = {request.job_id, *request.job_ids} - {""}
        wanted = [e for e in self.events if not named or e.job_id in named]
        return wire.ListEventsResponse(events=wanted)

    def WatchEvents(
        self, request: wire.WatchEventsRequest, context: Any
    ) -> Iterator[wire.WatchEventsResponse]:
        self._note("WatchEvents", request, context)
        cursor, told = request.cursor, 0
        if cursor < 0:
            cursor = self.events[-1].sequence if self.events else 0
        while context.is_active() and not self.stopping:
            for event in list(self.events):
                if event.sequence <= cursor:
                    continue
                cursor = event.sequence
                if request.job_ids and event.job_id not in request.job_ids:
                    continue
                yield wire.WatchEventsResponse(
                    event=event, cursor=cursor, job=self.jobs.get(event.job_id)
                )
                told += 1
                self._cut(context, told)
            with self._changed:
                self._changed.wait(0.02)

    def ReadLogs(
        self, request: wire.ReadLogsRequest, context: Any
    ) -> Iterator[wire.ReadLogsResponse]:
        self._note("ReadLogs", request, context)
        attempt = request.attempt or len(self.attempts.get(request.job_id, ()))
        key = (request.job_id, attempt, request.node_rank)
        if key not in self.logs:
            _abort(context, grpc.StatusCode.NOT_FOUND, "NOT_FOUND", what="no such output")
        at, told = request.offset, 0
        if at < 0:
            at += len(self.logs[key])
        at = max(at, self.log_starts_at)
        while context.is_active() and not self.stopping:
            while at < len(self.logs[key]):
                data = self.logs[key][at : at + CHUNK]
                yield wire.ReadLogsResponse(offset=at, data=data, attempt=attempt)
                at += len(data)
                told += 1
                self._cut(context, told)
            if (self.log_ended or not request.follow) and at >= len(self.logs[key]):
                yield wire.ReadLogsResponse(offset=at, end=True, attempt=attempt)
                return
            with self._changed:
                self._changed.wait(0.02)

    # -- nodes, queues, the cluster ----------------------------------------------------------

    def GetGpuMap(self, request: nodes.GetGpuMapRequest, context: Any) -> nodes.GetGpuMapResponse:
        self._note("GetGpuMap", request, context)
        return nodes.GetGpuMapResponse()

    def ListNodes(self, request: nodes.ListNodesRequest, context: Any) -> nodes.ListNodesResponse:
        self._note("ListNodes", request, context)
        answer = nodes.ListNodesResponse(nodes=self.nodes.values())
        if request.with_total and self.knows_lists:
            answer.total_count = len(answer.nodes)
        return answer

    def GetNode(self, request: nodes.GetNodeRequest, context: Any) -> nodes.GetNodeResponse:
        self._note("GetNode", request, context)
        return nodes.GetNodeResponse(node=self._node(request.node_id, context))

    def ListQueues(
        self, request: queues.ListQueuesRequest, context: Any
    ) -> queues.ListQueuesResponse:
        self._note("ListQueues", request, context)
        return queues.ListQueuesResponse(queues=self.queues)

    def GetCluster(
        self, request: queues.GetClusterRequest, context: Any
    ) -> queues.GetClusterResponse:
        user = self._note("GetCluster", request, context)
        return queues.GetClusterResponse(
            cluster_name="lab", master_version="0.2.0", epoch=2, caller=user, role=self.role,
            policy="tiresias-las", gpu_count=16, free_gpu_count=4,
            master_time=to_timestamp(EPOCH_S), freeze_reason=self.freeze_reason,
        )  # fmt: skip

    # -- forecasts ---------------------------------------------------------------------------

    def EstimateJob(
        self, request: forecasts.EstimateJobRequest, context: Any
    ) -> forecasts.EstimateJobResponse:
        self._note("EstimateJob", request, context)
        answer = forecasts.EstimateJobResponse()
        of = self.estimate_of
        answer.CopyFrom(self.estimate if of is None else of(request))
        if request.job_id:
            answer.job.CopyFrom(self._job(request.job_id, context))
        else:
            answer.job.name = request.spec.name
        return answer

    def CompareForecasts(
        self, request: forecasts.CompareForecastsRequest, context: Any
    ) -> forecasts.CompareForecastsResponse:
        self._note("CompareForecasts", request, context)
        return self.compared

    def GetForecastQuality(
        self, request: forecasts.GetForecastQualityRequest, context: Any
    ) -> forecasts.GetForecastQualityResponse:
        self._note("GetForecastQuality", request, context)
        return self.forecast_quality

    # -- administration ----------------------------------------------------------------------

    def ProfileMaster(
        self, request: admin.ProfileMasterRequest, context: Any
    ) -> Iterator[admin.ProfileMasterResponse]:
        self._note("ProfileMaster", request, context)
        yield admin.ProfileMasterResponse(sample_count=97)
        yield admin.ProfileMasterResponse(sample_count=194, profile=self.own_profile)

    def ProfileNode(
        self, request: admin.ProfileNodeRequest, context: Any
    ) -> Iterator[admin.ProfileNodeResponse]:
        self._note("ProfileNode", request, context)
        yield admin.ProfileNodeResponse()
        profile = master_profile_pb2.MasterProfile()
        profile.CopyFrom(self.own_profile)
        del profile.turns[:], profile.slow_turns[:]
        profile.slow_count = 0
        yield admin.ProfileNodeResponse(profile=profile)

    def CreateJoinToken(
        self, request: admin.CreateJoinTokenRequest, context: Any
    ) -> admin.CreateJoinTokenResponse:
        user = self._note("CreateJoinToken", request, context)
        token = admin.JoinToken(
            token_id="3f9a", node_id=request.node_id, created_by=user,
            create_time=to_timestamp(EPOCH_S), expire_time=to_timestamp(EPOCH_S + 3600),
        )  # fmt: skip
        self.tokens[token.token_id] = token
        return admin.CreateJoinTokenResponse(
            token=token, secret="dlq1.3f9a.secret.abc", join_address="head.lab:7321"
        )

    def ListJoinTokens(
        self, request: admin.ListJoinTokensRequest, context: Any
    ) -> admin.ListJoinTokensResponse:
        self._note("ListJoinTokens", request, context)
        return admin.ListJoinTokensResponse(tokens=self.tokens.values())

    def RevokeJoinToken(
        self, request: admin.RevokeJoinTokenRequest, context: Any
    ) -> admin.RevokeJoinTokenResponse:
        self._note("RevokeJoinToken", request, context)
        self.tokens.pop(request.token_id, None)
        return admin.RevokeJoinTokenResponse()

    def RevokeCertificates(
        self, request: admin.RevokeCertificatesRequest, context: Any
    ) -> admin.RevokeCertificatesResponse:
        user = self._note("RevokeCertificates", request, context)
        told = {"serial": request.serial, "user": request.name, "node": request.node_id}
        kind, name = next(pair for pair in told.items() if pair[1])
        row = admin.Revocation(
            kind=kind, name=name, created_by=user, reason=request.reason,
            create_time=to_timestamp(EPOCH_S),
        )  # fmt: skip
        self.revocations.append(row)
        return admin.RevokeCertificatesResponse(revocation=row, cut_count=len(self.revocations))

    def ListRevocations(
        self, request: admin.ListRevocationsRequest, context: Any
    ) -> admin.ListRevocationsResponse:
        self._note("ListRevocations", request, context)
        return admin.ListRevocationsResponse(revocations=self.revocations)

    def MakeGrant(self, request: admin.MakeGrantRequest, context: Any) -> admin.MakeGrantResponse:
        self._note("MakeGrant", request, context)
        grant = admin.Grant(
            serial="5f0c9a2b1d3e4f60", organisation=request.organisation, cluster_name="orga",
            team=request.team or request.organisation, accounts=request.accounts,
            limits=request.limits, create_time=to_timestamp(EPOCH_S),
            expire_time=to_timestamp(EPOCH_S + 86_400.0), state="good",
            ca_fingerprint="ab" * 32,
        )  # fmt: skip
        self.grants.append(grant)
        return admin.MakeGrantResponse(grant=grant)

    def RevokeGrant(
        self, request: admin.RevokeGrantRequest, context: Any
    ) -> admin.RevokeGrantResponse:
        self._note("RevokeGrant", request, context)
        grant = next(one for one in self.grants if one.serial == request.serial)
        grant.state, grant.reason = "revoked", request.reason
        return admin.RevokeGrantResponse(grant=grant, cut_count=1, cancelled_count=2)

    def ListGrants(
        self, request: admin.ListGrantsRequest, context: Any
    ) -> admin.ListGrantsResponse:
        self._note("ListGrants", request, context)
        return admin.ListGrantsResponse(grants=self.grants)

    def SignDocument(
        self, request: admin.SignDocumentRequest, context: Any
    ) -> admin.SignDocumentResponse:
        self._note("SignDocument", request, context)
        return admin.SignDocumentResponse(document="{}")

    def TakeDocument(
        self, request: admin.TakeDocumentRequest, context: Any
    ) -> admin.TakeDocumentResponse:
        self._note("TakeDocument", request, context)
        grant = admin.Grant(
            serial="0a0b0c0d0e0f0a0b", organisation=request.organisation, held=True,
            cluster_name="roof", ca_fingerprint="cd" * 32, users=request.users,
            limits=admin.GrantLimits(gpu_count=4), expire_time=to_timestamp(EPOCH_S + 86_400.0),
        )  # fmt: skip
        self.grants.append(grant)
        return admin.TakeDocumentResponse(grant=grant)

    def RotateAuthority(
        self, request: admin.RotateAuthorityRequest, context: Any
    ) -> admin.RotateAuthorityResponse:
        self._note("RotateAuthority", request, context)
        self.ca.changing, self.ca.next_fingerprint = True, "b2" * 32
        for kind, name, state in (
            ("node", "gpu01", "follows"), ("node", "gpu02", "follows"), ("node", "gpu07", "former"),
            ("user", "alice", "follows"), ("user", "bob", "unseen"),
        ):  # fmt: skip
            self.ca.members.add(kind=kind, name=name, state=state)
        return admin.RotateAuthorityResponse(authority=self.ca)

    def GetAuthority(
        self, request: admin.GetAuthorityRequest, context: Any
    ) -> admin.GetAuthorityResponse:
        self._note("GetAuthority", request, context)
        return admin.GetAuthorityResponse(authority=self.ca)

    def FinishAuthority(
        self, request: admin.FinishAuthorityRequest, context: Any
    ) -> admin.FinishAuthorityResponse:
        self._note("FinishAuthority", request, context)
        self.ca.Clear()
        self.ca.fingerprint = "b2" * 32
        return admin.FinishAuthorityResponse(authority=self.ca)

    def GetLeader(self, request: admin.GetLeaderRequest, context: Any) -> admin.GetLeaderResponse:
        self._note("GetLeader", request, context)
        return admin.GetLeaderResponse(master=self.part)

    def StepDown(self, request: admin.StepDownRequest, context: Any) -> admin.StepDownResponse:
        """The same master leads again, with the next epoch."""
        self._note("StepDown", request, context)
        self.part.epoch += 1
        return admin.StepDownResponse(epoch=self.part.epoch - 1)

    def GetHooks(self, request: admin.GetHooksRequest, context: Any) -> admin.GetHooksResponse:
        self._note("GetHooks", request, context)
        return admin.GetHooksResponse(hooks=self.hooks)

    def ReloadHooks(
        self, request: admin.ReloadHooksRequest, context: Any
    ) -> admin.ReloadHooksResponse:
        self._note("ReloadHooks", request, context)
        return admin.ReloadHooksResponse(hooks=self.hooks)

    def TestHooks(self, request: admin.TestHooksRequest, context: Any) -> admin.TestHooksResponse:
        self._note("TestHooks", request, context)
        name = request.spec.name or "train"
        if request.hook in ("on_start", "on_end") and self.tries_attempts:
            told = admin.HookTrial(job_id="17", attempt=2, name=name, hold="a broken data set")
            told.notes.add(hook=request.hook, text="17.2 failed")
            quiet = admin.HookTrial(job_id="16", attempt=1, name=name)
            return admin.TestHooksResponse(trials=[told, quiet], hook=request.hook)
        told = admin.HookTrial(job_id="" if request.spec.name else "17", name=name)
        told.notes.add(hook="on_submit", field="time limit", before="none", after="1d")
        hook = "on_submit" if self.tries_attempts else ""
        return admin.TestHooksResponse(trials=[told], hook=hook)

    def FenceNode(self, request: admin.FenceNodeRequest, context: Any) -> admin.FenceNodeResponse:
        self._note("FenceNode", request, context)
        node = self._node(request.node_id, context)
        node.state = node_pb2.NODE_STATE_DOWN
        return admin.FenceNodeResponse(node=node, job_ids=["17"])

    def SetNodeFlags(
        self, request: admin.SetNodeFlagsRequest, context: Any
    ) -> admin.SetNodeFlagsResponse:
        self._note("SetNodeFlags", request, context)
        names = (request.node_id, *request.more_node_ids)
        first, *more = [self._node(name, context) for name in names]
        for node in (first, *more):
            flags = (set(node.flags) | set(request.set_flags)) - set(request.clear_flags)
            del node.flags[:]
            node.flags.extend(sorted(flags))
            node.flag_reason = request.reason
        return admin.SetNodeFlagsResponse(node=first, more_nodes=more)

    def CheckNodes(
        self, request: admin.CheckNodesRequest, context: Any
    ) -> admin.CheckNodesResponse:
        """The job 17 makes it; an event of it must have been told."""
        self._note("CheckNodes", request, context)
        return admin.CheckNodesResponse(job_id="17")

    def ClearGpuConditions(
        self, request: admin.ClearGpuConditionsRequest, context: Any
    ) -> admin.ClearGpuConditionsResponse:
        self._note("ClearGpuConditions", request, context)
        node = self._node(request.node_id, context)
        for status in node.gpu_statuses:
            if status.index in request.gpu_indexes or not request.gpu_indexes:
                del status.conditions[:]
        return admin.ClearGpuConditionsResponse(node=node)

    def AcceptGpus(
        self, request: admin.AcceptGpusRequest, context: Any
    ) -> admin.AcceptGpusResponse:
        self._note("AcceptGpus", request, context)
        node = self._node(request.node_id, context)
        del node.withheld_gpu_indexes[:]
        node.withheld_reason = ""
        return admin.AcceptGpusResponse(node=node)

    def SetNodeLabels(
        self, request: admin.SetNodeLabelsRequest, context: Any
    ) -> admin.SetNodeLabelsResponse:
        self._note("SetNodeLabels", request, context)
        node = self._node(request.node_id, context)
        for key in request.clear_labels:
            node.labels.pop(key, None)
        node.labels.update(request.set_labels)
        return admin.SetNodeLabelsResponse(node=node)

    def ExecJob(
        self, request_iterator: Iterator[wire.ExecJobRequest], context: Any
    ) -> Iterator[wire.ExecJobResponse]:
        self._note("ExecJob", next(request_iterator), context)
        if not self.inside:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "this master runs nothing")
        for output in self.inside:
            yield wire.ExecJobResponse(output=output)

    def ForgetNode(
        self, request: admin.ForgetNodeRequest, context: Any
    ) -> admin.ForgetNodeResponse:
        self._note("ForgetNode", request, context)
        self.nodes.pop(request.node_id, None)
        return admin.ForgetNodeResponse()

    def ListTeams(self, request: teams.ListTeamsRequest, context: Any) -> teams.ListTeamsResponse:
        self._note("ListTeams", request, context)
        return teams.ListTeamsResponse(teams=self.teams)

    def SetTeam(self, request: teams.SetTeamRequest, context: Any) -> teams.SetTeamResponse:
        raise NotImplementedError

    def DeleteTeam(
        self, request: teams.DeleteTeamRequest, context: Any
    ) -> teams.DeleteTeamResponse:
        raise NotImplementedError

    def ListUsers(self, request: admin.ListUsersRequest, context: Any) -> admin.ListUsersResponse:
        self._note("ListUsers", request, context)
        return admin.ListUsersResponse(users=self.users.values())

    def ListAuditLines(
        self, request: admin.ListAuditLinesRequest, context: Any
    ) -> admin.ListAuditLinesResponse:
        self._note("ListAuditLines", request, context)
        line = admin.AuditLine(
            call_time=to_timestamp(EPOCH_S), user="alice", role="user", by="dlq-web",
            method="/dlq.v1.JobService/CancelJob", object="17", decision="OK",
            peer="ipv4:10.0.0.7:1",
        )  # fmt: skip
        return admin.ListAuditLinesResponse(lines=[line], next_page_token="1-0")

    def SetUser(self, request: admin.SetUserRequest, context: Any) -> admin.SetUserResponse:
        self._note("SetUser", request, context)
        self.users[request.user.name] = request.user
        return admin.SetUserResponse(user=request.user)

    def DeleteUser(
        self, request: admin.DeleteUserRequest, context: Any
    ) -> admin.DeleteUserResponse:
        self._note("DeleteUser", request, context)
        self.users.pop(request.name, None)
        return admin.DeleteUserResponse()

    def GetPolicy(self, request: admin.GetPolicyRequest, context: Any) -> admin.GetPolicyResponse:
        self._note("GetPolicy", request, context)
        presets = [
            policy_pb2.PolicyPreset(policy="fifo", summary="in order", setting_names=["place"])
        ]
        filed = policy_pb2.Policy(policy="fifo", set_time=self.policy.set_time)
        planner = self.planner
        return admin.GetPolicyResponse(
            policy=self.policy, file_policy=filed, presets=presets, planner=planner
        )

    def SetPolicy(self, request: admin.SetPolicyRequest, context: Any) -> admin.SetPolicyResponse:
        self._note("SetPolicy", request, context)
        if not request.force and not request.from_file:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "2 jobs have promises")
        name = "fifo" if request.from_file else request.policy
        self.policy.policy = name
        dropped = ["18", "19"] if request.force else []
        return admin.SetPolicyResponse(policy=self.policy, dropped_job_ids=dropped)

    def CheckIdentity(
        self, request: identity.CheckIdentityRequest, context: Any
    ) -> identity.CheckIdentityResponse:
        self._note("CheckIdentity", request, context)
        return identity.CheckIdentityResponse(renewal_wanted=self.renewal_wanted)

    def CreateSignInLink(
        self, request: identity.CreateSignInLinkRequest, context: Any
    ) -> identity.CreateSignInLinkResponse:
        self._note("CreateSignInLink", request, context)
        return identity.CreateSignInLinkResponse(
            secret="s3cret", web_address="https://dlq.example.org"
        )

    def UseSignInLink(
        self, request: identity.UseSignInLinkRequest, context: Any
    ) -> identity.UseSignInLinkResponse:
        raise NotImplementedError

    def CertifyUser(
        self, request: identity.CertifyUserRequest, context: Any
    ) -> identity.CertifyUserResponse:
        raise NotImplementedError

    def Introduce(
        self, request: identity.IntroduceRequest, context: Any
    ) -> identity.IntroduceResponse:
        raise NotImplementedError

    def RenewCertificate(
        self, request: identity.RenewCertificateRequest, context: Any
    ) -> identity.RenewCertificateResponse:
        user = self._note("RenewCertificate", request, context)
        certificate = self.authority.sign_user(
            request.certificate_request, user, Role.USER, SteadyClock().now_s()
        )
        return identity.RenewCertificateResponse(
            certificate=certificate, ca_certificates=self.authority.certificate_pem()
        )

    # -- below -------------------------------------------------------------------------------

    def _start(self) -> None:
        made = new_key_and_csr("dlq-master")
        certificate = self.authority.sign_master(made.request, SteadyClock().now_s())
        self._pool = ThreadPoolExecutor(16)
        self._server = grpc.server(
            self._pool,
            options=[
                ("grpc.http2.min_ping_interval_without_data_ms", 1000),
                ("grpc.max_send_message_length", 64 << 20),
                ("grpc.max_receive_message_length", 5 << 20),
            ],
        )
        credentials = grpc.ssl_server_credentials(
            [(made.key, certificate)], self.authority.certificate_pem(), require_client_auth=True
        )
        self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        # The generated functions want the async server's type; both kinds are registered alike.
        server: Any = self._server
        wire_grpc.add_JobServiceServicer_to_server(self, server)
        nodes_grpc.add_NodeServiceServicer_to_server(self, server)
        queues_grpc.add_QueueServiceServicer_to_server(self, server)
        admin_grpc.add_AdminServiceServicer_to_server(self, server)
        teams_grpc.add_TeamServiceServicer_to_server(self, server)
        identity_grpc.add_IdentityServiceServicer_to_server(self, server)
        forecasts_grpc.add_ForecastServiceServicer_to_server(self, server)
        self._server.start()

    def _note(self, method: str, request: Any, context: Any) -> str:
        """Who calls; aborts when the test said so."""
        user = str(context.auth_context()["x509_common_name"][0].decode())
        self.asked.append((method, user, request))
        if self._cut_at is not None and self._cut_at[0] < len(self.asked) <= self._cut_at[1]:
            if not self._cut_at[2] or method not in _CHANGES:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the line broke")
            self._losses[method] = 1
        if method in self._refusals:
            code, reason, facts = self._refusals[method]
            if method in self._once:
                self._once.discard(method)
                self.refuse_no_more(method)
            _abort(context, code, reason, **facts)
        return user

    def _lose(self, method: str, context: Any) -> None:
        if self._losses.get(method, 0) > 0:
            self._losses[method] -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "the line broke")

    def _cut(self, context: Any, told: int) -> None:
        if told == 1 and self._stream_cuts > 0:
            self._stream_cuts -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "the line broke")

    def _check_withdrawn(self, request_id: str, context: Any) -> None:
        if request_id in self.withdrawn:
            _abort(context, grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS", what="withdrawn")

    def _check_repeat(self, request: wire.SubmitJobRequest, context: Any) -> None:
        spec = job_pb2.JobSpec()
        spec.CopyFrom(request.spec)
        spec.ClearField("begin_time")
        asked = spec.SerializeToString(deterministic=True)
        if (
            not request.validate_only
            and self._submissions.setdefault(request.request_id, asked) != asked
        ):
            what = "used for another request"
            _abort(context, grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS", what=what)

    def _job(self, job_id: str, context: Any) -> job_pb2.Job:
        found = next((job for job in self.jobs.values() if job_id in names_of(job)), None)
        if found is None:
            _abort(
                context, grpc.StatusCode.NOT_FOUND, "NOT_FOUND", what=f"there is no job {job_id}"
            )
        return found

    def _queued(self, job_id: str, context: Any) -> job_pb2.Job:
        job = self._job(job_id, context)
        job.state, job.hold_kind = job_pb2.JOB_STATE_QUEUED, job_pb2.HOLD_KIND_UNSPECIFIED
        job.hold_reason = job.held_by = job.wait_code = ""
        return job

    def _node(self, node_id: str, context: Any) -> node_pb2.Node:
        if node_id not in self.nodes:
            _abort(
                context, grpc.StatusCode.NOT_FOUND, "NOT_FOUND", what=f"there is no node {node_id}"
            )
        return self.nodes[node_id]


def _abort(
    context: Any, code: grpc.StatusCode, reason: str, what: str = "", **facts: str
) -> NoReturn:
    """End a call as the real master does: a status with ErrorInfo."""
    info = error_details_pb2.ErrorInfo(reason=reason, domain="dlq", metadata=facts)
    packed = Packed()
    packed.Pack(info)
    status = status_pb2.Status(code=code.value[0], message=what or "refused", details=[packed])
    context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("abort raises")


def _is_in_span(job: job_pb2.Job, request: wire.ListJobsRequest) -> bool:
    """Whether the job ended when the list wants it to, if it says so."""
    end_s = job.end_time.seconds
    if request.HasField("ended_from_time") and end_s < request.ended_from_time.seconds:
        return False
    return not request.HasField("ended_before_time") or (
        job.HasField("end_time") and end_s < request.ended_before_time.seconds
    )
