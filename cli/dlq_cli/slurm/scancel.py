"""`scancel`: end jobs, or send them a signal; silent and exit codes as Slurm's.

A call that fails takes no earlier one back. A master that is away is an error, and nothing is
repeated: ask again.
"""

from __future__ import annotations

import os
import pwd
import re
import signal as signals
from collections.abc import Callable, Sequence
from typing import NamedTuple

import click

from dlq_cli.app import App
from dlq_cli.exit_codes import FAILURE
from dlq_cli.lists.select import one_job
from dlq_cli.lists.slurm_states import WORDS, queue_state
from dlq_cli.output.render import clean_line
from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.allocate import holder
from dlq_cli.slurm.jobs.listing import everybody, named
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_cli.slurm.words import Grammar, SlurmWords, ended, only_here, own_word, read
from dlq_client.inside.command import CommandInside
from dlq_client.jobs import Edited, Jobs
from dlq_common.errors import DlqError, NotFound, error_from
from dlq_common.text.hostlist import expand_hostlist, split_outside_brackets
from dlq_common.text.signals import signal_name

GRAMMAR = Grammar(
    "scancel",
    {
        "A": "account", "b": "batch", "f": "full", "H": "hurry", "i": "interactive",
        "M": "clusters", "n": "name", "p": "partition", "Q": "quiet", "q": "qos",
        "R": "reservation", "s": "signal", "t": "state", "u": "user", "v": "verbose",
        "w": "nodelist",
    },
    frozenset(
        {
            "account", "clusters", "cluster", "name", "jobname", "nodelist", "partition", "qos",
            "reservation", "sibling", "signal", "state", "user", "wckey",
        }
    ),
    frozenset(
        {"batch", "ctld", "full", "hurry", "interactive", "me", "quiet", "usage", "verbose"}
    ),
    takes_words=True,
    same={"cluster": "clusters", "jobname": "name"},
)  # fmt: skip
_USAGE = """\
Usage: scancel [-A account] [--batch] [--full] [--interactive] [-n job_name]
               [-p partition] [-Q] [-q qos] [-R reservation] [-s signal | integer]
               [-t PENDING | RUNNING | SUSPENDED] [--usage] [-u user_name]
               [--hurry] [-V] [-v] [-w hosts...] [--wckey=wckey]
               [job_id[_array_id][.step_id]]"""
_TEXTS = ("name", "partition", "account", "qos")
_FILTERS = frozenset(
    {"account", "me", "name", "nodelist", "partition", "qos", "reservation", "state", "user",
     "wckey"}
)  # fmt: skip
_ID = re.compile(r"\d+(_(\d+|\[[\d,-]+\])|\+\d+)?(\.\d+)?")
_GONE = "Invalid job id specified"
_DONE = "Job/step already completing or completed"
_DENIED = "Access/permission denied"
_NO_STEP, _NOT_ONES_OWN = 225, 210  # the last byte of Slurm's numbers of errors
_VARIABLES = {
    f"SCANCEL_{name.upper()}": name
    for name in ("account", "batch", "full", "interactive", "name", "partition", "qos", "state",
                 "user", "verbose", "wckey")
}  # fmt: skip


class _Order(NamedTuple):
    """The wish for each job."""

    signal: str  # empty: cancel
    number: int
    part: str  # batch or full: beside the steps the batch script; empty: neither
    verbose: bool
    asks: bool

    @property
    def plain(self) -> bool:
        """Whether jobs just end, without a word about each."""
        return self.signal in ("", "KILL") and not (self.part or self.verbose or self.asks)


def main(app: App, words: Sequence[str]) -> None:
    """Cancel jobs, or with --signal send them one. Jobs that have ended are no failure."""
    given = _with_environment(read(GRAMMAR, words))
    if "usage" in given.options:
        click.echo(_USAGE)
        return
    order = _order(given)
    ids = [part for word in given.rest for part in _parted(word)]
    for word in ids:
        if not _ID.fullmatch(word):
            raise SlurmSays(f"scancel: error: Invalid job id {word[:40]}")
    if "" in given.rest and any(given.rest):  # of a variable that is not set: not only the others
        raise SlurmSays("scancel: error: Invalid job id ")
    filtered = bool(given.options.keys() & _FILTERS)
    if not ids and not filtered:
        raise SlurmSays("scancel: error: No job identification provided")
    keep = _filter(app, given)
    only_here(app, given, GRAMMAR)
    if filtered:
        ids = _matching(app, ids, keep, given)
    jobs = Jobs(app.connection())
    if len(ids) > 1 and order.plain and not any("." in word for word in ids):
        ended(_cancel_all(app, jobs, ids, order))
        return
    ended(max([_act(app, jobs, word, order) for word in ids], default=0))


def _with_environment(given: SlurmWords) -> SlurmWords:
    more = {option: os.environ[name] for name, option in _VARIABLES.items() if name in os.environ}
    return given._replace(options={**more, **given.options})


def _parted(word: str) -> list[str]:
    """`3,8` and `12_[1-3,5]`: commas in brackets belong to the range."""
    return [part for part in split_outside_brackets(word) if part]


def _order(given: SlurmWords) -> _Order:
    text = given.options.get("signal", "")
    try:
        name = signal_name(text) if text else ""
    except ValueError:
        raise SlurmSays(f"Unknown job signal: {text[:40]}") from None
    number = getattr(signals, f"SIG{name}", signals.SIGKILL).value if name else 0
    part = next((each for each in ("full", "batch") if each in given.options), "")
    said = given.options.keys()
    return _Order(name, number, part, "verbose" in said, "interactive" in said)


def _filter(app: App, given: SlurmWords) -> Callable[[SeenJob], bool]:
    """Whether a job is meant. As in Slurm an empty word means no job, and not every one: scripts
    have `scancel -n "$NAME"`, and the variable may not be set.
    """
    states = _states(given)
    said = given.options
    user = app.connection().identity.user if "me" in said else _user(said.get("user"))
    nodes = set(expand_hostlist(said["nodelist"])) if said.get("nodelist") else set()
    texts = {name: said[name] for name in _TEXTS if name in said}
    nothing = "reservation" in said or "wckey" in said

    def keep(job: SeenJob) -> bool:
        of_job = {
            "name": job.job.name, "partition": job.job.queue, "account": job.account,
            "qos": job.qos,
        }  # fmt: skip
        return (
            not job.ended
            and not nothing
            and (not user or job.job.user == user)
            and (not states or queue_state(job.job) in states)
            and ("nodelist" not in said or bool(nodes & set(job.nodes)))
            and all(text and of_job[name] == text for name, text in texts.items())
        )

    return keep


def _states(given: SlurmWords) -> frozenset[str]:
    found = set()
    words = given.listed("state")
    for word in words if words or "state" not in given.options else [""]:
        long = WORDS.get(word.upper(), word.upper())
        if long not in WORDS.values():
            raise SlurmSays(
                f"Invalid job state specified: {word[:40]}",
                "Valid job states are PENDING, RUNNING, and SUSPENDED",
            )
        found.add(long)
    return frozenset(found)


def _user(word: str | None) -> str:
    if word is None:
        return ""
    try:
        return pwd.getpwuid(int(word)).pw_name if word.isdecimal() else pwd.getpwnam(word).pw_name
    except (KeyError, OverflowError):
        raise SlurmSays(f"scancel: error: Invalid user name: {word[:40]}") from None


def _matching(
    app: App, ids: Sequence[str], keep: Callable[[SeenJob], bool], given: SlurmWords
) -> list[str]:
    """The jobs that all filters leave: the caller's own, unless -u names another user."""
    own = app.connection().identity.user
    found = (
        named(app, ids, detailed=False) if ids else everybody(app, detailed=False, ended_within_s=1)
    )
    mine = [
        job for job in found if keep(job) and (given.options.get("user") or job.job.user == own)
    ]
    return [job.shown_id for job in mine]


def _act(app: App, jobs: Jobs, word: str, order: _Order) -> int:
    """Of one job or array; the exit code."""
    if "." in word or (order.signal and order.part):
        return _inside(app, word, order)
    if order.asks and not _agreed(app, word):
        return 0
    if order.verbose:
        what = f"Signal {order.number} to job" if order.signal else "Terminating job"
        click.echo(f"scancel: {what} {word}", err=True)
    try:
        _tell_losses(_call(jobs, word, order))
    except DlqError as error:
        return _failed(app, word, order, error)
    if order.verbose and not order.signal and _has_ended(app, word):
        click.echo(f"scancel: error: Kill job error on job id {word}: {_DONE}", err=True)
    return 0


def _cancel_all(app: App, jobs: Jobs, words: Sequence[str], order: _Order) -> int:
    """Of all of them, in few calls. Others' jobs are told; a job that is not there is none."""
    asked = {own_word(word): word for word in words}
    done = jobs.cancel_many(list(asked), kill=order.signal == "KILL")
    codes = [0]
    for refusal in done.refusals:
        error = error_from(refusal.reason, refusal.detail, {})
        word = asked.get(refusal.job_id, refusal.job_id)
        codes.append(_failed(app, word, order, error))
    return max(codes)


def _call(jobs: Jobs, word: str, order: _Order) -> Edited:
    word = own_word(word)
    if not order.signal:
        return jobs.cancel_each(word, only_first=True)
    if order.signal == "KILL":
        return jobs.cancel_each(word, kill=True, only_first=True)
    return jobs.signal_each(word, order.signal, all_ranks=True)


def _tell_losses(done: Edited) -> None:
    for loss in done.losses:
        click.echo(f"scancel: {clean_line(loss.detail)} is lost", err=True)


def _failed(app: App, word: str, order: _Order, error: DlqError) -> int:
    """A cancel of what is not there, or has ended, is silent and no failure."""
    gone = isinstance(error, NotFound)
    denied = gone and _is_anothers(app, word)
    quiet = not denied and not order.signal and (gone or _has_ended(app, word))
    if order.verbose or not quiet:
        why = _DENIED if denied else _GONE if gone else clean_line(error.what)
        click.echo(f"scancel: error: Kill job error on job id {word}: {why}", err=True)
    return 0 if quiet else _NOT_ONES_OWN if denied else FAILURE


def _is_anothers(app: App, word: str) -> bool:
    """Whether another user's living job has this number: `squeue` lists it, and no more."""
    own = app.connection().identity.user
    found = everybody(app, detailed=False, ended_within_s=1)
    return any(
        word in (job.job.job_id, job.shown_id) and job.job.user != own and not job.ended
        for job in found
    )


def _has_ended(app: App, word: str) -> bool:
    found = named(app, [word], detailed=False)
    return bool(found) and all(job.ended and job.now_s - job.end_s > 1.0 for job in found)


def _inside(app: App, word: str, order: _Order) -> int:
    """A step or the batch script, by the `scancel` inside the job; its exit code."""
    named_job, dot, step = word.partition(".")
    part = [f"--{order.part}"] if order.part else []
    signal = [f"--signal={order.signal}"] if order.signal else []
    try:
        job_id = one_job(Jobs(app.connection()), own_word(named_job)).job_id
        target = f"{job_id}{dot}{step}"
        inside = CommandInside(app.connection(), job_id, holder.canceller([*signal, *part, target]))
        inside.end_stdin()
        said, code = b"", 0
        for output in inside.outputs():
            said += output.stderr
            if output.WhichOneof("body") == "ended":
                code = output.ended.exit_code
    except DlqError as error:
        said, code = error.what.encode(), FAILURE
    if code:
        what = clean_line(said.decode("utf-8", "replace").strip())
        words = f"scancel: error: Kill job error on job step id {named_job}: {_GONE}"
        click.echo(words, err=True)
        if what != words:
            click.echo(f"  {what or 'the job has no steps of Slurm'}", err=True)
        return _NO_STEP
    return 0


def _agreed(app: App, word: str) -> bool:
    """Whether somebody says yes; the end of stdin is a no."""
    found = named(app, [word], detailed=False)
    about = f" name={found[0].job.name} partition={found[0].job.queue}" if found else ""
    try:
        return click.prompt(f"Cancel job_id={word}{about} [y/n]? ", prompt_suffix="").lower() == "y"
    except click.Abort:
        return False
