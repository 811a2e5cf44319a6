"""The costs of machines and of being late, by job, pool and day, beside the forecast.

A machine is paid from the request until it is gone. It boots, then jobs hold parts of it, and the
rest lies idle. Being late costs a job's weight for each second from its due date until it has
ended, whatever its end. Days are those of UTC; money is in the currency of prices. A forecast
counts on its own day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import floor
from typing import NamedTuple

from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.machines.rented import Machine
from dlq_master.model.usage.accounting import DAY_S, by_day

_HOUR_S = 3600.0


class Stay(NamedTuple):
    """The part of a machine's GPUs (above 0, at most 1) that an attempt had; None: still."""

    request_id: str
    key: AttemptKey
    part: float
    from_s: float
    until_s: float | None = None


class CostAccount(NamedTuple):
    """The account of a cost. `pool`: of its machine, present or planned; "": own nodes."""

    day: int  # since 1970-01-01
    job_id: JobId
    pool: str


class Cost(NamedTuple):
    """Of jobs. `running`: their parts of machines; `late`: the cost of being late; the same as
    forecast, and the forecast cost of being late on the own nodes alone.
    """

    running: float = 0.0
    late: float = 0.0
    foretold_running: float = 0.0
    foretold_late: float = 0.0
    own_late: float = 0.0

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override] # not of a sequence
        return Cost(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Paid(NamedTuple):
    """For machines of a pool: the cost of their boot, of the parts that jobs held, and of the rest.
    The rest includes the billed minimum that was not used. `foretold`: their forecast cost at the
    request.
    """

    boot: float = 0.0
    jobs: float = 0.0
    idle: float = 0.0
    foretold: float = 0.0

    def __add__(self, other: Paid) -> Paid:  # type: ignore[override] # not of a sequence
        return Paid(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def whole(self) -> float:
        return self.boot + self.jobs + self.idle


class Costs(NamedTuple):
    """The costs of some days, and the owners of the jobs."""

    jobs: Mapping[CostAccount, Cost]
    pools: Mapping[tuple[int, str], Paid]
    known: Mapping[JobId, Job]


def costs(
    machines: Iterable[Machine],
    stays: Iterable[Stay],
    jobs: Iterable[Job],
    days: range,
    now_s: float,
) -> Costs:
    """All of these days, until now. `stays` of machines that are not told of count for nothing."""
    by_name = {one.request_id: one for one in machines}
    known = {job.job_id: job for job in jobs}
    of_jobs: dict[CostAccount, Cost] = {}
    of_pools: dict[tuple[int, str], Paid] = {}
    here: dict[str, list[Stay]] = {}
    for stay in stays:
        here.setdefault(stay.request_id, []).append(stay)
    for name, machine in by_name.items():
        for day, paid in _paid(machine, here.get(name, ()), now_s):
            if day in days:
                of_pools[day, machine.pool] = of_pools.get((day, machine.pool), Paid()) + paid
        for stay in here.get(name, ()):
            for day, amount in share(machine, stay, now_s):
                account = CostAccount(day, stay.key.job_id, machine.pool)
                if day in days:
                    of_jobs[account] = of_jobs.get(account, Cost()) + Cost(running=amount)
    for job in known.values():
        for account, cost in lateness(job, now_s, days.start * DAY_S):
            if account.day in days:
                of_jobs[account] = of_jobs.get(account, Cost()) + cost
    return Costs(of_jobs, of_pools, known)


def share(machine: Machine, stay: Stay, now_s: float) -> Iterator[tuple[int, float]]:
    """The cost of a stay, by day: nothing before the machine was up, or after it was gone."""
    if machine.up_s is None:
        return
    gone_s = now_s if machine.end_s is None else machine.end_s
    until_s = now_s if stay.until_s is None else stay.until_s
    rate = machine.price_per_hour / _HOUR_S * stay.part
    for day, span_s in by_day(max(stay.from_s, machine.up_s), min(until_s, gone_s)):
        yield day, span_s * rate


def lateness(job: Job, now_s: float, from_s: float = 0.0) -> Iterator[tuple[CostAccount, Cost]]:
    """The cost of a job's being late by day from this instant on, and the forecast of its costs."""
    told = job.foretold
    pool = "" if told is None else told.pool
    if job.lateness is not None:
        end_s = now_s if job.end_time_s is None else job.end_time_s
        for day, span_s in by_day(max(job.lateness.due_s, from_s), end_s):
            yield CostAccount(day, job.job_id, pool), Cost(late=span_s * job.lateness.weight)
    if told is not None:
        own = told.own_late or 0.0
        late = told.late if told.pool else own
        cost = Cost(foretold_running=told.running, foretold_late=late, own_late=own)
        yield CostAccount(_day(told.at_s), job.job_id, pool), cost


def _paid(machine: Machine, stays: Iterable[Stay], now_s: float) -> Iterator[tuple[int, Paid]]:
    """The cost of a machine by day; in all it is `machine.cost`."""
    rate = machine.price_per_hour / _HOUR_S
    gone_s = now_s if machine.end_s is None else machine.end_s
    up_s = gone_s if machine.up_s is None else machine.up_s
    for day, span_s in by_day(machine.asked_s, up_s):
        yield day, Paid(boot=span_s * rate)
    for day, span_s in by_day(up_s, gone_s):
        yield day, Paid(idle=span_s * rate)
    for stay in stays:
        for day, amount in share(machine, stay, now_s):
            yield day, Paid(jobs=amount, idle=-amount)
    unused_s = machine.minimum_s - (gone_s - machine.asked_s)  # it is billed all the same
    if unused_s > 0.0:
        yield _day(gone_s), Paid(idle=unused_s * rate)
    yield _day(machine.asked_s), Paid(foretold=machine.foretold)


def _day(at_s: float) -> int:
    return floor(at_s / DAY_S)
