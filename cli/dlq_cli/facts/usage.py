"""Usage in hours, and costs in the currency of prices, as plain values."""

from __future__ import annotations

from dlq.v1 import usage_service_pb2 as wire
from dlq_cli.facts.common import Facts, instant
from dlq_common.text.units import HOUR

SPENT = ("useful", "preempted", "failed", "transit")
GROUPS = {"day": "day", "user": "user", "team": "team", "class": "use_class", "pool": "pool"}
COST_GROUPS = {"job": "job_id", "user": "user", "team": "team", "day": "day", "pool": "pool"}


def held_s(usage: wire.Usage) -> float:
    """All GPU-seconds of a group."""
    return sum(float(getattr(usage, f"{name}_gpu_seconds")) for name in SPENT)


def usage_facts(usage: wire.Usage, by: tuple[str, ...]) -> Facts:
    """One group; hours."""
    group: Facts = {word: getattr(usage, GROUPS[word]) or None for word in by}
    spent: Facts = {
        f"{name}_gpu_hours": hours(getattr(usage, f"{name}_gpu_seconds")) for name in SPENT
    }
    # A master of a former release tells none, and all its GPUs count alike.
    normalised: Facts = {
        "normalised_gpu_hours": hours(usage.normalised_gpu_seconds or held_s(usage))
    }
    idle: Facts = {"held_idle_gpu_hours": hours(usage.idle_gpu_seconds)}
    return {**group, "gpu_hours": hours(held_s(usage)), **spent, **normalised, **idle}


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


def cost_facts(one: wire.Cost, by: tuple[str, ...]) -> Facts:
    """One group of jobs."""
    group: Facts = {word: getattr(one, COST_GROUPS[word]) or _nothing(word) for word in by}
    named: Facts = {"name": one.name or None} if "job" in by else {}
    return {
        **group,
        **named,
        "cost": money(one.running_cost),
        "late_cost": money(one.lateness_cost),
        "foretold_cost": money(one.foretold_running_cost),
        "foretold_late_cost": money(one.foretold_lateness_cost),
        "own_late_cost": money(one.own_lateness_cost),
    }


def pool_cost_facts(one: wire.PoolCost, by: tuple[str, ...]) -> Facts:
    """The costs of a pool's machines."""
    day: Facts = {"day": one.day} if "day" in by else {}
    return {
        **day,
        "pool": one.pool,
        "paid": money(one.boot_cost + one.job_cost + one.idle_cost),
        "jobs": money(one.job_cost),
        "boot": money(one.boot_cost),
        "idle": money(one.idle_cost),
        "foretold": money(one.foretold_cost),
    }


def costs_facts(answer: wire.GetCostsResponse, by: tuple[str, ...]) -> Facts:
    """The whole answer of GetCosts."""
    return {
        "from_time": instant(answer.from_time),
        "until_time": instant(answer.until_time),
        "costs": [cost_facts(one, by) for one in answer.costs],
        "pools": [pool_cost_facts(one, by) for one in answer.pools],
    }


def money(amount: float) -> float:
    """An amount, rounded to a hundredth of a cent."""
    return round(amount, 4)


def _nothing(word: str) -> str | None:
    return "own" if word == "pool" else None
