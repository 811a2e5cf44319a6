"""Stays on rented machines, and what they, their machines and late jobs have cost, from one moment
of the database.
"""

from __future__ import annotations

from typing import Final

from sqlite_utils import Database

from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.machines.rented import Machine
from dlq_master.model.usage.accounting import DAY_S
from dlq_master.model.usage.cost import Costs, Stay, costs
from dlq_master.store.tables.codec import decode

STAYS_SQL: Final = """INSERT INTO stays VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (request_id, job_id, attempt) DO UPDATE SET until_s = excluded.until_s"""
_STAYS = """SELECT * FROM stays WHERE until_s IS NULL
    UNION ALL SELECT * FROM stays WHERE until_s IS NOT NULL AND until_s >= :from_s"""
_MACHINES = """SELECT body FROM machines WHERE end_s IS NULL
    UNION ALL SELECT body FROM machines WHERE end_s IS NOT NULL AND end_s >= :from_s"""
# Only jobs that cost something when they are late, or were on a machine.
_JOBS = f"""SELECT body FROM jobs WHERE job_id IN (
    SELECT job_id FROM jobs WHERE end_time_s IS NULL AND instr(body, '"lateness":')
    UNION SELECT job_id FROM jobs WHERE end_time_s >= :from_s AND instr(body, '"lateness":')
    UNION SELECT job_id FROM ({_STAYS}))"""


def read_costs(db: Database, first_day: int, last_day: int, now_s: float) -> Costs:
    """The costs of the days from the first to the last, until now."""
    since = {"from_s": first_day * DAY_S}
    db.execute("BEGIN")
    try:
        stays = [
            Stay(request_id, AttemptKey(JobId(job), number), part, from_s, until_s)
            for request_id, job, number, part, from_s, until_s in db.execute(_STAYS, since)
        ]
        machines = [decode(body, Machine) for (body,) in db.execute(_MACHINES, since)]
        jobs = [decode(body, Job) for (body,) in db.execute(_JOBS, since)]
    finally:
        db.execute("ROLLBACK")
    return costs(machines, stays, jobs, range(first_day, last_day + 1), now_s)
