"""A database is made whole, opened whole, or not at all."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dlq_master.model.usage.accounting import Account, UseClass, Used
from dlq_master.store.batch import Batch
from dlq_master.store.port import DatabaseDamaged, DatabaseInUse
from dlq_master.store.rows import write_batch
from dlq_master.store.sqlite import migrations as schema
from dlq_master.store.sqlite.database import SchemaSteps
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import (
    EarlyCheck,
    claim,
    connect,
    create_database,
    open_database,
    write,
)
from dlq_master.store.tables.accounts import LEVELS, Levels, UseRow, read_books
from support.stored_values import first_batch

_TABLES = "SELECT name, strict FROM pragma_table_list"
_SCHEMA = "SELECT sql FROM sqlite_master ORDER BY rowid"
STORED = """meta jobs job_specs attempts nodes users tokens requests journal outbox recordings
evidence teams reservations waited foreseen usage_days pool_days machines stays audit_owed
steps changed_specs lessons speed_days notify_rules revocations idle_days
grants held_grants"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed database with some rows."""
    path = tmp_path / "a #1%20 file?.db"
    create_database(path)
    db = open_database(path)
    with write(db):
        write_batch(db, first_batch())
    db.close()
    return path


def test_the_tables_are_exactly_those_listed(path: Path) -> None:
    db = open_database(path)

    assert db.table_names() == schema.TABLES | {"_sqlite_migrations"}
    assert {*STORED.split()} == schema.TABLES
    db.close()


def test_every_table_of_ours_is_strict(path: Path) -> None:
    db = open_database(path)

    loose = [name for name, strict in db.execute(_TABLES) if name in schema.TABLES and not strict]
    db.close()
    assert loose == []


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO jobs VALUES ('one', 'a', 'b', 'c', 'd', 1, 1.0, NULL, '{}')",
        "INSERT INTO meta VALUES ('epoch', x'00')",
        "INSERT INTO job_specs VALUES (1, 'text')",
        "INSERT INTO job_specs VALUES (77, x'00')",
        "INSERT INTO requests VALUES ('alice', 'r1', 'd', '1', 1.0)",
        "INSERT INTO journal VALUES (1, 1.0, 'k', NULL, NULL, NULL, '', '', '{}')",
    ],
)
def test_a_row_of_the_wrong_type_or_that_exists_is_refused(path: Path, statement: str) -> None:
    db = open_database(path)

    with pytest.raises(sqlite3.IntegrityError):
        db.execute(statement)
    db.close()


def test_migrating_twice_changes_nothing(path: Path) -> None:
    db = open_database(path)
    before = db.execute(_SCHEMA).fetchall()
    with write(db):
        schema.migrations.apply(db)

    assert db.execute(_SCHEMA).fetchall() == before
    db.close()


def test_usage_of_a_former_release_counts_as_devices_of_the_reference(path: Path) -> None:
    """Whether it was written before this release, or by the former one after going back to it."""
    account = Account(1, "ann", "", UseClass.TRIAL, "training")
    levels = Levels(0.0, {}).written()
    by_former = "INSERT INTO usage_days VALUES (1, 'ann', '', 'trial', 'training', 4, 3, 2, 1)"
    db = open_database(path)
    with write(db):
        db.execute("DELETE FROM _sqlite_migrations WHERE name = '0014_speed_days'")
        db.execute("DROP TABLE speed_days")
        db.execute("DELETE FROM usage_days")
        db.execute(by_former)
        schema.migrations.apply(db)
    write_batch(db, Batch(meta={LEVELS: levels}))
    assert read_books(db, 0, 2, 0.0).uses[account] == Used(4.0, 3.0, 2.0, 1.0, 10.0)
    slow, fast = Used(4.0, normalised=1.0), Used(2.0, normalised=2.0)
    write_batch(
        db, Batch(uses=[UseRow(account, slow), UseRow(account, slow), UseRow(account, fast)])
    )
    assert db.execute("SELECT beyond_gpu_s FROM speed_days").fetchall() == [(-6.0,)]
    with write(db):
        db.execute(by_former.replace("4, 3, 2, 1", "8, 0, 0, 0").replace("1, 'ann'", "2, 'ann'"))
    found = read_books(db, 0, 2, 0.0).uses
    assert found[account] == Used(14.0, 3.0, 2.0, 1.0, 14.0)
    assert found[account._replace(day=2)] == Used(8.0, normalised=8.0)
    db.close()


def test_a_missing_database_is_not_made_in_passing(tmp_path: Path) -> None:
    with pytest.raises(DatabaseDamaged, match="does not exist"):
        open_database(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_database_is_not_made_anew(path: Path) -> None:
    with pytest.raises(DatabaseDamaged, match="exists already"):
        create_database(path)
    with closing(Reader(path)) as reader:
        assert len(reader.load().jobs) == 2


def test_a_creation_that_was_interrupted_leaves_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dlq.db"
    with monkeypatch.context() as patch:
        broken = SchemaSteps("dlq")
        broken.add("0001_whole", "CREATE TABLE jobs (job_id)")
        broken.add("0002_broken", "CREATE TABLE nonsense")
        patch.setattr("dlq_master.store.sqlite.open.migrations", broken)
        with pytest.raises(sqlite3.OperationalError):
            create_database(path)

    assert not path.exists()
    create_database(path)
    open_database(path).close()


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _truncated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def _overwritten_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"not a database at all")


def _overwritten_pages(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))


def _without_a_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE outbox")


def _of_somebody_else(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE notes (text)")


def _a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        _emptied,
        _truncated,
        _overwritten_header,
        _overwritten_pages,
        _without_a_table,
        _of_somebody_else,
        _a_directory,
    ],
)
def test_a_damaged_database_is_refused_and_left_as_it_is(
    path: Path, damage: Callable[[Path], None]
) -> None:
    damage(path)
    before = path.read_bytes() if path.is_file() else b""

    with pytest.raises(DatabaseDamaged, match="restore a backup"):
        Writer(path)
    assert before == (path.read_bytes() if path.is_file() else b"")


def test_one_flipped_byte_in_any_page_of_an_index_or_table_tree_is_noticed(path: Path) -> None:
    whole = path.read_bytes()
    for page in range(1, len(whole) // 4096):
        flipped = bytearray(whole)
        flipped[page * 4096] ^= 0xFF  # the page's type
        path.write_bytes(bytes(flipped))
        with pytest.raises(DatabaseDamaged):
            open_database(path)


def test_two_masters_cannot_have_one_database(path: Path) -> None:
    first = Writer(path)

    with pytest.raises(DatabaseInUse, match="in use by another master"):
        Writer(path)
    first.close()
    Writer(path).close()


def test_a_failed_opening_gives_the_claim_back(path: Path) -> None:
    whole = path.read_bytes()
    _emptied(path)
    with pytest.raises(DatabaseDamaged):
        Writer(path)
    path.write_bytes(whole)

    Writer(path).close()


def test_a_claim_on_another_file_is_nobodys_business(path: Path, tmp_path: Path) -> None:
    claim(tmp_path / "other.db")

    Writer(path).close()


def test_a_reader_cannot_write(path: Path) -> None:
    db = connect(path)

    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        db.execute("DELETE FROM jobs")
    db.close()


def test_a_check_begun_early_counts_once_and_finds_what_a_late_one_finds(path: Path) -> None:
    early = EarlyCheck(path)
    Writer(path, early).close()
    assert early.fault() is None, "the next opening looks itself"
    early = EarlyCheck(path)
    _overwritten_pages(path)
    assert early.fault() is None, "somebody has written since"
    with pytest.raises(DatabaseDamaged, match="restore a backup"):
        Writer(path, EarlyCheck(path))
    path.unlink()
    with pytest.raises(DatabaseDamaged, match="does not exist"):
        Writer(path, EarlyCheck(path))
