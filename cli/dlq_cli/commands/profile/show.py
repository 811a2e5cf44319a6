"""`dlq profile show`: the analysis of recordings, or a stored result, for people or as JSON."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.text.profiles import profile_text
from dlq_common.errors import InvalidRequest, NotFound

BITS = 8
_JOB = re.compile(r"[0-9]{1,18}(_[0-9]{1,9})?", re.ASCII)


def ranks_option(command: Any) -> Any:
    """`--ranks`: where the processes cannot tell."""
    return click.option(
        "--ranks",
        type=click.IntRange(min=1),
        metavar="N",
        help="Ranks of the job.  [default: as its launcher told them]",
    )(command)


def link_option(command: Any) -> Any:
    """`--link`: the rates for which slowdowns are predicted."""
    return click.option(
        "--link",
        "gigabits",
        type=click.FloatRange(min=0, min_open=True),
        multiple=True,
        metavar="GBIT/S",
        help="Predict the slowdown on such a link; may be repeated.  [default: 10, 25, 100, ...]",
    )(command)


@click.command(
    epilog=examples(
        "dlq profile show rec",
        "dlq profile show --json rec > profile.json",
        "dlq profile show --link 40 profile.json",
        "dlq profile show 17",
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
    """Show the traffic of a job.

    PATH is a directory of recordings, one for each host of the job, or a result that was stored
    with
    --json. A number that names no file is a job of the cluster, such as 17 or 12_4. Its nodes'
    reports on the believed start are shown.
    """
    job = _job_of(path)
    if job is None:
        tell(app, path, ranks, gigabits, as_json=as_json)
    elif ranks is not None:
        raise InvalidRequest("--ranks is for recordings: the nodes of a job have told theirs")
    else:
        _tell_job(app, job, gigabits, as_json=as_json)


def tell(
    app: App,
    paths: Sequence[Path],
    ranks: int | None,
    gigabits: Sequence[float],
    *,
    as_json: bool,
    to_stderr: bool = False,
) -> None:
    """Analyse and print; unreadable files are named on stderr."""
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
    facts = _with_links(report, found, gigabits)
    text = document(facts) if as_json else profile_text(facts, app.look()).rstrip("\n")
    click.echo(text, err=to_stderr)


def _job_of(paths: Sequence[Path]) -> str | None:
    """The job that is meant, if no file is."""
    word = str(paths[0])
    return word if len(paths) == 1 and _JOB.fullmatch(word) and not paths[0].exists() else None


def _tell_job(app: App, job: str, gigabits: Sequence[float], *, as_json: bool) -> None:
    from dlq_cli.facts.common import document
    from dlq_cli.facts.job import traffic_facts
    from dlq_cli.text.traffic import start_text
    from dlq_client.jobs import Jobs

    report: Any = importlib.import_module("dlq_profiler.report")
    answer = Jobs(app.connection()).get(job, with_profile=True)
    if not answer.profile:
        starts = answer.traffic.starts
        far = f": {start_text(starts[-1])}" if starts else ", none of its starts was recorded"
        raise NotFound(f"job {job} has no traffic profile{far}")
    facts = _with_links(report, report.parsed(answer.profile), gigabits)
    if as_json:
        source = {"attempt": answer.profile_attempt, "believed": traffic_facts(answer.traffic)}
        click.echo(document({**facts, **source}))
        return
    click.echo(f"of attempt {answer.profile_attempt}")
    click.echo(profile_text(facts, app.look()).rstrip("\n"))


def _with_links(report: Any, found: Any, gigabits: Sequence[float]) -> dict[str, Any]:
    links = {f"{rate:g}G": rate * 1e9 / BITS for rate in gigabits}
    facts: dict[str, Any] = report.facts(found, links) if links else report.facts(found)
    return facts


def analysis() -> None:
    """Refuse where the packages for the analysis are missing: it needs numpy, and the base install
    has none.
    """
    try:
        importlib.import_module("dlq_profiler.directory")
    except ImportError as error:
        raise click.ClickException(
            f"recordings cannot be analysed here: {error}; pip install 'dlq[profile]' brings it"
        ) from None
