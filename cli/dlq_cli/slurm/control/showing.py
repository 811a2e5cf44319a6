"""`scontrol show`: jobs, steps, nodes, partitions, reservations and lists of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import click

from dlq_cli.app import App
from dlq_cli.output.render import clean_line
from dlq_cli.output.said import NO_SUCH_JOB, SlurmSays
from dlq_cli.output.slurm_page import show
from dlq_cli.slurm import job_words as words
from dlq_cli.slurm.control.job_facts import facts_of
from dlq_cli.slurm.jobs.listing import at_work, everybody, folded_lines, named
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_cli.slurm.jobs.steps import SeenStep, steps_of
from dlq_cli.slurm.nodes.facts import all_nodes
from dlq_cli.slurm.nodes.pages import node_page, partition_page
from dlq_cli.slurm.words import own_word
from dlq_client.queues import Queues
from dlq_common.text.hostlist import compress_hostlist, expand_hostlist
from dlq_compat.job_page import NULL, UNKNOWN, page


class ShowOptions(NamedTuple):
    """The options of `scontrol show`."""

    oneliner: bool = False
    details: bool = False
    json: bool = False
    yaml: bool = False


def ids_of(rest: Sequence[str]) -> list[str]:
    """`17,18`, `JobId=17`, `jobid 17`; of `12+1` dlq's own word."""
    found = []
    for word in rest:
        name, equals, value = word.partition("=")
        if not equals and name.lower() in ("job", "jobid"):
            continue
        found += [own_word(part) for part in (value if equals else name).split(",") if part]
    return found


def show_jobs(app: App, rest: Sequence[str], asked: ShowOptions) -> None:
    jobs = _jobs(app, ids_of(rest))
    if asked.json or asked.yaml:
        from dlq_cli.slurm.jobs.openapi import jobs_page

        show(jobs_page(jobs), as_yaml=asked.yaml)
        return
    if not jobs:
        click.echo("No jobs in the system")
    for job in jobs:
        facts = {name: _clean(text) for name, text in facts_of(job, details=asked.details).items()}
        click.echo(page(facts, one_line=asked.oneliner))


def _clean(text: str) -> str:
    return "\n".join(clean_line(line) for line in text.split("\n"))


def _jobs(app: App, ids: Sequence[str]) -> list[SeenJob]:
    if not ids:
        return folded_lines(everybody(app, detailed=True))
    for word in ids:
        if not word[0].isdecimal():
            raise SlurmSays("scontrol_print_job error: Invalid job id specified")
    found = named(app, ids, detailed=True)
    if not found:
        if "_" in ids[0] and named(app, [ids[0].partition("_")[0]], detailed=False):
            click.echo(f"Job {ids[0]} not found")
            raise SlurmSays()
        raise SlurmSays(NO_SUCH_JOB)
    return folded_lines(found, ids)


def show_steps(app: App, rest: Sequence[str], asked: ShowOptions) -> None:
    ids = ids_of(rest)
    jobs = named(app, ids, detailed=True) if ids else at_work(app)
    if ids and not jobs:
        raise SlurmSays("slurm_get_job_steps error: Invalid job id specified")
    steps = [
        step
        for found in steps_of(app, jobs, running_only=True).values()
        for step in found
        if not ids or any(map(step.is_named, ids))
    ]
    if ids and not jobs:
        raise SlurmSays("slurm_get_job_steps error: Invalid job id specified")
    if ids and not steps:
        whole = "." if "." not in ids[0] else ""
        click.echo(f"Job step {clean_line(ids[0][:40])}{whole} not found")
        raise SlurmSays()
    for step in steps:
        click.echo(_step_page(step, one_line=asked.oneliner))


def _step_page(step: SeenStep, *, one_line: bool) -> str:
    start = words.instant_s(step.start_s, UNKNOWN)
    nodes = compress_hostlist(step.nodes)
    # As in Slurm, which has no sizes of a script's step.
    cpus = 0 if step.is_batch else step.cpus
    gpus = f"gres/gpu={step.gpus}," if step.gpus else ""
    sizes = f"cpu={step.cpus},{gpus}mem=0,node={step.node_count}"
    tres = NULL if step.is_batch else sizes
    lines = [
        f"StepId={step.shown_id} UserId={step.job.uid} StartTime={start} TimeLimit=UNLIMITED",
        f"State={step.state} Partition={step.job.job.queue} NodeList={nodes}",
        f"Nodes={step.node_count} CPUs={cpus} Tasks={step.tasks} "
        f"Name={clean_line(step.name)} Network={NULL}",
        f"TRES={tres}",
        f"ResvPorts={NULL}",
        "CPUFreqReq=Default",
        f"SrunHost:Pid={NULL}:0",
    ]
    return " ".join(lines) if one_line else "\n   ".join(lines) + "\n"


def show_nodes(app: App, rest: Sequence[str], asked: ShowOptions) -> None:
    nodes = all_nodes(app)
    queues = [queue.name for queue in Queues(app.connection()).list()]
    known = {node.name: node for node in nodes}
    missing = []
    if rest:
        asked_for = _hosts(rest)
        missing = [name for name in asked_for if name not in known]
        nodes = [known[name] for name in asked_for if name in known]
    if asked.json or asked.yaml:
        from dlq_cli.slurm.nodes.openapi import nodes_page

        show(nodes_page(nodes, queues), as_yaml=asked.yaml)
        return
    for node in nodes:
        click.echo(node_page(node, queues, one_line=asked.oneliner, details=asked.details))
    for name in missing:
        click.echo(f"Node {clean_line(name)} not found")
    if missing:
        raise SlurmSays()


def show_partitions(app: App, rest: Sequence[str], asked: ShowOptions) -> None:
    nodes = all_nodes(app, with_given=False)
    queues = Queues(app.connection()).list()
    found = [queue for queue in queues if not rest or queue.name == rest[0]]
    if not found:
        click.echo(f"Partition {clean_line(rest[0][:64])} not found")
        raise SlurmSays()
    for queue in found:
        click.echo(partition_page(queue, nodes, one_line=asked.oneliner))


def show_reservations(app: App, rest: Sequence[str], asked: ShowOptions) -> None:
    from dlq_cli.slurm.nodes.pages import reservation_pages

    pages = reservation_pages(app, one_line=asked.oneliner)
    if rest:
        pages = [text for text in pages if text.startswith(f"ReservationName={rest[0]} ")]
        if not pages:
            click.echo(f"Reservation {clean_line(rest[0][:64])} not found")
            raise SlurmSays()
    click.echo("\n".join(pages) or "No reservations in the system")


def show_hosts(kind: str, rest: Sequence[str]) -> None:
    if not rest:
        import os

        rest = [os.environ.get("SLURM_JOB_NODELIST", "")]
        if not rest[0]:
            raise SlurmSays("scontrol: error: host list is empty", code=0)
    hosts = _hosts(rest)
    if kind == "hostnames":
        for host in hosts:
            click.echo(host)
        return
    if kind == "hostlistsorted":
        hosts = sorted(set(hosts), key=_by_number)
    click.echo(compress_hostlist(hosts))


def _by_number(name: str) -> tuple[str, int]:
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or 0)


def _hosts(rest: Sequence[str]) -> list[str]:
    try:
        return list(expand_hostlist(",".join(rest)))
    except ValueError as error:
        raise SlurmSays(f"Invalid hostlist: {error}") from None
