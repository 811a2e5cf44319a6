"""Kills a start in the middle of the change of PostgreSQL's schema, at every statement.

    postgres_schema_kills.py CONNINFO

For each former number of steps, a database that has taken only so many holds jobs with their specs.
A child of this program opens it as a master does, and kills itself by SIGKILL before the n-th
statement, for every n. After each kill another child starts: the steps have to be taken, and all
jobs there. Prints one JSON object. No line is open while it forks.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

import psycopg

from dlq_master.model.ids import JobId
from dlq_master.store.batch import Batch
from dlq_master.store.postgres import schema
from dlq_master.store.postgres.halves import ROWS_HERE
from dlq_master.store.postgres.line import WRITER, PostgresLine, PostgresPlace
from dlq_master.store.reader import StoreReader
from dlq_master.store.rows import write_batch
from support.schema_kills import is_killed as is_killed_in
from support.stored_values import a_job

JOBS: Final = 12
MOST: Final = 200  # statements of one start
NEXT: Final = "0003_next"
"""A step that is not there yet: the last former schema is the present one."""


def main() -> None:
    """Kill, look, count."""
    place = PostgresPlace(sys.argv[1])
    kills, most = 0, 0
    former = list(schema.STEPS)
    for taken in range(1, len(former) + 1):
        for number in range(1, MOST):
            old_database(place, former[:taken])
            killed = is_killed(place, "open", number)
            if is_killed(place, "look", 0):
                raise AssertionError(f"after {taken} steps, kill {number}: the next start failed")
            kills, most = kills + killed, max(most, number)
            if not killed:
                break
    told = {"former_schemas": len(former), "kills": kills, "most_statements": most}
    sys.stdout.write(json.dumps(told))


def steps() -> Mapping[str, tuple[str, ...]]:
    """All steps, and one that makes a table, fills it and changes another one."""
    return {
        **schema.STEPS,
        NEXT: (
            "CREATE TABLE later (job_id bigint PRIMARY KEY)",
            "INSERT INTO later SELECT job_id FROM jobs",
            "ALTER TABLE jobs ADD COLUMN later_s double precision",
        ),
    }


def old_database(place: PostgresPlace, names: list[str]) -> None:
    """As a former version left it, with jobs."""
    with psycopg.connect(place.conninfo(), autocommit=True) as line:
        line.execute("DROP SCHEMA public CASCADE")
        line.execute("CREATE SCHEMA public")
    before = schema.STEPS
    schema.STEPS = {name: before[name] for name in names}  # type: ignore[misc]
    try:
        with closing(PostgresLine(place, WRITER)) as line:
            schema.apply_steps(line)
            numbers = range(1, JOBS + 1)
            jobs = [a_job(number) for number in numbers]
            line.own("BEGIN")
            batch = Batch(jobs=jobs, specs=[(JobId(one), _spec(one)) for one in numbers])
            write_batch(line, batch, ROWS_HERE)
            line.own("COMMIT")
    finally:
        schema.STEPS = before  # type: ignore[misc]


def child(place: PostgresPlace, what: str, last: int) -> None:
    """Take the steps and die before the statement after `last - 1` ones; or start and look."""
    schema.STEPS = steps()  # type: ignore[misc]
    if what == "open":
        with closing(_Dying(place, last)) as line:
            schema.apply_steps(line)
        return
    with closing(PostgresLine(place, WRITER)) as line:
        schema.apply_steps(line)
        assert [name for (name,) in line.own("SELECT name FROM schema_steps ORDER BY 1")] == [
            *steps()
        ]
        assert line.own("SELECT count(*) FROM later").fetchone() == (JOBS,)
        line.own("ALTER TABLE jobs DROP COLUMN later_s")  # the readers know no such column
        reader = StoreReader(line, line)
        jobs = {int(job.job_id): job for job in reader.load().jobs}
        assert jobs == {number: a_job(number) for number in range(1, JOBS + 1)}
        assert all(reader.spec(JobId(number)) == _spec(number) for number in jobs)


class _Dying(PostgresLine):
    """Kills its process before a statement."""

    def __init__(self, place: PostgresPlace, last: int) -> None:
        super().__init__(place, WRITER)
        self._left = last

    def own(self, sql: Any, values: Any = ()) -> Any:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().own(sql, values)


def is_killed(place: PostgresPlace, what: str, last: int) -> bool:
    """Run a child; whether it was killed. Raises AssertionError when it failed."""
    return is_killed_in(lambda: child(place, what, last))


def _spec(number: int) -> bytes:
    return str(number).encode() * 50


if __name__ == "__main__":
    main()
