"""GPU-seconds and costs by day: of whom and for what, and of each pool. Rows are added to.

Living attempts are not in them. They are counted from the stored attempts, in the same reading
transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.machines.rented import Machine
from dlq_master.model.nodes.node import Node
from dlq_master.model.usage.accounting import (
    DAY_S,
    Account,
    Level,
    UseClass,
    Used,
    by_day,
    charges,
    summed,
)
from dlq_master.model.usage.cost import Costs, Stay, costs
from dlq_master.store.port import StoreLine
from dlq_master.store.tables.codec import decode

LEVELS: Final = "gpu_levels"  # key of meta: how many GPUs are held, free, neither, and since when


class UseRow(NamedTuple):
    """GPU-seconds to add to an account."""

    account: Account
    spent: Used


class PoolRow(NamedTuple):
    """GPU-seconds to add to a day of a pool."""

    day: int
    pool: str
    level: Level


class Levels(NamedTuple):
    """GPUs of each pool, as they are since an instant. `from_s`: since when all this is counted."""

    from_s: float
    pools: Mapping[str, tuple[float, Level]]

    def written(self) -> str:
        pools = {name: [since_s, *level] for name, (since_s, level) in sorted(self.pools.items())}
        return json.dumps({"from_s": self.from_s, "pools": pools}, separators=(",", ":"))

    def rows(self, until_s: float) -> Iterator[PoolRow]:
        """Add the time since then."""
        for pool, (since_s, level) in self.pools.items():
            for day, span_s in by_day(since_s, until_s):
                yield PoolRow(day, pool, level.over(span_s))


def read_levels(text: str | None) -> Levels | None:
    """The output of `Levels.written`; None: nothing has been counted yet."""
    if text is None:
        return None
    told = json.loads(text)
    pools = {name: (since_s, Level(*gpus)) for name, (since_s, *gpus) in told["pools"].items()}
    return Levels(told["from_s"], pools)


class Books(NamedTuple):
    """The usage of some days, until now. `from_s`: nothing is known of before."""

    from_s: float
    uses: Mapping[Account, Used]
    pools: Mapping[tuple[int, str], Level]


def books(
    stored: tuple[Iterable[UseRow], Iterable[PoolRow], str | None],
    living: Iterable[tuple[Attempt, Job]],
    nodes: Iterable[Node],
    first_day: int,
    last_day: int,
    now_s: float,
) -> Books:
    """Stored rows plus the living attempts, and the levels that hold now."""
    uses, pool_rows, text = stored
    levels = read_levels(text)
    if levels is None:
        return Books(now_s, {}, {})
    pools = {node.node_id: node.pool.value for node in nodes}
    since = (
        row for attempt, job in living for row in charges(attempt, job, now_s, pools, levels.from_s)
    )
    days = range(first_day, last_day + 1)
    found: dict[tuple[int, str], Level] = {}
    for day, pool, level in (*pool_rows, *levels.rows(now_s)):
        if day in days:
            found[day, pool] = found.get((day, pool), Level()) + level
    rows = (row for row in (*uses, *since) if row[0].day in days)
    return Books(levels.from_s, summed(rows), found)


def read_books(db: StoreLine, first_day: int, last_day: int, now_s: float) -> Books:
    """From one moment of the database."""
    with db.snapshot():
        days = [first_day, last_day]
        stored = (
            [*_uses(db, days)],
            [
                PoolRow(day, pool, Level(*seconds))
                for day, pool, *seconds in db.execute(
                    "SELECT * FROM pool_days WHERE day BETWEEN ? AND ?", days
                )
            ],
            _levels_text(db),
        )
        living = [
            (decode(attempt, Attempt), decode(job, Job))
            for attempt, job in db.execute(
                "SELECT attempts.body, jobs.body FROM attempts JOIN jobs USING (job_id)"
                " WHERE attempts.ended_time_s IS NULL"
            )
        ]
        nodes = [decode(body, Node) for (body,) in db.execute("SELECT body FROM nodes")]
    return books(stored, living, nodes, first_day, last_day, now_s)


def _uses(db: StoreLine, days: list[int]) -> Iterator[UseRow]:
    for day, user, team, kind, pool, *seconds in db.execute(
        "SELECT * FROM usage_days WHERE day BETWEEN ? AND ?", days
    ):
        account = Account(day, user, team, UseClass(kind), pool)
        yield UseRow(account, Used(*seconds)._replace(normalised=sum(seconds)))
    for day, user, team, kind, pool, beyond_s in db.execute(
        "SELECT * FROM speed_days WHERE day BETWEEN ? AND ?", days
    ):
        yield UseRow(Account(day, user, team, UseClass(kind), pool), Used(normalised=beyond_s))
    for day, user, team, kind, pool, idle_s in db.execute(
        "SELECT * FROM idle_days WHERE day BETWEEN ? AND ?", days
    ):
        yield UseRow(Account(day, user, team, UseClass(kind), pool), Used(idle=idle_s))


def _levels_text(db: StoreLine) -> str | None:
    row = db.execute("SELECT value FROM meta WHERE key = ?", [LEVELS]).fetchone()
    return None if row is None else str(row[0])


USES_SQL: Final = """INSERT INTO usage_days VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (day, user, team, class, pool) DO UPDATE SET
    useful_gpu_s = usage_days.useful_gpu_s + excluded.useful_gpu_s,
    preempted_gpu_s = usage_days.preempted_gpu_s + excluded.preempted_gpu_s,
    failed_gpu_s = usage_days.failed_gpu_s + excluded.failed_gpu_s,
    transit_gpu_s = usage_days.transit_gpu_s + excluded.transit_gpu_s"""
# Less than a millionth of a second is rounding.
SPEEDS_SQL: Final = """INSERT INTO speed_days SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE abs(?6) > 1e-6
    ON CONFLICT (day, user, team, class, pool) DO UPDATE SET
    beyond_gpu_s = speed_days.beyond_gpu_s + excluded.beyond_gpu_s"""
IDLE_SQL: Final = """INSERT INTO idle_days VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (day, user, team, class, pool) DO UPDATE SET
    idle_gpu_s = idle_days.idle_gpu_s + excluded.idle_gpu_s"""
POOLS_SQL: Final = """INSERT INTO pool_days VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (day, pool) DO UPDATE SET used_gpu_s = pool_days.used_gpu_s + excluded.used_gpu_s,
    idle_gpu_s = pool_days.idle_gpu_s + excluded.idle_gpu_s,
    withheld_gpu_s = pool_days.withheld_gpu_s + excluded.withheld_gpu_s"""


STAYS_SQL: Final = """INSERT INTO stays VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (request_id, job_id, attempt) DO UPDATE SET until_s = excluded.until_s"""
_STAYS = """SELECT * FROM stays WHERE until_s IS NULL
    UNION ALL SELECT * FROM stays WHERE until_s IS NOT NULL AND until_s >= :from_s"""
_MACHINES = """SELECT body FROM machines WHERE end_s IS NULL
    UNION ALL SELECT body FROM machines WHERE end_s IS NOT NULL AND end_s >= :from_s"""
# Only jobs that cost something when they are late, or were on a machine.
_JOBS = f"""SELECT body FROM jobs WHERE job_id IN (
    SELECT job_id FROM jobs WHERE end_time_s IS NULL AND instr(body, '"lateness":') > 0
    UNION SELECT job_id FROM jobs WHERE end_time_s >= :from_s AND instr(body, '"lateness":') > 0
    UNION SELECT job_id FROM ({_STAYS}) AS stayed)"""


def read_costs(db: StoreLine, first_day: int, last_day: int, now_s: float) -> Costs:
    """The costs of the days from the first to the last, until now."""
    since = {"from_s": first_day * DAY_S}
    with db.snapshot():
        stays = [
            Stay(request_id, AttemptKey(JobId(job), number), part, from_s, until_s)
            for request_id, job, number, part, from_s, until_s in db.execute(_STAYS, since)
        ]
        machines = [decode(body, Machine) for (body,) in db.execute(_MACHINES, since)]
        jobs = [decode(body, Job) for (body,) in db.execute(_JOBS, since)]
    return costs(machines, stays, jobs, range(first_day, last_day + 1), now_s)
