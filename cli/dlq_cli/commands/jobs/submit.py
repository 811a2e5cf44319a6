"""`dlq submit`: queue a script, a spec file or a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option
from dlq_cli.jobs.source import STDIN, read_source
from dlq_cli.output.zone import LocalZone
from dlq_cli.quiet import quiet_grpc
from dlq_cli.spec.caller import caller_layer, callers_directory
from dlq_cli.spec.check import doubts
from dlq_cli.spec.fields import BY_NAME, FLAGS, layer_from
from dlq_cli.spec.group import read_group
from dlq_cli.spec.merge import merge
from dlq_cli.spec.script import read_script
from dlq_cli.spec.toml_yaml import SUFFIXES, read_spec_file
from dlq_cli.spec.validate import Spec, finish
from dlq_cli.spec.values.given import Given, Layer, Notes
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.reading.deadlines import is_past
from dlq_common.job_fields.reading.words import PIPE
from dlq_common.job_fields.table import SECTIONS


class SpecSource(NamedTuple):
    """The source of a job's command, before the flags."""

    layer: Layer
    arguments: tuple[str, ...]
    notes: Notes


class SubmitCommand(click.Command):
    """Keeps the words after `--` apart: they are a command to run, not a script's arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params[:0] = [
            click.Option(
                [flag.parameter, *flag.names],
                metavar=flag.metavar or None,
                # Not False: click would then take `-5` in `-t -5` for another option.
                is_flag=True if not flag.metavar else None,
                multiple=flag.repeat,
                help=flag.help,
            )
            for flag in FLAGS
        ]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The flags that describe the job by section, then the flags of the command itself."""
        parameters = {parameter.name: parameter for parameter in self.get_params(ctx)}
        by_key = {flag.key: parameters.pop(flag.parameter) for flag in FLAGS}
        for title, keys in SECTIONS.items():
            _write_section(ctx, formatter, title, [by_key[key] for key in keys])
        _write_section(ctx, formatter, "This command", list(parameters.values()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        head, dashes, tail = args, False, list[str]()
        if "--" in args:
            at = args.index("--")
            head, dashes, tail = args[:at], True, args[at + 1 :]
        ctx.meta["dlq.command"] = tuple(tail) if dashes else None
        return super().parse_args(ctx, head)


def _write_section(
    ctx: click.Context, formatter: click.HelpFormatter, title: str, options: list[click.Parameter]
) -> None:
    rows = [row for option in options if (row := option.get_help_record(ctx)) is not None]
    with formatter.section(title):
        formatter.write_dl(rows)


@click.command(
    cls=SubmitCommand,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[FLAGS]",
    epilog=examples(
        "dlq submit --gpus 8 -t 1-00:00:00 train.sh --lr 0.1",
        "dlq submit job.toml",
        "dlq submit -N 2 --gpus-per-node h100-80gb:8 -- torchrun train.py",
        "dlq submit --wrap 'python prepare.py && python train.py'",
        "JOB=$(dlq submit --parsable train.sh) && dlq wait $JOB",
    ),
)
@click.option("--wrap", metavar="LINE", help="Run one line by /bin/sh instead of a script.")
@click.option(
    "--group",
    "group_file",
    metavar="FILE",
    help="Submit the members of this .toml or .yaml file as jobs that start and end together.",
)
@click.option("-W", "--wait", "wait_end", is_flag=True, help="Wait for its end; exit as it does.")
@click.option("-f", "--follow", is_flag=True, help="Follow its output to the end, like --wait.")
@click.option(
    "--wait-admission",
    is_flag=True,
    help="Wait until its deadline has been judged; exit with 0 if it is guaranteed, 6 if not, 7 "
    "without a judgement.",
)
@click.option(
    "--no-wait",
    is_flag=True,
    help="Do not wait up to 2 s for the verdict on its deadline.",
)
@click.option("--interactive", is_flag=True, help="In the queue of interactive jobs.")
@click.option("--stdin", is_flag=True, help="Its stdin stays open for `dlq attach --stdin`.")
@click.option("--parsable", is_flag=True, help="Print the id alone.")
@click.option(
    "--test-only", is_flag=True, help="Check everything and show the result, without submitting."
)
@click.option("--request-id", metavar="TEXT", help="Submit at most once under this key.")
@click.option(
    "--to",
    metavar="CLUSTERS",
    help="Ask these clusters of your list for offers, and submit to the best: any, or a,b.",
)
@click.option(
    "--choose",
    "rule",
    metavar="RULE",
    help="With --to: spread, soonest or cheapest.  [default: spread]",
)
@click.option("--within", metavar="TIME", help="With --to: wait for offers.  [default: 10s]")
@click.option("--data", metavar="NAMES", help="With --to: data of your list that the job reads.")
@click.option("--only-there", is_flag=True, help="With --data: only to a cluster that has it.")
@json_option
@click.argument("source", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT ARGS | SPEC | -- CMD]")
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    source: tuple[str, ...],
    wrap: str | None,
    group_file: str | None,
    wait_end: bool,
    follow: bool,
    wait_admission: bool,
    no_wait: bool,
    interactive: bool,
    stdin: bool,
    parsable: bool,
    test_only: bool,
    request_id: str | None,
    to: str | None,
    rule: str | None,
    within: str | None,
    data: str | None,
    only_there: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Queue a job and return at once; with a deadline as soon as it is judged, within two seconds.

    A script may carry the flags below on lines that begin with #DLQ, before its first command. A
    spec is a .toml or .yaml file. Flags win over the file. Flags come before the file's name; words
    after it go to the script. The job's environment is the variables of --env and --export, not
    your login environment.
    """
    app: App = ctx.obj
    _check_many(to, (rule, within, data), only_there=only_there, data=data)
    if to is not None:
        unlike = (("--group", group_file), ("--wait-admission", wait_admission),
                  ("--interactive", interactive), ("--stdin", stdin))  # fmt: skip
        for flag, given in unlike:
            if given:
                raise InvalidRequest(f"{flag} is for one cluster, and --to asks several")
    if group_file is not None:
        if source or wrap or ctx.meta["dlq.command"]:
            raise InvalidRequest("--group takes the place of a script, a spec or a command")
        members, over = read_group(read_source(group_file), group_file), _flags_layer(flags)
        with quiet_grpc():
            from dlq_cli.commands.jobs.group import submit_group
            from dlq_cli.commands.jobs.submitted import Manner
        manner = Manner(parsable=parsable, as_json=as_json, wait=wait_end, follow=follow)
        key = request_id or ""
        submit_group(app, members, over, manner, request_id=key, test_only=test_only)
        return
    spec = asked_spec(ctx, source, wrap, flags)
    if to is not None:
        with quiet_grpc():
            from dlq_cli.clusters.going import ManyWishes, read_rule, read_within
            from dlq_cli.commands.jobs.submitted_to import DataWish, submit_spec_to
        wishes = ManyWishes(
            to=to,
            rule=read_rule(rule),
            within_s=read_within(within),
            request_id=request_id or "",
            test_only=test_only,
            parsable=parsable,
            as_json=as_json,
        )
        asked_data = DataWish(data or "", only_there)
        submit_spec_to(app, spec, wishes, asked_data, wait=wait_end, follow=follow)
        return
    if wait_admission:
        _check_admission(spec, stays=wait_end or follow, leaves=no_wait)
    with quiet_grpc():
        from dlq_cli.commands.jobs.submitted import Manner, submit_spec

    manner = Manner(
        parsable=parsable,
        as_json=as_json,
        wait=wait_end,
        follow=follow,
        admission=wait_admission,
        verdict=not no_wait,
    )
    message = None
    if interactive or stdin:
        from dlq_cli.interactive.queue import ask_for_it
        from dlq_cli.spec.message import to_message

        message = to_message(spec)
        if interactive:
            ask_for_it(app, message)
        if stdin:
            message.interactive.stdin = PIPE
    submit_spec(
        app,
        spec,
        manner,
        request_id=request_id or "",
        test_only=test_only,
        message=message,
        command="submit",
    )


def _check_many(
    to: str | None, given: Sequence[str | None], *, only_there: bool, data: str | None
) -> None:
    """InvalidRequest for words about several clusters without the clusters."""
    if to is None and any(given):
        raise InvalidRequest("--choose, --within and --data go with --to")
    if only_there and not data:
        raise InvalidRequest("--only-there goes with --data")


def _check_admission(spec: Spec, *, stays: bool, leaves: bool) -> None:
    if leaves:
        raise InvalidRequest("--wait-admission waits, and --no-wait does not: say one")
    if stays:
        raise InvalidRequest(
            "--wait-admission exits with the answer, --wait and --follow with the job's end: say "
            "one"
        )
    if not spec.deadlines:
        raise InvalidRequest(
            "--wait-admission is for jobs with a deadline", hint="such as --deadline 8h --work 3h"
        )


def asked_spec(
    ctx: click.Context, source: tuple[str, ...], wrap: str | None, flags: dict[str, Any]
) -> Spec:
    """The spec that a command line of this form asks for; its notes are printed."""
    over = _flags_layer(flags)
    lenient = ctx.obj.settings.get("slurm_lenient").value == "1"
    found = _source(source, ctx.meta["dlq.command"], wrap, over, lenient=lenient)
    spec = _spec(found, over)
    # One that is refused for its deadline has no need of advice.
    doubtful = () if is_past(spec.deadlines, ctx.obj.clock.now_s(), LocalZone()) else doubts(spec)
    for note in (*found.notes, *doubtful):
        ctx.obj.say(note)
    return spec


def _flags_layer(flags: dict[str, Any]) -> Layer:
    return layer_from(
        (flag, value, flag.shown) for flag in FLAGS for value in _values(flags[flag.parameter])
    )


def _spec(source: SpecSource, over: Layer) -> Spec:
    merged = merge([caller_layer(), source.layer, over], os.environ)
    return finish(merged, directory=callers_directory(merged), arguments=source.arguments)


def _values(value: object) -> list[Any]:
    if value is None or value is False:
        return []
    return list(value) if isinstance(value, tuple) else [value]


def _source(
    words: tuple[str, ...],
    command: tuple[str, ...] | None,
    wrap: str | None,
    over: Layer,
    *,
    lenient: bool,
) -> SpecSource:
    if wrap is not None:
        if words or command:
            raise InvalidRequest("--wrap takes the place of a script or a command")
        return SpecSource({"run": Given(f"#!/bin/sh\n{wrap}\n", "wrap")}, (), Notes())
    if command is not None and not words:
        if not command:
            raise InvalidRequest("there is no command after --")
        if not command[0].strip():
            raise InvalidRequest(f"the command after -- is empty: {command[0]!r}")
        return SpecSource({"command": Given(command, "the command line")}, (), Notes())
    arguments = (*words[1:], *(("--", *command) if command is not None else ()))
    if not words:
        if sys.stdin.isatty():
            raise InvalidRequest(
                "there is nothing to submit", hint="dlq submit SCRIPT, SPEC.toml or -- COMMAND"
            )
        return _from_script(STDIN, arguments, over, lenient=lenient)
    if words[0] != STDIN and words[0].lower().endswith(SUFFIXES):
        if arguments:
            raise InvalidRequest(
                f"a spec takes no arguments, and {arguments[0]!r} follows it",
                hint=f"flags come first: dlq submit {arguments[0]} {words[0]}",
            )
        return SpecSource(read_spec_file(read_source(words[0]), words[0]), (), Notes())
    return _from_script(words[0], arguments, over, lenient=lenient)


def script_is_stdin(
    words: tuple[str, ...], command: tuple[str, ...] | None, wrap: str | None
) -> bool:
    """Whether the command line takes its script from stdin."""
    return words[:1] == (STDIN,) or (not words and command is None and wrap is None)


def _from_script(
    path: str, arguments: tuple[str, ...], over: Layer, *, lenient: bool
) -> SpecSource:
    content = read_source(path)
    name = "stdin" if path == STDIN else path
    script = read_script(content, name, over=over, lenient=lenient)
    ours = next((word for word in arguments if word.partition("=")[0] in BY_NAME), None)
    if ours is not None:
        script.notes.append(f"{ours} stands after {path}: it goes to the script, not to dlq")
    return SpecSource(script.layer, arguments, script.notes)
