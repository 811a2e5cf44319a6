"""`sbatch`: a script's #SBATCH lines and sbatch's own options, as a job with compat = slurm."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Container, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import NamedTuple

import click

from dlq_cli.app import App
from dlq_cli.commands.jobs.submitted import Manner, submit_spec
from dlq_cli.jobs.source import STDIN
from dlq_cli.output.render import clean_line
from dlq_cli.output.said import SlurmSays
from dlq_cli.output.zone import LocalZone
from dlq_cli.slurm.batch_script import read_batch_script
from dlq_cli.slurm.input_variables import options_of, own_environment
from dlq_cli.slurm.jobs.origin import origin_of
from dlq_cli.slurm.words import no_cluster
from dlq_cli.spec.caller import caller_layer, callers_directory, own_limits
from dlq_cli.spec.check import doubts
from dlq_cli.spec.merge import merge, stacked
from dlq_cli.spec.message import to_message
from dlq_cli.spec.script import read_script
from dlq_cli.spec.slurm.request import sbatch_layer
from dlq_cli.spec.slurm.sbatch import InvalidDirective, Option, read_options, read_words
from dlq_cli.spec.validate import Spec, finish
from dlq_cli.spec.values.given import Given, Layer, Notes
from dlq_cli.spec.values.presets import KEY
from dlq_client.queues import Queues
from dlq_common.errors import (
    ConfigError,
    DlqError,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    Unauthenticated,
    Unavailable,
    Unsatisfiable,
)
from dlq_common.job_fields.table.job import QUEUE

_OURS = frozenset({"--parsable", "--wait", "--test-only", "--wrap", "--quiet", "--verbose"})
_SUBMITIT = re.compile(r"^export SUBMITIT_EXECUTOR=slurm$", re.MULTILINE)
# Slurm passes all of the environment on, which every script that was written for it relies on.
_DEFAULTS: Layer = {
    "compat": Given("slurm", "sbatch"),
    "export": Given(("ALL",), "Slurm's default"),
}
_NOT_AVAILABLE = "Requested node configuration is not available"


def main(app: App, words: Sequence[str]) -> None:
    """Queue a script (a file, stdin or --wrap) and print `Submitted batch job N`."""
    options, rest = read_words(words, "sbatch")
    batch = _batch(options, rest)
    try:
        written = list(read_options(batch.text, batch.name))
    except InvalidDirective as error:
        raise error.in_slurms_words() from None
    every = [*written, *options_of(os.environ), *options]
    said = {option.name: option.value for option in every}
    notes = Notes()
    spec = spec_of(options, rest, notes, lenient=is_lenient(app, said), batch=batch)
    quiet = "--quiet" in said
    if not quiet:
        for note in (*notes, *doubts(spec)):
            app.say(note)
    test_only = "--test-only" in said
    manner = Manner(
        parsable="--parsable" in said,
        as_json=False,
        wait="--wait" in said,
        follow=False,
        verdict=False,
        # Slurm's says nothing; people like to know, programs may take any word for trouble.
        reasons=sys.stderr.isatty() and not quiet,
        silent=quiet or test_only,
        cluster=_cluster(app, said.get("--clusters", "")),
        as_slurm=True,
    )
    message = to_message(spec)
    message.soft_limits.update(own_limits(said.get("--propagate"), "sbatch"))
    script = rest[0] if rest and rest[0] != STDIN else ""
    message.origin.CopyFrom(origin_of("sbatch", words, script))
    try:
        submit_spec(app, spec, manner, request_id="", test_only=test_only, message=message)
    except DlqError as error:
        raise refused(error, queue=spec.of(QUEUE) or "", test_only=test_only) from None
    if test_only:
        _tell_test(app, spec)


def is_lenient(app: App, said: Container[str]) -> bool:
    """Whether options that dlq cannot follow are left away."""
    return "--lenient" in said or app.settings.get("slurm_lenient").value == "1"


def refused(error: DlqError, *, queue: str = "", test_only: bool = False) -> DlqError:
    """The master's refusal in Slurm's words, with its own below them."""
    match error:
        case SlurmSays() | ConfigError():
            return error
        case Unsatisfiable():
            what = [_NOT_AVAILABLE]
        case InvalidRequest(metadata={"field": "spec.queue"}):
            what = ["Invalid partition name specified", f"invalid partition specified: {queue}"]
        case NotFound(metadata={"kind": "job"}):
            what = ["Job dependency problem"]
        case QuotaExceeded():
            what = [
                "Job violates accounting/QOS policy (job submit limit, user's size and/or time "
                "limits)"
            ]
        case PermissionDenied() | Unauthenticated():
            what = ["Access/permission denied"]
        case Unavailable():
            what = ["Unable to contact slurm controller (connect failure)"]
        case _:
            return error
    first = [f"sbatch: error: {line}" for line in what[1:]]
    last = f"sbatch: error: Batch job submission failed: {what[0]}"
    if test_only:
        last = f"allocation failure: {what[0]}"
    reasons = error.reasons if isinstance(error, Unsatisfiable) else ()
    below = [f"  {line}" for line in (error.what, *reasons, error.hint) if line]
    return SlurmSays(*first, last, *below)


def _cluster(app: App, asked: str) -> str:
    """This cluster's name, where options name it; SlurmSays for another one."""
    own = app.connection().identity.cluster if asked else ""
    for name in filter(None, asked.split(",")):
        if name.strip().lower() not in {"all", own.lower()}:
            raise no_cluster("sbatch", name)
    return own


def _default_queue(app: App) -> str:
    queues = Queues(app.connection()).list()
    return next((queue.name for queue in queues if queue.is_default), "default")


def _tell_test(app: App, spec: Spec) -> None:
    """Slurm's line about a job that would be accepted. Its start is not known, so it is now; the
    nodes are chosen when it starts.
    """
    at = datetime.fromtimestamp(app.clock.now_s(), LocalZone()).strftime("%Y-%m-%dT%H:%M:%S")
    count = spec.core_count or spec.gpu_count
    queue = spec.of(QUEUE) or _default_queue(app)
    click.echo(
        f"sbatch: Job 0 to start at {at} using {count} processors on nodes (unknown) in "
        f"partition {clean_line(queue)}",
        err=True,
    )


class _BatchScript(NamedTuple):
    """A script, the name that is shown for it, and its arguments."""

    text: str
    name: str
    arguments: Sequence[str]


def spec_of(
    options: Sequence[Option],
    rest: Sequence[str],
    notes: Notes,
    *,
    lenient: bool = False,
    batch: _BatchScript | None = None,
    program: str = "sbatch",
) -> Spec:
    """The job to queue. InvalidRequest names the unreadable word, and the refused option."""
    text, name, arguments = batch or _batch(options, rest)
    every = (*options_of(os.environ, program), *options)
    more = [option for option in every if option.name not in _OURS]
    layer = stacked(
        [
            _DEFAULTS,
            caller_layer(),
            _named(name),
            read_script(text.encode(), name).layer,  # #DLQ lines, below those for sbatch
            sbatch_layer(text, name, notes, more=more, lenient=lenient),
        ]
    )
    layer |= _submitit(text, layer)
    merged = merge([layer], own_environment(os.environ))
    return finish(merged, directory=callers_directory(merged), arguments=tuple(arguments))


def _batch(options: Sequence[Option], rest: Sequence[str]) -> _BatchScript:
    wrapped = next((option.value for option in options if option.name == "--wrap"), None)
    if wrapped is not None:
        if rest:
            raise InvalidRequest("Script arguments not permitted with --wrap option")
        return _BatchScript(f"#!/bin/sh\n{wrapped}\n", "wrap", ())
    if not rest and sys.stdin.isatty():
        raise InvalidRequest("sbatch: there is no script", hint="sbatch SCRIPT, or --wrap COMMAND")
    path = rest[0] if rest and rest[0] != "-" else None
    return _BatchScript(read_batch_script(path), path or "sbatch", rest[1:])


def _named(name: str) -> Layer:
    """Slurm names a job after its script, ending and all."""
    word = re.sub(r"[^A-Za-z0-9_.+=@:-]", "_", PurePosixPath(name).name).lstrip(".+=@:-")
    return {"name": Given(word[:128] or "sbatch", "the script's name")}


def _submitit(text: str, layer: Layer) -> Layer:
    """The preset of a script that submitit wrote: its folder is where the output goes."""
    if not _SUBMITIT.search(text) or KEY in layer:
        return {}
    found = re.search(r"^#SBATCH --output=(\S+)$", text, re.MULTILINE)
    folder = found[1].strip("'\"").rpartition("/")[0] if found else ""
    more: Layer = {KEY: Given("submitit", "the script was written by submitit")}
    if folder.startswith("/") and "checkpoint.dir" not in layer:
        more["checkpoint.dir"] = Given(folder, "submitit's folder")
    return more
