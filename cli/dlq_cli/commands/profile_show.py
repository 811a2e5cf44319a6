"""`dlq profile show`: the analysis of recordings, or a stored result, for people or as JSON."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.profile_text import profile_text
from dlq_common.errors import InvalidRequest, NotFound

BITS = 8


def ranks_option(command: Any) -> Any:
    """`--ranks`: where the processes cannot tell."""
    return click.option(
        "--ranks",
        type=click.IntRange(min=1),
        metavar="N",
        help="Ranks of the job.  [default: as its launcher told them]",
    )(command)


def link_option(command: Any) -> Any:
    """`--link`: for which rates slowdowns are foretold."""
    return click.option(
        "--link",
        "gigabits",
        type=click.FloatRange(min=0, min_open=True),
        multiple=True,
        metavar="GBIT/S",
        help="Foretell the slowdown on such a link; may be repeated.  [default: 10, 25, 100, ...]",
    )(command)


@click.command(
    epilog=examples(
        "dlq profile show rec",
        "dlq profile show --json rec > profile.json",
        "dlq profile show --link 40 profile.json",
    )
)
@click.argument("path", nargs=-1, required=True, type=click.Path(path_type=Path))
@ranks_option
@link_option
@json_option
@pass_app
def show(
    app: App, path: tuple[Path, ...], ranks: int | None, gigabits: tuple[float, ...], as_json: bool
) -> None:
    """Show what the traffic of a job tells.

    PATH is a directory of recordings, one for each host of the job, or a result that was stored with
    --json.
    """
    tell(app, path, ranks, gigabits, as_json=as_json)


def tell(
    app: App,
    paths: Sequence[Path],
    ranks: int | None,
    gigabits: Sequence[float],
    *,
    as_json: bool,
    to_stderr: bool = False,
) -> None:
    """Analyse and print; what could not be read is told on stderr."""
    from dlq_cli.facts.common import document

    if any(path.is_dir() for path in paths):
        analysis()
    report: Any = importlib.import_module("dlq_profiler.report")
    try:
        found, refused = report.analyse(paths, world_size=ranks)
    except FileNotFoundError as error:
        raise NotFound(f"there is no {error.filename}") from None
    except (OSError, ValueError) as error:
        raise InvalidRequest(str(error)) from None
    for line in refused:
        app.say(line)
    links = {f"{rate:g}G": rate * 1e9 / BITS for rate in gigabits}
    facts = report.facts(found, links) if links else report.facts(found)
    text = document(facts) if as_json else profile_text(facts, app.look()).rstrip("\n")
    click.echo(text, err=to_stderr)


def analysis() -> None:
    """Refuse where what analyses recordings is not installed: it needs numpy, and the base install has none."""
    try:
        importlib.import_module("dlq_profiler.directory")
    except ImportError as error:
        raise click.ClickException(
            f"recordings cannot be analysed here: {error}; pip install 'dlq[profile]' brings it"
        ) from None
