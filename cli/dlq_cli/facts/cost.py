"""Costs as plain values, in the currency of prices."""

from __future__ import annotations

from dlq.v1 import usage_service_pb2 as wire
from dlq_cli.facts.common import Facts, instant

GROUPS = {"job": "job_id", "user": "user", "team": "team", "day": "day", "pool": "pool"}


def cost_facts(one: wire.Cost, by: tuple[str, ...]) -> Facts:
    """One group of jobs."""
    group: Facts = {word: getattr(one, GROUPS[word]) or _nothing(word) for word in by}
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
