"""This cluster as `sacctmgr show cluster` has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlq_cli.app import App
from dlq_cli.slurm.accounts.table import AccountColumn
from dlq_cli.slurm.jobs.seen import QOS
from dlq_cli.slurm.nodes.facts import SeenNode, all_nodes
from dlq_common.text.hostlist import compress_hostlist
from dlq_compat.job_page import size


class SeenCluster(NamedTuple):
    """Its name, the master's address, and its nodes."""

    name: str
    host: str
    port: str
    nodes: list[SeenNode]

    @property
    def tres(self) -> str:
        """By name, as accounts have them."""
        cpus = sum(node.cpus for node in self.nodes)
        memory = sum(node.memory_mib for node in self.nodes)
        gpus = sum(len(node.gpus) for node in self.nodes)
        return (
            f"billing={cpus},cpu={cpus},energy=0,fs/disk=0,gres/gpu={gpus},mem={size(memory)},"
            f"node={len(self.nodes)},pages=0,vmem=0"
        )


def this_cluster(app: App) -> list[SeenCluster]:
    """There is one."""
    identity = app.connection().identity
    host, _, port = identity.first_address.rpartition(":")
    return [SeenCluster(identity.cluster, host, port, all_nodes(app, with_given=False))]


def _none(row: SeenCluster) -> str:
    return ""


_EMPTY = {
    "GrpJobs": 7, "GrpTRES": 13, "GrpSubmit": 9, "MaxJobs": 7, "MaxTRES": 13, "MaxSubmit": 9,
    "MaxWall": 11, "Flags": 20,
}  # fmt: skip
CLUSTER_COLUMNS: Mapping[str, AccountColumn[SeenCluster]] = {
    "cluster": AccountColumn("Cluster", 10, lambda row: row.name),
    "name": AccountColumn("Cluster", 10, lambda row: row.name),
    "controlhost": AccountColumn("ControlHost", 15, lambda row: row.host),
    "controlport": AccountColumn("ControlPort", 12, lambda row: row.port),
    "rpc": AccountColumn("RPC", 5, lambda row: "0"),
    "share": AccountColumn("Share", 9, lambda row: "1"),
    "qos": AccountColumn("QOS", 20, lambda row: QOS),
    "defaultqos": AccountColumn("Def QOS", 9, _none),
    "classification": AccountColumn("Class", 9, _none),
    "clusternodes": AccountColumn(
        "Cluster Nodes", 20, lambda row: compress_hostlist([node.name for node in row.nodes])
    ),
    "nodecount": AccountColumn("NodeCount", 9, lambda row: str(len(row.nodes))),
    "tres": AccountColumn("TRES", 20, lambda row: row.tres),
    **{heading.lower(): AccountColumn(heading, width, _none) for heading, width in _EMPTY.items()},
}
CLUSTER_DEFAULT = (
    "cluster,controlhost,controlport,rpc,share,grpjobs,grptres,grpsubmit,maxjobs,maxtres,"
    "maxsubmit,maxwall,qos,defaultqos"
)
