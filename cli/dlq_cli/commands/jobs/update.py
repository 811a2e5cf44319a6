"""`dlq update`: changes to existing jobs, printed before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.common import document
from dlq_cli.facts.job import hook_facts, job_facts
from dlq_cli.lists.select import targets
from dlq_cli.lists.tasks import shown_id, shown_ids
from dlq_cli.output.zone import LocalZone
from dlq_cli.spec.message import deadline_messages, dependency_message
from dlq_client.jobs import Jobs, Updated
from dlq_common.errors import DlqError, InvalidRequest, Unavailable
from dlq_common.job_fields.field import JobField
from dlq_common.job_fields.reading.choice import read_constraint, read_nodes
from dlq_common.job_fields.reading.deadlines import read_deadline, read_soft
from dlq_common.job_fields.reading.ordering import begin_s, read_begin, read_dependency
from dlq_common.job_fields.reading.words import (
    read_bool,
    read_integer,
    read_output_pattern,
    read_path,
)
from dlq_common.job_fields.table import FIELDS
from dlq_common.text.hook_words import hook_words
from dlq_common.text.names import shown
from dlq_common.text.sizes import expanded, parse_range, parse_sizes
from dlq_common.text.suggest import did_you_mean
from dlq_common.text.wire import to_timestamp

NONE = frozenset({"none", ""})
MOST_TASKS = 1_000_000

Wish = Callable[[wire.UpdateJobRequest, str, float], None]


@click.command(
    epilog=examples(
        "dlq update 17 time_limit=2:00:00",
        "dlq update 17 18 nice=10 name=sweep",
        "dlq update 17 dependency=afterok:16 begin=none",
        "dlq update 12 concurrent=8",
        "dlq update 17 time_limit=unlimited --if-version 5",
        "dlq update 17 --deadline 8h --on-miss cancel",
        "dlq update 17 soft_deadline=8h:100,+50%:40",
        "dlq update 17 --elastic 2:8",
        "dlq update 17 --team nlp",
        "dlq update 17 exclude=gpu[03-04] workdir=/shared/new",
        "dlq update 17 nodes=2",
    )
    + "\n\n"
    + f"Keys: {', '.join(key for key, field in FIELDS.items() if field.editable)}, dependency, "
    "begin, concurrent (of an array), deadline, soft_deadline, elastic; until it starts also "
    "workdir, output, requeue, comment, nodes, nodelist, exclude, constraint."
)
@click.option("--deadline", metavar="TIME", help="The deadline, as in a spec: 8h or a date.")
@click.option(
    "--soft-deadline", metavar="TIME:WORTH,...", help="The deadlines, as in a spec: 8h:100,+10%:80."
)
@click.option("--on-miss", metavar="WORD", help="The word of `on_miss`: continue or cancel.")
@click.option("--elastic", metavar="MIN:MAX", help="The sizes, as in a spec: 2:8 or 2,4,8.")
@click.option("--team", metavar="NAME", help="The team, as in a spec.")
@click.option(
    "--if-version",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only if the job has not changed since this version (`dlq show --json`).",
)
@click.option("--test-only", is_flag=True, help="Check it, with the site's hook; change nothing.")
@json_option
@click.argument("words", nargs=-1, required=True, metavar="JOB... KEY=VALUE...")
@pass_app
def update(
    app: App,
    /,
    words: tuple[str, ...],
    if_version: int | None,
    as_json: bool,
    test_only: bool,
    **options: str | None,
) -> None:
    """Ask for something else for JOB...

    A job that runs can only be given less time, another name or another nice; operators may give it
    more time. `none` takes a begin, a dependency, a deadline or sizes away, `unlimited` a time
    limit. Of several wishes for a job all or none are granted; each job, and each task of an array,
    is one for itself.

    A job that is promised a deadline gets another one only if that can be promised too: else it is
    refused, and keeps its promise. Any other job is judged anew (`dlq show`).
    """
    named = [word for word in words if "=" not in word]
    given = [f"{name}={text}" for name, text in options.items() if text is not None]
    request = wishes([word for word in words if "=" in word] + given, app.clock.now_s())
    if not named:
        raise InvalidRequest("which job?", hint="dlq update JOB KEY=VALUE")
    request.expected_version = if_version or 0
    request.validate_only = test_only
    jobs = Jobs(app.connection())
    found, code = _update_each(app, jobs, targets(jobs, named), request)
    if as_json:
        click.echo(
            document(
                {
                    "jobs": [job_facts(job) for updated in found for job in updated.jobs],
                    "changes": [_change(each) for updated in found for each in updated.changes],
                    **hook_facts([note for updated in found for note in updated.hook_notes]),
                }
            )
        )
    else:
        for updated in found:
            for line in lines(updated):
                click.echo(line)
            for note in updated.hook_notes:
                app.say(f"hook {hook_words(note)}")
        if test_only:
            app.say("this was a test: nothing is changed")
    if code:
        raise exit_codes.Ended(code)


def wishes(words: Sequence[str], now_s: float) -> wire.UpdateJobRequest:
    """The changes that KEY=VALUE words ask for. InvalidRequest names the unknown key, or its
    value.
    """
    if not words:
        raise InvalidRequest("what is to be changed?", hint="dlq update JOB KEY=VALUE")
    request = wire.UpdateJobRequest()
    given: dict[str, str] = {}
    for word in words:
        name, _, text = word.partition("=")
        key = name.strip().lower().replace("-", "_")
        field = _ALIASES.get(key, key)
        wish = _WISHES.get(field)
        if wish is None:
            raise InvalidRequest(
                f"{name[:64]!r} cannot be updated{did_you_mean(key, _WISHES)}",
                hint="keys: " + ", ".join(_WISHES),
            )
        if field in given:
            raise InvalidRequest(
                f"{shown(given[field])} and {shown(word)} ask for one thing twice: use one",
                field=field,
            )
        given[field] = word
        try:
            wish(request, text.strip(), now_s)
        except ValueError as error:
            raise InvalidRequest(f"{key}: {error}", field=key) from None
    return request


def lines(updated: Updated) -> list[str]:
    """Each change in a line, tasks that were changed alike in one."""
    by_id = {job.job_id: job for job in updated.jobs}
    same: dict[str, list[job_pb2.Job]] = {}
    for change in updated.changes:
        words = f"{change.field}: {change.before} -> {change.after}"
        same.setdefault(words, []).append(by_id[change.job_id])
    told = [f"job {shown_ids(jobs)}: {words}" for words, jobs in same.items()]
    return told or [f"job {shown_ids(updated.jobs)}: nothing to change"]


def _update_each(
    app: App, jobs: Jobs, named: Sequence[str], request: wire.UpdateJobRequest
) -> tuple[list[Updated], int]:
    found: list[Updated] = []
    code = exit_codes.OK
    for target in named:
        try:
            updated = jobs.update_each(target, request)
        except Unavailable:
            raise
        except DlqError as error:
            if len(named) == 1:
                raise
            app.say(f"job {target}: {error.what}")
            code = code or exit_codes.code_of_error(error)
            continue
        found.append(updated)
        names = {each.job_id: shown_id(each) for each in updated.jobs}
        for refusal in updated.refusals:
            app.say(f"job {names.get(refusal.job_id, refusal.job_id)}: {refusal.detail}")
            code = code or exit_codes.FAILURE
    return found, code


def _change(change: wire.FieldChange) -> dict[str, str]:
    return {
        "job_id": change.job_id,
        "field": change.field,
        "before": change.before,
        "after": change.after,
    }


# --- one key, one wish ----------------------------------------------------------------------------


def _of(field: JobField[Any]) -> Wish:
    """The wish for a field that UpdateJobRequest has under the name that JobSpec has."""

    def wish(request: wire.UpdateJobRequest, text: str, _now_s: float) -> None:
        value = field.read(text)
        if value is None:
            setattr(request, field.clear, True)
        elif field.wire is not None:
            field.wire.put(request, value)

    return wish


def _dependency(request: wire.UpdateJobRequest, text: str, _now_s: float) -> None:
    request.dependency.SetInParent()
    if text.lower() not in NONE:
        request.dependency.CopyFrom(dependency_message(read_dependency(text)))


def _or_none(clear: str, wish: Wish) -> Wish:
    """The wish, where `none` takes the value away by the field `clear`."""

    def wish_or_none(request: wire.UpdateJobRequest, text: str, now_s: float) -> None:
        if text.lower() in NONE:
            setattr(request, clear, True)
        else:
            wish(request, text, now_s)

    return wish_or_none


def _begin(request: wire.UpdateJobRequest, text: str, now_s: float) -> None:
    at_s = begin_s(read_begin(text), now_s=now_s, zone=LocalZone())
    request.begin_time.CopyFrom(to_timestamp(at_s))


def _concurrent(request: wire.UpdateJobRequest, text: str, _now_s: float) -> None:
    count = 0 if text.lower() == "all" else read_integer(text, MOST_TASKS)
    if not count and text.lower() != "all":
        raise ValueError("0 tasks at a time: write all for no limit, or dlq hold")
    request.concurrent_count = count


def _deadline(request: wire.UpdateJobRequest, text: str, now_s: float) -> None:
    asked = read_deadline(text)
    request.deadlines.extend(deadline_messages(asked, now_s=now_s, zone=LocalZone()))


def _soft_deadline(request: wire.UpdateJobRequest, text: str, now_s: float) -> None:
    if request.deadlines or request.clear_deadlines:
        raise ValueError("a strict deadline is given too: use one")
    asked = read_soft(text)
    request.deadlines.extend(deadline_messages(asked, now_s=now_s, zone=LocalZone()))


def _elastic(request: wire.UpdateJobRequest, text: str, _now_s: float) -> None:
    sizes = expanded(parse_range(text), None) if ":" in text else parse_sizes(text.split(","))
    request.elastic.gpu_counts.extend(sizes)


def _workdir(request: wire.UpdateJobRequest, text: str, _now_s: float) -> None:
    request.spec_change.working_directory = read_path(text)


def _output(request: wire.UpdateJobRequest, text: str, _now_s: float) -> None:
    request.spec_change.stdout_path = read_output_pattern(text)


def _requeue(request: wire.UpdateJobRequest, text: str, _now_s: float) -> None:
    again = bool(int(text)) if text.isdecimal() and text.isascii() else read_bool(text)
    request.spec_change.no_requeue = not again


def _comment(request: wire.UpdateJobRequest, text: str, _now_s: float) -> None:
    request.spec_change.labels["comment"] = "" if text.lower() == "none" else text


def _nodelist(request: wire.UpdateJobRequest, text: str, _now_s: float) -> None:
    request.spec_change.nodes.SetInParent()
    request.spec_change.nodes.node_ids.extend(_node_names(text))


def _exclude(request: wire.UpdateJobRequest, text: str, _now_s: float) -> None:
    request.spec_change.excluded_nodes.SetInParent()
    request.spec_change.excluded_nodes.node_ids.extend(_node_names(text))


def _node_names(text: str) -> tuple[str, ...]:
    return () if text.lower() in NONE else read_nodes(text)


def _nodes(request: wire.UpdateJobRequest, text: str, _now_s: float) -> None:
    """A number; of a range such as `2-4` the smaller one, as at a submission."""
    least, dash, most = text.partition("-")
    count = read_integer(least, MOST_TASKS)
    if dash and read_integer(most, MOST_TASKS) < count:
        raise ValueError(f"{shown(text)} is no range of nodes")
    request.spec_change.node_count = count


def _constraint(request: wire.UpdateJobRequest, text: str, _now_s: float) -> None:
    request.spec_change.constraint.SetInParent()
    for label in () if text.lower() in NONE else read_constraint(text):
        name, _, value = label.partition("=")
        request.spec_change.constraint.labels[name] = value


_WISHES: Mapping[str, Wish] = {
    **{key: _of(field) for key, field in FIELDS.items() if field.editable},
    "dependency": _dependency,
    "begin": _or_none("clear_begin", _begin),
    "concurrent": _concurrent,
    "deadline": _or_none("clear_deadlines", _deadline),
    "soft_deadline": _soft_deadline,
    "elastic": _or_none("clear_elastic", _elastic),
    "workdir": _workdir,
    "output": _output,
    "requeue": _requeue,
    "comment": _comment,
    "nodelist": _nodelist,
    "exclude": _exclude,
    "constraint": _constraint,
    "nodes": _nodes,
}
# Words of scontrol and of our own flags.
_ALIASES = {
    "time": "time_limit",
    "timelimit": "time_limit",
    "partition": "queue",
    "account": "team",
    "job_name": "name",
    "jobname": "name",
    "depends_on": "dependency",
    "starttime": "begin",
    "arraytaskthrottle": "concurrent",
    "stdout": "output",
    "reqnodelist": "nodelist",
    "excnodelist": "exclude",
    "features": "constraint",
    "numnodes": "nodes",
}
