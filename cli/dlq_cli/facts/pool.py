"""Priced pools as JSON."""

from __future__ import annotations

from dlq.v1 import pool_service_pb2 as wire
from dlq_cli.facts.common import Facts, instant, seconds


def pools_facts(told: wire.ListPoolsResponse) -> Facts:
    """The whole answer of ListPools."""
    return {
        "pools": [pool_facts(pool) for pool in told.pools],
        "cost_per_hour": told.cost_per_hour,
        "most_per_hour": told.most_per_hour if told.HasField("most_per_hour") else None,
        "day_cost": told.day_cost,
        "most_per_day": told.most_per_day if told.HasField("most_per_day") else None,
    }


def pool_facts(pool: wire.Pool) -> Facts:
    """A pool with its machines."""
    until = pool.HasField("available_until_time")
    return {
        "name": pool.name,
        "provider": pool.provider,
        "gpu_type": pool.gpu_type,
        "gpu_count": pool.gpu_count,
        "price_per_hour": pool.price_per_hour,
        "boot_seconds": seconds(pool.boot_duration),
        "minimum_billing_seconds": seconds(pool.minimum_billing_duration),
        "most_count": pool.most_count,
        "available_until_time": instant(pool.available_until_time) if until else None,
        "closed_reason": pool.closed_reason or None,
        "machines": [machine_facts(one) for one in pool.machines],
    }


def machine_facts(one: wire.Machine) -> Facts:
    """A machine that is, or was, rented."""
    return {
        "machine_id": one.request_id,
        "pool": one.pool,
        "node_id": one.node_id,
        "instance_id": one.instance_id or None,
        "state": one.state,
        "since_time": instant(one.since_time),
        "ask_time": instant(one.ask_time),
        "end_time": instant(one.end_time) if one.HasField("end_time") else None,
        "fault": one.fault or None,
        "cost": round(one.cost, 6),
        "attempts": list(one.attempts),
        "job_ids": list(one.job_ids),
    }
