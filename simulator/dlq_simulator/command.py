"""`dlq simulate TRACE`: replay a workload under one or more policies and compare them."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from dlq_master.policy.policy import Policy
from dlq_master.policy.registry.presets import PRESETS
from dlq_simulator.errors import UsageError
from dlq_simulator.generate.command import generate
from dlq_simulator.outputs import STDOUT, Files, check_outputs, inputs_of, pictures_in
from dlq_simulator.priced.settings import NAMES, PricedSettings
from dlq_simulator.readers import FORMATS
from dlq_simulator.refusals import refusals, silent_stdout
from dlq_simulator.replay.engine import replay
from dlq_simulator.replay.progress import progress_bar
from dlq_simulator.results.report import (
    Result,
    check_writable,
    jobs_path,
    make_directory,
    to_json,
    to_table,
    write_jobs,
    write_text,
)
from dlq_simulator.settings import ReplaySettings, read_all
from dlq_simulator.too_large import check_sizes
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import ClusterSpec, read_cluster

# Replays make millions of short-lived tuples and hardly a circle: at Python's own pace the
# collector takes a tenth of the time.
COLLECT_AFTER = 100_000

_EPILOG = """
Settings: place=consolidate|spread|count|skew|ilp|halving|local-search|pattern,
preempt=charged|at-once|free, min_run, max_preemptions, hysteresis, aging, cooldown_s (guards against thrashing), save_s and resume_s (what one preemption costs), term_s (the boundaries at which work may be taken away),
slowdown=charged|free, overlap, skew_rho (what spreading costs),
scaling=linear|aryl|EFFICIENCY; for srtf, srsf, themis, afs, aryl, 3sigma, genie and chronus also
know=known|profiled|unknown, profile_s, noise; for dlq and chronus team_quota, team_limit, team_jobs, quota_unit=gpus|normalised, team_share=TEAM:N,...,
share=fair|none, half_life_s, teams=user|vc; for chronus profile_floor, submit_gpus; for 3sigma errors; for tiresias-las and tiresias-gittins also order=requeue|first-start,
thresholds=GPU_S,...|qSHARE,..., history=FILE, refresh, promote_knob, promote_to=head|tail, starve_limit_s; for
tiresias-gittins index=fixed|sup, quantum, last=fifo|index; for yarn-cs quota=QUEUE:SHARE,...,
queues=class|vc|user; for dlq queue_floor=QUEUE:GPUS|QUEUE:SHARE, queues; for themis fairness; for aryl
size=knapsack|knapsack-exact|least-work|rollout|afs|grow-shrink; where servers are lent
reclaim=exact|least-lost|aryl|random|scf|ssf|lsf|static. Each policy takes the settings that it knows.

The gpuaas policies rent nodes and take interval_s, preempt, times=exact|fitted, and with fitted times history=TRACE,
measure_s, refine; the heuristics also reading=paper|reference,
proxy=cost|efficiency, iterations, elite, moves, alpha, beta, swap, rho, mu; gpuaas-dp variant, step_s, constant;
gpuaas-marginal lookahead.

With several policies --jobs-out FILE.csv writes FILE.POLICY.csv for each of them.

Exit codes: 0 done, 1 a file's content is not usable, 2 the command line is not.
"""  # noqa: E501


class _Simulate(click.Command):
    """`dlq simulate TRACE` replays; `dlq simulate generate ...` is a command of its own."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args and args[0] == generate.name:
            return generate.make_context(f"{info_name} {generate.name}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)


@click.command(cls=_Simulate, epilog=_EPILOG)
@click.argument("trace")
@click.option("--cluster", required=True, metavar="NODESxGPUS|FILE", help="e.g. 15x4, or a .toml")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME",
    help=f"{', '.join((*PRESETS, *NAMES))}; repeat to compare",
)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="see below")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="auto",
    help="dialect of TRACE's column names",
)
@click.option("--skip-bad", is_flag=True, help="leave bad rows out and count them")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="of random draws in a policy",
)
@click.option("--json", "as_json", is_flag=True, help="print one JSON document")
@click.option(
    "--jobs-out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.csv",
    help="write one row per job",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="write pictures (SVG): CDFs, use over time, Gantt charts, bars",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.html",
    help="write one page that compares the policies",
)
def simulate(
    trace: str,
    cluster: str,
    policies: tuple[str, ...],
    assignments: tuple[str, ...],
    form: str,
    skip_bad: bool,
    seed: int,
    as_json: bool,
    jobs_out: Path | None,
    plot: Path | None,
    report: Path | None,
) -> None:
    """Replay TRACE (CSV, also .csv.gz) on a cluster that exists only here.

    The master's own scheduler decides; time jumps from event to event. Preemption is charged and
    work is taken away at term boundaries, as the daemon does; `--set preempt=at-once` takes it at
    any event, at the same price; `--set preempt=free` is the ideal
    of the papers' simulators, `--set place=count` counts GPUs without placing them.

    `dlq simulate generate --help` tells of the papers' workloads.
    """
    with refusals():
        _check_typed(policies, jobs_out, report)
        outputs = _outputs(policies, jobs_out, plot, report)
        check_outputs(outputs, inputs_of(trace, cluster, assignments))
        spec = read_cluster(cluster)
        chosen_ones = read_all(policies, assignments, seed, rented_only=spec.rented_only)
        settings = [chosen for chosen in chosen_ones if isinstance(chosen, ReplaySettings)]
        _check_nodes(settings, spec)
        workload = read_trace(trace, form, skip_bad=skip_bad)
        _check_drawing(plot, report)
        _check_packages(settings, spec)
        for note in workload.notes:
            click.echo(f"dlq: note: {workload.path}: {note}", err=True)
        if settings and not skip_bad:
            check_sizes(workload, spec, settings)
        results = []
        gc.set_threshold(COLLECT_AFTER)
        for chosen in chosen_ones:
            if isinstance(chosen, PricedSettings):
                results.append(_rented(workload, spec, chosen))
                continue
            quiet = silent_stdout() if _solves(chosen.policy, spec) else nullcontext()
            with progress_bar(chosen.policy.name, len(workload.jobs)) as advance, quiet:
                results.append(replay(workload, spec, chosen, progress=advance))
        _publish(workload, spec, results, seed, assignments, as_json, jobs_out)
        _draw(workload, spec, results, seed, assignments, plot, report)


def _check_typed(policies: Sequence[str], *files: Path | None) -> None:
    """Refuse wrong settings before any work is done."""
    if not policies:
        raise UsageError(
            "no policy to simulate", "--policy was not given", "add for example --policy fifo"
        )
    for name in policies:
        if policies.count(name) > 1:
            raise UsageError(
                f"cannot compare {name!r} with itself", "it was given twice", "give it once"
            )
    for file in files:
        if file is not None and not file.parent.is_dir():
            raise UsageError(
                f"cannot write {str(file)!r}",
                f"there is no directory {str(file.parent)!r}",
                "create it first",
            )


def _outputs(
    policies: Sequence[str], jobs_out: Path | None, plot: Path | None, report: Path | None
) -> Files:
    """Every file that will be written, and the option that names it."""
    found = [(STDOUT, "stdout")]
    if jobs_out is not None:
        paths = [jobs_path(jobs_out, policy, len(policies)) for policy in policies]
        found += [(path, "--jobs-out") for path in paths]
    if plot is not None:
        found += [(path, "--plot") for path in pictures_in(plot)]
    return found if report is None else [*found, (report, "--report")]


def _rented(workload: Trace, spec: ClusterSpec, chosen: PricedSettings) -> Result:
    """Replay on nodes that are rented by need; numpy is imported only here."""
    if find_spec("numpy") is None or find_spec("scipy") is None:
        why = "numpy and scipy are not installed"
        raise UsageError(f"cannot simulate {chosen.name!r}", why, "pip install 'dlq[sim]'")
    from dlq_simulator.priced.run import run

    quiet = silent_stdout() if chosen.solves else nullcontext()
    with progress_bar(chosen.name, len(workload.jobs)) as advance, quiet:
        return run(workload, spec, chosen, progress=advance)


def _check_nodes(settings: Sequence[ReplaySettings], spec: ClusterSpec) -> None:
    """Most policies do not rent, and know of no end to it."""
    ending = next((group for group in spec.groups if math.isfinite(group.until_s)), None)
    if settings and ending is not None:
        name, why = settings[0].policy.name, f"{ending.name} is taken back at {ending.until_s:g} s"
        raise UsageError(f"cannot simulate {name!r}", why, "use a gpuaas policy, or no until_s")
    if settings and not spec.nodes:
        name = settings[0].policy.name
        why = f"it rents no nodes, and the cluster {spec.name} has none of its own"
        raise UsageError(
            f"cannot simulate {name!r}", why, "give nodes, or a count in the catalogue"
        )


def _solves(policy: Policy, spec: ClusterSpec) -> bool:
    """Whether integer programs may be solved."""
    promises = policy.promises is not None
    return promises or policy.placement.solves or (spec.lends and policy.reclaim.solves)


def _check_packages(settings: Sequence[ReplaySettings], spec: ClusterSpec) -> None:
    """A reclaim, or the first promise, may be hours away; renting needs numpy too."""
    if find_spec("scipy") is not None:
        return
    for chosen in settings:
        what, fix = f"cannot simulate {chosen.policy.name!r}", "pip install 'dlq[sim]'"
        if chosen.policy.promises is not None:
            raise UsageError(what, "it plans promises with scipy, which is not installed", fix)
        if spec.lends and chosen.policy.reclaim.solves:
            why = "reclaim=exact solves integer programs, and scipy is not installed"
            raise UsageError(f"{what} with lent servers", why, f"{fix}, or --set reclaim=aryl")
    if settings and spec.renting is not None:
        why = "numpy and scipy are not installed, which the decisions on renting need"
        what = f"cannot simulate {settings[0].policy.name!r}"
        raise UsageError(what, why, "pip install 'dlq[sim]'")


def _check_drawing(plot: Path | None, report: Path | None) -> None:
    """Hours of replay are not to end without their pictures."""
    if plot is not None:
        if find_spec("matplotlib") is None:
            why = "matplotlib is not installed"
            raise UsageError("cannot draw pictures", why, "pip install 'dlq[sim]'")
        make_directory(plot)
        check_writable(plot)
    if report is not None:
        check_writable(report)


def _draw(
    trace: Trace,
    cluster: ClusterSpec,
    results: Sequence[Result],
    seed: int,
    assignments: Sequence[str],
    plot: Path | None,
    report: Path | None,
) -> None:
    """Pictures and page, of printed results; the drawing library is imported only here."""
    if plot is not None:
        from dlq_simulator.plots.draw import pictures

        drawn = pictures(results, cluster)
        for note in drawn.notes:
            click.echo(f"dlq: note: {note}", err=True)
        for name, svg in drawn.svg.items():
            write_text(plot / name, svg)
    if report is not None:
        from dlq_simulator.plots.page import page

        write_text(report, page(trace, cluster, results, seed=seed, settings=assignments))


def _publish(
    trace: Trace,
    cluster: ClusterSpec,
    results: Sequence[Result],
    seed: int,
    assignments: Sequence[str],
    as_json: bool,
    jobs_out: Path | None,
) -> None:
    """Job files first: a reader of the result on stdout finds them complete."""
    if jobs_out is not None:
        for result in results:
            write_jobs(jobs_path(jobs_out, result.policy, len(results)), result.outcomes)
    for result in results:
        for note in result.notes:
            click.echo(f"dlq: note: {result.policy}: {note}", err=True)
    if as_json:
        click.echo(to_json(trace, cluster, results, seed=seed, settings=assignments))
    else:
        click.echo(to_table(results))
