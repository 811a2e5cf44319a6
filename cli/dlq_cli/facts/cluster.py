"""Nodes, queues, events, tokens and users as plain values."""

from __future__ import annotations

from dlq.v1 import admin_service_pb2, event_pb2, node_pb2, queue_pb2, queue_service_pb2
from dlq_cli.facts.common import Facts, instant
from dlq_cli.words import NODE_STATES


def node_facts(node: node_pb2.Node) -> Facts:
    """One machine."""
    return {
        "node_id": node.node_id,
        "hostname": node.hostname or None,
        "state": NODE_STATES.get(node.state),
        "flags": list(node.flags),
        "flag_reason": node.flag_reason or None,
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "gpu_type": gpu.gpu_type,
                "memory_bytes": gpu.memory_bytes,
            }
            for gpu in node.gpus
        ],
        "free_gpu_count": node.free_gpu_count,
        "pool": node.pool or "training",
        "labels": dict(sorted(node.labels.items())),
        "virtual_devices": node.virtual_devices,
        "root_jobs": node.root_jobs,
        "cpu_count": node.cpu_count,
        "memory_bytes": node.memory_bytes,
        "attempts": list(node.attempts),
        "contact_time": instant(node.contact_time) if node.HasField("contact_time") else None,
        "withheld_gpu_indexes": list(node.withheld_gpu_indexes),
        "withheld_reason": node.withheld_reason or None,
        "reasons": [
            {
                "kind": one.kind,
                "words": one.words or None,
                "actor": one.actor or None,
                "since_time": instant(one.since_time) if one.HasField("since_time") else None,
            }
            for one in node.reasons
        ],
        "maintenance_end_time": (
            instant(node.maintenance_end_time) if node.HasField("maintenance_end_time") else None
        ),
        "boot_id": node.boot_id or None,
        "agent_version": node.agent_version or None,
        "version": node.version,
    }


def queue_facts(queue: queue_pb2.Queue) -> Facts:
    """One queue and its levels."""
    return {
        "name": queue.name,
        "priority": queue.priority,
        "policy": queue.policy,
        "is_default": queue.is_default,
        "levels": [
            {
                "level": level.level,
                "threshold_gpu_seconds": (
                    level.threshold_gpu_seconds if level.HasField("threshold_gpu_seconds") else None
                ),
                "waiting_job_count": level.waiting_job_count,
                "running_job_count": level.running_job_count,
            }
            for level in queue.levels
        ],
        "running_gpu_count": queue.running_gpu_count,
        "waiting_gpu_count": queue.waiting_gpu_count,
        "held_job_count": queue.held_job_count,
    }


def cluster_facts(cluster: queue_service_pb2.GetClusterResponse) -> Facts:
    """The cluster as a whole, and the caller's identity as the master sees it."""
    return {
        "cluster_name": cluster.cluster_name,
        "master_version": cluster.master_version,
        "epoch": cluster.epoch,
        "caller": cluster.caller,
        "role": cluster.role,
        "policy": cluster.policy,
        "gpu_count": cluster.gpu_count,
        "free_gpu_count": cluster.free_gpu_count,
        "master_time": instant(cluster.master_time) if cluster.HasField("master_time") else None,
        "freeze_reason": cluster.freeze_reason or None,
    }


def event_facts(event: event_pb2.Event) -> Facts:
    """One entry of the journal."""
    return {
        "sequence": event.sequence,
        "event_time": instant(event.event_time) if event.HasField("event_time") else None,
        "kind": event.kind,
        "job_id": event.job_id or None,
        "attempt": event.attempt or None,
        "node_id": event.node_id or None,
        "cause": event.cause or None,
        "actor": event.actor or None,
        "data": dict(sorted(event.data.items())),
    }


def token_facts(token: admin_service_pb2.JoinToken) -> Facts:
    """A join token without its secret."""
    return {
        "token_id": token.token_id,
        "node_id": token.node_id or None,
        "create_time": instant(token.create_time) if token.HasField("create_time") else None,
        "expire_time": instant(token.expire_time) if token.HasField("expire_time") else None,
        "created_by": token.created_by or None,
    }


def user_facts(user: admin_service_pb2.User) -> Facts:
    """A user of the cluster."""
    return {
        "name": user.name,
        "role": user.role,
        "uid": user.uid,
        "gid": user.gid,
        "groups": list(user.groups),
        "create_time": instant(user.create_time) if user.HasField("create_time") else None,
    }
