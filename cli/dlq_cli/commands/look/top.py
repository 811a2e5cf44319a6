"""`dlq top`: running jobs and the use that they make of their GPUs, the idlest first."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from dlq.v1 import job_pb2, node_pb2
from dlq_cli.app import App
from dlq_cli.commands.look.status import user_of
from dlq_cli.commands.options import detaching, examples, json_option, pass_app
from dlq_cli.facts.common import document
from dlq_cli.lists.columns import progress, run_s
from dlq_cli.lists.tasks import shown_id
from dlq_cli.output.render import Cell, OutputLook, clean_line, table
from dlq_cli.words import shown_state
from dlq_client.jobs import Jobs
from dlq_client.nodes import Nodes
from dlq_common.text.units import approximate_size, format_duration
from dlq_common.text.wire import from_duration

EVERY_S = 5.0
_HOME_AND_CLEAR = "\x1b[H\x1b[J"


class JobUse(NamedTuple):
    """A job, and the sums over its GPUs; None: not known of all of them."""

    job: job_pb2.Job
    percent: float | None
    watts: int | None
    idle_s: float | None
    memory_bytes: int | None = None
    clock_mhz: int | None = None  # the lowest

    @property
    def words(self) -> str:
        activity = self.job.activity
        if activity.stall_reason:
            return f"stalled: {activity.stall_reason}"
        if activity.idle_reason:
            return f"idle: {activity.idle_reason}"
        if activity.straggler_reason:
            return f"slowed down: {activity.straggler_reason}"
        return "virtual devices" if self.job.virtual_devices else ""


@click.command(epilog=examples("dlq top", "dlq top -a --every 10", "dlq top -a --json"))
@click.option("-a", "--all", "everybody", is_flag=True, help="All users' jobs.")
@click.option("-u", "--user", metavar="USER", help="This user's jobs.")
@click.option(
    "--every",
    metavar="SECONDS",
    type=click.FloatRange(1.0, 3600.0),
    default=EVERY_S,
    show_default=True,
    help="On a terminal: how often it is drawn.",
)
@click.option("--once", is_flag=True, help="Print it once, as to a pipe.")
@json_option
@pass_app
def top(
    app: App, everybody: bool, user: str | None, every: float, once: bool, as_json: bool
) -> None:
    """Running jobs, those first whose GPUs have been idle for longest.

    UTIL is the mean of the last half a minute; agents take a sample every second. MEM is the
    memory in use on the job's GPUs. IDLE is how long none of them has been used at all. On a
    terminal it goes on until Ctrl-C.
    """
    jobs, nodes = Jobs(app.connection()), Nodes(app.connection())
    owner = user_of(everybody, user)
    look = app.look()
    if as_json:
        click.echo(document({"jobs": [use_facts(one) for one in _uses(jobs, nodes, owner)]}))
        return
    if once or not look.tty:
        click.echo(_text(_uses(jobs, nodes, owner), look), nl=False, color=look.color)
        return
    with detaching(app, []):
        while True:
            text = _text(_uses(jobs, nodes, owner), look)
            click.echo(_HOME_AND_CLEAR + text, nl=False, color=True)
            time.sleep(every)


def uses_of(jobs: Iterable[job_pb2.Job], nodes: Iterable[node_pb2.Node]) -> list[JobUse]:
    """The running jobs with the sums over their GPUs, the idlest first."""
    held: dict[str, list[node_pb2.GpuStatus]] = {}
    for node in nodes:
        for status in node.gpu_statuses:
            held.setdefault(status.attempt.partition(".")[0], []).append(status)
    found = [_use(job, held.get(job.job_id, ())) for job in jobs if shown_state(job) == "running"]
    return sorted(found, key=lambda one: (-(one.idle_s or 0.0), one.percent or 0.0, one.job.job_id))


def use_facts(use: JobUse) -> Mapping[str, Any]:
    """As plain values; unknown is null."""
    activity = use.job.activity
    return {
        "job_id": use.job.job_id,
        "name": use.job.name,
        "user": use.job.user,
        "queue": use.job.queue,
        "gpu_count": use.job.held_gpu_count,
        "utilization_percent": None if use.percent is None else round(use.percent, 1),
        "power_watts": use.watts,
        "gpu_memory_bytes": use.memory_bytes,
        "clock_mhz": use.clock_mhz,
        "idle_s": use.idle_s,
        "idle_reason": activity.idle_reason or None,
        "stall_reason": activity.stall_reason or None,
        "straggler_reason": activity.straggler_reason or None,
    }


# --- helpers, in order of use ---------------------------------------------------------------------


def _uses(jobs: Jobs, nodes: Nodes, user: str) -> list[JobUse]:
    return uses_of(jobs.list(user=user, states=("running",)).jobs, nodes.list())


def _use(job: job_pb2.Job, gpus: Sequence[node_pb2.GpuStatus]) -> JobUse:
    count = len(gpus)
    means = [it.mean_utilization_percent for it in gpus if it.HasField("mean_utilization_percent")]
    watts = [it.power_watts for it in gpus if it.HasField("power_watts")]
    memory = [it.used_memory_bytes for it in gpus if it.HasField("used_memory_bytes")]
    clocks = [it.clock_mhz for it in gpus if it.HasField("clock_mhz")]
    idle = [from_duration(it.idle_duration) for it in gpus if it.HasField("idle_duration")]
    return JobUse(
        job,
        sum(means) / count if count and len(means) == count else None,
        sum(watts) if count and len(watts) == count else None,
        min(*idle, run_s(job) or 0.0) if count and len(idle) == count else None,
        sum(memory) if count and len(memory) == count else None,
        min(clocks) if count and len(clocks) == count else None,
    )


_CELLS = (
    Cell("ID"),
    Cell("NAME", most=24),
    Cell("USER", most=12),
    Cell("QUEUE", most=12),
    Cell("GPUS", right=True),
    Cell("UTIL", right=True),
    Cell("MEM", right=True),
    Cell("POWER", right=True),
    Cell("IDLE", right=True),
    Cell("TIME", right=True),
    Cell("PROGRESS"),
    Cell("NOTE", most=60),
)


def _text(uses: Sequence[JobUse], look: OutputLook) -> str:
    rows = [
        [
            shown_id(use.job),
            clean_line(use.job.name),
            clean_line(use.job.user),
            clean_line(use.job.queue),
            str(use.job.held_gpu_count),
            "" if use.percent is None else f"{use.percent:.0f}%",
            "" if use.memory_bytes is None else approximate_size(use.memory_bytes),
            "" if use.watts is None else f"{use.watts}W",
            format_duration(use.idle_s) if use.idle_s else "",
            format_duration(run_s(use.job) or 0.0),
            progress(use.job, look),
            clean_line(use.words),
        ]
        for use in uses
    ]
    return table(_CELLS, rows, look, headings=True)
