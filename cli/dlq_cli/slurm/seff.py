"""`seff JOB`: how much of its cores and memory a job has used, as Slurm's contributed script.

Measures of a script are known after its end. A job that was killed may have none, and memory that
nobody asked for has no efficiency: such a line is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from dlq_cli.app import App
from dlq_cli.lists.slurm_states import account_state
from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.jobs.listing import named
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_cli.slurm.jobs.steps import SeenStep, steps_of
from dlq_cli.slurm.words import Grammar, own_word, read
from dlq_compat.job_page import clock

GRAMMAR = Grammar(
    "seff",
    {"d": "debug", "h": "help", "v": "version"},
    frozenset(),
    frozenset({"debug", "help", "version"}),
    takes_words=True,
)
_USAGE = """\
Usage: seff [Options] <Jobid>
       Options:
       -h    Help menu
       -v    Version
       -d    Debug mode: nothing more is shown here"""
_UNITS = ("KB", "MB", "GB", "TB", "PB")
_NOT_FOUND = 2


def main(app: App, words: Sequence[str]) -> None:
    """The report of one job. SlurmSays for a job that is not there."""
    given = read(GRAMMAR, words)
    if "version" in given.options:
        click.echo("seff Version 2.1")
        return
    if "help" in given.options or not given.rest:
        click.echo(_USAGE)
        return
    found = named(app, [own_word(given.rest[0])], detailed=True)
    if not found:
        raise SlurmSays("Job not found.", code=_NOT_FOUND)
    job = found[0]
    steps = steps_of(app, [job]).get(job.raw_id, [])
    click.echo("\n".join(report(job, steps)))


def report(job: SeenJob, steps: Sequence[SeenStep]) -> list[str]:
    """The lines about a job and its steps."""
    lines = [f"Job ID: {job.raw_id}"]
    if job.in_array:
        lines.append(f"Array Job ID: {job.shown_id}")
    state = account_state(job.job)
    lines += [
        f"Cluster: {job.cluster}",
        f"User/Group: {job.job.user}/{job.group}",
        f"State: {state}" + (f" (exit code {job.job.exit_code})" if job.ended else ""),
    ]
    if job.cpus == 1:
        lines.append("Cores: 1")
    else:
        lines += [f"Nodes: {job.node_count}", f"Cores per node: {job.cpus // job.node_count}"]
    if not job.began_s:
        return [*lines, f"Efficiency not available for jobs in the {state} state."]
    lines += _used(job, steps)
    if not job.ended:
        lines.append(f"WARNING: Efficiency statistics may be misleading for {state} jobs.")
    return lines


def _used(job: SeenJob, steps: Sequence[SeenStep]) -> list[str]:
    cpu_s = sum(step.cpu_s or 0.0 for step in steps)
    core_s = job.run_s * job.cpus
    share = 100 * cpu_s / core_s if core_s else 0.0
    lines = [
        f"CPU Utilized: {clock(cpu_s)}",
        f"CPU Efficiency: {share:.2f}% of {clock(core_s)} core-walltime",
        f"Job Wall-clock time: {clock(job.run_s)}",
    ]
    sizes = [(step.max_rss_bytes * step.tasks, step.tasks) for step in steps if step.max_rss_bytes]
    bytes_, tasks = max(sizes, default=(0, 1))
    estimated = " (estimated maximum)" if tasks > 1 else ""
    lines.append(f"Memory Utilized: {_size(bytes_)}{estimated}")
    asked = (job.memory_mib << 20) * job.node_count
    if asked:
        lines.append(f"Memory Efficiency: {100 * bytes_ / asked:.2f}% of {_size(asked)}")
    return lines


def _size(bytes_: float) -> str:
    value = bytes_ / 1024
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{value:.2f} {unit}"
        value /= 1024
    raise AssertionError("the last unit ends it")
