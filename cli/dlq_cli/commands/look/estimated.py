"""The part of `dlq estimate` that talks to the master, and of `dlq submit` that asks the same."""

from __future__ import annotations

import sys

import click

from dlq.v1 import forecast_service_pb2 as wire
from dlq_cli.app import App
from dlq_cli.facts.common import described, document
from dlq_cli.facts.job import job_facts, range_facts
from dlq_cli.lists.select import several_jobs
from dlq_cli.lists.tasks import shown_id
from dlq_cli.output.render import OutputLook, clean_line, facts, paint, when
from dlq_cli.output.zone import LocalZone
from dlq_cli.spec.message import put_instants, to_message
from dlq_cli.spec.validate import Spec
from dlq_cli.text.foreseen import BASES, long_range
from dlq_cli.words import shown_state
from dlq_client.forecasts import Forecasts
from dlq_client.jobs import Jobs
from dlq_common.errors import DlqError, InvalidRequest
from dlq_common.text.wire import from_timestamp

# The submission is answered; users do not want to wait much longer for an estimate.
_QUICKLY_S = 1.0


def estimate_job(app: App, name: str, *, as_json: bool, wait_s: float) -> None:
    """Print it for a job that is there."""
    found = several_jobs(Jobs(app.connection()), [name])
    if len(found) != 1:
        raise InvalidRequest(f"{name} is an array: name one task, such as {name}_0")
    _tell(app, Forecasts(app.connection()).of_job(found[0], wait_s=wait_s), as_json=as_json)


def estimate_spec(app: App, spec: Spec, *, as_json: bool, wait_s: float) -> None:
    """Print it for one that would be submitted now."""
    message = to_message(spec)
    put_instants(message, spec, now_s=app.clock.now_s(), zone=LocalZone())
    answer = Forecasts(app.connection()).of_spec(message, wait_s=wait_s)
    _tell(app, answer, as_json=as_json)


def tell_start(app: App, job_id: str) -> None:
    """When a job that was just submitted will start, on stderr: on a terminal, and if that is known
    quickly.
    """
    if not sys.stderr.isatty():
        return
    look = OutputLook(tty=True, color=False, now_s=app.clock.now_s())
    try:
        answer = Forecasts(app.connection()).of_job(job_id, wait_s=_QUICKLY_S)
    except DlqError:
        return
    if answer.HasField("start"):
        app.say(f"it will probably start {long_range(answer.start, look)}")


def _tell(app: App, answer: wire.EstimateJobResponse, *, as_json: bool) -> None:
    if as_json:
        click.echo(document(_facts(answer)))
        return
    look = app.look()
    click.echo(estimate_text(answer, look), nl=False, color=look.color)


_facts = described(
    wire.EstimateJobResponse,
    "start end estimate_time basis? missing? job!",
    start=range_facts,
    end=range_facts,
    job=lambda job: job_facts(job) if job.job_id not in ("", "0") else None,
)


def estimate_text(answer: wire.EstimateJobResponse, look: OutputLook) -> str:
    """When a job starts and ends, or why that is not known."""
    job, has = answer.job, answer.HasField
    there = job.job_id not in ("", "0")
    head = f"Job {shown_id(job)} {clean_line(job.name)}: {paint(shown_state(job), look)}"
    if not there:
        head = f"{clean_line(job.name)}, if it were submitted now"
    if answer.missing:
        return f"{head}\nno forecast: {clean_line(answer.missing)}\n"
    runs = job.HasField("attempt_state")
    start = long_range(answer.start, look) if has("start") else ""
    pairs = (
        ("starts", start or ("" if runs else "not as things are: see dlq why")),
        ("ends", long_range(answer.end, look) if has("end") else ""),
        ("run time from", BASES.get(answer.basis, answer.basis)),
        ("as of", when(from_timestamp(answer.estimate_time), look)),
    )
    return f"{head}\n{facts(pairs)}"
