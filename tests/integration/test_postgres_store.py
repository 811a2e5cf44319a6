"""The store on PostgreSQL: its fence, its unknown commits, and what it refuses."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import _pipeline_base

from dlq_common.errors import ConfigError, Unavailable
from dlq_master.app import main
from dlq_master.model.attempts.attempt import TakenSteps
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.store.batch import Batch
from dlq_master.store.copying import to_postgres, to_sqlite
from dlq_master.store.port import (
    CommitFailed,
    CommitUnknown,
    DatabaseDamaged,
    DatabaseInUse,
    FencedOff,
)
from dlq_master.store.postgres.dialect import translated
from dlq_master.store.postgres.fence import JUMP, identity, read_leader, take_lead
from dlq_master.store.postgres.halves import PostgresReader, PostgresWriter
from dlq_master.store.postgres.line import WRITER, PostgresLine, PostgresPlace
from dlq_master.store.postgres.schema import COLUMNS
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import create_database
from support.postgres_site import DURABLE, PASSWORD, PostgresSite, postgres_site
from support.postgres_store import begin_anew, connect
from support.stored_values import a_job, an_event, first_batch, mixed_batch
from support.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def site() -> Iterator[PostgresSite]:
    with postgres_site() as found:
        yield found


@pytest.fixture
def place(site: PostgresSite) -> PostgresPlace:
    found = PostgresPlace(site.primary.dsn, allow_asynchronous=True)
    begin_anew(found)
    return found


def jobs_of(place: PostgresPlace) -> list[int]:
    with connect(place) as line:
        return [int(str(row[0])) for row in line.execute("SELECT job_id FROM jobs ORDER BY 1")]


# --- statements and tables ------------------------------------------------------------------------


def test_a_statement_is_translated_and_its_values_with_it() -> None:
    numbered = translated("INSERT INTO t SELECT ?1, ?2 WHERE abs(?2) > 1")
    assert numbered.text == b"INSERT INTO t SELECT $1, $2 WHERE abs($2) > 1"
    named = translated("SELECT user FROM jobs NOT INDEXED WHERE a = :b AND c = :d OR e = :b")
    assert named.text.split() == (
        b'SELECT "user" FROM jobs WHERE a = $1 AND c = $2 OR e = $1'.split()
    )
    assert named.values({"d": 2, "b": 1}) == [1, 2]


def test_the_tables_have_the_columns_of_sqlite(place: PostgresPlace, tmp_path: Path) -> None:
    create_database(tmp_path / "dlq.db")
    kinds = {"bigint": "INTEGER", "double precision": "REAL", "text": "TEXT", "bytea": "BLOB"}
    with closing(sqlite3.connect(tmp_path / "dlq.db")) as theirs, connect(place) as ours:
        for name, columns in COLUMNS.items():
            told = theirs.execute(f"SELECT name, type FROM pragma_table_info('{name}')").fetchall()
            count = len(columns.split())
            found = ours.execute(
                "SELECT column_name, data_type FROM information_schema.columns"
                " WHERE table_name = %s ORDER BY ordinal_position LIMIT %s",
                [name, count],
            ).fetchall()
            assert [(column, kinds[str(kind)]) for column, kind in found] == told, name
        names = {
            name
            for (name,) in theirs.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith("_sqlite") and not name.startswith("sqlite_")
        }
    assert names == set(COLUMNS)


async def test_a_nul_in_a_text_is_no_end_of_the_master(place: PostgresPlace) -> None:
    writer = PostgresWriter(place, "here")
    told = replace(an_event(1, why="a\0b"), cause="a\0b")
    with closing(writer), closing(PostgresReader(place, writer.fence)) as reader:
        await writer.commit(Batch(jobs=[a_job(1, name="a\0ü😀")], events=[told]))
        assert reader.job(JobId(1)) == a_job(1, name="a\0ü😀"), "bodies are kept as they are"
        assert reader.events(0, 1)[0] == replace(an_event(1, why="a\0b"), cause="a\ufffdb")


async def test_a_turn_goes_out_in_one_piece(
    place: PostgresPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each exchange with the server is a flush, and two looks at the socket."""
    exchanges: list[int] = []
    exchange = vars(_pipeline_base)["pipeline_communicate"]

    def counted(pgconn: Any, commands: Any) -> Any:
        exchanges.append(len(commands))
        return exchange(pgconn, commands)

    writer = PostgresWriter(place, "here")
    with closing(writer):
        await writer.commit(first_batch())
        monkeypatch.setattr(_pipeline_base, "pipeline_communicate", counted)
        await writer.commit(mixed_batch())
    assert len(exchanges) <= 2, exchanges
    assert max(exchanges) <= 1, "statements are in the buffer by then"


async def test_a_turn_that_is_larger_than_all_buffers_is_written(place: PostgresPlace) -> None:
    writer = PostgresWriter(place, "here")
    with closing(writer):
        await writer.commit(Batch(specs=[(JobId(n), bytes(200_000)) for n in range(50)]))
    with closing(connect(place)) as line:
        assert line.execute("SELECT count(*) FROM job_specs").fetchall() == [(50,)]


async def test_a_refused_statement_is_named_and_certain(place: PostgresPlace) -> None:
    writer = PostgresWriter(place, "here")
    with closing(writer):
        twice = Batch(jobs=[a_job(1)], specs=[(JobId(1), b"a"), (JobId(1), b"b")])
        with pytest.raises(CommitFailed, match="duplicate key") as failed:
            await writer.commit(twice)
        assert not isinstance(failed.value, CommitUnknown)
    assert jobs_of(place) == []


def test_the_index_of_ended_jobs_is_as_wide_as_sqlites(place: PostgresPlace) -> None:
    with closing(connect(place)) as line:
        (found,) = line.execute(
            "SELECT indexdef FROM pg_indexes WHERE indexname = 'jobs_by_end'"
        ).fetchall()
    assert '(end_time_s, "user", name)' in str(found)


# --- the fence ------------------------------------------------------------------------------------


async def test_a_master_that_was_replaced_writes_nothing_more(place: PostgresPlace) -> None:
    former = PostgresWriter(place, "former")
    await former.commit(Batch(jobs=[a_job(1)]))
    with closing(PostgresLine(place, WRITER)) as line:
        fence = take_lead(line, "next", "next:1", 5.0, former.fence.epoch)
        assert fence is not None
        assert fence.epoch == former.fence.epoch + 1
        assert take_lead(line, "late", "", 5.0, former.fence.epoch) is None
        assert read_leader(line)[:4] == (fence.epoch, "next", "next:1", 5.0)
    with pytest.raises(FencedOff, match=f"epoch {former.fence.epoch} leads no more"):
        await former.commit(Batch(jobs=[a_job(2)]))
    with pytest.raises(Unavailable):
        await former.commit(Batch(jobs=[a_job(3)]))
    former.close()
    assert jobs_of(place) == [1]
    following = PostgresWriter(place, "next", fence)
    await following.commit(Batch(jobs=[a_job(4)]))
    following.close()
    assert jobs_of(place) == [1, 4]


def test_a_takeover_waits_for_a_transaction_and_a_renewal_does_not(place: PostgresPlace) -> None:
    with closing(PostgresLine(place, WRITER)) as former, closing(PostgresLine(place, WRITER)) as us:
        fence = take_lead(former, "former", "", 5.0, 0)
        assert fence is not None
        former.own("BEGIN")
        former.own("SELECT hold_fence($1)", [fence.epoch])
        us.own("SET lock_timeout = '100ms'")
        us.own("UPDATE leader SET renewed = clock_timestamp()")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            take_lead(us, "next", "", 5.0, fence.epoch)
        former.own("COMMIT")
        assert take_lead(us, "next", "", 5.0, fence.epoch) is not None
        with pytest.raises(psycopg.Error, match="leads no more"):
            former.own("SELECT hold_fence($1)", [fence.epoch])


def test_an_epoch_jumps_on_another_timeline_and_is_above_that_of_the_rows(
    place: PostgresPlace,
) -> None:
    with closing(PostgresLine(place, WRITER)) as line:
        line.own("INSERT INTO meta VALUES ('epoch', '41')")
        first = take_lead(line, "a", "", 5.0, 0)
        assert first is not None
        assert first == (*identity(line), 42)
        line.own("UPDATE leader SET timeline = timeline + 1")
        second = take_lead(line, "b", "", 5.0, 42)
        assert second is not None
        assert second.epoch == 42 + JUMP


def test_two_masters_without_a_lease_do_not_share_a_database(place: PostgresPlace) -> None:
    with closing(PostgresWriter(place, "one")), pytest.raises(DatabaseInUse):
        PostgresWriter(place, "two")
    PostgresWriter(place, "two").close()


# --- commits whose outcome nobody knows -----------------------------------------------------------


@pytest.mark.parametrize("how", ["cancel", "terminate"])
async def test_a_commit_that_did_not_wait_for_the_standby_is_unknown(how: str) -> None:
    with postgres_site(DURABLE) as site:
        standby = site.add_standby()
        place = PostgresPlace(site.primary.dsn)
        begin_anew(place)
        writer = PostgresWriter(place, "here")
        assert writer.may_lose == ()
        await writer.commit(Batch(jobs=[a_job(1)]))
        standby.pause()
        hanging = asyncio.create_task(writer.commit(Batch(jobs=[a_job(2)])))
        end = f"SELECT pg_{how}_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        await asyncio.to_thread(
            wait_until, lambda: site.primary.ask(end), what="the commit waits, and is ended"
        )
        with pytest.raises(CommitUnknown):
            await hanging
        with pytest.raises(Unavailable):
            await writer.commit(Batch(jobs=[a_job(3)]))
        standby.resume()
        writer.close()
        assert jobs_of(place) == [1, 2], "it is there, and its caller was told nothing"


async def test_a_server_that_dies_ends_the_writer_and_not_the_reads(place: PostgresPlace) -> None:
    with postgres_site() as site:
        place = PostgresPlace(site.primary.dsn, allow_asynchronous=True)
        begin_anew(place)
        writer = PostgresWriter(place, "here")
        reader = PostgresReader(place, writer.fence)
        await writer.commit(Batch(jobs=[a_job(1)]))
        site.primary.kill()
        with pytest.raises(Unavailable):
            reader.job(JobId(1))
        with pytest.raises((CommitFailed, Unavailable)):  # its look at an idle line may be first
            await writer.commit(Batch(jobs=[a_job(2)]))
        writer.close()
        site.primary.start()
        assert reader.job(JobId(1)) == a_job(1)
        reader.close()
        with closing(PostgresWriter(place, "again")):
            assert jobs_of(place) in ([1], [1, 2])


_COMMIT_LOOP = """
import asyncio, sys
from dlq_master.model.ids import JobId
from dlq_master.store.batch import Batch
from dlq_master.store.postgres.halves import PostgresWriter
from dlq_master.store.postgres.line import PostgresPlace
from support.stored_values import a_job, an_event

async def main():
    writer = PostgresWriter(PostgresPlace(sys.argv[1], allow_asynchronous=True), "loop")
    number = int(sys.argv[2])
    while True:
        number += 1
        await writer.commit(Batch(jobs=[a_job(number)], events=[an_event(number, number)],
                                  specs=[(JobId(number), b"s")], meta={"last": str(number)}))
        print(number, flush=True)

asyncio.run(main())
"""


def test_what_was_acknowledged_before_a_kill_is_there(place: PostgresPlace, tmp_path: Path) -> None:
    chance, last = random.Random(5), 0
    for _ in range(3):
        told = _commit_until_killed(place, last, last + chance.randrange(1, 40))
        with connect(place) as line:
            wait_until(
                lambda: (
                    not line.execute(
                        "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"
                    ).fetchone()
                ),
                what="the killed master's session has ended",
            )
            row = line.execute("SELECT value FROM meta WHERE key = 'last'").fetchone()
        assert row is not None
        last = int(str(row[0]))
        assert told <= last <= told + 1, "the one under way may have made it, nothing else"
        assert jobs_of(place) == [*range(1, last + 1)]


def _commit_until_killed(place: PostgresPlace, after: int, wanted: int) -> int:
    with subprocess.Popen(
        [sys.executable, "-c", _COMMIT_LOOP, place.dsn, str(after)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        told = after
        while told < wanted:
            told = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split(b"\n")[:-1]
    return int(rest[-1]) if rest else told


async def test_a_full_disk_refuses_what_may_wait_and_ends_nothing(
    site: PostgresSite, place: PostgresPlace
) -> None:
    """The server says 53100 when it has no room; here a function says it."""
    with connect(place) as line:
        line.execute(
            "CREATE OR REPLACE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
        )
        line.execute("CREATE TRIGGER full_disk BEFORE INSERT ON steps EXECUTE FUNCTION no_room()")
        try:
            writer = PostgresWriter(place, "here")
            assert not await writer.put_steps([TakenSteps(AttemptKey(JobId(1), 1), 1.0, b"x")])
            await writer.commit(Batch(jobs=[a_job(1)]))
            writer.close()
        finally:
            line.execute("DROP TRIGGER full_disk ON steps")
    assert jobs_of(place) == [1]


# --- what is refused ------------------------------------------------------------------------------


def test_a_server_that_may_lose_commits_is_refused_unless_it_is_asked_for(
    place: PostgresPlace,
) -> None:
    with pytest.raises(ConfigError, match="synchronous_standby_names is empty") as refused:
        PostgresWriter(PostgresPlace(place.dsn), "here")
    assert "fsync" in str(refused.value)
    assert "allow_asynchronous = true" in refused.value.hint
    with closing(PostgresWriter(place, "here")) as writer:
        assert len(writer.may_lose) == 2


def test_an_empty_database_is_not_taken_for_a_cluster(site: PostgresSite) -> None:
    with site.primary.connect() as line:
        line.execute("CREATE DATABASE nothing")
    empty = PostgresPlace(f"{site.primary.dsn} dbname=nothing", allow_asynchronous=True)
    with pytest.raises(DatabaseDamaged, match="copy-store"):
        PostgresWriter(empty, "here")


def test_the_password_comes_from_a_private_file(site: PostgresSite, tmp_path: Path) -> None:
    dsn, secret = site.primary.tcp_dsn, tmp_path / "password"
    with pytest.raises(ConfigError, match="password_file"):
        PostgresLine(PostgresPlace(f"{dsn} password=x"), WRITER)
    secret.write_text(f"{PASSWORD}\n")
    secret.chmod(0o644)
    place = PostgresPlace(dsn, str(secret), tls="disable")
    with pytest.raises(ConfigError, match="other users"):
        PostgresLine(place, WRITER)
    secret.chmod(0o600)
    PostgresLine(place, WRITER).close()
    with pytest.raises(Unavailable, match="port="):
        PostgresLine(PostgresPlace(dsn, tls="disable"), WRITER)
    with pytest.raises(Unavailable, match=r"SSL|certificate"):
        PostgresLine(PostgresPlace(dsn, str(secret)), WRITER)


# --- moving ---------------------------------------------------------------------------------------


async def test_a_cluster_moves_to_postgresql_and_back_with_every_row(
    place: PostgresPlace, tmp_path: Path
) -> None:
    path = tmp_path / "dlq.db"
    create_database(path)
    sqlite = Writer(path)
    await sqlite.commit(first_batch())
    await sqlite.commit(mixed_batch())
    await sqlite.commit(Batch(audit_owed=[("n1", "line")], events=[an_event(6, why="a\0b")]))
    sqlite.close()
    with closing(Reader(path)) as reader:
        before, events = reader.load(), reader.events(0, 100)

    moved = to_postgres(path, place)
    assert (moved["jobs"], moved["journal"]) == (3, 6)
    assert not path.exists()
    with pytest.raises(DatabaseDamaged, match="already"):
        to_postgres(path.with_name("dlq.db.moved"), place)
    writer = PostgresWriter(place, "here")
    with closing(PostgresReader(place, writer.fence)) as there:
        loaded = there.load()
        assert loaded.jobs == before.jobs
        assert loaded.intentions == before.intentions
        assert loaded.audit_owed == before.audit_owed
        assert (int(loaded.meta["epoch"]) + 1, writer.fence.epoch) == (5, 5)
        assert there.events(0, 100) == events
    await writer.commit(Batch(jobs=[a_job(9)], audit_owed=[("n2", "another")]))
    writer.close()
    with connect(place) as line:
        held = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"
        wait_until(lambda: not line.execute(held).fetchall(), what="the server lets the claim go")

    to_sqlite(place, path)
    with closing(Reader(path)) as reader:
        after = reader.load()
        assert [job.job_id for job in after.jobs] == [1, 2, 3, 9]
        assert after.audit_owed == (("n1", "line"), ("n2", "another"))
    with pytest.raises(DatabaseDamaged, match="holds no cluster"):
        PostgresWriter(place, "here")
    with connect(place) as line:
        line.execute("ALTER TABLE leader_moved RENAME TO leader")  # for the tests that follow


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ('backend = "mysql"', "store.backend is sqlite or postgresql"),
        ('backend = "postgresql"', "store.dsn: PostgreSQL needs it"),
        ('dsn = "host=db"', "with PostgreSQL only"),
        ('backend = "postgresql"\ndsn = "host=db"\ntls = "maybe"', "store.tls is one of"),
        ('backend = "postgresql"\ndsn = "password=x"', "store.password_file, not here"),
    ],
)
def test_settings_of_a_store_that_cannot_be_are_refused(
    store: str, said: str, tmp_path: Path
) -> None:
    config = tmp_path / "master.toml"
    config.write_text(f"[store]\n{store}\n")
    done = CliRunner().invoke(main, ["run", "--check-config", "--config", str(config)])
    assert done.exit_code != 0
    assert said in done.output


def test_commands_for_the_file_of_sqlite_say_so(tmp_path: Path) -> None:
    config = tmp_path / "master.toml"
    config.write_text('[store]\nbackend = "postgresql"\ndsn = "host=db"\n')
    for command in (["backup", "--to", str(tmp_path)], ["reset-clock", "--yes"]):
        done = CliRunner().invoke(main, [*command, "--config", str(config)])
        assert "is for SQLite" in done.output


# --- an idle master ----------------------------------------------------------------------------


async def test_an_idle_writer_learns_that_its_server_has_ended_the_line() -> None:
    with postgres_site() as site:
        place = PostgresPlace(site.primary.dsn, allow_asynchronous=True)
        begin_anew(place)
        writer = PostgresWriter(place, "here")
        lost: list[CommitFailed] = []
        writer.lost_line = lost.append
        await writer.commit(Batch(jobs=[a_job(1)]))
        site.primary.reload()  # the server may say something, and all is well
        await writer.commit(Batch(jobs=[a_job(2)]))
        assert lost == []
        site.primary.restart()
        await asyncio.to_thread(wait_until, lambda: lost, what="it is noticed without a commit")
        assert "has ended the line" in lost[0].what
        with pytest.raises(Unavailable):
            await writer.commit(Batch(jobs=[a_job(3)]))
        writer.close()
