"""Corrects instants in a stopped master's database after the host's clock was set right.

A master that ran while the wall clock was ahead stored instants of the future, and no master can
start with a clock behind them. Those instants are later than the present, and apart from older
ones. They are moved back by one shift, so that all durations between them stay.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

from dlq_master.store.sqlite.database import Database
from dlq_master.store.sqlite.open import claim, open_database, write
from dlq_master.store.tables.codec import opened, sealed

# Columns that hold instants. Days of the accounts stay as they are.
_COLUMNS = (
    ("journal", "time_s"),
    ("jobs", "submit_time_s"),
    ("jobs", "end_time_s"),
    ("attempts", "ended_time_s"),
    ("tokens", "expire_time_s"),
    ("requests", "time_s"),
    ("recordings", "order_time_s"),
    ("machines", "asked_s"),
    ("machines", "end_s"),
    ("stays", "from_s"),
    ("stays", "until_s"),
    ("steps", "told_s"),
)
# Tables whose bodies hold instants. Reservations name instants that people chose, by clocks of
# their own.
_BODIES = (
    "jobs",
    "attempts",
    "nodes",
    "users",
    "tokens",
    "waited",
    "foreseen",
    "machines",
    "recordings",
    "notify_rules",
    "revocations",
    "grants",
    "held_grants",
)
# Lessons of the last hours: their instants lie in numbers.
_FORGET_WINDOWS = (
    "DELETE FROM lessons WHERE name IN ('scale', 'demand') OR name LIKE 'sent/%' "
    "OR name LIKE 'offer/%'"
)
# Instants that people chose, of a job submitted before the clock was wrong.
_CHOSEN = frozenset({"due_s", "begin_time_s"})
_SLOTS = "slots"  # numbered from the zero of the grid of SLO terms


class Reset(NamedTuple):
    """The correction: instants from `since_s` on moved back by `shift_s`; 0: there were none."""

    last_time_s: float
    since_s: float
    shift_s: float
    journal_rows: int


class _Shift(NamedTuple):
    since_s: float
    by_s: float
    slot_s: float

    def value(self, key: str, item: Any, *, chosen: bool) -> Any:
        """An item of a body, with every future instant in it moved back."""
        if isinstance(item, dict):
            return {name: self.value(name, each, chosen=chosen) for name, each in item.items()}
        if isinstance(item, list):
            return [self.value(key, each, chosen=chosen) for each in item]
        if isinstance(item, bool) or not isinstance(item, int | float):
            return item
        if key == _SLOTS:
            return (
                item - round(self.by_s / self.slot_s)
                if item * self.slot_s >= self.since_s
                else item
            )
        instant = (
            key.endswith("_s") and not key.endswith("gpu_s") and (chosen or key not in _CHOSEN)
        )
        return item - self.by_s if instant and item >= self.since_s else item


def reset_clock(path: Path, wall_s: float, apart_s: float, slot_s: float, actor: str) -> Reset:
    """Move instants later than `wall_s + apart_s` back, and note that in the journal.

    The shift is a multiple of `slot_s`, so that the grid of terms stays. One transaction.
    DatabaseInUse: a master runs. DatabaseDamaged: the database cannot be read.
    """
    held = claim(path)
    db = open_database(path)
    try:
        with write(db):
            return _corrected(db, wall_s, wall_s + apart_s, slot_s, actor)
    finally:
        db.close()
        os.close(held)


def _corrected(db: Database, wall_s: float, limit_s: float, slot_s: float, actor: str) -> Reset:
    newest = db.execute("SELECT sequence, time_s FROM journal ORDER BY sequence DESC LIMIT 1")
    sequence, last_s = newest.fetchone() or (0, 0.0)
    (since_s,) = db.execute(
        "SELECT min(time_s) FROM journal WHERE time_s > ?", [limit_s]
    ).fetchone()
    rows, by_s = 0, 0.0
    if since_s is not None:
        by_s = slot_s * math.ceil((last_s - wall_s) / slot_s)
        (rows,) = db.execute("SELECT count(*) FROM journal WHERE time_s >= ?", [since_s]).fetchone()
        _shift_rows(db, _Shift(since_s, by_s, slot_s))
    told = json.dumps({"last_time_s": last_s, "shift_s": by_s})
    db.execute(
        "INSERT INTO journal (sequence, time_s, kind, cause, actor, data) VALUES (?, ?, "
        "'clock_reset', '', ?, ?)",
        [sequence + 1, wall_s, actor, told],
    )
    db.execute("DELETE FROM meta WHERE key = 'clock'")
    return Reset(last_s, since_s or 0.0, by_s, rows)


def _shift_rows(db: Database, shift: _Shift) -> None:
    """Shift bodies first, because a column says which jobs were submitted before."""
    submitted = dict(db.execute("SELECT job_id, submit_time_s FROM jobs"))
    for table in _BODIES:
        keys = db.keys_of(table)
        where = " AND ".join(f"{name} = ?" for name in keys)
        for *ids, body in db.execute(f"SELECT {', '.join(keys)}, body FROM {table}").fetchall():
            chosen = table != "jobs" or submitted[ids[0]] >= shift.since_s
            found = opened(body, f"row of {table}")
            moved = shift.value("", found, chosen=chosen)
            if moved != found:
                db.execute(f"UPDATE {table} SET body = ? WHERE {where}", [sealed(moved), *ids])
    db.execute(_FORGET_WINDOWS)
    for table, column in _COLUMNS:
        db.execute(
            f"UPDATE {table} SET {column} = {column} - ? WHERE {column} >= ?",
            [shift.by_s, shift.since_s],
        )
