"""`scancel`: end jobs, or send them a signal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from dlq.v1 import job_pb2
from dlq_cli.app import App
from dlq_cli.exit_codes import FAILURE
from dlq_cli.lists.select import one_job
from dlq_cli.lists.slurm_states import queue_state, wanted
from dlq_cli.output.render import clean_line
from dlq_cli.slurm.allocate import holder
from dlq_cli.slurm.words import Grammar, SlurmWords, ended, only_here, read
from dlq_cli.words import has_ended
from dlq_client.inside import CommandInside
from dlq_client.jobs import Edited, Jobs
from dlq_common.errors import DlqError, InvalidRequest
from dlq_common.text.signals import signal_name

_REFUSED = {"interactive": "it asks nobody; dlq cancel asks where there is a terminal"}
GRAMMAR = Grammar(
    "scancel",
    {
        "u": "user", "n": "name", "p": "partition", "t": "state", "s": "signal", "Q": "quiet",
        "b": "batch", "f": "full", "v": "verbose", "i": "interactive", "M": "clusters",
        "c": "ctld", "H": "hurry",
    },
    frozenset({"user", "name", "jobname", "partition", "state", "signal", "clusters"}),
    frozenset({"me", "quiet", "batch", "full", "verbose", "interactive", "ctld", "hurry"}),
    _REFUSED,
    takes_words=True,
)  # fmt: skip
_CHOICES = frozenset({"user", "me", "name", "jobname", "partition", "state"})


def main(app: App, words: Sequence[str]) -> None:
    """Cancel jobs, or with --signal send them one. Jobs that have ended are no failure."""
    given = read(GRAMMAR, words)
    only_here(app, given, GRAMMAR)
    signal = _signal(given.options.get("signal", ""))
    act_by = _act(signal)
    part = next((f"--{name}" for name in ("full", "batch") if name in given.options and signal), "")
    jobs = Jobs(app.connection())
    ids = [part for word in given.rest for part in word.split(",") if part]
    if not ids and not given.options.keys() & _CHOICES:
        raise InvalidRequest("scancel: No job identification provided")
    if not ids:
        ids = [job.job_id for job in _mine(jobs, given)]

    def act(target: str) -> object:
        if part or "." in target:
            _inside(app, jobs, target, signal, part)
            return None
        return act_by(jobs, target)

    ended(each("scancel", ids, act, quiet="quiet" in given.options))


def _inside(app: App, jobs: Jobs, target: str, signal: str, part: str) -> None:
    """A step or the batch script, by the `scancel` inside the job; InvalidRequest: its words."""
    named, dot, step = target.partition(".")
    job_id = one_job(jobs, named).job_id
    words = [*([f"--signal={signal}"] if signal else []), *([part] if part else [])]
    inside = CommandInside(
        app.connection(), job_id, holder.canceller([*words, f"{job_id}{dot}{step}"])
    )
    inside.end_stdin()
    said, code = b"", 0
    for output in inside.outputs():
        said += output.stderr
        if output.WhichOneof("body") == "ended":
            code = output.ended.exit_code
    if code:
        text = said.decode("utf-8", "replace").strip().removeprefix("scancel: error: ")
        raise InvalidRequest(clean_line(text) or "the job has no steps of Slurm")


def _signal(text: str) -> str:
    try:
        return signal_name(text) if text else ""
    except ValueError:
        raise InvalidRequest(f"scancel: Unknown job signal: {text[:40]}") from None


def each(program: str, targets: Sequence[str], act: Callable[[str], object], *, quiet: bool) -> int:
    """Call `act` for all targets; the exit code. A refusal is printed, and the others go on."""
    code = 0
    for target in targets:
        try:
            done = act(target)
            for loss in done.losses if isinstance(done, Edited) else ():
                click.echo(f"{program}: {clean_line(loss.detail)} is lost", err=True)
        except DlqError as error:
            code = FAILURE
            if not quiet:
                click.echo(f"{program}: error: {target}: {error.what}", err=True)
    return code


def _mine(jobs: Jobs, given: SlurmWords) -> list[job_pb2.Job]:
    states = wanted("scancel", given.listed("state"))
    said = given.options
    name = said.get("name") or said.get("jobname", "")
    found = jobs.list(user=said.get("user", ""), name=name, queue=said.get("partition", "")).jobs
    return [
        job for job in found if not has_ended(job) and (not states or queue_state(job) in states)
    ]


def _act(signal: str) -> Callable[[Jobs, str], Edited]:
    if not signal:
        return lambda jobs, target: jobs.cancel_each(target)
    if signal == "KILL":
        return lambda jobs, target: jobs.cancel_each(target, kill=True)
    return lambda jobs, target: jobs.signal_each(target, signal, all_ranks=True)
