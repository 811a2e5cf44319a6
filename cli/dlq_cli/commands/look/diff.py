"""`dlq diff`: the differences between the specs of two jobs, or between attempts."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import click

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.common import document
from dlq_cli.jobs.differences import (
    Difference,
    attempt_differences,
    script_lines,
    spec_differences,
)
from dlq_cli.lists.select import one_job, own_spec
from dlq_cli.output.render import Cell, OutputLook, clean_line, table
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest, NotFound

_ATTEMPT = re.compile(r"\.?([0-9]{1,9})", re.ASCII)


class DiffSide(NamedTuple):
    """A job, and one of its attempts if that is meant."""

    job_id: str
    spec: job_pb2.JobSpec
    attempt: job_pb2.Attempt | None

    def __str__(self) -> str:
        return self.job_id if self.attempt is None else f"{self.job_id}.{self.attempt.attempt}"


@click.command(
    options_metavar="[OPTIONS]",
    epilog=examples(
        "dlq diff 17 18",
        "dlq diff 17 .1",
        "dlq diff 17 1 2",
        "dlq diff 17.2 18.1 --json",
        "dlq diff --exit-code 17 18 || echo they differ",
    ),
)
@click.option("--exit-code", "by_code", is_flag=True, help="Exit with 1 when something differs.")
@json_option
@click.argument("sides", nargs=-1, required=True, metavar="JOB JOB | JOB A [B]")
@pass_app
def diff(app: App, sides: tuple[str, ...], by_code: bool, as_json: bool) -> None:
    """Compare the specs of two jobs, or attempts A and B of one (B: the last one).

    An attempt is written 17.2, or .2 after its job. Scripts are compared line by line; of variables
    only the names are shown, as their values may be secret. Only your own jobs.
    """
    left, right = _sides(app, sides)
    found = spec_differences(left.spec, right.spec) if left.job_id != right.job_id else []
    if left.attempt is not None and right.attempt is not None:
        found += attempt_differences(left.attempt, right.attempt)
    if as_json:
        click.echo(
            document(
                {
                    "left": str(left),
                    "right": str(right),
                    "differences": [each._asdict() for each in found],
                }
            )
        )
    else:
        _text(app.look(), left, right, found)
    if found and by_code:
        raise exit_codes.Ended(exit_codes.FAILURE)


def _sides(app: App, words: tuple[str, ...]) -> tuple[DiffSide, DiffSide]:
    """The two sides that two or three words name; each job is fetched once."""
    connection = app.connection()
    jobs = Jobs(connection)
    answers: dict[str, Any] = {}

    def side(word: str, of: str = "") -> DiffSide:
        found = _ATTEMPT.fullmatch(word) if of else None
        named = one_job(jobs, f"{of}.{found[1]}" if found else word)
        if named.job_id not in answers:
            answers[named.job_id] = own_spec(jobs, named.job_id, connection.identity.user)
        answer = answers[named.job_id]
        attempt = _attempt(answer, named.attempt) if named.attempt else None
        return DiffSide(named.job_id, answer.spec, attempt)

    if len(words) == 1:
        raise InvalidRequest(
            "there is nothing to compare it with", hint="dlq diff 17 18, or dlq diff 17 .1"
        )
    if len(words) > 3:
        raise InvalidRequest("two jobs, or a job and two of its attempts")
    first = side(words[0])
    if len(words) == 3:
        return side(words[1], of=first.job_id), side(words[2], of=first.job_id)
    if words[1].startswith("."):
        return side(words[1], of=first.job_id), _last(first, answers[first.job_id])
    second = side(words[1])
    if (first.attempt is None) != (second.attempt is None):
        raise InvalidRequest(
            f"{first} and {second}: one is a job, the other an attempt",
            hint="two jobs, or two attempts such as 17.1 17.2",
        )
    return first, second


def _attempt(answer: Any, number: int) -> job_pb2.Attempt:
    for attempt in answer.attempts:
        if attempt.attempt == number:
            found: job_pb2.Attempt = attempt
            return found
    job_id = answer.job.job_id
    raise NotFound(f"job {job_id} has no attempt {number}", kind="attempt", id=f"{job_id}.{number}")


def _last(side: DiffSide, answer: Any) -> DiffSide:
    if not answer.attempts:
        raise NotFound(f"job {side.job_id} has no attempts", kind="attempt", id=side.job_id)
    return side._replace(attempt=answer.attempts[-1])


def _text(look: OutputLook, left: DiffSide, right: DiffSide, found: list[Difference]) -> None:
    if not found:
        click.echo(f"{left} and {right}: no difference")
        return
    plain = [each for each in found if each.key != "script"]
    if plain:
        cells = (Cell("KEY"), Cell(str(left)), Cell(str(right)))
        rows = [(each.key, _word(each.left), _word(each.right)) for each in plain]
        click.echo(table(cells, rows, look), nl=False)
    for each in found:
        if each.key == "script":
            click.echo("script:")
            for line in script_lines(each.left or "", each.right or ""):
                click.echo(f"  {clean_line(line)}")


def _word(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "-"
    return str(value)
