"""scontrol's changes of jobs and nodes: hold, release, requeue, suspend, resume, update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import click

from dlq_cli.app import App
from dlq_cli.commands.jobs.update import wishes
from dlq_cli.output.render import clean_line
from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.control.showing import ids_of
from dlq_cli.slurm.jobs.listing import everybody, named
from dlq_cli.slurm.words import ended
from dlq_client.jobs import Edited, Jobs
from dlq_common.errors import DlqError, InvalidRequest, NotFound, Unsatisfiable
from dlq_common.text.hook_words import hook_words
from dlq_common.text.units import parse_duration, whole_minutes

_Change = Callable[[Jobs, str], Edited]
# As in Slurm they ask no question; they print the lost work.
VERBS: Mapping[str, _Change] = {
    "requeue": lambda jobs, target: jobs.requeue_each(target, accept_loss=True),
    "requeuehold": lambda jobs, target: jobs.requeue_each(target, hold=True, accept_loss=True),
    "hold": lambda jobs, target: jobs.hold_each(target, only_first=True),
    "holdu": lambda jobs, target: jobs.hold_each(target, only_first=True),
    "uhold": lambda jobs, target: jobs.hold_each(target, only_first=True),
    "release": lambda jobs, target: jobs.release_each(target, only_first=True),
    "suspend": lambda jobs, target: jobs.pause_each(target, accept_loss=True),
    "resume": lambda jobs, target: jobs.resume_each(target),
}
_MAY_COME_TWICE = frozenset({"hold", "holdu", "uhold", "release"})  # a job that is so already
_AGAIN = frozenset({"requeue", "requeuehold"})  # not of a job with --no-requeue
_GONE = "Invalid job id specified"
_NODE_COUNT = "Node count specification invalid"
# Slurm's words for what a job's state does not allow, by verb and the job's state.
_STATE_WORDS: Mapping[str, Mapping[str, str]] = {
    "requeue": {"PD": "Job is pending execution"},
    "requeuehold": {"PD": "Job is pending execution"},
    "suspend": {"PD": "Job is pending execution"},
    "resume": {"R": "Job is not suspended", "PD": "Job is not suspended"},
}
_FINISHED = "Job has already finished"
_ENDED_CODES = frozenset({"CD", "F", "CA", "TO", "OOM", "NF", "DL"})


def change_jobs(app: App, verb: str, rest: Sequence[str]) -> None:
    """Change all named jobs. A refusal is told on stderr, and the other jobs go on."""
    jobs = Jobs(app.connection())
    failed = 0
    for target in _targets(app, rest):
        words = _refusal(app, jobs, verb, target)
        if not words:
            continue
        failed = 1
        click.echo(f"{words} for job {clean_line(target)}", err=True)
        if verb in _MAY_COME_TWICE:
            click.echo(f"slurm_suspend error: {words}", err=True)
    ended(failed)


def _targets(app: App, rest: Sequence[str]) -> list[str]:
    """Ids, or the caller's jobs of `jobname=NAME`."""
    names = [
        word.partition("=")[2] for word in rest if word.lower().startswith(("name=", "jobname="))
    ]
    ids = ids_of([word for word in rest if not word.lower().startswith(("name=", "jobname="))])
    own = app.connection().identity.user
    for name in names:
        ids += [
            job.job.job_id
            for job in everybody(app, detailed=False, ended_within_s=1)
            if job.job.name == name and job.job.user == own and not job.ended
        ]
    return ids


def _refusal(app: App, jobs: Jobs, verb: str, target: str) -> str:
    """Slurm's words for why the job was not changed; empty: it was, or needs no change."""
    if not target[:1].isdecimal():
        return _GONE
    if verb in _AGAIN and any(one.spec.no_requeue for one in named(app, [target], detailed=True)):
        return "Requested operation is presently disabled"
    try:
        done = VERBS[verb](jobs, target)
    except NotFound:
        return _GONE
    except DlqError as error:
        return _in_slurms_words(app, verb, target, error)
    for loss in done.losses:
        click.echo(f"scontrol: {clean_line(loss.detail)} is lost", err=True)
    return ""


def _in_slurms_words(app: App, verb: str, target: str, error: DlqError) -> str:
    known = named(app, [target], detailed=False)
    code = known[0].code if known else ""
    if code in _ENDED_CODES:
        return _FINISHED
    if verb in _MAY_COME_TWICE and code:
        return ""
    return _STATE_WORDS.get(verb, {}).get(code, clean_line(error.what))


def update(app: App, rest: Sequence[str]) -> None:
    """`update JobId=17 TimeLimit=60`, `update nodename=n1 state=drain reason=fan`."""
    if not rest:
        raise SlurmSays("too few arguments for update keyword")
    kinds = {word.partition("=")[0].lower() for word in rest}
    if kinds & {"nodename", "node"}:
        from dlq_cli.slurm.control.node_changes import update_nodes

        update_nodes(app, rest)
    elif kinds & {"partitionname", "partition"} and not kinds & {"job", "jobid", "jobname"}:
        raise SlurmSays(
            "scontrol: error: update of partitions: queues are in the master's configuration; "
            "`dlq admin policy` changes how they are served"
        )
    else:
        _update_jobs(app, rest)


def _update_jobs(app: App, rest: Sequence[str]) -> None:
    targets, changes = [], []
    for word in rest:
        name, equals, value = word.partition("=")
        if name.lower() in ("job", "jobid"):
            targets += [part for part in value.split(",") if part]
        elif name.lower() == "jobname" and not targets:
            targets += _targets(app, [word])
        elif not equals:
            targets.append(name)
        else:
            if name.endswith(("+", "-")):  # `TimeLimit+=10` is `TimeLimit=+10`
                name, value = name[:-1], f"{name[-1]}{value}"
            changes.append(f"{name}={_our_value(name.lower(), value)}")
    if not targets:
        raise SlurmSays(
            "No valid entity in update command",
            'Input line must include "NodeName", "PartitionName", "Reservation", "JobId", or '
            '"SlurmctldDebug"',
        )
    jobs = Jobs(app.connection())
    failed = 0
    for target in targets:
        words = _change_one(app, jobs, target, changes)
        if words:
            failed = 1
            click.echo(f"{words} for job {clean_line(target)}", err=True)
    ended(failed)


def _change_one(app: App, jobs: Jobs, target: str, changes: Sequence[str]) -> str:
    """Slurm's words for why the job was not changed; empty: it was. Of several changes none is made
    when one is refused. `Priority=0` is a hold.
    """
    others = [change for change in changes if change.lower() != "priority=0"]
    request = None
    if others or not changes:
        absolute = [_absolute(app, target, change) for change in others]
        try:
            request = wishes(absolute, app.clock.now_s())
        except InvalidRequest as error:
            raise _unreadable(others, error) from None
        if request.spec_change.HasField("node_count"):
            request.spec_change.keeps_totals = _says_totals(app, jobs, target)
    try:
        if request is not None:
            for note in jobs.update_each(target, request).hook_notes:
                click.echo(f"scontrol: hook {clean_line(hook_words(note))}", err=True)
        if len(others) < len(changes):
            jobs.hold_each(target, only_first=True)
    except NotFound:
        return _GONE
    except DlqError as error:
        known = named(app, [target], detailed=False)
        if known and known[0].code in _ENDED_CODES:
            return _FINISHED
        resized = request is not None and request.spec_change.HasField("node_count")
        if resized and isinstance(error, Unsatisfiable):
            return _NODE_COUNT
        return _update_words(error)
    return ""


def _says_totals(app: App, jobs: Jobs, target: str) -> bool:
    """Whether the job has asked for GPUs or tasks of all nodes together: then `NumNodes` divides
    them anew, as in Slurm.
    """
    known = named(app, [target], detailed=False)
    if not known:
        return False
    spec = jobs.get(known[0].job.job_id).spec  # whole: details have no variables
    if spec.resources.gpu_count:
        said = spec.environment
        total = "SLURM_GPUS" in said and "SLURM_GPUS_PER_NODE" not in said
        return total or bool(spec.tasks.gpus_per_task)
    return bool(spec.tasks.task_count) and not (spec.tasks.implied or spec.tasks_per_node)


def _update_words(error: DlqError) -> str:
    """Slurm's words where it has some for such a refusal."""
    match error:
        case Unsatisfiable():
            return "Requested node configuration is not available"
        case InvalidRequest(metadata={"field": "spec.queue"}):
            return "Invalid partition name specified"
        case InvalidRequest(metadata={"field": "spec.resources.node_count"}):
            return _NODE_COUNT
        case _:
            return clean_line(error.what)


def _absolute(app: App, target: str, change: str) -> str:
    """`TimeLimit=+10` as the limit that this job gets by it; other changes as they are."""
    name, _, value = change.partition("=")
    if name.lower() != "timelimit" or value[:1] not in ("+", "-") or not value[1:]:
        return change
    known = named(app, [target], detailed=False)
    limit_s = known[0].limit_s if known else None
    if not known or limit_s is None:
        return change
    with suppress(ValueError):
        more_s = parse_duration(value[1:]) * (1 if value[0] == "+" else -1)
        minutes = int(limit_s + more_s) // 60
        return f"{name}={minutes}" if minutes > 0 else change
    return change


def _our_value(name: str, value: str) -> str:
    if name == "arraytaskthrottle" and value == "0":
        return "all"
    return whole_minutes(value) if name == "timelimit" else value


def _unreadable(changes: Sequence[str], error: InvalidRequest) -> SlurmSays:
    """Slurm's lines about a parameter that cannot be set, with dlq's reason where it has one."""
    unknown = next(
        (word for word in changes if f"'{word.partition('=')[0]}'" in error.what
         or word.partition("=")[0].lower() in error.what.lower()), changes[0] if changes else "",
    )  # fmt: skip
    return SlurmSays(
        f"Update of this parameter is not supported: {clean_line(unknown)}",
        f"  {clean_line(error.what)}",
        "Request aborted",
    )
