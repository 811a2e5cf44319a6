"""`dlq why`: every reason why a job does not run."""

from __future__ import annotations

from collections.abc import Iterator

import click

from dlq.v1 import job_pb2, job_service_pb2
from dlq_cli.app import App
from dlq_cli.clusters.listed import job_argument
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.answers import explained_facts
from dlq_cli.facts.common import document
from dlq_cli.jobs.cancelled import cancel_words
from dlq_cli.lists.columns import where, where_beside_state
from dlq_cli.lists.select import several_jobs
from dlq_cli.lists.story import end_note_text, failure_text, reason_text
from dlq_cli.lists.tasks import shown_id
from dlq_cli.output.render import OutputLook, clean_line
from dlq_cli.text.traffic import believed_lines
from dlq_cli.words import ENDED, shown_state
from dlq_client.jobs import Jobs
from dlq_common.errors import DlqError
from dlq_common.text.units import format_duration
from dlq_common.text.wire import from_duration

_STAGES = "stage "  # the begin of the names of staging jobs
_MB_PER_GB = 1_000.0


@click.command(epilog=examples("dlq why 17", "dlq why 17 --json | jq '.jobs[0].reasons[].code'"))
@json_option
@job_argument(required=True)
@pass_app
def why(app: App, job: tuple[str, ...], as_json: bool) -> None:
    """All reasons why JOB... does not run, the jobs in its way, and its place in the queue."""
    jobs = Jobs(app.connection())
    answers = [jobs.explain(job_id) for job_id in several_jobs(jobs, job)]
    if as_json:
        click.echo(document({"jobs": [explained_facts(answer) for answer in answers]}))
        return
    look = app.look()
    for answer in answers:
        click.echo(_text(answer, look), nl=False)
        if any(reason.code == "dependency" for reason in answer.reasons):
            for line in _staging_lines(jobs, answer.job):
                click.echo(f"  {line}")
        if words := cancel_words(jobs, answer.job):
            click.echo(f"  cancelled {words}")
        attempts = jobs.get(answer.job.job_id).attempts if answer.job.attempt_count else ()
        click.echo(end_note_text(attempts), nl=False)
        if not answer.reasons and shown_state(answer.job) in ENDED:
            click.echo(failure_text(attempts), nl=False)


def _text(answer: job_service_pb2.ExplainJobResponse, look: OutputLook) -> str:
    job = answer.job
    name = f"Job {shown_id(job)} {clean_line(job.name)}"
    believed = [f"  {line}" for line in believed_lines(answer.traffic, look)]
    if not answer.reasons:
        placed_by = [] if shown_state(job) in ENDED else believed
        placed_by = [*_inactive(job), *_waited(answer), *placed_by]
        return "\n".join([f"{name} {_no_reason(job, look)}", *placed_by]) + "\n"
    count = len(answer.reasons)
    head = f"{name} is {shown_state(job)}, queue {clean_line(job.queue)} level {job.level}: "
    head += f"{count} reason{'s' if count != 1 else ''}"
    if answer.HasField("jobs_ahead_count"):
        ahead = answer.jobs_ahead_count
        head += f", {ahead} job{'s' if ahead != 1 else ''} ahead"
    lines = [
        f"  {reason.code}: {reason_text(reason, look)}{_owners(reason, job.user)}{_for(reason)}"
        for reason in answer.reasons
    ]
    lines += [*_waited(answer), *believed]
    return "\n".join([head, *lines]) + "\n"


def _owners(reason: job_pb2.WaitReason, asker: str) -> str:
    """The owners of the jobs in the way; empty where all are the asker's own, or are hidden."""
    users: dict[str, list[str]] = {}
    for job_id, user in zip(reason.blocking_job_ids, reason.blocking_users, strict=False):
        users.setdefault(clean_line(user), []).append(job_id)
    if not users.keys() - {asker}:
        return ""
    told = "; ".join(f"{user}: {', '.join(ids)}" for user, ids in users.items())
    return f" ({told})"


def _for(reason: job_pb2.WaitReason) -> str:
    """How long it has been so, over all its waits."""
    if not reason.HasField("spent_duration"):
        return ""
    return f" [for {format_duration(from_duration(reason.spent_duration))}]"


def _waited(answer: job_service_pb2.ExplainJobResponse) -> list[str]:
    """One line: how its waits come about, by their main reasons."""
    main = [one for one in answer.waits if from_duration(one.main_duration) >= 1.0]
    if not main:
        return []
    total = format_duration(sum(from_duration(one.main_duration) for one in main))
    parts = [f"{_named(one)} {format_duration(from_duration(one.main_duration))}" for one in main]
    return [f"  waited {total}, mainly for: {', '.join(parts)}"]


def _inactive(job: job_pb2.Job) -> list[str]:
    """Why a running job counts as idle, as stalled, or as slowed down by a node."""
    told = (
        ("idle", job.activity.idle_reason),
        ("stalled", job.activity.stall_reason),
        ("slowed down", job.activity.straggler_reason),
    )
    return [f"  {word}: {clean_line(reason)}" for word, reason in told if reason]


def _named(one: job_pb2.WaitShare) -> str:
    return f"{one.code} ({clean_line(one.subject)})" if one.subject else one.code


def _no_reason(job: job_pb2.Job, look: OutputLook) -> str:
    state = shown_state(job)
    if state in ENDED:
        return f"has ended: {state} {where_beside_state(job, look)}".rstrip()
    return f"is {state} on {where(job, look)}" if job.node_ids else f"is {state}"


def _staging_lines(jobs: Jobs, job: job_pb2.Job) -> Iterator[str]:
    """A line for each staging job that it waits for. Such a job tells its megabytes as steps
    (broker/dlq_broker/stage_program.py).
    """
    try:
        terms = jobs.get(job.job_id).spec.dependency.terms
        before = [jobs.get(term.job_id).job for term in terms if term.job_id]
    except DlqError:
        return
    for one in before:
        if one.name.startswith(_STAGES):
            yield f"staging {clean_line(one.name.removeprefix(_STAGES))}: {_so_far(one)}"


def _so_far(job: job_pb2.Job) -> str:
    told = job.progress
    if not told.HasField("total_step_count"):
        return f"job {job.job_id} is {shown_state(job)}"
    done, total = told.step / _MB_PER_GB, told.total_step_count / _MB_PER_GB
    return f"{done:.1f} of {total:.1f} GB, by job {job.job_id}"
