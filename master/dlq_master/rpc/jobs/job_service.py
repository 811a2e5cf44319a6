"""Calls of users about jobs: submit, look, steer. Watching and logs are in watch.py and logs.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypedDict

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_pb2 import Job as JobMessage
from dlq.v1.job_pb2 import JobSpec, WorkLoss
from dlq.v1.job_service_pb2_grpc import JobServiceServicer
from dlq_common.clock import Clock
from dlq_common.errors import PermissionDenied
from dlq_common.text.wire import to_timestamp
from dlq_master.control.loop.ports import Control, ReadModel
from dlq_master.control.stimuli import (
    CancelJob,
    CheckpointJob,
    Explained,
    ExplainJob,
    HoldJob,
    JobEdit,
    PauseJob,
    ReleaseJob,
    RequeueJob,
    ResumeJob,
    SignalJob,
    Submitted,
)
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import HoldKind, Job
from dlq_master.rpc.calls.auth import caller_of, identity_of
from dlq_master.rpc.calls.call import Context
from dlq_master.rpc.calls.paging import page_size_of
from dlq_master.rpc.calls.reads import ENCODED, Slices
from dlq_master.rpc.jobs.edits import EditOutcome, edit_each
from dlq_master.rpc.jobs.execs import Execs
from dlq_master.rpc.jobs.journal import listed_events
from dlq_master.rpc.jobs.listing import listed
from dlq_master.rpc.jobs.logs import Logs
from dlq_master.rpc.jobs.traffic_view import profile_of, traffic_message
from dlq_master.rpc.jobs.visible import may_see, shown_to_others, visible_job
from dlq_master.rpc.jobs.wait_view import wait_shares, with_owners, with_times
from dlq_master.rpc.jobs.watch import Watch
from dlq_master.rpc.specs.edit import Edit, EditRequest
from dlq_master.rpc.specs.elastic import check_new_sizes
from dlq_master.rpc.specs.intake import signal_of, submit_stimulus, update_stimulus, words_of
from dlq_master.rpc.views.convert import (
    attempt_message,
    job_message,
    reason_messages,
)


class Changed(TypedDict):
    """The content of the answers to all edits."""

    job: JobMessage
    jobs: list[JobMessage]
    refusals: list[wire.Refusal]


class JobService(JobServiceServicer):
    """dlq.v1.JobService."""

    def __init__(
        self,
        control: Control,
        clock: Clock,
        watch: Watch,
        logs: Logs,
        execs: Execs,
        slices: Slices,
    ) -> None:
        self._control = control
        self._clock = clock
        self._watch = watch
        self._logs = logs
        self._execs = execs
        self._slices = slices

    async def SubmitJob(
        self, request: wire.SubmitJobRequest, context: Context
    ) -> wire.SubmitJobResponse:
        caller = caller_of(context)
        submitted = await self._control.ask(submit_stimulus(request, caller))
        assert isinstance(submitted, Submitted)
        return wire.SubmitJobResponse(
            job=self._message(submitted.job),
            reasons=reason_messages(submitted.reasons, submitted.job, caller.name),
            jobs_ahead_count=submitted.jobs_ahead,
        )

    async def GetJob(self, request: wire.GetJobRequest, context: Context) -> wire.GetJobResponse:
        read = self._control.published
        job = visible_job(read, caller_of(context), request.job_id)
        attempts = read.attempts(job.job_id)
        response = wire.GetJobResponse(
            job=self._message(job),
            spec=JobSpec.FromString(read.spec(job.spec_id)),
            attempts=[attempt_message(each, _contact_s(each, read)) for each in attempts],
            traffic=traffic_message(job, read),
        )
        profile = profile_of(job, read) if request.with_profile else None
        if profile is not None:
            response.profile_attempt, response.profile = str(profile[0]), profile[1]
        return response

    async def ListJobs(
        self, request: wire.ListJobsRequest, context: Context
    ) -> wire.ListJobsResponse:
        read = self._control.published
        most = page_size_of(request.page_size)
        # Before the list: an event that comes while it is made is told twice rather than never.
        response = wire.ListJobsResponse(cursor=read.last_sequence)
        caller = caller_of(context)
        breathe = self._slices.of(caller.name)
        async for job in listed(request, caller, read, self._clock.now_s(), breathe):
            if len(response.jobs) == most:
                response.next_page_token = response.jobs[-1].job_id
                break
            own = may_see(caller, job)
            response.jobs.append(
                self._message(job) if own else shown_to_others(job, read, self._clock.now_s())
            )
            await breathe(ENCODED)
        return response

    async def CancelJob(
        self, request: wire.CancelJobRequest, context: Context
    ) -> wire.CancelJobResponse:
        kill = request.kill
        changed = await self._edit(request, context, lambda edit: CancelJob(**edit, kill=kill))
        return wire.CancelJobResponse(**changed)

    async def HoldJob(self, request: wire.HoldJobRequest, context: Context) -> wire.HoldJobResponse:
        caller = caller_of(context)
        if request.admin and not caller.sees_all:
            raise PermissionDenied(
                "an operator's hold is for operators", user=caller.name, needs="operator"
            )
        kind = HoldKind.ADMIN if request.admin else HoldKind.USER
        reason = words_of(request.reason, "reason")
        changed = await self._edit(
            request, context, lambda edit: HoldJob(**edit, kind=kind, reason=reason)
        )
        return wire.HoldJobResponse(**changed)

    async def ReleaseJob(
        self, request: wire.ReleaseJobRequest, context: Context
    ) -> wire.ReleaseJobResponse:
        changed = await self._edit(request, context, lambda edit: ReleaseJob(**edit))
        return wire.ReleaseJobResponse(**changed)

    async def PauseJob(
        self, request: wire.PauseJobRequest, context: Context
    ) -> wire.PauseJobResponse:
        accept = request.accept_loss
        changed = await self._edit(
            request, context, lambda edit: PauseJob(**edit, accept_loss=accept)
        )
        return wire.PauseJobResponse(**changed, losses=losses_of(changed))

    async def ResumeJob(
        self, request: wire.ResumeJobRequest, context: Context
    ) -> wire.ResumeJobResponse:
        changed = await self._edit(request, context, lambda edit: ResumeJob(**edit))
        return wire.ResumeJobResponse(**changed)

    async def UpdateJob(
        self, request: wire.UpdateJobRequest, context: Context
    ) -> wire.UpdateJobResponse:
        outcome = await edit_each(
            self._control,
            request,
            caller_of(context),
            lambda edit: self._update(request, edit),
        )
        return wire.UpdateJobResponse(**self._changed(outcome), changes=outcome.changes)

    def _update(self, request: wire.UpdateJobRequest, edit: Edit) -> JobEdit:
        read = self._control.published
        job = read.job(edit["job_id"])
        spec = b"" if job is None else read.spec(job.spec_id)
        check_new_sizes(request, JobSpec.FromString(spec))
        return update_stimulus(request, edit)

    async def RequeueJob(
        self, request: wire.RequeueJobRequest, context: Context
    ) -> wire.RequeueJobResponse:
        hold, accept = request.hold, request.accept_loss
        changed = await self._edit(
            request, context, lambda edit: RequeueJob(**edit, hold=hold, accept_loss=accept)
        )
        return wire.RequeueJobResponse(**changed, losses=losses_of(changed))

    async def SignalJob(
        self, request: wire.SignalJobRequest, context: Context
    ) -> wire.SignalJobResponse:
        signal, all_ranks = signal_of(request.signal), request.all_ranks
        changed = await self._edit(
            request, context, lambda edit: SignalJob(**edit, signal=signal, all_ranks=all_ranks)
        )
        return wire.SignalJobResponse(**changed)

    async def CheckpointJob(
        self, request: wire.CheckpointJobRequest, context: Context
    ) -> wire.CheckpointJobResponse:
        asked = to_timestamp(self._clock.now_s())
        changed = await self._edit(request, context, lambda edit: CheckpointJob(**edit))
        return wire.CheckpointJobResponse(**changed, ask_time=asked)

    async def ExplainJob(
        self, request: wire.ExplainJobRequest, context: Context
    ) -> wire.ExplainJobResponse:
        caller, read = caller_of(context), self._control.published
        job = visible_job(read, caller, request.job_id)
        explained = await self._control.ask(ExplainJob(job_id=job.job_id))
        assert isinstance(explained, Explained)
        return wire.ExplainJobResponse(
            job=self._message(explained.job),
            reasons=with_times(
                explained.reasons,
                with_owners(
                    reason_messages(explained.reasons, explained.job, caller.name), read, caller
                ),
                explained.waited,
            ),
            waits=wait_shares(explained.waited),
            jobs_ahead_count=explained.jobs_ahead,
            traffic=traffic_message(explained.job, self._control.published),
        )

    async def ListEvents(
        self, request: wire.ListEventsRequest, context: Context
    ) -> wire.ListEventsResponse:
        caller = caller_of(context)
        breathe = self._slices.of(caller.name)
        return await listed_events(self._control.published, caller, request, breathe)

    async def WatchEvents(
        self, request: wire.WatchEventsRequest, context: Context
    ) -> AsyncIterator[wire.WatchEventsResponse]:
        async for message in self._watch.events(request, context):
            yield message

    async def ReadLogs(
        self, request: wire.ReadLogsRequest, context: Context
    ) -> AsyncIterator[wire.ReadLogsResponse]:
        async for message in self._logs.read(request, caller_of(context), identity_of(context)):
            yield message

    async def ExecJob(
        self, request_iterator: AsyncIterator[wire.ExecJobRequest], context: Context
    ) -> AsyncIterator[wire.ExecJobResponse]:
        async for message in self._execs.run(
            request_iterator, caller_of(context), identity_of(context), context.peer()
        ):
            yield message

    async def _edit(
        self, request: EditRequest, context: Context, make: Callable[[Edit], JobEdit]
    ) -> Changed:
        """One change to a job, or to each task that was named; see edits.py."""
        return self._changed(await edit_each(self._control, request, caller_of(context), make))

    def _changed(self, outcome: EditOutcome) -> Changed:
        return {
            "job": self._message(outcome.jobs[0]),
            "jobs": [self._message(job) for job in outcome.jobs] if outcome.several else [],
            "refusals": outcome.refusals,
        }

    def _message(self, job: Job) -> JobMessage:
        return job_message(job, self._control.published, self._clock.now_s())


def losses_of(changed: Changed) -> list[WorkLoss]:
    """The losses of those jobs that have been told to stop."""
    jobs = changed["jobs"] or [changed["job"]]
    return [job.stop_loss for job in jobs if job.stop_cause and job.HasField("stop_loss")]


def _contact_s(attempt: Attempt, read: ReadModel) -> float | None:
    """The last word of the attempt's most silent node; None when one has not been heard of. An
    absence that was announced counts as if it had been heard of for so long."""
    contacts = [_heard_s(node_id, read) for node_id in attempt.lease.allocation.node_ids]
    known = [contact_s for contact_s in contacts if contact_s is not None]
    return min(known) if known and len(known) == len(contacts) else None


def _heard_s(node_id: NodeId, read: ReadModel) -> float | None:
    contact_s, node = read.contact_s(node_id), read.node(node_id)
    if contact_s is None or node is None:
        return contact_s
    return contact_s + node.maintenance_s
