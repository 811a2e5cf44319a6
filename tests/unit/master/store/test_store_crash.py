"""A crash at any statement, or at any moment, leaves all of a batch or nothing of it."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlq_master.store.batch import Batch, Loaded
from dlq_master.store.rows import prune_journal, write_batch
from dlq_master.store.sqlite.database import Database
from dlq_master.store.sqlite.halves import Reader
from dlq_master.store.sqlite.open import connect, create_database, open_database, write
from support.stored_values import first_batch, mixed_batch

KILLS = 6


class Crash(BaseException):
    """The process is gone, as far as the database can tell."""


@contextmanager
def _traced(db: Database, tracer: Callable[[str], None]) -> Iterator[None]:
    """Each statement is told to `tracer` before it is carried out."""

    def telling(run: Callable[..., sqlite3.Cursor]) -> Callable[..., sqlite3.Cursor]:
        def tell(sql: str, *parameters: object) -> sqlite3.Cursor:
            tracer(sql)
            return run(sql, *parameters)

        return tell

    own = {"execute": telling(db.execute), "executemany": telling(db.executemany)}
    vars(db).update(own)
    try:
        yield
    finally:
        for name in own:
            del vars(db)[name]


def _contents(path: Path) -> list[str]:
    """Every row of every table, journal and outbox included."""
    db = connect(path)
    dump = list(db.iterdump())
    db.close()
    return dump


def _open_with(path: Path, batch: Batch) -> Database:
    create_database(path)
    db = open_database(path)
    with write(db):
        write_batch(db, batch)
    return db


def test_a_crash_at_every_statement_of_a_batch_leaves_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "dlq.db"
    db = _open_with(path, first_batch())
    before = _contents(path)

    statements = _count_statements(tmp_path)
    assert statements == 34  # BEGIN, one for each kind of change, COMMIT
    for last in range(1, statements):
        seen = 0

        def crash(sql: str, last: int = last) -> None:
            nonlocal seen
            seen += 1
            if seen > last:
                raise Crash(sql)

        with pytest.raises(Crash), _traced(db, crash), write(db):
            write_batch(db, mixed_batch())
        assert _contents(path) == before, f"after {last} statements"
    with write(db):
        write_batch(db, mixed_batch())
    assert _contents(path) != before
    db.close()


def test_a_crash_within_a_slice_of_retention_leaves_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "dlq.db"
    db = _open_with(path, first_batch())
    before = _contents(path)
    statements = 4  # BEGIN, the events, the horizon, COMMIT
    for last in range(statements):
        seen = 0

        def crash(sql: str, last: int = last) -> None:
            nonlocal seen
            seen += 1
            if seen > last:
                raise Crash(sql)

        with pytest.raises(Crash), _traced(db, crash), write(db):
            prune_journal(db, [1, 2], 2)
        assert _contents(path) == before, f"after {last} statements"
    with write(db):
        prune_journal(db, [1, 2], 2)
    assert _contents(path) != before
    db.close()


def _count_statements(tmp_path: Path) -> int:
    db = _open_with(tmp_path / "count.db", first_batch())
    statements: list[str] = []
    with _traced(db, statements.append), write(db):
        write_batch(db, mixed_batch())
    db.close()
    assert statements[0] == "BEGIN IMMEDIATE"
    assert statements[-1] == "COMMIT"
    return len(statements)


def test_a_crash_at_every_statement_of_a_migration_leaves_all_or_nothing(tmp_path: Path) -> None:
    from dlq_master.store.sqlite.migrations import TABLES, migrations

    def tables(db: Database) -> set[str]:
        return db.table_names() & TABLES

    for last in range(1, 400):
        path = tmp_path / f"{last}.db"
        db = sqlite3.connect(path, isolation_level=None, factory=Database)
        seen = 0

        def crash(sql: str, last: int = last) -> None:
            nonlocal seen
            seen += 1
            if seen > last:
                raise Crash(sql)

        try:
            with _traced(db, crash), write(db):
                migrations.apply(db)
        except Crash:
            assert tables(db) == set(), f"after {last} statements"
            db.close()
        else:
            assert tables(db) == TABLES
            db.close()
            return
    raise AssertionError("the migration never came to its end")


_COMMIT_LOOP = """
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from support.stored_values import a_job, an_event, an_intention
from dlq_master.model.ids import JobId
from dlq_master.store.batch import Batch, StoredRequest
import asyncio
from dlq_master.store.sqlite.halves import Writer

async def main():
    writer = Writer(Path(sys.argv[1]))
    number = int(sys.argv[2])
    while True:
        number += 1
        await writer.commit(Batch(
            jobs=[a_job(number)], specs=[(JobId(number), str(number).encode())],
            requests=[StoredRequest("alice", f"r{number}", "d", str(number), 1.0)],
            events=[an_event(number, number)], intentions=[an_intention(number, number)],
            meta={"last": str(number)},
        ))
        print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.long("contract/test_store.py")
def test_what_was_acknowledged_before_a_kill_is_all_there(tmp_path: Path) -> None:
    path = tmp_path / "dlq.db"
    create_database(path)
    chance = random.Random(7)
    acknowledged = 0
    for _ in range(KILLS):
        wanted = acknowledged + chance.randrange(1, 60)
        acknowledged = _commit_until_killed(path, acknowledged, wanted)
        loaded = _whole(path)
        # The commit after the last acknowledged one may have made it, nothing else.
        assert loaded.meta["last"] in {str(acknowledged), str(acknowledged + 1)}
        acknowledged = int(loaded.meta["last"])
        assert len(loaded.jobs) == len(loaded.intentions) == loaded.last_event == acknowledged


def _commit_until_killed(path: Path, after: int, wanted: int) -> int:
    process = subprocess.Popen(
        [sys.executable, "-c", _COMMIT_LOOP, str(path), str(after)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    told = after
    while told < wanted:
        told = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split(b"\n")[:-1]
    process.stdout.close()
    process.wait()
    return int(rest[-1]) if rest else told


def _whole(path: Path) -> Loaded:
    open_database(path).close()
    db = connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    db.close()
    reader = Reader(path)
    loaded = reader.load()
    for job in loaded.jobs:
        assert reader.spec(job.job_id) == str(job.job_id).encode()
        assert reader.request("alice", f"r{job.job_id}") is not None
    reader.close()
    return loaded
