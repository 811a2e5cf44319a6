"""Usage and costs as messages: spans of days, and the costs of rented machines and of lateness."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import floor
from typing import Protocol, Self, TypeVar

from dlq.v1 import usage_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import said
from dlq_master.control.stimuli.caller import Caller
from dlq_master.model.jobs.job import Job
from dlq_master.model.usage.accounting import DAY_S
from dlq_master.model.usage.cost import Cost, CostAccount, Costs, Paid

MOST_DAYS = 3660


class _Adds(Protocol):
    def __add__(self, other: Self, /) -> Self: ...


V = TypeVar("V", bound=_Adds)


def day_words(day: int) -> str:
    """A day of UTC, such as 2026-11-22."""
    return datetime.fromtimestamp(day * DAY_S, UTC).strftime("%Y-%m-%d")


def days_of(request: wire.GetUsageRequest | wire.GetCostsRequest, now_s: float) -> tuple[int, int]:
    """The first and the last requested day. InvalidRequest: one is malformed or in the future."""
    from_s, until_s = said(request, "from_time"), said(request, "until_time")
    last = floor(min(now_s if until_s is None else until_s, now_s) / DAY_S)
    first = floor((now_s if from_s is None else from_s) / DAY_S)
    if first > last:
        raise InvalidRequest("it ends before it begins, or begins in the future", field="from_time")
    if last - first >= MOST_DAYS:
        first = last - MOST_DAYS + 1
    return first, last


def by_pool(
    told: Mapping[tuple[int, str], V], none: V, *, by_day: bool
) -> list[tuple[str, str, V]]:
    """Day in words ("": all days), pool, and their sum, in rising order. `none`: the sum of
    nothing.
    """
    found: dict[tuple[str, str], V] = {}
    for (day, pool), one in told.items():
        key = day_words(day) if by_day else "", pool
        found[key] = found.get(key, none) + one
    return [(*key, found[key]) for key in sorted(found)]


def groups_of(told: Iterable[str], known: Collection[str]) -> Sequence[str]:
    """The keys of the groups, each once. InvalidRequest: an unknown word."""
    by = list(dict.fromkeys(told))
    unknown = [word for word in by if word not in known]
    if unknown:
        words = ", ".join(known)
        raise InvalidRequest(f"no groups are made by {unknown[0][:64]!r}", field="by", hint=words)
    return by


# --- costs ----------------------------------------------------------------------------------------

Key = tuple[tuple[int, str], ...]  # sorts job ids as numbers, and other keys as words
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
    """The groups that the caller may see, of this user and team ("": all), without those that cost
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
    """The costs of each pool's machines, in all or day by day."""
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
