"""Calls about jobs: submit, list, show, change. For others see watch.py, logs.py and execs.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_pb2 import JobSpec, WorkLoss
from dlq.v1.job_service_pb2 import SpecChange
from dlq_common.errors import DlqError, PermissionDenied
from dlq_common.text.wire import to_timestamp
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import (
    AttendJob,
    CancelJob,
    CheckpointJob,
    ExplainJob,
    HoldJob,
    PauseJob,
    ReleaseJob,
    RequeueJob,
    ResumeJob,
    SignalJob,
    Submitted,
    UpdateJob,
)
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import HoldKind, Job
from dlq_master.model.jobs.naming import shown_id
from dlq_master.rpc.calls.call import Call, page_size_of, position_of
from dlq_master.rpc.calls.reads import ENCODED, SLICE, Breathe
from dlq_master.rpc.jobs.edits import Changed, changed, edit_each, told
from dlq_master.rpc.jobs.journal import listed_events
from dlq_master.rpc.jobs.lists.listing import ListedJobs, listed, parts_of, total
from dlq_master.rpc.jobs.lists.places import place_of, token_of
from dlq_master.rpc.jobs.lists.ranked import ranked
from dlq_master.rpc.jobs.lists.wanted import understood
from dlq_master.rpc.jobs.traffic_view import profile_of, traffic_message
from dlq_master.rpc.jobs.visible import sees_block, visible_job
from dlq_master.rpc.jobs.wait_view import wait_shares, with_owners, with_times
from dlq_master.rpc.specs.elastic import check_new_sizes
from dlq_master.rpc.specs.intake import (
    Edit,
    signal_of,
    submit_stimulus,
    update_stimulus,
    words_of,
)
from dlq_master.rpc.specs.respec import Respecified, respecified
from dlq_master.rpc.views.convert import attempt_message, contact_of, reason_messages
from dlq_master.rpc.views.job_view import add_figures, brief_message, job_message
from dlq_master.store.list_order import BY_NUMBER

if TYPE_CHECKING:
    from dlq_master.rpc.specs.hooked import SubmitHooks

MOST_DETAILED: Final = 1_000  # jobs of a page with details
BYTES_OF_A_LOOK: Final = 2048
"""So much of a spec is read and parsed in the time of a look at one job."""


async def submit_job(call: Call, request: wire.SubmitJobRequest) -> wire.SubmitJobResponse:
    if call.parts.hooks is not None:
        return await _submit_by_hooks(call, call.parts.hooks, request)
    submitted = await call.ask(submit_stimulus(request, call.caller))
    return _told_submitted(call, request, submitted)


async def _submit_by_hooks(
    call: Call, hooks: SubmitHooks, request: wire.SubmitJobRequest
) -> wire.SubmitJobResponse:
    """Submit after the operator's hook. Few masters have one."""
    ask = await hooks.seen(request.spec, submit_stimulus(request, call.caller))
    call.hook = ask.hooked
    try:
        submitted = await call.ask(ask)
    except DlqError as refusal:
        if ask.hooked:  # the hook's change may be the reason of the refusal
            refusal.hint = f"{refusal.hint}\n{ask.hooked}".strip()
        raise
    answer = _told_submitted(call, request, submitted)
    spec = ask.spec if request.validate_only else call.read.spec(submitted.job.spec_id)
    answer.hook_notes.extend(hooks.notes_of(spec))
    return answer


def _told_submitted(
    call: Call, request: wire.SubmitJobRequest, submitted: Submitted
) -> wire.SubmitJobResponse:
    if request.brief:
        return wire.SubmitJobResponse(job=brief_message(submitted.job))
    # The first reason is the main one, which lists tell. It need not be looked for once more.
    why = submitted.reasons[0].code if submitted.reasons else None
    return wire.SubmitJobResponse(
        job=job_message(submitted.job, call.read, call.now_s, why),
        reasons=reason_messages(submitted.reasons, submitted.job, call.caller.name),
        jobs_ahead_count=submitted.jobs_ahead,
    )


async def get_job(call: Call, request: wire.GetJobRequest) -> wire.GetJobResponse:
    read = call.read
    job = visible_job(read, call.caller, request.job_id)
    attempts = read.attempts(job.job_id)
    response = wire.GetJobResponse(
        job=job_message(job, read, call.now_s),
        spec=JobSpec.FromString(read.spec(job.spec_id)),
        attempts=[attempt_message(each, job.rules, contact_of(each, read)) for each in attempts],
        traffic=traffic_message(job, read),
    )
    living = None if job.live_key is None else read.attempt(job.live_key)
    if living is not None:
        add_figures(response.job, living, read, call.now_s)
    profile = profile_of(job, read) if request.with_profile else None
    if profile is not None:
        response.profile_attempt, response.profile = str(profile[0]), profile[1]
    return response


async def list_jobs(call: Call, request: wire.ListJobsRequest) -> bytes:
    """The answer as bytes, since most of its rows are encoded already."""
    most = page_size_of(request.page_size)
    if request.with_details:
        most = min(most, MOST_DETAILED)
    breathe = call.breathe()
    seen = call.caller, call.read, call.now_s, call.parts.notes
    wanted = await understood(request, *seen, breathe)
    # Before the list: an event that comes while it is made is told twice rather than never.
    page = _JobPage(call, most, with_details=request.with_details)
    if wanted.order == BY_NUMBER:
        await page.fill(listed(wanted, position_of(request.page_token)), breathe)
    else:
        jobs, last = await ranked(wanted, place_of(wanted.order, request.page_token), most)
        await page.fill(parts_of(jobs), breathe)
        page.rest.next_page_token = "" if last is None else token_of(wanted.order, last)
    if request.with_total:
        whole = not request.page_token and not page.rest.next_page_token
        page.rest.total_count = page.count if whole else await total(wanted)
    return b"".join((*page.rows, page.rest.SerializeToString()))


class _JobPage:
    """A page of a list while it is made: the rows of its jobs, and the rest of the answer."""

    def __init__(self, call: Call, most: int, *, with_details: bool) -> None:
        self.rest = wire.ListJobsResponse(cursor=call.read.last_sequence)
        self.rows: list[bytes] = []
        self._call, self._most, self._with_details = call, most, with_details
        self._specs = LastSpec()
        self.count, self._last = 0, JobId(0)

    async def fill(self, jobs: AsyncIterator[ListedJobs], breathe: Breathe) -> None:
        """Add these jobs up to the end of the page. If others follow, set the next token."""
        rows, caller = self._call.parts.rows, self._call.caller
        async for some, block in jobs:
            encoded, now_s = rows.encoded, self._call.now_s
            fits = self.count + len(some) <= self._most and not self._with_details
            if fits and block is not None and sees_block(caller, block):
                self.rows += rows.block(block, self._call.read, now_s)
                self.count, self._last = self.count + len(some), some[-1].job_id
                await breathe(ENCODED * (rows.encoded - encoded))
                continue
            for job in some:
                if self.count == self._most:
                    self.rest.next_page_token = str(self._last)
                    return
                self._add(job, now_s)
                if self._with_details:  # one alone may have a script of megabytes
                    await breathe(ENCODED + self._specs.cost())
            await breathe(ENCODED * (rows.encoded - encoded))

    def _add(self, job: Job, now_s: float) -> None:
        rows, read, own = self._call.parts.rows, self._call.read, self._call.caller.may_see(job)
        row_of = rows.row if own else rows.redacted_row
        self.rows.append(row_of(job, read, now_s))
        if self._with_details:
            detail = _detail(job, read, self._specs) if own else wire.JobDetail()
            self.rest.details.append(detail)
        self.count, self._last = self.count + 1, job.job_id


class LastSpec:
    """The spec of the job that a long call has come to. Tasks of an array share one, which may have
    megabytes. It is read from the disk and parsed once for all of them. No second one is kept.
    """

    def __init__(self) -> None:
        self._of: tuple[int, int] | None = None
        self._stored = b""
        self._message: JobSpec | None = None
        self._bare: tuple[JobSpec, bool] | None = None
        self._changed: tuple[SpecChange, bytes, Respecified] | None = None
        self._unpaid = 0

    def stored(self, job: Job, read: Published) -> bytes:
        """The spec as it is stored; empty for an unknown job."""
        of = (job.spec_id, job.version if job.own_spec else 0)
        if of != self._of:
            self._of, self._message, self._bare = of, None, None
            self._stored = read.spec(job.spec_id)
            self._unpaid += len(self._stored)
        return self._stored

    def message(self, job: Job, read: Published) -> JobSpec:
        """The same, parsed."""
        stored = self.stored(job, read)
        if self._message is None:
            self._message = JobSpec.FromString(stored)
        return self._message

    def changed(self, job: Job, read: Published, asked: SpecChange) -> Respecified:
        """The same, changed. Jobs with equal specs share the work: tasks keep changed specs of
        their own, and lists of thousands of nodes take 10 ms.
        """
        stored, known = self.stored(job, read), self._changed
        if known is None or known[0] != asked or known[1] != stored:
            known = self._changed = (asked, stored, respecified(asked, stored, job))
            self._unpaid += BYTES_OF_A_LOOK * SLICE
        made = known[2]
        respec = replace(made["respec"], seen_version=job.version)
        return {"spec_change": made["spec_change"], "respec": respec}

    def without_program(self, job: Job, read: Published) -> tuple[JobSpec, bool]:
        """The same without script and environment, and whether it has a script."""
        stored = self.stored(job, read)
        if self._bare is None:
            spec = JobSpec.FromString(stored)
            has_script = bool(spec.script)
            spec.ClearField("script")
            spec.ClearField("environment")
            self._bare = spec, has_script
        return self._bare

    def cost(self) -> int:
        """The cost of all reads since the last call, in jobs that are looked at."""
        cost, self._unpaid = self._unpaid // BYTES_OF_A_LOOK, 0
        return cost


def _detail(job: Job, read: Published, specs: LastSpec) -> wire.JobDetail:
    """The parts of a job that a list leaves out. Environments may hold secrets."""
    spec, has_script = specs.without_program(job, read)
    return wire.JobDetail(
        spec=spec,
        has_script=has_script,
        attempts=[
            attempt_message(each, job.rules, contact_of(each, read))
            for each in read.attempts(job.job_id)
        ],
    )


async def cancel_job(call: Call, request: wire.CancelJobRequest) -> wire.CancelJobResponse:
    kill, brief = request.kill, request.only_first
    after = await changed(
        call, request, lambda edit: CancelJob(**edit, kill=kill), only_first=brief
    )
    return wire.CancelJobResponse(**after)


async def hold_job(call: Call, request: wire.HoldJobRequest) -> wire.HoldJobResponse:
    if request.admin and not call.caller.sees_all:
        raise PermissionDenied(
            "an operator's hold is for operators", user=call.caller.name, needs="operator"
        )
    kind = HoldKind.ADMIN if request.admin else HoldKind.USER
    reason = words_of(request.reason, "reason")
    after = await changed(
        call,
        request,
        lambda edit: HoldJob(**edit, kind=kind, reason=reason),
        only_first=request.only_first,
    )
    return wire.HoldJobResponse(**after)


async def release_job(call: Call, request: wire.ReleaseJobRequest) -> wire.ReleaseJobResponse:
    brief = request.only_first
    after = await changed(call, request, lambda edit: ReleaseJob(**edit), only_first=brief)
    return wire.ReleaseJobResponse(**after)


async def pause_job(call: Call, request: wire.PauseJobRequest) -> wire.PauseJobResponse:
    how = {"accept_loss": request.accept_loss, "in_memory": request.in_memory}
    after = await changed(call, request, lambda edit: PauseJob(**edit, **how))
    return wire.PauseJobResponse(**after, losses=_losses(after))


async def resume_job(call: Call, request: wire.ResumeJobRequest) -> wire.ResumeJobResponse:
    return wire.ResumeJobResponse(**await changed(call, request, lambda edit: ResumeJob(**edit)))


async def update_job(call: Call, request: wire.UpdateJobRequest) -> wire.UpdateJobResponse:
    specs = LastSpec()

    def make(edit: Edit, asked: wire.UpdateJobRequest = request) -> UpdateJob:
        job = call.read.job(edit["job_id"])
        if job is not None and asked.HasField("elastic"):
            check_new_sizes(asked, specs.message(job, call.read))
        made = update_stimulus(asked, edit)
        if job is None or not asked.HasField("spec_change"):
            return made
        return replace(made, **specs.changed(job, call.read, asked.spec_change))

    hooks = call.parts.hooks
    seen = None if hooks is None else hooks.updates(call, request, make)
    ask = call.ask if seen is None else seen.ask
    outcome = await edit_each(call, request, make, ask=ask, cost=specs.cost)
    call.hook = "" if seen is None else "; ".join(seen.words)
    return wire.UpdateJobResponse(
        **await told(call, outcome), changes=outcome.changes, hook_notes=outcome.notes
    )


async def requeue_job(call: Call, request: wire.RequeueJobRequest) -> wire.RequeueJobResponse:
    hold, accept = request.hold, request.accept_loss
    after = await changed(
        call, request, lambda edit: RequeueJob(**edit, hold=hold, accept_loss=accept)
    )
    return wire.RequeueJobResponse(**after, losses=_losses(after))


async def signal_job(call: Call, request: wire.SignalJobRequest) -> wire.SignalJobResponse:
    signal, every = signal_of(request.signal), request.all_ranks
    return wire.SignalJobResponse(
        **await changed(
            call, request, lambda edit: SignalJob(**edit, signal=signal, all_ranks=every)
        )
    )


async def checkpoint_job(
    call: Call, request: wire.CheckpointJobRequest
) -> wire.CheckpointJobResponse:
    asked = to_timestamp(call.now_s)
    after = await changed(call, request, lambda edit: CheckpointJob(**edit))
    return wire.CheckpointJobResponse(**after, ask_time=asked)


async def attend_job(call: Call, request: wire.AttendJobRequest) -> wire.AttendJobResponse:
    """Keep an attended job alive. Only its own client may: operators are not its client."""
    job = visible_job(call.read, call.caller, request.job_id)
    if not call.caller.owns(job):
        raise PermissionDenied(
            f"job {shown_id(job)} is kept by a client of {job.user}", user=call.caller.name
        )
    ask = AttendJob(caller=call.caller, job_id=job.job_id, bind=request.bind)
    return wire.AttendJobResponse(job=job_message(await call.ask(ask), call.read, call.now_s))


async def explain_job(call: Call, request: wire.ExplainJobRequest) -> wire.ExplainJobResponse:
    caller, read = call.caller, call.read
    job = visible_job(read, caller, request.job_id)
    explained = await call.ask(ExplainJob(job_id=job.job_id))
    reasons = reason_messages(explained.reasons, explained.job, caller.name)
    return wire.ExplainJobResponse(
        job=job_message(explained.job, call.read, call.now_s),
        reasons=with_times(explained.reasons, with_owners(reasons, read, caller), explained.waited),
        waits=wait_shares(explained.waited),
        jobs_ahead_count=explained.jobs_ahead,
        traffic=traffic_message(explained.job, call.read),
    )


async def list_events(call: Call, request: wire.ListEventsRequest) -> wire.ListEventsResponse:
    return await listed_events(call.read, call.caller, request, call.breathe())


def _losses(after: Changed) -> list[WorkLoss]:
    """The losses of those jobs that have been told to stop."""
    jobs = after["jobs"] or [after["job"]]
    return [job.stop_loss for job in jobs if job.stop_cause and job.HasField("stop_loss")]
