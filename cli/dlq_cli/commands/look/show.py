"""`dlq show`: everything about a job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import click

from dlq.v1 import job_service_pb2
from dlq_cli.app import App
from dlq_cli.clusters.listed import job_argument
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.answers import whole_job_facts
from dlq_cli.facts.common import document
from dlq_cli.jobs.cancelled import cancel_words
from dlq_cli.lists.select import several_jobs
from dlq_cli.lists.steps import steps_facts, steps_text
from dlq_cli.lists.story import attempts_text, end_note_text, failure_text, images_text, job_text
from dlq_cli.output.render import facts
from dlq_cli.text.traffic import traffic_pairs
from dlq_client.jobs import Jobs
from dlq_common.text.hook_words import hook_words


@click.command(epilog=examples("dlq show 17", "dlq show 17 --json | jq '.jobs[0].attempts'"))
@json_option
@job_argument(required=True)
@pass_app
def show(app: App, job: tuple[str, ...], as_json: bool) -> None:
    """The request, the placement, attempts and checkpoints of JOB...

    Of the environment only names are shown: values may be secrets.
    """
    jobs = Jobs(app.connection())
    answers = [jobs.get(job_id) for job_id in several_jobs(jobs, job)]
    steps = _steps(jobs, answers, all_attempts=as_json)
    if as_json:
        click.echo(document({"jobs": [_facts(answer, steps) for answer in answers]}))
        return
    look = app.look()
    for number, answer in enumerate(answers):
        click.echo("\n" if number else "", nl=False)
        click.echo(job_text(answer.job, look, answer.spec), nl=False, color=look.color)
        click.echo(facts([("cancelled", cancel_words(jobs, answer.job))]), nl=False)
        click.echo(facts(("hook", hook_words(note)) for note in answer.spec.hook_notes), nl=False)
        click.echo(facts(traffic_pairs(answer.traffic, look)), nl=False)
        click.echo(attempts_text(answer.attempts, look), nl=False, color=look.color)
        listed = steps[answer.job.job_id]
        click.echo(steps_text(listed, look), nl=False, color=look.color)
        click.echo(images_text(answer.attempts), nl=False)
        click.echo(end_note_text(answer.attempts), nl=False)
        click.echo(failure_text(answer.attempts), nl=False)


def _steps(
    jobs: Jobs, answers: Sequence[job_service_pb2.GetJobResponse], *, all_attempts: bool
) -> Mapping[str, Sequence[job_service_pb2.AttemptSteps]]:
    """By job. Jobs of Slurm alone have steps: nothing is asked about others."""
    found: dict[str, list[job_service_pb2.AttemptSteps]] = {}
    ids = [answer.job.job_id for answer in answers if answer.spec.compat and answer.attempts]
    for listed in jobs.steps(*ids, all_attempts=all_attempts) if ids else ():
        found.setdefault(listed.job_id, []).append(listed)
    return defaultdict(list, found)


def _facts(
    answer: job_service_pb2.GetJobResponse,
    steps: Mapping[str, Sequence[job_service_pb2.AttemptSteps]],
) -> dict[str, object]:
    listed = [steps_facts(each) for each in steps[answer.job.job_id]]
    return {**whole_job_facts(answer), "steps": listed}
