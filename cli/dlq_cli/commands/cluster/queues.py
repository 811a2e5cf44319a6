"""`dlq queues`: the queues, their levels, and the cluster in one line."""

from __future__ import annotations

import click

from dlq.v1 import queue_pb2, queue_service_pb2
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.cluster import cluster_facts, queue_facts
from dlq_cli.facts.common import document
from dlq_cli.output.render import Cell, clean_line, number, table
from dlq_client.queues import Queues
from dlq_common.text.units import format_duration


@click.command(epilog=examples("dlq queues", "dlq queues --json"))
@click.option("--no-header", is_flag=True, help="No headings.")
@json_option
@pass_app
def queues(app: App, no_header: bool, as_json: bool) -> None:
    """The queues, the first to be served first, with the waiting and running jobs on each level."""
    api = Queues(app.connection())
    found, cluster = api.list(), api.cluster()
    if as_json:
        content = {
            "cluster": cluster_facts(cluster),
            "queues": [queue_facts(queue) for queue in found],
        }
        click.echo(document(content))
        return
    cells = [
        Cell("QUEUE"),
        Cell("PRIORITY", right=True),
        Cell("POLICY"),
        Cell("WAITING", right=True),
        Cell("RUNNING", right=True),
        Cell("HELD", right=True),
        Cell("GPUS_WANTED", right=True),
        Cell("GPUS_HELD", right=True),
        Cell("LEVELS(WAITING/RUNNING)"),
    ]
    cores = any(queue.waiting_core_count or queue.running_core_count for queue in found)
    if cores:
        cells[8:8] = [Cell("CORES_WANTED", right=True), Cell("CORES_HELD", right=True)]
    look = app.look()
    rows = [_row(queue, cores=cores) for queue in found]
    click.echo(table(cells, rows, look, headings=not no_header), nl=False)
    for queue in found:
        if queue.HasField("interactive"):
            app.say(f"queue {queue.name} is for interactive jobs: {_limits(queue.interactive)}")
    app.say(_cluster_line(cluster))
    if cluster.submit_rate:
        left, rate = cluster.submit_left_count, number(cluster.submit_rate)
        app.say(f"you may submit {left} jobs now, and {rate} a second in the long run")
    say_freeze(app, cluster)


def say_freeze(app: App, cluster: queue_service_pb2.GetClusterResponse) -> None:
    """Print that the master starts no jobs now, and the reason; prints nothing otherwise."""
    if cluster.freeze_reason:
        app.say(f"nothing starts now: {clean_line(cluster.freeze_reason)}")


def _row(queue: queue_pb2.Queue, *, cores: bool) -> list[str]:
    return [
        queue.name + (" (default)" if queue.is_default else ""),
        str(queue.priority),
        queue.policy,
        str(sum(level.waiting_job_count for level in queue.levels)),
        str(sum(level.running_job_count for level in queue.levels)),
        str(queue.held_job_count),
        str(queue.waiting_gpu_count),
        str(queue.running_gpu_count),
        *([str(queue.waiting_core_count), str(queue.running_core_count)] if cores else []),
        " ".join(_level(level) for level in queue.levels),
    ]


def _limits(told: queue_pb2.InteractiveLimits) -> str:
    """The limits of interactive jobs in words."""
    longest = format_duration(told.max_time_limit_duration.ToTimedelta().total_seconds())
    words = [f"{longest} at most"]
    if told.HasField("gpus_per_job_count"):
        words.append(f"{told.gpus_per_job_count} GPUs a job")
    if told.HasField("gpus_per_user_count"):
        words.append(f"{told.gpus_per_user_count} GPUs a user")
    if told.floor_gpus >= 1.0:
        words.append(f"a floor of {told.floor_gpus:g} GPUs")
    elif told.floor_gpus:
        words.append(f"a floor of {100.0 * told.floor_gpus:g} % of the GPUs")
    return ", ".join(words)


def _level(level: queue_pb2.QueueLevel) -> str:
    below = (
        f"<{number(level.threshold_gpu_seconds)}" if level.HasField("threshold_gpu_seconds") else ""
    )
    return f"{level.level}{below}:{level.waiting_job_count}/{level.running_job_count}"


def _cluster_line(cluster: queue_service_pb2.GetClusterResponse) -> str:
    cores = f", {cluster.free_core_count} of {cluster.core_count} cores for CPU jobs free"
    return (
        f"cluster {clean_line(cluster.cluster_name)}: {cluster.free_gpu_count} of "
        f"{cluster.gpu_count} GPUs free{cores if cluster.core_count else ''}, policy "
        f"{clean_line(cluster.policy)}"
    )
