"""The database of `dlq-notify`: where it stands in the journal, and all that is not sent yet.

A position is stored together with what its events have left here, in one transaction that is on
disk before it is over. So each event is taken once, whenever the process is killed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import sqlite_utils

from dlq_notify.wording import JobNotice

MOST_NOTICES = 50  # of a digest that are kept one by one; the others are counted
MOST_DEAD = 100  # of a user that are kept, the newest ones
LONGEST_WAIT_S = 2 * 86_400.0  # no digest and no letter waits for longer
WAITING, DEAD = "waiting", "dead"
NEVER_S = -1e18  # before every instant; JSON and SQL take it
_TABLES = (
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    """CREATE TABLE IF NOT EXISTS digests (
        rule_id TEXT NOT NULL, grp TEXT NOT NULL, due_s REAL NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (rule_id, grp)) STRICT""",
    """CREATE TABLE IF NOT EXISTS letters (
        letter_id TEXT PRIMARY KEY, rule_id TEXT NOT NULL, user TEXT NOT NULL, state TEXT NOT NULL,
        made_s REAL NOT NULL, next_s REAL NOT NULL, tries INTEGER NOT NULL, fault TEXT NOT NULL,
        body TEXT NOT NULL) STRICT""",
    "CREATE INDEX IF NOT EXISTS letters_due ON letters (state, next_s)",
    "CREATE INDEX IF NOT EXISTS letters_of_rule ON letters (rule_id, made_s)",
    """CREATE TABLE IF NOT EXISTS arrays (
        array_id TEXT PRIMARY KEY, ended INTEGER NOT NULL, tasks INTEGER NOT NULL,
        told TEXT NOT NULL, seen_s REAL NOT NULL) STRICT""",
    "CREATE TABLE IF NOT EXISTS sent (user TEXT NOT NULL, at_s REAL NOT NULL) STRICT",
    "CREATE INDEX IF NOT EXISTS sent_by_user ON sent (user, at_s)",
    """CREATE TABLE IF NOT EXISTS starts (
        job_id TEXT PRIMARY KEY, likely_s REAL NOT NULL, told_s REAL NOT NULL,
        seen_s REAL NOT NULL) STRICT""",
)


class Digest(NamedTuple):
    """Notices of a rule that go into one message. `due_s`: when it is closed."""

    rule_id: str
    group: str
    due_s: float
    first_s: float
    counts: dict[str, int]  # by kind
    notices: list[JobNotice]  # the first ones

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class NotifyLetter(NamedTuple):
    """A message that is to be sent. Its content does not change any more."""

    letter_id: str  # the same in every try: receivers know a repeat by it
    rule_id: str
    user: str
    made_s: float
    next_s: float
    counts: dict[str, int]
    notices: list[JobNotice]
    tries: int = 0
    state: str = WAITING
    fault: str = ""

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class KnownStart(NamedTuple):
    """A start as a user knows it. `told_s`: when its last move was told; NEVER_S: never."""

    likely_s: float
    told_s: float = NEVER_S


class NotifyStore:
    """One connection, for one thread."""

    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self.db = sqlite_utils.Database(self._connection)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute("PRAGMA busy_timeout = 5000")
        with self.write():
            for statement in _TABLES:
                self.db.execute(statement)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def write(self) -> Iterator[None]:
        """A transaction: on disk at its end, or nothing of it. Raises sqlite3.Error."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self.db.execute("ROLLBACK")
            raise

    # --- the position, and other numbers ----------------------------------------------------------

    @property
    def cursor(self) -> int | None:
        """The last event that was taken; None: none ever was."""
        value = self._meta("cursor")
        return None if value is None else int(value)

    def set_cursor(self, cursor: int) -> None:
        """Within `write`."""
        self._set_meta("cursor", str(cursor))

    def next_number(self) -> int:
        """A number that no letter has had. Within `write`."""
        number = int(self._meta("letters") or 0) + 1
        self._set_meta("letters", str(number))
        return number

    def _meta(self, key: str) -> str | None:
        row = self.db.execute("SELECT value FROM meta WHERE key = ?", [key]).fetchone()
        return None if row is None else str(row[0])

    def _set_meta(self, key: str, value: str) -> None:
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [key, value])

    # --- digests ----------------------------------------------------------------------------------

    def digest(self, rule_id: str, group: str) -> Digest | None:
        """The open digest of a rule and group."""
        row = self.db.execute(
            "SELECT rule_id, grp, due_s, body FROM digests WHERE rule_id = ? AND grp = ?",
            [rule_id, group],
        ).fetchone()
        return None if row is None else _digest(row)

    def due_digests(self, now_s: float) -> list[Digest]:
        """Digests to be closed, the oldest first."""
        rows = self.db.execute(
            "SELECT rule_id, grp, due_s, body FROM digests WHERE due_s <= ?"
            " ORDER BY due_s LIMIT 500",
            [now_s],
        ).fetchall()
        return [_digest(row) for row in rows]

    def put_digest(self, digest: Digest) -> None:
        """Within `write`."""
        body = {
            "first_s": digest.first_s, "counts": digest.counts, "notices": digest.notices,
        }  # fmt: skip
        self.db.execute(
            "INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?)",
            [digest.rule_id, digest.group, digest.due_s, json.dumps(body)],
        )

    def drop_digest(self, digest: Digest) -> None:
        """Within `write`."""
        self.db.execute(
            "DELETE FROM digests WHERE rule_id = ? AND grp = ?", [digest.rule_id, digest.group]
        )

    # --- letters ----------------------------------------------------------------------------------

    def put_letter(self, letter: NotifyLetter) -> None:
        """Within `write`."""
        body = json.dumps({"counts": letter.counts, "notices": letter.notices})
        self.db.execute(
            "INSERT OR REPLACE INTO letters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                letter.letter_id, letter.rule_id, letter.user, letter.state, letter.made_s,
                letter.next_s, letter.tries, letter.fault, body,
            ],
        )  # fmt: skip

    def drop_letter(self, letter_id: str) -> None:
        """Within `write`."""
        self.db.execute("DELETE FROM letters WHERE letter_id = ?", [letter_id])

    def letter(self, letter_id: str) -> NotifyLetter | None:
        row = self.db.execute(f"{_LETTERS} WHERE letter_id = ?", [letter_id]).fetchone()
        return None if row is None else _letter(row)

    def due_rules(self, now_s: float) -> list[str]:
        """Rules with letters to be sent now, those that wait for longest first."""
        rows = self.db.execute(
            "SELECT rule_id FROM letters WHERE state = 'waiting' AND next_s <= ?"
            " GROUP BY rule_id ORDER BY min(next_s)",
            [now_s],
        ).fetchall()
        return [rule_id for (rule_id,) in rows]

    def due_letters(self, rule_id: str, now_s: float, most: int = 1) -> list[NotifyLetter]:
        """Letters of a rule to be sent now, the oldest first."""
        rows = self.db.execute(
            f"{_LETTERS} WHERE state = 'waiting' AND next_s <= ? AND rule_id = ?"
            " ORDER BY made_s LIMIT ?",
            [now_s, rule_id, most],
        ).fetchall()
        return [_letter(row) for row in rows]

    def dead_letters(self) -> list[NotifyLetter]:
        """Letters that were given up, the oldest first."""
        rows = self.db.execute(f"{_LETTERS} WHERE state = 'dead' ORDER BY made_s").fetchall()
        return [_letter(row) for row in rows]

    # --- arrays, starts, and messages of the last hour --------------------------------------------

    def count_end(self, array_id: str, tasks: int, now_s: float) -> bool:
        """One more task has ended; whether all have by now. Within `write`."""
        self.db.execute(
            "INSERT INTO arrays VALUES (?, 1, ?, '[]', ?) ON CONFLICT (array_id) DO UPDATE SET "
            "ended = ended + 1, seen_s = excluded.seen_s",
            [array_id, tasks, now_s],
        )
        row = self.db.execute("SELECT ended FROM arrays WHERE array_id = ?", [array_id]).fetchone()
        return int(row[0]) >= tasks

    def first_failure(self, array_id: str, rule_id: str) -> bool:
        """Whether this rule hears of a failure in this array for the first time. Within `write`."""
        row = self.db.execute("SELECT told FROM arrays WHERE array_id = ?", [array_id]).fetchone()
        told = [] if row is None else json.loads(row[0])
        if row is None or rule_id in told:
            return False
        self.db.execute(
            "UPDATE arrays SET told = ? WHERE array_id = ?",
            [json.dumps([*told, rule_id]), array_id],
        )
        return True

    def start(self, job_id: str) -> KnownStart | None:
        """The start that its user knows of a waiting job."""
        row = self.db.execute(
            "SELECT likely_s, told_s FROM starts WHERE job_id = ?", [job_id]
        ).fetchone()
        return None if row is None else KnownStart(*row)

    def put_start(self, job_id: str, known: KnownStart, now_s: float) -> None:
        """Within `write`."""
        self.db.execute(
            "INSERT OR REPLACE INTO starts VALUES (?, ?, ?, ?)", [job_id, *known, now_s]
        )

    def seen_start(self, job_id: str, now_s: float) -> None:
        """Within `write`: it still waits."""
        self.db.execute("UPDATE starts SET seen_s = ? WHERE job_id = ?", [now_s, job_id])

    def sent_since(self, user: str, since_s: float) -> int:
        """How many messages of a user were made since then."""
        row = self.db.execute(
            "SELECT count(*) FROM sent WHERE user = ? AND at_s > ?", [user, since_s]
        ).fetchone()
        return int(row[0])

    def note_sent(self, user: str, now_s: float) -> None:
        """Within `write`."""
        self.db.execute("INSERT INTO sent VALUES (?, ?)", [user, now_s])

    # --- tidying up -------------------------------------------------------------------------------

    def keep_rules(self, rule_ids: set[str]) -> None:
        """Drop what belongs to other rules. Within `write`."""
        for table in ("digests", "letters"):
            rows = self.db.execute(f"SELECT DISTINCT rule_id FROM {table}").fetchall()
            for (rule_id,) in rows:
                if rule_id not in rule_ids:
                    self.db.execute(f"DELETE FROM {table} WHERE rule_id = ?", [rule_id])

    def forget(self, now_s: float, keep_dead_s: float) -> None:
        """Drop what nobody needs any more. Within `write`."""
        self.db.execute("DELETE FROM sent WHERE at_s < ?", [now_s - 3_600.0])
        self.db.execute("DELETE FROM arrays WHERE seen_s < ?", [now_s - 30 * 86_400.0])
        self.db.execute("DELETE FROM starts WHERE seen_s < ?", [now_s - 86_400.0])
        self.db.execute(
            "DELETE FROM letters WHERE state = 'dead' AND (made_s < ? OR letter_id IN"
            " (SELECT letter_id FROM (SELECT letter_id, row_number() OVER"
            " (PARTITION BY user ORDER BY made_s DESC) AS place FROM letters WHERE state = 'dead')"
            " WHERE place > ?))",
            [now_s - keep_dead_s, MOST_DEAD],
        )

    def mend_clock(self, now_s: float) -> None:
        """An earlier process had a clock that was ahead: its instants hold nothing up. Within
        `write`.
        """
        far_s = now_s + LONGEST_WAIT_S
        self.db.execute("DELETE FROM sent WHERE at_s > ?", [now_s])
        self.db.execute("UPDATE starts SET told_s = ? WHERE told_s > ?", [now_s, now_s])
        self.db.execute("UPDATE digests SET due_s = ? WHERE due_s > ?", [now_s, far_s])
        self.db.execute("UPDATE letters SET next_s = ? WHERE next_s > ?", [now_s, far_s])
        self.db.execute("UPDATE letters SET made_s = ? WHERE made_s > ?", [now_s, now_s])


_LETTERS = "SELECT letter_id, rule_id, user, state, made_s, next_s, tries, fault, body FROM letters"


def _digest(row: tuple[Any, ...]) -> Digest:
    rule_id, group, due_s, text = row
    body = json.loads(text)
    return Digest(rule_id, group, due_s, body["first_s"], body["counts"], _notices(body))


def _letter(row: tuple[Any, ...]) -> NotifyLetter:
    letter_id, rule_id, user, state, made_s, next_s, tries, fault, text = row
    body = json.loads(text)
    return NotifyLetter(
        letter_id,
        rule_id,
        user,
        made_s,
        next_s,
        body["counts"],
        _notices(body),
        tries,
        state,
        fault,
    )


def _notices(body: dict[str, Any]) -> list[JobNotice]:
    return [JobNotice(*one) for one in body["notices"]]
