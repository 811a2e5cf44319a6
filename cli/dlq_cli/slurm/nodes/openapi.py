"""Nodes in the JSON of sinfo."""

from __future__ import annotations

from collections.abc import Sequence

from dlq_cli.output.slurm_page import controller_page
from dlq_cli.slurm.nodes.facts import SeenNode
from dlq_common.text.wire import from_timestamp
from dlq_compat.job_page import NULL


def nodes_page(nodes: Sequence[SeenNode], partitions: Sequence[str]) -> dict[str, object]:
    return controller_page(nodes=[node_object(node, partitions) for node in nodes])


def node_object(seen: SeenNode, partitions: Sequence[str]) -> dict[str, object]:
    """All keys of openapi v0.0.38, in its order."""
    node = seen.node
    features = "" if seen.features == NULL else seen.features
    bare = seen.state.rstrip("*")
    return {
        "architecture": "x86_64",
        "burstbuffer_network_address": "",
        "boards": 1,
        "boot_time": 0,
        "comment": "",
        "cores": 1,
        "cpu_binding": 0,
        "cpu_load": None,
        "extra": "",
        "free_memory": None,
        "cpus": seen.cpus,
        "last_busy": int(from_timestamp(node.contact_time)),
        "features": features,
        "active_features": features,
        "gres": "" if seen.gres == NULL else seen.gres,
        "gres_drained": "N/A",
        "gres_used": seen.gres_used,
        "mcs_label": "",
        "name": seen.name,
        "next_state_after_reboot": "invalid",
        "address": node.hostname or seen.name,
        "hostname": node.hostname or seen.name,
        "state": {"drained": "idle", "draining": "mixed", "maint": "idle"}.get(bare, bare),
        "state_flags": seen.flags,
        "next_state_after_reboot_flags": [],
        "operating_system": "Linux",
        "owner": None,
        "partitions": list(partitions),
        "port": 0,
        "real_memory": seen.memory_mib,
        "reason": seen.reason,
        "reason_changed_at": int(seen.reason_s),
        "reason_set_by_user": seen.reason_by or None,
        "slurmd_start_time": 0,
        "sockets": seen.cpus,
        "threads": 1,
        "temporary_disk": 0,
        "weight": 1,
        "tres": seen.tres,
        "slurmd_version": node.agent_version,
        "alloc_memory": seen.memory_given_mib,
        "alloc_cpus": seen.cpus_given,
        "idle_cpus": max(0, seen.cpus - seen.cpus_given),
        "tres_used": seen.tres_used,
        "tres_weighted": float(seen.cpus_given),
    }
