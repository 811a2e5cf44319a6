"""The part of `dlq submit` that talks to the master: send the spec, tell what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.options import detaching
from dlq_cli.facts.common import document
from dlq_cli.facts.job import job_facts, reason_facts, spec_facts
from dlq_cli.held import HoldTeller
from dlq_cli.render import facts
from dlq_cli.spec.message import to_message
from dlq_cli.spec.validate import Spec
from dlq_cli.story import reason_text
from dlq_cli.words import shown_state
from dlq_client.jobs import Jobs
from dlq_common.errors import DlqError, Unavailable
from dlq_common.units import approximate_size, format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How to tell, and what to do afterwards."""

    parsable: bool
    as_json: bool
    wait: bool
    follow: bool


def submit_spec(app: App, spec: Spec, manner: Manner, *, request_id: str, test_only: bool) -> None:
    """Send a spec. When the master stays away, the error's facts carry the request id."""
    message = to_message(spec)
    jobs = Jobs(app.connection())
    key = request_id or jobs.new_request_id()
    try:
        answer = jobs.submit(message, request_id=key, validate_only=test_only)
    except Unavailable as error:
        error.metadata["request_id"] = key
        raise
    job_id = answer.job.job_id
    if manner.as_json:
        content = {**job_facts(answer.job), "reasons": reason_facts(answer.reasons)}
        if test_only:
            content |= {"spec": spec_facts(message), "origins": dict(sorted(spec.origins.items()))}
        click.echo(document({"jobs": [content]}))
    elif test_only:
        click.echo("The master would accept this job:\n" + understood(spec), nl=False)
    else:
        click.echo(job_id if manner.parsable else f"Submitted batch job {job_id}")
    stays = not test_only and (manner.wait or manner.follow)
    # Who stays is told of holds by those who wait.
    if not manner.as_json and not (stays and shown_state(answer.job) == "held"):
        _tell_reasons(app, job_id, answer.reasons)
        if answer.reasons and job_id and not manner.parsable:
            _tell_place(app, jobs, job_id)
    if stays:
        _stay(app, job_id, manner)


def _tell_reasons(app: App, job_id: str, reasons: Sequence[job_pb2.WaitReason]) -> None:
    """Why it does not run yet, on stderr."""
    for reason in reasons[:3]:
        text = reason_text(reason)
        app.say(f"job {job_id} waits: {text}" if job_id else text)
    if len(reasons) > 3:
        app.say(f"and {len(reasons) - 3} more reasons: dlq why {job_id}")


def _tell_place(app: App, jobs: Jobs, job_id: str) -> None:
    """How many are before it, on stderr. The job is queued: not to know that is no failure."""
    try:
        explained = jobs.explain(job_id)
    except DlqError:
        return
    if explained.HasField("jobs_ahead_count"):
        ahead = explained.jobs_ahead_count
        app.say("1 job is ahead of it" if ahead == 1 else f"{ahead} jobs are ahead of it")


def _stay(app: App, job_id: str, manner: Manner) -> None:
    from dlq_cli.commands.logs import follow_job
    from dlq_cli.commands.wait import exit_code, wait_for

    holds = HoldTeller(app)
    with detaching(app, [job_id]):
        if manner.follow:
            follow_job(app, job_id, lines=None, holds=holds)
        ended = wait_for(app, [job_id], holds=holds)
    code = exit_code(ended.values())
    if code != exit_codes.OK:
        raise exit_codes.Ended(code)


def understood(spec: Spec) -> str:
    """What a spec was taken to mean, and where each part was said."""
    origin = spec.origins.get
    rows = (
        ("name", spec.name, origin("name")),
        ("command", _command(spec), origin("command") or origin("run")),
        ("queue", spec.queue or "the cluster's", origin("queue")),
        ("gpus", _gpus(spec), origin("resources.gpus_total") or origin("resources.gpus")),
        (
            "cpus",
            f"{spec.cpu_limit:g} on each node" if spec.cpu_limit else "",
            origin("resources.cpus"),
        ),
        (
            "memory",
            f"{approximate_size(spec.memory_limit_bytes)} ({spec.memory_limit_bytes} bytes) on each node"
            if spec.memory_limit_bytes
            else "",
            origin("resources.memory"),
        ),
        (
            "time limit",
            format_duration(spec.time_limit_s) if spec.time_limit_s else "none",
            origin("time_limit"),
        ),
        ("directory", spec.working_directory, origin("workdir")),
        (
            "environment",
            ", ".join(sorted(spec.environment)) or "nothing of your shell",
            ", ".join(dict.fromkeys(filter(None, map(origin, _variables(spec))))),
        ),
        ("signal", spec.signal or "TERM", origin("preempt.signal")),
        (
            "grace",
            format_duration(spec.grace_s) if spec.grace_s else "auto",
            origin("preempt.grace") or (spec.grace_s and origin("preempt.signal")),
        ),
        (
            "checkpoints",
            spec.checkpoint_directory or "the cluster's place",
            origin("checkpoint.dir"),
        ),
        ("restarts", str(spec.max_restart_count), origin("retry.max_restarts")),
        ("hold", "yes" if spec.hold else "", origin("hold")),
    )
    return facts(
        (name, f"{value}  ({where or 'default'})" if value else "") for name, value, where in rows
    )


def _variables(spec: Spec) -> list[str]:
    """The keys of the environment, as origins know them."""
    return [f"env.{name}" for name in sorted(spec.environment)]


def _command(spec: Spec) -> str:
    if spec.script is None:
        return " ".join(spec.command)
    interpreter = spec.script.partition("\n")[0].removeprefix("#!").strip()
    return " ".join([interpreter, f"({len(spec.script)} characters)", *spec.command])


def _gpus(spec: Spec) -> str:
    kind = f" {spec.gpu_type}" if spec.gpu_type else ""
    if spec.node_count is None:
        return f"{spec.gpu_count}{kind} on any nodes"
    nodes = "node" if spec.node_count == 1 else "nodes"
    return f"{spec.gpu_count}{kind} on {spec.node_count} {nodes}"
