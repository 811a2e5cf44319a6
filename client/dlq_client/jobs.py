"""Jobs over the wire: thin typed calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from dlq.v1 import event_pb2, job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import ServiceCalls
from dlq_common.errors import InvalidRequest

# One answer is enough for nearly every cluster; the master's most is 10,000.
PAGE_SIZE = 5_000
_MOST_AT_ONCE, _MOST_BYTES = 500, 800_000  # of SubmitJobs, which takes a MiB
MOST_NAMED = 1_000  # jobs in one request for steps, or for their ends
MANY_DEADLINE_S = 60.0  # each of those may be an array
# Roles to which the master shows all users' jobs.
SEE_ALL = frozenset({"operator", "admin"})


@dataclass(frozen=True, slots=True)
class JobList:
    """Jobs in the order of their ids, and where a watch that misses nothing begins."""

    jobs: Sequence[job_pb2.Job]
    cursor: int
    total: int  # so many fit, where `jobs` are only the first of them
    details: Sequence[wire.JobDetail] = ()  # one for each job, if asked for


@dataclass(frozen=True, slots=True)
class Edited:
    """The named job or tasks after a change; some of the tasks may have refused."""

    jobs: Sequence[job_pb2.Job]
    refusals: Sequence[wire.Refusal]
    losses: Sequence[job_pb2.WorkLoss] = ()  # work that is lost by it


@dataclass(frozen=True, slots=True)
class Updated(Edited):
    """The same, the changed fields, and the notes of the operator's hook."""

    changes: Sequence[wire.FieldChange] = ()
    hook_notes: Sequence[job_pb2.HookNote] = ()


class Jobs(ServiceCalls[JobServiceStub]):
    """Calls of users about jobs."""

    stub_kind = JobServiceStub

    @property
    def caller(self) -> str:
        return self._connection.identity.user

    @property
    def sees_all(self) -> bool:
        """Whether the master shows all users' jobs in full to the caller."""
        return self._connection.identity.role in SEE_ALL

    def submit(
        self,
        spec: job_pb2.JobSpec,
        *,
        request_id: str = "",
        validate_only: bool = False,
        brief: bool = False,
    ) -> wire.SubmitJobResponse:
        """Queue a job. Repeated with the same `request_id`, it returns the first answer. `brief`:
        the answer has the job's id and little else, which costs the master less.
        """
        request = wire.SubmitJobRequest(
            request_id=request_id, spec=spec, validate_only=validate_only, brief=brief
        )
        return self._change(self.stub.SubmitJob, request)

    def withdraw_submission(self, request_id: str) -> str:
        """The number of the job that was accepted under this key; empty: there is none, and none
        will come.
        """
        request = wire.WithdrawSubmissionRequest(request_id=request_id)
        return self._connection.call(self.stub.WithdrawSubmission, request).job_id

    def submit_many(
        self, specs: Sequence[job_pb2.JobSpec], *, request_id: str = ""
    ) -> list[wire.SubmittedJob]:
        """Queue many jobs in few calls; one answer for each spec, in their order: its id, or why it
        was refused. Repeated with the same `request_id` and specs, it returns the same ids.
        """
        key = request_id or self.new_request_id()
        submitted: list[wire.SubmittedJob] = []
        for number, part in enumerate(_parts(specs)):
            request = wire.SubmitJobsRequest(request_id=f"{key}.{number}", specs=part)
            submitted += self._change(self.stub.SubmitJobs, request).jobs
        return submitted

    def submit_group(
        self,
        members: Sequence[tuple[wire.GroupMember, job_pb2.JobSpec]],
        *,
        request_id: str = "",
        validate_only: bool = False,
    ) -> wire.SubmitJobsResponse:
        """Queue jobs that start together and end together: all of them, or none. Repeated with the
        same `request_id`, it returns the first answer.
        """
        request = wire.SubmitJobsRequest(
            request_id=request_id,
            members=[member for member, _ in members],
            specs=[spec for _, spec in members],
            validate_only=validate_only,
        )
        return self._change(self.stub.SubmitJobs, request)

    def get(self, job_id: str, *, with_profile: bool = False) -> wire.GetJobResponse:
        """One job with its spec and all attempts, and with its traffic profile if that is
        wanted.
        """
        request = wire.GetJobRequest(job_id=job_id, with_profile=with_profile)
        return self._connection.call(self.stub.GetJob, request)

    def list(
        self,
        *,
        user: str = "",
        states: Sequence[str] = (),
        ended_within_s: int | None = None,
        job_ids: Sequence[str] = (),
        queue: str = "",
        name: str = "",
        team: str = "",
        node: str = "",
        search: str = "",
        order: str = "",
        limit: int | None = None,
        with_details: bool = False,
    ) -> JobList:
        """All jobs that match, or the first `limit` of them in this order. A job named by id may be
        any visible job. `search`: words of names and users, or numbers.

        The cursor is that of the first page; a watch from it shows later changes. InvalidRequest:
        the master is of a former release, and knows no such lists.
        """
        if job_ids and not user and self._connection.identity.role in SEE_ALL:
            user = "*"
        request = wire.ListJobsRequest(
            page_size=PAGE_SIZE if limit is None else min(limit, PAGE_SIZE),
            user=user,
            states=states,
            ended_within_seconds=ended_within_s,
            job_ids=job_ids,
            queue=queue,
            name=name,
            team=team,
            node_id=node,
            text=search,
            order=order,
            with_total=limit is not None or any((team, node, search, order)),
            with_details=with_details,
        )
        counted, pages, count = request.with_total, list[wire.ListJobsResponse](), 0
        for page in self.pages(request):
            if counted and not pages and not page.HasField("total_count"):
                raise InvalidRequest(
                    "the master is of a former release, and knows no such lists",
                    hint="ask without a limit, a search, a team or a node",
                )
            request.with_total = False  # the first page has told it
            pages.append(page)
            count += len(page.jobs)
            if limit is not None and count >= limit:
                break
        jobs = [job for page in pages for job in page.jobs][:limit]
        return JobList(
            jobs,
            pages[0].cursor,
            pages[0].total_count if counted else len(jobs),
            [detail for page in pages for detail in page.details][:limit],
        )

    def pages(self, request: wire.ListJobsRequest) -> Iterator[wire.ListJobsResponse]:
        """The answers of ListJobs, page after page to the last; at least one. Changes the
        request.
        """
        return self._pages(self.stub.ListJobs, request)

    def cancel(self, job_id: str, *, kill: bool = False) -> job_pb2.Job:
        """Ask for a job's end; cancelling one that has ended changes nothing."""
        return self.cancel_each(job_id, kill=kill).jobs[0]

    def hold(self, job_id: str, *, admin: bool = False, reason: str = "") -> job_pb2.Job:
        """Keep a job from starting."""
        return self.hold_each(job_id, admin=admin, reason=reason).jobs[0]

    def release(self, job_id: str) -> job_pb2.Job:
        """Take a hold back."""
        return self.release_each(job_id).jobs[0]

    def pause(self, job_id: str, *, accept_loss: bool = False) -> job_pb2.Job:
        """Checkpoint a job, free its GPUs and keep it; WorkWouldBeLost when nothing would save its
        work.
        """
        return self.pause_each(job_id, accept_loss=accept_loss).jobs[0]

    def resume(self, job_id: str) -> job_pb2.Job:
        """Queue a paused job again."""
        return self.resume_each(job_id).jobs[0]

    # The same for a job, for `12` (all tasks of an array that have not ended) or `12_[0-3]`.

    # `only_first`: of several, the first comes back alone.

    def cancel_each(self, target: str, *, kill: bool = False, only_first: bool = False) -> Edited:
        request = wire.CancelJobRequest(job_id=target, kill=kill, only_first=only_first)
        return _edited(self._change(self.stub.CancelJob, request))

    def cancel_many(
        self, targets: Sequence[str], *, kill: bool = False, with_jobs: bool = False
    ) -> Edited:
        """Ask for the end of many jobs in few calls. A name that means no job is a refusal. The
        jobs come back only `with_jobs`.
        """
        jobs: dict[str, job_pb2.Job] = {}
        refusals: list[wire.Refusal] = []
        for first in range(0, len(targets), MOST_NAMED):
            request = wire.CancelJobsRequest(
                job_ids=targets[first : first + MOST_NAMED], kill=kill, with_jobs=with_jobs
            )
            answer = self._change(self.stub.CancelJobs, request, deadline_s=MANY_DEADLINE_S)
            jobs.update((job.job_id, job) for job in answer.jobs)
            refusals += answer.refusals
        return Edited(list(jobs.values()), refusals)

    def hold_each(
        self, target: str, *, admin: bool = False, reason: str = "", only_first: bool = False
    ) -> Edited:
        request = wire.HoldJobRequest(
            job_id=target, admin=admin, reason=reason, only_first=only_first
        )
        return _edited(self._change(self.stub.HoldJob, request))

    def release_each(self, target: str, *, only_first: bool = False) -> Edited:
        request = wire.ReleaseJobRequest(job_id=target, only_first=only_first)
        return _edited(self._change(self.stub.ReleaseJob, request))

    def pause_each(
        self, target: str, *, accept_loss: bool = False, in_memory: bool = False
    ) -> Edited:
        request = wire.PauseJobRequest(job_id=target, accept_loss=accept_loss, in_memory=in_memory)
        answer = self._change(self.stub.PauseJob, request)
        return replace(_edited(answer), losses=list(answer.losses))

    def resume_each(self, target: str) -> Edited:
        return _edited(self._change(self.stub.ResumeJob, wire.ResumeJobRequest(job_id=target)))

    def requeue_each(self, target: str, *, hold: bool = False, accept_loss: bool = False) -> Edited:
        """Let jobs save, leave their GPUs and wait again; WorkWouldBeLost as in `pause`."""
        request = wire.RequeueJobRequest(job_id=target, hold=hold, accept_loss=accept_loss)
        answer = self._change(self.stub.RequeueJob, request)
        return replace(_edited(answer), losses=list(answer.losses))

    def signal_each(self, target: str, signal: str, *, all_ranks: bool = False) -> Edited:
        """Send a signal such as `USR1` to main processes that go on."""
        request = wire.SignalJobRequest(job_id=target, signal=signal, all_ranks=all_ranks)
        return _edited(self._change(self.stub.SignalJob, request))

    def attend(self, job_id: str, *, bind: bool = False) -> job_pb2.Job:
        """Say that the client of an interactive job is there; `bind` ties the job to it."""
        request = wire.AttendJobRequest(job_id=job_id, bind=bind)
        return self._connection.call(self.stub.AttendJob, request).job

    def checkpoint(self, job_id: str) -> wire.CheckpointJobResponse:
        """Ask a job to save and go on; a checkpoint later than `ask_time` is the answer."""
        return self._change(self.stub.CheckpointJob, wire.CheckpointJobRequest(job_id=job_id))

    def update_each(self, target: str, wishes: wire.UpdateJobRequest) -> Updated:
        """Ask for something else; `wishes` holds the new values and perhaps the expected
        version.
        """
        request = wire.UpdateJobRequest()
        request.CopyFrom(wishes)
        request.job_id = target
        answer = self._change(self.stub.UpdateJob, request)
        edited = _edited(answer)
        notes = list(answer.hook_notes)
        return Updated(edited.jobs, edited.refusals, changes=list(answer.changes), hook_notes=notes)

    def explain(self, job_id: str) -> wire.ExplainJobResponse:
        """Every reason why a job does not run."""
        return self._connection.call(self.stub.ExplainJob, wire.ExplainJobRequest(job_id=job_id))

    def events(
        self, *job_ids: str, chosen: event_pb2.EventFilter | None = None
    ) -> Iterator[event_pb2.Event]:
        """The journal of some jobs, or of all the caller may see, oldest first; `chosen`: only such
        events.
        """
        for page in self.event_pages(*job_ids, chosen=chosen):
            yield from page.events

    def event_pages(
        self, *job_ids: str, chosen: event_pb2.EventFilter | None = None
    ) -> Iterator[wire.ListEventsResponse]:
        """The same in pages: each says how far back the journal is whole, and where a watch goes
        on.
        """
        # One alone is named as masters of every version understand it.
        one = job_ids[0] if len(job_ids) == 1 else ""
        several = () if one else job_ids
        request = wire.ListEventsRequest(
            job_id=one, job_ids=several, page_size=PAGE_SIZE, filter=chosen
        )
        return self._pages(self.stub.ListEvents, request)

    def steps(
        self, *job_ids: str, running_only: bool = False, all_attempts: bool = False
    ) -> Iterator[wire.AttemptSteps]:
        """The steps of some jobs, or of all that live: of the last attempt that has any, or of
        every one.
        """
        for start in range(0, max(1, len(job_ids)), MOST_NAMED):
            request = wire.ListStepsRequest(
                job_ids=job_ids[start : start + MOST_NAMED],
                running_only=running_only,
                all_attempts=all_attempts,
            )
            for page in self._pages(self.stub.ListSteps, request):
                yield from page.attempts

    def new_request_id(self) -> str:
        """An idempotency key, made before the first try so that every retry carries the same."""
        return self._connection.ids.request_id()


class _EditResponse(Protocol):
    """The fields that the answers to all edits share."""

    @property
    def job(self) -> job_pb2.Job: ...
    @property
    def jobs(self) -> Sequence[job_pb2.Job]: ...
    @property
    def refusals(self) -> Sequence[wire.Refusal]: ...


def _edited(answer: _EditResponse) -> Edited:
    return Edited(list(answer.jobs) or [answer.job], list(answer.refusals))


def _parts(specs: Sequence[job_pb2.JobSpec]) -> Iterator[list[job_pb2.JobSpec]]:
    """Parts that one call takes each. A spec that is too large has a call of its own, which tells
    so.
    """
    part: list[job_pb2.JobSpec] = []
    size = 0
    for spec in specs:
        more = spec.ByteSize()
        if part and (len(part) == _MOST_AT_ONCE or size + more > _MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(spec)
        size += more
    if part:
        yield part
