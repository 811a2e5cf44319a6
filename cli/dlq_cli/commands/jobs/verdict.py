"""`dlq submit` and a deadline: promised, refused with the offer, or not judged yet; with
`--wait-admission` it stays until the answer is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.options import detaching
from dlq_cli.facts.common import document
from dlq_cli.facts.job import job_facts
from dlq_cli.lists.tasks import shown_id
from dlq_cli.output.render import clean_line
from dlq_cli.text.promises import GUARANTEED, SAVING_UNKNOWN, answer, instead
from dlq_cli.words import has_ended, shown_state
from dlq_client.watch import watch_jobs
from dlq_common.errors import DlqError

# A judgement that only needs more time.
NO_ANSWER_YET = "not judged yet"


def tell_admission(app: App, job_ids: Sequence[str], *, as_json: bool) -> None:
    """Wait for the answers and print them; exits with the code of the worst, if any is not
    `guaranteed`.
    """
    with detaching(app, list(job_ids)):
        jobs = list(_judged(app, job_ids))
    if as_json:
        click.echo(document({"jobs": [job_facts(job) for job in jobs]}))
    else:
        click.echo("".join(_lines(jobs)), nl=False)
    states = {job.promise.state for job in jobs} - {GUARANTEED}
    if states:
        refused = "unguaranteed" in states
        raise exit_codes.Ended(exit_codes.UNGUARANTEED if refused else exit_codes.UNJUDGED)


def _judged(app: App, job_ids: Sequence[str]) -> Iterable[job_pb2.Job]:
    found: dict[str, job_pb2.Job] = {}
    told: dict[str, str] = {}
    for job in watch_jobs(app.connection(), job_ids):
        _say_why_later(job, told)
        found[job.job_id] = job
        if len(found) == len(job_ids) and all(map(is_judged, found.values())):
            break
    return found.values()


def _say_why_later(job: job_pb2.Job, told: dict[str, str]) -> None:
    """A job that is measured first waits for GPUs; a planner of another version judges no job."""
    detail = job.promise.detail
    if job.promise.state != "undecided" or job.promise.judging_fails or detail == NO_ANSWER_YET:
        return
    if told.get(job.job_id) != detail:
        told[job.job_id] = detail
        click.echo(f"job {shown_id(job)}: {clean_line(detail)} (Ctrl-C: it stays queued)", err=True)


def is_judged(job: job_pb2.Job) -> bool:
    """Whether there is an answer, or none will come for now. Held jobs are judged when they are let
    go.
    """
    promise = job.promise
    if promise.state != "undecided" or promise.judging_fails:
        return True
    return has_ended(job) or shown_state(job) == "held"


def _lines(jobs: Iterable[job_pb2.Job]) -> Iterable[str]:
    for job in jobs:
        yield f"job {shown_id(job)} is {answer(job.promise)}\n"
        if offered := instead(job.promise):
            yield f"{offered}\n"


PATIENCE_S = 2.0


def judged_soon(app: App, job: job_pb2.Job) -> job_pb2.Job:
    """The new job once its deadline has been judged, or after two seconds; of an array the first
    task.

    Does not wait for a job that is measured first, or held, because that takes longer. The job is
    queued: a master that is away is no failure here.
    """
    if _is_settled(job):
        return job
    connection = app.connection()
    until_s = connection.clock.boottime_s() + PATIENCE_S
    try:
        for value in watch_jobs(connection, [job.job_id], until_s=until_s):
            job = value
            if _is_settled(job):
                break
    except DlqError:
        pass
    return job


def tell_verdict(app: App, job: job_pb2.Job) -> None:
    """Print the verdict on stderr: programs read the number on stdout."""
    promise, name = job.promise, shown_id(job)
    of_array = " (and each of the other tasks is judged for itself)" if _is_array(job) else ""
    if not is_judged(job):
        why = promise.detail.removeprefix(NO_ANSWER_YET)
        app.say(f"job {name} is {NO_ANSWER_YET}{why or ', whether its deadline is promised'}")
        app.say(f"to see it: dlq show {name}; to wait for it: dlq submit --wait-admission")
        return
    if shown_state(job) == "held" and promise.state == "undecided":
        app.say(f"job {name} is held: its deadline is judged when it is let go")
        return
    app.say(f"job {name} is {answer(promise)}{of_array}")
    if offered := instead(promise):
        app.say(offered)
    if promise.state == GUARANTEED and promise.saving_unknown:
        app.say(f"{SAVING_UNKNOWN}: say it with --checkpoint-marker, --save-signal or --signal")


# --- helpers, in order of use ---------------------------------------------------------------------


def _is_settled(job: job_pb2.Job) -> bool:
    """Whether two seconds would change nothing."""
    return is_judged(job) or job.promise.detail != NO_ANSWER_YET


def _is_array(job: job_pb2.Job) -> bool:
    return job.HasField("array_task") and job.array_task.task_count > 1
