"""The smaller verbs of scontrol: ping, wait_job, notify, listpids, completing."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from dlq_cli.app import App
from dlq_cli.output.said import SlurmSays
from dlq_cli.slurm.control.showing import ids_of
from dlq_cli.slurm.jobs.listing import everybody, named
from dlq_cli.slurm.words import ended
from dlq_client.queues import Queues
from dlq_common.errors import Unavailable

_LOOK_S = 0.5


def ping(app: App) -> None:
    connection = app.connection()
    host = connection.identity.first_address.rpartition(":")[0]
    try:
        Queues(connection).cluster()
    except Unavailable:
        click.echo(f"Slurmctld(primary) at {host} is DOWN")
        ended(1)
    else:
        click.echo(f"Slurmctld(primary) at {host} is UP")


def wait_job(app: App, rest: Sequence[str]) -> None:
    """Wait until a job has its nodes. dlq gives no node out that is not up."""
    ids = ids_of(rest)
    if len(ids) != 1:
        raise SlurmSays("too few arguments for keyword:wait_job")
    while True:
        found = named(app, ids, detailed=False)
        if not found:
            raise SlurmSays(f"scontrol: Problem running job {ids[0]}")
        if found[0].ended:
            raise SlurmSays(f"scontrol: Job {ids[0]} is no longer running")
        if found[0].job.node_ids:
            click.echo(f"scontrol: Nodes are ready for job {ids[0]}", err=True)
            return
        time.sleep(_LOOK_S)


def notify(app: App, rest: Sequence[str]) -> None:
    """Refused: jobs take no messages here."""
    if len(rest) < 2:
        raise SlurmSays("too few arguments for keyword:notify")
    if not named(app, rest[:1], detailed=False):
        raise SlurmSays("job notify failure: Invalid job id specified")
    raise SlurmSays("scontrol: error: notify: dlq writes nothing into the output of jobs")


def listpids(app: App, rest: Sequence[str]) -> None:
    """Refused outside the node: only its agent knows the processes."""
    raise SlurmSays("scontrol: error: listpids: `dlq exec JOB -- ps` shows the processes of a job")


def completing(app: App) -> None:
    """Jobs that are leaving their nodes."""
    for job in everybody(app, detailed=False, ended_within_s=1):
        if job.code == "CG":
            nodes = ",".join(job.job.node_ids)
            click.echo(f"JobId={job.raw_id} Nodes(COMPLETING)={nodes}")
