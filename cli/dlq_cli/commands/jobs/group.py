"""The part of `dlq submit --group` that talks to the master: all members are sent, or none."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import click

from dlq.v1 import job_pb2
from dlq.v1.job_service_pb2 import GroupMember, SubmitJobsResponse
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.jobs.submitted import Manner, tell_reasons
from dlq_cli.commands.look.wait import exit_code, wait_for
from dlq_cli.commands.options import detaching
from dlq_cli.facts.common import document
from dlq_cli.facts.job import job_facts
from dlq_cli.jobs.held import HoldTeller
from dlq_cli.jobs.slurm_settled import settle_account, settle_nodes
from dlq_cli.output.zone import LocalZone
from dlq_cli.spec.caller import caller_layer, callers_directory
from dlq_cli.spec.group import MemberSpec
from dlq_cli.spec.merge import merge
from dlq_cli.spec.message import put_instants, to_message
from dlq_cli.spec.validate import finish
from dlq_cli.spec.values.given import Layer
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest, Unavailable
from dlq_common.text.hook_words import hook_words

SentMember = tuple[GroupMember, job_pb2.JobSpec]


def submit_group(
    app: App,
    members: Sequence[MemberSpec],
    over: Layer,
    manner: Manner,
    *,
    request_id: str,
    test_only: bool,
) -> None:
    """Send the members, and report the group."""
    jobs = Jobs(app.connection())
    if manner.follow:
        raise InvalidRequest("--follow is for one job: dlq logs -f GROUP_INDEX")
    answer = send_group(app, members, over, request_id=request_id, test_only=test_only)
    if not manner.as_json:
        for note in (note for job in answer.jobs for note in job.hook_notes):
            app.say(f"hook {hook_words(note)}")
    if test_only:
        click.echo(f"The master would accept this group of {len(answer.jobs)} jobs.")
        return
    job_ids = [job.job_id for job in answer.jobs]
    if manner.as_json:
        listed = jobs.list(job_ids=job_ids).jobs
        told: Mapping[str, object] = {"group_id": answer.group_id}
        click.echo(document({**told, "jobs": [job_facts(job) for job in listed]}))
    elif manner.parsable:
        click.echo(answer.group_id)
    else:
        click.echo(f"Submitted group {answer.group_id} ({_counted(members)})")
        tell_reasons(app, f"{answer.group_id}_0", jobs.explain(job_ids[0]).reasons)
    if manner.wait:
        with detaching(app, job_ids):
            ended = wait_for(app, job_ids, holds=HoldTeller(app))
        if code := exit_code(ended.values()):
            raise exit_codes.Ended(code)


def send_group(
    app: App,
    members: Sequence[MemberSpec],
    over: Layer,
    *,
    request_id: str = "",
    test_only: bool = False,
) -> SubmitJobsResponse:
    """Queue a group. Where the master stays away, the error holds the request id."""
    jobs = Jobs(app.connection())
    key = request_id or jobs.new_request_id()
    messages = [_message(app, member, over) for member in members]
    try:
        return jobs.submit_group(messages, request_id=key, validate_only=test_only)
    except Unavailable as error:
        error.metadata["request_id"] = key
        error.hint = f"it may have been queued; to be sure: dlq submit --group --request-id {key}"
        raise


# --- helpers, in order of use ---------------------------------------------------------------------


def _message(app: App, member: MemberSpec, over: Layer) -> SentMember:
    merged = merge([caller_layer(), member.layer, over], os.environ)
    try:
        spec = finish(merged, directory=callers_directory(merged), arguments=())
    except InvalidRequest as error:
        error.what = f"member {member.name}: {error.what}"
        raise
    message = to_message(spec)
    put_instants(message, spec, now_s=app.clock.now_s(), zone=LocalZone())
    settle_account(app, spec, message)
    settle_nodes(app, spec, message)
    return GroupMember(name=member.name, job_count=member.jobs, ends=member.ends), message


def _counted(members: Sequence[MemberSpec]) -> str:
    """`3 jobs: learner, 2 actor`."""
    count = sum(member.jobs for member in members)
    words = [it.name if it.jobs == 1 else f"{it.jobs} {it.name}" for it in members]
    return f"{count} jobs: {', '.join(words)}"
