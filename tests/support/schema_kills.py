"""Kills a start in the middle of the change of its schema, at every statement.

    schema_kills.py DIRECTORY STEPS...

For each number of steps, a database that has taken only so many holds jobs with their specs. A
child of this program opens it as a master does, and kills itself by SIGKILL before the n-th
statement, for every n. After each kill another child starts: all jobs have to be there. Prints one
JSON object. It uses no thread and no gRPC, so that it may fork.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from dlq_master.model.ids import JobId
from dlq_master.store.batch import Batch
from dlq_master.store.rows import write_batch
from dlq_master.store.sqlite import open as opening
from dlq_master.store.sqlite.database import Database, SchemaSteps
from dlq_master.store.sqlite.halves import Reader
from dlq_master.store.sqlite.migrations import TABLES, migrations
from support.stored_values import a_job

JOBS = 12
MOST = 1_000  # statements of one start


def main() -> None:
    """Kill, look, count."""
    root, kills, statements = Path(sys.argv[1]), 0, 0
    for steps in map(int, sys.argv[2:]):
        path = root / f"{steps}.db"
        for number in range(1, MOST):
            for old in root.glob(f"{path.name}*"):
                old.unlink()
            old_database(path, steps)
            killed = is_killed(lambda path=path, number=number: _open(path, number))  # type: ignore[misc]
            if is_killed(lambda path=path: _look(path)):  # type: ignore[misc]
                raise AssertionError(f"after step {steps}, kill {number}: the next start failed")
            kills, statements = kills + killed, max(statements, number)
            if not killed:
                break
    told = {"former_schemas": len(sys.argv) - 2, "kills": kills, "most_statements": statements}
    sys.stdout.write(json.dumps(told))


def old_database(path: Path, steps: int) -> None:
    """As a former version left it, with jobs."""
    former = SchemaSteps("dlq")
    for name in list(migrations._steps)[:steps]:
        former.add(name, *migrations._steps[name])
    with closing(opening.connect(path, mode="rwc")) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA application_id = {opening.APPLICATION_ID}")
        with opening.write(db):
            former.apply(db)
        with opening.write(db):
            numbers = range(1, JOBS + 1)
            jobs = [a_job(number) for number in numbers]
            write_batch(db, Batch(jobs=jobs, specs=[(JobId(one), _spec(one)) for one in numbers]))
        assert len(migrations.pending(db)) == len(migrations._steps) - steps


def _spec(number: int) -> bytes:
    return str(number).encode() * 50


def _open(path: Path, last: int) -> None:
    """Open it, and die before the statement after `last - 1` ones."""
    seen = 0

    def dying(statement: str) -> None:
        nonlocal seen
        seen += 1
        if seen == last:
            os.kill(os.getpid(), signal.SIGKILL)

    connect = opening.connect

    def traced(path: Path, **more: str) -> Database:
        db = connect(path, **more)
        db.set_trace_callback(dying)
        return db

    opening.connect = traced
    opening.open_database(path).close()


def _look(path: Path) -> None:
    """Start again, as the next master does."""
    with closing(opening.open_database(path)) as db:
        assert not migrations.pending(db)
        assert db.table_names() >= TABLES
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    reader = Reader(path)
    jobs = {int(job.job_id): job for job in reader.load().jobs}
    assert jobs == {number: a_job(number) for number in range(1, JOBS + 1)}
    assert all(reader.spec(JobId(number)) == _spec(number) for number in jobs)
    reader.close()


def is_killed(work: Callable[[], None]) -> bool:
    """Run it in a child; whether that was killed. Raises AssertionError when it failed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told to the parent
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the start failed"
    return False


if __name__ == "__main__":
    main()
