"""The part of `dlq submit` that talks to the master: it sends the spec and reports the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import click

from dlq.v1 import job_pb2, job_service_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.jobs.verdict import judged_soon, tell_admission, tell_verdict
from dlq_cli.commands.look.estimated import tell_start
from dlq_cli.commands.options import detaching
from dlq_cli.facts.common import document
from dlq_cli.facts.job import hook_facts, job_facts, reason_facts, spec_facts
from dlq_cli.jobs.held import HoldTeller
from dlq_cli.jobs.slurm_settled import patiently, settle_account, settle_nodes, submit_on_fewest
from dlq_cli.lists.select import several_jobs
from dlq_cli.lists.story import reason_text
from dlq_cli.output.zone import LocalZone
from dlq_cli.spec.message import put_instants, to_message
from dlq_cli.spec.understood import understood
from dlq_cli.spec.validate import Spec
from dlq_cli.words import shown_state
from dlq_client.jobs import Jobs
from dlq_common.errors import Unavailable
from dlq_common.text.hook_words import hook_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """The form of the report, and the actions afterwards."""

    parsable: bool
    as_json: bool
    wait: bool
    follow: bool
    admission: bool = False  # wait until it is judged
    verdict: bool = True  # wait a moment for the verdict on its deadline
    reasons: bool = True  # tell why it waits
    silent: bool = False  # print nothing about the submission
    cluster: str = ""  # behind the number, as `17;cluster`
    as_slurm: bool = False  # its line alone, of arrays too

    @property
    def brief(self) -> bool:
        """Whether the number of the job says all that is told."""
        return not (self.as_json or self.reasons or self.admission or self.verdict)


def submit_spec(
    app: App,
    spec: Spec,
    manner: Manner,
    *,
    request_id: str,
    test_only: bool,
    message: job_pb2.JobSpec | None = None,
    command: str = "",
) -> None:
    """Send a spec, as `message` where that holds more than the spec can say.

    `command`: the command with which to send it again, if the master stays away.
    """
    message = message or to_message(spec)
    jobs = Jobs(app.connection())
    again = f"to be sure: dlq {command} --request-id {{}} ..." if command else ""
    key = request_id or jobs.new_request_id()
    brief = manner.brief and not test_only
    send = partial(
        send_spec, app, spec, message, again, request_id=key, test_only=test_only, brief=brief
    )
    answer = patiently(app, send) if manner.as_slurm else send()
    array = answer.job.HasField("array_task")
    job_id = answer.job.array_task.array_id if array else answer.job.job_id
    admission = manner.admission and not test_only
    verdict = manner.verdict and bool(message.deadlines) and not (admission or test_only)
    if manner.as_json and admission:
        pass  # one object, when it has been judged
    elif manner.as_json:
        job = judged_soon(app, answer.job) if verdict else answer.job
        content = {
            **job_facts(job),
            **hook_facts(answer.hook_notes),
            "reasons": [reason_facts(one) for one in answer.reasons],
        }
        if test_only:
            content |= {"spec": spec_facts(message), "origins": dict(sorted(spec.origins.items()))}
        click.echo(document({"jobs": [content]}))
    elif manner.silent:
        pass
    elif test_only:
        click.echo("The master would accept this job:\n" + understood(spec), nl=False)
    else:
        click.echo(accepted_line(job_id, answer.job, manner))
    _tell_hooks(app, answer, manner)
    if array and manner.follow and not test_only:
        app.say(f"{job_id} is an array: follow one of its tasks with dlq logs -f {job_id}_INDEX")
    stays = not test_only and (manner.wait or manner.follow)
    # With --wait or --follow the waiting loop reports holds.
    if manner.reasons and not manner.as_json and not (stays and shown_state(answer.job) == "held"):
        tell_reasons(app, job_id, answer.reasons)
        if answer.reasons and job_id and not manner.parsable and not array:
            _tell_place(app, answer)
            tell_start(app, job_id)
    if verdict and not manner.as_json:
        tell_verdict(app, judged_soon(app, answer.job))
    if admission:
        tell_admission(
            app, several_jobs(jobs, [job_id]) if array else [job_id], as_json=manner.as_json
        )
    if stays:
        stay(app, several_jobs(jobs, [job_id]) if array else [job_id], manner)


def send_spec(
    app: App,
    spec: Spec,
    message: job_pb2.JobSpec,
    again: str,
    *,
    request_id: str = "",
    test_only: bool = False,
    brief: bool = False,
) -> job_service_pb2.SubmitJobResponse:
    """Queue `message`, with the begin that the spec names. Where the master stays away, the hint of
    the error says how to send it `again` under the same request id.
    """
    jobs = Jobs(app.connection())
    key = request_id or jobs.new_request_id()
    put_instants(message, spec, now_s=app.clock.now_s(), zone=LocalZone())
    settle_account(app, spec, message)
    settle_nodes(app, spec, message)
    try:
        return submit_on_fewest(
            jobs, spec, message, request_id=key, test_only=test_only, brief=brief
        )
    except Unavailable as error:
        error.metadata["request_id"] = key
        if again:
            error.hint = f"it may have been queued; {again.format(key)}"
        raise


def accepted_line(job_id: str, job: job_pb2.Job, manner: Manner) -> str:
    """The line about an accepted job."""
    if manner.parsable:
        return f"{job_id};{manner.cluster}" if manner.cluster else job_id
    if manner.as_slurm:
        on = f" on cluster {manner.cluster}" if manner.cluster else ""
        return f"Submitted batch job {job_id}{on}"
    return f"Submitted batch job {job_id}{_tasks(job)}"


def _tasks(job: job_pb2.Job) -> str:
    """How many jobs an array is."""
    if not job.HasField("array_task"):
        return ""
    place = job.array_task
    count = "1 task" if place.task_count == 1 else f"{place.task_count} tasks"
    limit = f", {place.concurrent_count} at a time" if place.concurrent_count else ""
    return f" ({count}{limit})"


def tell_reasons(app: App, job_id: str, reasons: Sequence[job_pb2.WaitReason]) -> None:
    """Why it does not run yet, on stderr."""
    for reason in reasons[:3]:
        text = reason_text(reason)
        app.say(f"job {job_id} waits: {text}" if job_id else text)
    if len(reasons) > 3:
        app.say(f"and {len(reasons) - 3} more reasons: dlq why {job_id}")


def _tell_hooks(app: App, answer: job_service_pb2.SubmitJobResponse, manner: Manner) -> None:
    """The changes and warnings of hooks, on stderr."""
    for note in () if manner.as_json else answer.hook_notes:
        app.say(f"hook {hook_words(note)}")


def _tell_place(app: App, answer: job_service_pb2.SubmitJobResponse) -> None:
    """The number of jobs before it, on stderr, if the answer holds it."""
    if answer.HasField("jobs_ahead_count"):
        ahead = answer.jobs_ahead_count
        few = {0: "it is first in line", 1: "1 job is ahead of it"}
        app.say(few.get(ahead, f"{ahead} jobs are ahead of it"))


def stay(app: App, job_ids: list[str], manner: Manner) -> None:
    """Follow the job or wait for its end; exits as it does."""
    from dlq_cli.commands.look.logs import follow_job
    from dlq_cli.commands.look.wait import exit_code, wait_for

    holds = HoldTeller(app)
    with detaching(app, job_ids):
        if manner.follow and len(job_ids) == 1:
            follow_job(app, job_ids[0], lines=None, holds=holds)
        ended = wait_for(app, job_ids, holds=holds)
    jobs = list(ended.values())
    signalled = [job for job in jobs if manner.as_slurm and job.exit_signal]
    code = exit_code([job for job in jobs if job not in signalled])
    if signalled:  # sbatch --wait tells of no signal
        code = max(code, exit_codes.FAILURE)
    if code != exit_codes.OK:
        raise exit_codes.Ended(code)
