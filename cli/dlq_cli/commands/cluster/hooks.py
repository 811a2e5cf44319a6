"""`dlq admin hooks`: the operator's own rules in Python: show them, try a file, read it anew."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from dlq.v1.admin_service_pb2 import HooksFacts, HookTrial
from dlq.v1.job_pb2 import JobSpec
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.cluster import hooks_facts, trial_facts
from dlq_cli.facts.common import seconds, tell
from dlq_cli.jobs.source import read_source
from dlq_cli.output.render import Cell, clean_line, table
from dlq_client.admin import Admin
from dlq_common.errors import InvalidRequest
from dlq_common.text.hook_words import hook_words
from dlq_common.text.units import approximate_span


@click.group(epilog=examples("dlq admin hooks show", "dlq admin hooks test hooks.py --last 20"))
def hooks() -> None:
    """Your own rules in Python, for submissions and attempts."""


@hooks.command(epilog=examples("dlq admin hooks show"))
@json_option
@pass_app
def show(app: App, as_json: bool) -> None:
    """The configured hooks, their calls since the master started, and their process."""
    _tell(app, Admin(app.connection()).hooks(), as_json=as_json)


@hooks.command(epilog=examples("dlq admin hooks reload"))
@json_option
@pass_app
def reload(app: App, as_json: bool) -> None:
    """Let the master read its file anew. The former one goes on where it cannot be loaded."""
    _tell(app, Admin(app.connection()).reload_hooks(), as_json=as_json)


@hooks.command(
    epilog=examples(
        "dlq admin hooks test hooks.py --job train.toml --as alice",
        "dlq admin hooks test hooks.py --last 20",
        "dlq admin hooks test hooks.py --hook on_end --last 20",
    )
)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--hook",
    type=click.Choice(["on_submit", "on_start", "on_end"]),
    default="on_submit",
    show_default=True,
    help="The function that is called.",
)
@click.option("--job", "job_file", help="A script or a spec, as `dlq submit` takes it.")
@click.option("--as", "user", default="", help="Its user.  [default: you]")
@click.option(
    "--last", type=click.IntRange(1, 100), help="The newest so many jobs, starts or ends."
)
@json_option
@pass_app
def test(
    app: App,
    file: Path,
    hook: str,
    job_file: str | None,
    user: str,
    last: int | None,
    as_json: bool,
) -> None:
    """Call a hook of FILE with a job, or with the newest jobs or attempts. Nothing comes of it.

    The master calls it as it would in earnest, in a process of its own. Exits with 1 when a call
    fails.
    """
    if hook != "on_submit" and (last is None or job_file is not None or user):
        told = f"{hook} is tried on the last attempts: say --last N, without --job and --as"
        raise InvalidRequest(told)
    if (job_file is None) == (last is None):
        raise InvalidRequest("say --job JOBFILE or --last N")
    spec = None if job_file is None else _spec(job_file)
    source, admin = file.read_text(encoding="utf-8"), Admin(app.connection())
    trials = admin.test_hooks(source, file.name, spec=spec, user=user, last=last or 0, hook=hook)
    facts = {"hook": hook, "trials": [trial_facts(one) for one in trials]}
    tell(facts, lambda: "".join(map(_trial_text, trials)) or _NOTHING, as_json=as_json)
    if any(one.failure for one in trials):
        raise exit_codes.Ended(exit_codes.FAILURE)


def _spec(file: str) -> JobSpec:
    from dlq_cli.spec.check import check
    from dlq_cli.spec.message import to_message

    checked = check(read_source(file), file, directory=os.getcwd(), shell=os.environ)
    if checked.spec is None:
        words = "; ".join(problem.text for problem in checked.problems)
        raise InvalidRequest(words, hint=f"dlq spec check {file}")
    return to_message(checked.spec)


def _tell(app: App, told: HooksFacts, *, as_json: bool) -> None:
    tell(hooks_facts(told), lambda: "\n".join(_lines(app, told)) + "\n", as_json=as_json)


def _lines(app: App, told: HooksFacts) -> Iterator[str]:
    if not told.file:
        yield "this master has no hooks: [hooks] file in master.toml names their file"
        return
    yield f"file      {clean_line(told.file)} ({told.digest[:12]})"
    state = "runs" if told.running else "is started by the next call"
    yield f"process   {state}; {told.start_count} started, {told.waiting_count} calls wait"
    if told.walls:
        yield f"walls     {', '.join(told.walls)}"
    if told.last_failure:
        rest = seconds(told.rest_duration)
        again = f"; started again in {approximate_span(rest)}" if rest else ""
        yield f"failed    {clean_line(told.last_failure)}{again}"
    yield table(_CELLS, _rows(told), app.look()).rstrip("\n")


_CELLS = [Cell("HOOK"), Cell("ON FAILURE"), Cell("OK"), Cell("REFUSED"), Cell("FAILED"), Cell("MS")]


def _rows(told: HooksFacts) -> Sequence[list[str]]:
    """Of each hook; the last cell is the mean of its calls."""
    return [
        [
            one.hook,
            one.policy,
            *map(str, (one.ok_count, one.refused_count, one.failed_count)),
            _mean(seconds(one.spent_duration), one.ok_count + one.refused_count + one.failed_count),
        ]
        for one in told.hooks
    ]


def _mean(spent_s: float, calls: int) -> str:
    return f"{1000 * spent_s / calls:.1f}" if calls else "-"


_NOTHING = "nothing was tried: the master knows no such jobs or attempts\n"


def _trial_text(one: HookTrial) -> str:
    head = f"job {one.job_id} ({one.name})" if one.job_id else one.name
    if one.attempt:
        head += f" attempt {one.attempt}"
    lines = [f"hook {hook_words(note)}" for note in one.notes]
    if one.refusal:
        lines.append(f"refused: {one.refusal}")
    if one.hold:
        lines.append(f"would be held: {one.hold}")
    if one.failure:
        lines.append(f"FAILED: {one.failure}")
    lines += [f"printed: {line}" for line in one.printed.splitlines()]
    lines = lines or ["says nothing" if one.attempt else "unchanged"]
    return "".join(f"{clean_line(head)}: {clean_line(line)}\n" for line in lines)
