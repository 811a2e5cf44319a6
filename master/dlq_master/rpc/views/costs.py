"""The costs of rented machines and of being late, by reader and group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from dlq.v1 import usage_service_pb2 as wire
from dlq_master.control.stimuli.caller import Caller
from dlq_master.model.jobs.job import Job
from dlq_master.model.usage.cost import Cost, CostAccount, Costs, Paid
from dlq_master.rpc.views.days import by_pool, day_words

Key = tuple[tuple[int, str], ...]  # sorts job ids as numbers, and all else as words
_Entry = tuple[CostAccount, Job]
_BY: Mapping[str, Callable[[_Entry], tuple[int, str]]] = {
    "job": lambda entry: (entry[0].job_id, str(entry[0].job_id)),
    "user": lambda entry: (0, entry[1].user),
    "team": lambda entry: (0, entry[1].team),
    "day": lambda entry: (entry[0].day, day_words(entry[0].day)),
    "pool": lambda entry: (0, entry[0].pool),
}
COST_GROUPS: Collection[str] = _BY.keys()


def of_jobs(
    told: Costs, caller: Caller, teams: set[str], by: Sequence[str], user: str, team: str
) -> list[wire.Cost]:
    """The groups of what the caller may see of this user and team ("": of all); none that cost
    nothing.
    """
    groups: dict[Key, Cost] = {}
    names: dict[Key, str] = {}
    for account, cost in told.jobs.items():
        job = told.known.get(account.job_id)
        if job is None or not any(cost) or not _may_see(caller, job, teams):
            continue
        if user not in ("", job.user) or team not in ("", job.team):
            continue
        key = tuple(_BY[word]((account, job)) for word in by)
        groups[key] = groups.get(key, Cost()) + cost
        names[key] = job.name if "job" in by else ""
    return [
        _cost(dict(zip(by, key, strict=True)), names[key], groups[key]) for key in sorted(groups)
    ]


def of_pools(pools: Mapping[tuple[int, str], Paid], *, by_day: bool) -> list[wire.PoolCost]:
    """The costs of the machines of each pool, in all or day by day."""
    return [
        wire.PoolCost(
            day=day,
            pool=pool,
            boot_cost=paid.boot,
            job_cost=paid.jobs,
            idle_cost=max(0.0, paid.idle),  # what was subtracted may leave a rounding error
            foretold_cost=paid.foretold,
        )
        for day, pool, paid in by_pool(pools, Paid(), by_day=by_day)
        if paid.whole or paid.foretold
    ]


# --- helpers, in order of use ---------------------------------------------------------------------


def _may_see(caller: Caller, job: Job, teams: set[str]) -> bool:
    return caller.may_see(job) or job.team in teams


def _cost(group: Mapping[str, tuple[int, str]], name: str, cost: Cost) -> wire.Cost:
    words = {word: text for word, (_, text) in group.items()}
    return wire.Cost(
        day=words.get("day", ""),
        job_id=words.get("job", ""),
        name=name,
        user=words.get("user", ""),
        team=words.get("team", ""),
        pool=words.get("pool", ""),
        running_cost=cost.running,
        lateness_cost=cost.late,
        foretold_running_cost=cost.foretold_running,
        foretold_lateness_cost=cost.foretold_late,
        own_lateness_cost=cost.own_late,
    )
