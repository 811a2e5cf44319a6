"""`dlq simulate generate`: a workload of one of the papers, written as a trace."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from pathlib import Path
from random import Random
from typing import IO, Any, TypeVar, get_args

import click

from dlq_simulator.generate.aryl import Aryl, Diurnal, Load
from dlq_simulator.generate.chronus import MIXES, Chronus
from dlq_simulator.generate.gpuaas import GpuAsAService, Rate
from dlq_simulator.generate.pollux import PolluxJobs
from dlq_simulator.generate.tiresias import Tiresias
from dlq_simulator.outputs import STDOUT, check_outputs, inputs_of
from dlq_simulator.readers import FORMATS
from dlq_simulator.refusals import refusals
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace, TraceJob

_ALWAYS = ("job_id", "submit_time_s", "num_gpus", "duration_s")
# Of the file that a job was read from: traces have no column for these.
_NEVER = ("line", "times_s")


def write_trace(file: IO[str], trace: Trace) -> None:
    """The required columns, then each that any job has something to say in."""
    rows = [asdict(job) for job in trace.jobs]
    plain = TraceJob(job_id="", submit_time_s=0, num_gpus=1, duration_s=0)
    defaults = asdict(plain)
    names = [field.name for field in fields(TraceJob) if field.name not in _NEVER]
    optional = [name for name in names if name not in _ALWAYS]
    told = [name for name in optional if any(row[name] != defaults[name] for row in rows)]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*_ALWAYS, *told])
    for row in rows:
        writer.writerow([_text(row[name]) for name in (*_ALWAYS, *told)])


def write_loads(file: IO[str], loads: Iterable[Load]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["time_s", "busy"])
    writer.writerows(loads)


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case tuple():
            return ";".join(f"{_text(delay)}:{_text(reward)}" for delay, reward in value)
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)


F = TypeVar("F", bound=Callable[..., Any])


def _shown(
    name: str, kind: click.ParamType[Any], default: object, words: str | None = None
) -> Callable[[F], F]:
    """An option whose default stands in the help."""
    return click.option(name, type=kind, default=default, show_default=True, help=words)


_COUNT = click.IntRange(min=1)
_PERCENT = click.FloatRange(0, 100)
_OUTPUT = click.option(
    "-o",
    "--output",
    type=click.File("w", encoding="utf-8", lazy=True),
    default="-",
    metavar="FILE.csv",
    help="where to write; default: stdout",
)
_SEED = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="same seed, same bytes"
)
_FORM = click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="auto",
    help="dialect of TRACE's columns",
)


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    return _SEED(_OUTPUT(command))


@click.group()
def generate() -> None:
    """Make a workload as a paper describes it, from a seed.

    \b
    Examples:
      dlq simulate generate tiresias --seed 7 -o tiresias.csv
      dlq simulate generate chronus philly.csv.gz --mix mix2 --density 120 -o load.csv
    """


@generate.command()
@_shown("--jobs", _COUNT, 480)
@_shown("--mean-gap", click.FloatRange(min=0, min_open=True), 30.0, "seconds between arrivals")
@_common
def tiresias(jobs: int, mean_gap: float, seed: int, output: IO[str]) -> None:
    """Tiresias 5.1: widths 1 to 32, ten models, 2 minutes to 2 hours, Poisson arrivals."""
    write_trace(output, Tiresias(jobs=jobs, mean_gap_s=mean_gap).workload(Random(seed)))


@generate.command()
@click.argument("trace")
@_shown(
    "--mix",
    click.Choice(list(MIXES)),
    "mix2",
    "percent strict/soft/best effort: slo 100/0/0, mix1 70/0/30, mix2 30/60/10, short 0/0/100",
)
@_shown("--density", click.IntRange(1, 1000), 100, "percent of the trace's jobs")
@_FORM
@_common
def chronus(trace: str, mix: str, density: int, form: str, seed: int, output: IO[str]) -> None:
    """Chronus 4.1 over TRACE: deadlines at 1.2 to 2 run times, soft ones at 1.1, 1.2, 1.5 of the
    first.
    """
    with refusals():
        shares = Chronus(mix=MIXES[mix], density=density)
        write_trace(output, shares.workload(Random(seed), _read(trace, form, output)))


@generate.command()
@click.argument("trace")
@_shown("--elastic", _PERCENT, 5.0, "percent of jobs that may grow, the widest first")
@_shown("--checkpointless", _PERCENT, 20.0, "percent that lose everything when preempted")
@_shown("--any-gpu", _PERCENT, 21.0, "percent that name no GPU type")
@_shown(
    "--mixed",
    _PERCENT,
    0.0,
    "percent that may lie on several GPU types at once; 10 in the paper's Advanced",
)
@_shown("--tuned", _PERCENT, 0.0, "percent of elastic jobs whose batch follows their GPUs")
@_shown("--stretch", click.IntRange(2, 64), 2, "how many times its GPUs an elastic job may use")
@_FORM
@_common
def aryl(
    trace: str,
    elastic: float,
    checkpointless: float,
    any_gpu: float,
    mixed: float,
    tuned: float,
    stretch: int,
    form: str,
    seed: int,
    output: IO[str],
) -> None:
    """Aryl 7.1 over TRACE: elastic, checkpointless and GPU-agnostic shares of its jobs."""
    shares = Aryl(
        elastic=elastic,
        checkpointless=checkpointless,
        any_gpu=any_gpu,
        mixed=mixed,
        tuned=tuned,
        stretch=stretch,
    )
    with refusals():
        write_trace(output, shares.workload(Random(seed), _read(trace, form, output)))


@generate.command()
@click.argument("trace")
@_shown("--node-gpus", _COUNT, 4, "GPUs of a node, for the run times")
@_common
def pollux(trace: str, node_gpus: int, seed: int, output: IO[str]) -> None:
    """Pollux 5.1 over TRACE, a workload of Pollux: run times by goodput, and tuned jobs that may
    have up to 64 GPUs. Nothing is drawn.
    """
    with refusals():
        jobs = PolluxJobs(node_gpus=node_gpus)
        write_trace(output, jobs.workload(_read(trace, "pollux", output)))


@generate.command()
@_shown("--days", _COUNT, 15)
@_shown("--peak", click.FloatRange(0, 1, min_open=True), 0.95)
@_shown("--ratio", click.FloatRange(min=1), 2.2, "peak to trough")
@_common
def inference(days: int, peak: float, ratio: float, seed: int, output: IO[str]) -> None:
    """Aryl 2.1: the busy share of an inference cluster over days, every five minutes."""
    write_loads(output, Diurnal(days=days, peak=peak, ratio=ratio).loads(Random(seed)))


@generate.command()
@_shown("--nodes", _COUNT, 10, "ten jobs for each")
@_shown("--rate", click.Choice(get_args(Rate)), "exponential")
@_common
def gpuaas(nodes: int, rate: Rate, seed: int, output: IO[str]) -> None:
    """GPU as a Service 4.1: due dates at 1 to 3 shortest run times, weights, four arrival rates."""
    write_trace(output, GpuAsAService(nodes=nodes, rate=rate).workload(Random(seed)))


def _read(path: str, form: str, output: IO[str]) -> Trace:
    """The trace that a workload is made from, which the workload must not overwrite."""
    target = STDOUT if output.name == "-" else Path(output.name)
    check_outputs([(target, "the workload")], inputs_of(path))
    trace = read_trace(path, form)
    for note in trace.notes:
        click.echo(f"dlq: note: {path}: {note}", err=True)
    return trace
