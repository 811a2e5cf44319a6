"""`dlq spec check`: every mistake in specs and scripts, with its line, offline."""

from __future__ import annotations

import os

import click

from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.jobs.source import STDIN, read_source
from dlq_cli.output.render import clean_line
from dlq_cli.spec.check import Checked, unread
from dlq_cli.spec.check import check as check_spec
from dlq_cli.spec.understood import understood
from dlq_common.errors import InvalidRequest


@click.command(
    epilog=examples(
        "dlq spec check job.toml",
        "dlq spec check train.sh",
        "dlq spec check --explain job.toml",
        "dlq spec check --json jobs/*.toml",
    )
)
@click.option("--explain", is_flag=True, help="Show the parsed spec, with the place of each value.")
@json_option
@click.argument("file", nargs=-1, required=True)
@pass_app
def check(app: App, file: tuple[str, ...], explain: bool, as_json: bool) -> None:
    """Check each FILE (- is stdin) as `dlq submit FILE` here would read it, without a cluster.

    Exits with 1 when one of them is wrong. Whether the cluster could ever hold the job only the
    master knows: `dlq submit --test-only FILE`.
    """
    checked = [_checked(name, alone=len(file) == 1) for name in file]
    if as_json:
        _json(checked)
    else:
        for each in checked:
            _text(app, each, explain=explain)
    if any(each.problems for each in checked):
        raise exit_codes.Ended(exit_codes.FAILURE)


def _checked(file: str, *, alone: bool) -> Checked:
    """A file that cannot be read keeps no other from its verdict."""
    name = "stdin" if file == STDIN else file
    try:
        content = read_source(file)
    except InvalidRequest as error:
        if alone:
            raise
        return unread(name, error)
    return check_spec(content, name, directory=os.getcwd(), shell=os.environ)


def _text(app: App, checked: Checked, *, explain: bool) -> None:
    for note in checked.notes:
        app.say(note)
    for problem in checked.problems:
        click.echo(clean_line(problem.text))
        if problem.hint:
            click.echo(f"  {clean_line(problem.hint)}")
    if checked.spec is not None:
        click.echo(f"{clean_line(checked.name)}: ok")
        if explain:
            click.echo(understood(checked.spec), nl=False)


def _json(checked: list[Checked]) -> None:
    from dlq_cli.facts.common import document
    from dlq_cli.facts.job import spec_facts
    from dlq_cli.spec.message import to_message

    files = [
        {
            "file": each.name,
            "valid": not each.problems,
            "problems": [
                {"line": problem.line, "message": problem.text, "hint": problem.hint or None}
                for problem in each.problems
            ],
            "notes": each.notes,
            "spec": spec_facts(to_message(each.spec)) if each.spec else None,
            "origins": dict(sorted(each.spec.origins.items())) if each.spec else None,
        }
        for each in checked
    ]
    click.echo(document({"files": files}))
