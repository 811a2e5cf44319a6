"""`scontrol show config`: the lines that programs read, true of this cluster.

A line is here where dlq has a value for it, or where a program decides by it. Lines of Slurm's
inner parts are left out, for they would be made up.
"""

from __future__ import annotations

import time

import click

from dlq_cli.app import App
from dlq_client.queues import Queues
from dlq_common.text.arrays import MOST_TASKS
from dlq_compat.version import VERSION

_WIDTH = 23


def show_config(app: App) -> None:
    """Slurm's names, in its order and layout."""
    connection = app.connection()
    cluster = Queues(connection).cluster()
    host, _, port = connection.identity.first_address.rpartition(":")
    now = time.strftime("%Y-%m-%dT%H:%M:%S")
    facts = {
        "AccountingStorageBackupHost": "(null)",
        "AccountingStorageEnforce": "none",
        "AccountingStorageHost": host,
        "AccountingStoragePort": port,
        "AccountingStorageTRES": "cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/gpu",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AuthType": "auth/tls",
        "ClusterName": cluster.cluster_name,
        "EnforcePartLimits": "NO",
        "FirstJobId": "1",
        "GresTypes": "gpu",
        "JobRequeue": "1",
        "KillOnBadExit": "0",
        "KillWait": "30 sec",
        "MaxArraySize": str(MOST_TASKS + 1),
        "MinJobAge": "300 sec",
        "MpiDefault": "none",
        "PreemptMode": "REQUEUE",
        "PriorityType": "priority/basic",
        "PrivateData": "none",
        "ProctrackType": "proctrack/cgroup",
        "SchedulerType": "sched/backfill",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU",
        "SlurmUser": "root(0)",
        "SlurmctldHost[0]": host,
        "SlurmctldPort": port,
        "SLURM_VERSION": VERSION.split()[1],
        "SwitchType": "switch/none",
        "TaskPlugin": "task/cgroup",
        "TmpFS": "/tmp",
        "TopologyPlugin": "topology/none",
    }
    click.echo(f"Configuration data as of {now}")
    for name, value in facts.items():
        click.echo(f"{name:<{_WIDTH}} = {value}")
    click.echo()
    click.echo(f"Slurmctld(primary) at {host} is UP")
