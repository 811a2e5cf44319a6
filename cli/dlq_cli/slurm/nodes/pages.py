"""A node and a partition as `scontrol show` prints them."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import queue_pb2
from dlq_cli.app import App
from dlq_cli.output.render import clean_line
from dlq_cli.slurm.instants import shown_instant
from dlq_cli.slurm.nodes.facts import SeenNode
from dlq_client.reservations import Reservations
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.wire import from_timestamp
from dlq_compat.job_page import NOT_SET, NULL, clock, size


def _joined(lines: Sequence[str], *, one_line: bool) -> str:
    text = (" " if one_line else "\n   ").join(lines)
    return text if one_line else text + "\n"


def node_page(seen: SeenNode, queues: Sequence[str], *, one_line: bool, details: bool) -> str:
    node = seen.node
    contact = _local(from_timestamp(node.contact_time))
    lines = [
        f"NodeName={seen.name} Arch=x86_64 CoresPerSocket=1 ",
        f"CPUAlloc={seen.cpus_given} CPUEfctv={seen.cpus} CPUTot={seen.cpus} CPULoad=N/A",
        f"AvailableFeatures={seen.features}",
        f"ActiveFeatures={seen.features}",
        f"Gres={seen.gres}",
        *([f"GresDrain={NOT_SET}", f"GresUsed={seen.gres_used}"] if details else []),
        f"NodeAddr={node.hostname or seen.name} NodeHostName={node.hostname or seen.name} "
        f"Port=0 Version={node.agent_version or NULL}",
        "OS=Linux ",
        f"RealMemory={seen.memory_mib} AllocMem={seen.memory_given_mib} FreeMem=N/A "
        f"Sockets={seen.cpus} Boards=1",
        f"State={seen.upper_state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
        f"Partitions={','.join(queues)} ",
        "BootTime=Unknown SlurmdStartTime=Unknown",
        f"LastBusyTime={contact}",
        f"CfgTRES={seen.tres}",
        f"AllocTRES={seen.tres_used}",
        "CapWatts=n/a",
        "CurrentWatts=0 AveWatts=0",
        "ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s",
    ]
    if seen.reason:
        by = seen.reason_by or "root"
        lines.append(f"Reason={clean_line(seen.reason)} [{by}@{_local(seen.reason_s)}]")
    return _joined(lines, one_line=one_line)


def _local(at_s: float) -> str:
    return shown_instant(at_s, "Unknown")


def partition_page(queue: queue_pb2.Queue, nodes: Sequence[SeenNode], *, one_line: bool) -> str:
    """A queue reaches all nodes; its limits are those of teams and users, not its own."""
    cpus = sum(node.cpus for node in nodes)
    memory = sum(node.memory_mib for node in nodes)
    gpus = sum(len(node.gpus) for node in nodes)
    tres = f"cpu={cpus},mem={size(memory)},node={len(nodes)},billing={cpus}"
    lines = [
        f"PartitionName={queue.name}",
        "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
        f"AllocNodes=ALL Default={'YES' if queue.is_default else 'NO'} QoS=N/A",
        "DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO",
        "MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED",
        f"Nodes={compress_hostlist([node.name for node in nodes])}",
        f"PriorityJobFactor=1 PriorityTier={max(1, queue.priority + 1)} RootOnly=NO ReqResv=NO "
        "OverSubscribe=NO",
        "OverTimeLimit=NONE PreemptMode=REQUEUE",
        f"State=UP TotalCPUs={cpus} TotalNodes={len(nodes)} SelectTypeParameters=NONE",
        f"JobDefaults={NULL}",
        "DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED",
        "TRES=" + tres + (f",gres/gpu={gpus}" if gpus else ""),
    ]
    return _joined(lines, one_line=one_line)


def reservation_pages(app: App, *, one_line: bool) -> list[str]:
    """One page each; dlq's are of whole nodes, and no job runs in them."""
    pages = []
    for one in Reservations(app.connection()).list():
        begin_s, end_s = from_timestamp(one.begin_time), from_timestamp(one.end_time)
        state = "ACTIVE" if one.state == "active" else "INACTIVE"
        lines = [
            f"ReservationName={one.reservation_id} StartTime={_local(begin_s)} "
            f"EndTime={_local(end_s)} Duration={clock(end_s - begin_s)}",
            f"Nodes={compress_hostlist(one.node_ids)} NodeCnt={len(one.node_ids)} CoreCnt=0 "
            "Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES,ALL_NODES",
            "TRES=(null)",
            f"Users={one.created_by} Groups=(null) Accounts=(null) Licenses=(null) "
            f"State={state} BurstBuffer=(null) Watts=n/a",
            "MaxStartDelay=(null)",
        ]
        pages.append(" ".join(lines) if one_line else "\n   ".join(lines) + "\n")
    return pages
