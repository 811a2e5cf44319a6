"""`sdiag`: counts of jobs since midnight, in Slurm's lines.

Lines about cycles of the scheduler are left out: the master tells them to its metrics alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import click

from dlq_cli.app import App
from dlq_cli.lists.slurm_states import account_state
from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.accounts.window import midnight_s
from dlq_cli.slurm.jobs.listing import everybody
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_cli.slurm.words import Grammar, only_here, read
from dlq_client.queues import Queues

GRAMMAR = Grammar(
    "sdiag",
    {
        "a": "all", "h": "help", "i": "sort-by-id", "M": "cluster", "r": "reset",
        "t": "sort-by-time", "T": "sort-by-time2",
    },
    frozenset({"cluster", "clusters"}),
    frozenset({"all", "help", "reset", "sort-by-id", "sort-by-time", "sort-by-time2", "usage"}),
    same={"cluster": "clusters"},
)  # fmt: skip
_BAR = "*" * 55
_DENIED = 255


def main(app: App, words: Sequence[str]) -> None:
    """Counts of the jobs that the caller may see; nothing is reset."""
    given = read(GRAMMAR, words)
    if "help" in given.options or "usage" in given.options:
        click.echo("Usage: sdiag [-M cluster] [-aritT]")
        return
    if "reset" in given.options:
        raise SlurmSays("slurm_reset_statistics: Access/permission denied", code=_DENIED)
    only_here(app, given, GRAMMAR)
    since_s = midnight_s(app.clock.now_s())
    now_s = Queues(app.connection()).cluster().master_time.seconds
    within_s = max(1, round(app.clock.now_s() - since_s))
    jobs = everybody(app, detailed=False, ended_within_s=within_s)
    click.echo("\n".join(_page(jobs, float(now_s), since_s)))


def _page(jobs: Sequence[SeenJob], now_s: float, since_s: float) -> list[str]:
    states = Counter(account_state(job.job) for job in jobs)
    ended = Counter(account_state(job.job) for job in jobs if job.ended and job.end_s >= since_s)
    # As in Slurm a job that ended by its own fault is completed.
    failed = ended["NODE_FAIL"]
    completed = ended.total() - ended["CANCELLED"] - failed
    return [
        _BAR,
        f"sdiag output at {_instant(now_s)}",
        f"Data since      {_instant(since_s)}",
        _BAR,
        f"Jobs submitted: {sum(1 for job in jobs if job.submit_s >= since_s)}",
        f"Jobs started:   {sum(1 for job in jobs if job.began_s >= since_s)}",
        f"Jobs completed: {completed}",
        f"Jobs canceled:  {ended['CANCELLED']}",
        f"Jobs failed:    {failed}",
        "",
        f"Job states ts:  {_instant(now_s)}",
        f"Jobs pending:   {states['PENDING']}",
        f"Jobs running:   {states['RUNNING']}",
    ]


def _instant(at_s: float) -> str:
    return f"{time.ctime(at_s)} ({int(at_s)})"
