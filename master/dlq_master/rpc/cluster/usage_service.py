"""The usage of GPUs by user, purpose and owner of the node; and the costs of rented machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dlq.v1 import usage_service_pb2 as wire
from dlq_common.text.wire import to_timestamp
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli.caller import Caller
from dlq_master.model.usage.accounting import DAY_S, Account, Level, Used
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.specs.intake import words_of
from dlq_master.rpc.views.usage_view import (
    COST_GROUPS,
    by_pool,
    day_words,
    days_of,
    groups_of,
    of_jobs,
    of_pools,
)

Group = tuple[str, ...]
_BY: Mapping[str, Callable[[Account], str]] = {
    "day": lambda account: day_words(account.day),
    "user": lambda account: account.user,
    "team": lambda account: account.team,
    "class": lambda account: account.use_class.value,
    "pool": lambda account: account.pool,
}


async def get_usage(call: Call, request: wire.GetUsageRequest) -> wire.GetUsageResponse:
    caller, read, now_s = call.caller, call.read, call.now_s
    by = groups_of(request.by, _BY)
    user, team = words_of(request.user, "user"), words_of(request.team, "team")
    first, last = days_of(request, now_s)
    books = await read.books(first, last, now_s)
    mine = _teams(read, caller)
    seen = {
        account: spent
        for account, spent in books.uses.items()
        if _may_see(caller, account, mine)
        and user in ("", account.user)
        and team in ("", account.team)
    }
    of_all = caller.sees_all and not user and not team
    return wire.GetUsageResponse(
        usages=_usages(seen, by),
        from_time=to_timestamp(max(first * DAY_S, books.from_s)),
        until_time=to_timestamp(min((last + 1) * DAY_S, now_s)),
        pools=_pools(books.pools, by_day="day" in by) if of_all else (),
    )


async def get_costs(call: Call, request: wire.GetCostsRequest) -> wire.GetCostsResponse:
    caller, read, now_s = call.caller, call.read, call.now_s
    by = groups_of(request.by, COST_GROUPS)
    user, team = words_of(request.user, "user"), words_of(request.team, "team")
    first, last = days_of(request, now_s)
    costs = await read.costs(first, last, now_s)
    of_all = caller.sees_all and not user and not team
    return wire.GetCostsResponse(
        costs=of_jobs(costs, caller, _teams(read, caller), by, user, team),
        from_time=to_timestamp(first * DAY_S),
        until_time=to_timestamp(min((last + 1) * DAY_S, now_s)),
        pools=of_pools(costs.pools, by_day="day" in by) if of_all else (),
    )


# --- helpers, in order of use ---------------------------------------------------------------------


def _teams(read: Published, caller: Caller) -> set[str]:
    """The teams whose usage the caller may see. A guest sees no other guest's."""
    if caller.is_guest:
        return set()
    return {
        team.name
        for team in read.teams()
        if team.member(caller.name) is not None or caller.is_given(team.name)
    }


def _may_see(caller: Caller, account: Account, teams: set[str]) -> bool:
    mine = account.user == caller.name and account.day * DAY_S >= caller.since_s - DAY_S
    return caller.sees_all or mine or account.team in teams


def _usages(uses: Mapping[Account, Used], by: Sequence[str]) -> list[wire.Usage]:
    groups: dict[Group, Used] = {}
    for account, spent in uses.items():
        group = tuple(_BY[word](account) for word in by)
        groups[group] = groups.get(group, Used()) + spent
    return [_usage(dict(zip(by, group, strict=True)), groups[group]) for group in sorted(groups)]


def _usage(group: Mapping[str, str], spent: Used) -> wire.Usage:
    return wire.Usage(
        day=group.get("day", ""),
        user=group.get("user", ""),
        team=group.get("team", ""),
        use_class=group.get("class", ""),
        pool=group.get("pool", ""),
        useful_gpu_seconds=spent.useful,
        preempted_gpu_seconds=spent.preempted,
        failed_gpu_seconds=spent.failed,
        transit_gpu_seconds=spent.transit,
        normalised_gpu_seconds=spent.normalised,
        idle_gpu_seconds=spent.idle,
    )


def _pools(pools: Mapping[tuple[int, str], Level], *, by_day: bool) -> list[wire.PoolUsage]:
    return [
        wire.PoolUsage(
            day=day,
            pool=pool,
            used_gpu_seconds=level.used,
            idle_gpu_seconds=level.idle,
            withheld_gpu_seconds=level.withheld,
        )
        for day, pool, level in by_pool(pools, Level(), by_day=by_day)
        if level.capacity
    ]
