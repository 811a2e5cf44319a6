"""Usage as plain values."""

from __future__ import annotations

from dlq.v1 import usage_service_pb2 as wire
from dlq_cli.facts.common import Facts, instant
from dlq_common.text.units import HOUR

SPENT = ("useful", "preempted", "failed", "transit")
GROUPS = {"day": "day", "user": "user", "team": "team", "class": "use_class", "pool": "pool"}


def held_s(usage: wire.Usage) -> float:
    """All GPU-seconds of a group."""
    return sum(float(getattr(usage, f"{name}_gpu_seconds")) for name in SPENT)


def usage_facts(usage: wire.Usage, by: tuple[str, ...]) -> Facts:
    """One group; hours."""
    group: Facts = {word: getattr(usage, GROUPS[word]) or None for word in by}
    spent: Facts = {
        f"{name}_gpu_hours": hours(getattr(usage, f"{name}_gpu_seconds")) for name in SPENT
    }
    return {**group, "gpu_hours": hours(held_s(usage)), **spent}


def pool_facts(pool: wire.PoolUsage, by: tuple[str, ...]) -> Facts:
    """Use of a pool's GPUs, in hours."""
    capacity_s = pool.used_gpu_seconds + pool.idle_gpu_seconds + pool.withheld_gpu_seconds
    day: Facts = {"day": pool.day} if "day" in by else {}
    return {
        **day,
        "pool": pool.pool,
        "capacity_gpu_hours": hours(capacity_s),
        "used_gpu_hours": hours(pool.used_gpu_seconds),
        "idle_gpu_hours": hours(pool.idle_gpu_seconds),
        "withheld_gpu_hours": hours(pool.withheld_gpu_seconds),
    }


def report_facts(answer: wire.GetUsageResponse, by: tuple[str, ...]) -> Facts:
    """The whole answer of GetUsage."""
    return {
        "from_time": instant(answer.from_time),
        "until_time": instant(answer.until_time),
        "usages": [usage_facts(one, by) for one in answer.usages],
        "pools": [pool_facts(one, by) for one in answer.pools],
    }


def hours(seconds: float) -> float:
    """GPU-hours, to about the second."""
    return round(seconds / HOUR, 4)
