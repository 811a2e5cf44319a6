"""The lease row in PostgreSQL: the table `leader` of the store, asked by a session of its own.

The session that holds the lease holds a lock with the number of its epoch too. The server lets go
of the lock when the session ends, so the end of a process frees the row at once. A session that
stands still is ended by the server after the time of one lease.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any, Final, LiteralString

import psycopg

from dlq_common.errors import DlqError, Unavailable
from dlq_common.fence import LeaderFence
from dlq_master.leader.lease import READY_S
from dlq_master.leader.row import HeldLease, RowUnknown
from dlq_master.store.batch import BATCH
from dlq_master.store.postgres.fence import JUMP
from dlq_master.store.postgres.line import NAME, QUICK_READER, PostgresLine, PostgresPlace

_LOCK: Final = 0x646C7132  # the class of the locks; the epoch is the other half
_HERE: Final[LiteralString] = """(SELECT system_identifier,
    CAST(CAST('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS bit(32)) AS bigint)
        AS timeline
    FROM pg_control_system()) AS here"""
# Nobody has the lock of the epoch, or the time is over by the server's clock.
_LOCKS: Final[LiteralString] = """SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND classid = CAST(CAST($1 AS bigint) AS oid)
    AND objid = CAST(epoch & 2147483647 AS oid) AND objsubid = 2"""
_LEFT: Final[LiteralString] = (
    "CAST(ttl_s - extract(epoch FROM clock_timestamp() - renewed) AS double precision)"
)
_READ: Final[LiteralString] = f"""SELECT leader.epoch, holder, addresses,
    CASE WHEN EXISTS ({_LOCKS}) THEN {_LEFT} ELSE 0 END,
    CAST(here.system_identifier AS text), here.timeline,
    current_setting('synchronous_standby_names') <> '',
    coalesce((SELECT CAST(value AS bigint) FROM meta WHERE key = '{BATCH}'), 0), ttl_s = 0
    FROM leader, {_HERE}"""
# Above every epoch that was ever given, also by a master on another database (meta).
_TRY: Final[LiteralString] = f"""UPDATE leader SET holder = $2, addresses = $3, ttl_s = $4,
    renewed = clock_timestamp(), system_identifier = here.system_identifier,
    timeline = here.timeline,
    epoch = greatest(leader.epoch,
        coalesce((SELECT CAST(value AS bigint) FROM meta WHERE key = 'epoch'), 0))
        + CASE WHEN leader.system_identifier IN (0, here.system_identifier)
            AND leader.timeline IN (0, here.timeline) THEN 1 ELSE $5 END
    FROM {_HERE}
    WHERE leader.epoch = $6 AND NOT (EXISTS ({_LOCKS}) AND {_LEFT} > 0) RETURNING leader.epoch"""
# A process that stands still within a turn has sent a part of it, and the server waits for the
# rest. It holds the row, and no limit of the server ends it: the next statement is to come, so the
# session is not idle. A commit that waits for the second server does not wait for its client.
STUCK_S: Final = 1.0
_END_STUCK: Final[LiteralString] = f"""SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND application_name = $2
    AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL AND wait_event = 'ClientRead'
    AND extract(epoch FROM clock_timestamp() - xact_start) > $3
    AND EXISTS (SELECT 1 FROM leader
        WHERE leader.epoch = $4 AND NOT (EXISTS ({_LOCKS}) AND {_LEFT} > 0))"""
_OF_FENCE: Final[LiteralString] = f"""FROM {_HERE} WHERE leader.epoch = $1 AND holder = $2
    AND CAST(here.system_identifier AS text) = $3 AND here.timeline = $4"""
_RENEW: Final[LiteralString] = f"""UPDATE leader SET renewed = clock_timestamp(), ttl_s = $5
    {_OF_FENCE} RETURNING leader.epoch"""
_RELEASE: Final[LiteralString] = (
    f"""UPDATE leader SET ttl_s = 0 {_OF_FENCE} RETURNING leader.epoch"""
)


# By this name a leader finds the sessions of its standbys. A name has at most 63 bytes.
_STANDBY: Final = "dlq-standby "
_READY: Final[LiteralString] = """SELECT application_name FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user
    AND starts_with(application_name, $1)
    AND extract(epoch FROM clock_timestamp() - state_change) <= $2"""


def standby_name(address: str, *, ready: bool) -> str:
    """The name of the session that reads the turns, for the server."""
    return f"{_STANDBY}{address}"[:63] if ready else NAME


def ready_standbys(place: PostgresPlace) -> list[str]:
    """The addresses of the standbys that have read all turns lately, perhaps cut short. Raises
    Unavailable.
    """
    try:
        with closing(PostgresLine(place, QUICK_READER)) as line:
            rows = line.own(_READY, [_STANDBY, READY_S]).fetchall()
    except psycopg.Error as error:
        raise Unavailable(f"the database does not answer: {str(error).strip()}") from error
    return sorted(name.removeprefix(_STANDBY) for (name,) in rows)


def _settings(ttl_s: float) -> dict[str, str]:
    """The session's. No statement has a time limit. A commit that was cancelled while it waited for
    the second server stays, and may be lost with the first one.
    """
    return {
        "synchronous_commit": "on",
        "statement_timeout": "0",
        "lock_timeout": "4s",
        "idle_in_transaction_session_timeout": "3s",
        "idle_session_timeout": f"{round(ttl_s * 1000)}ms",
        "client_min_messages": "warning",
    }


class PostgresRow:
    """One session. After RowUnknown it is closed, and another one is opened for the next
    question.
    """

    def __init__(self, place: PostgresPlace, ttl_s: float) -> None:
        self._place, self._ttl_s = place, ttl_s
        self._line: PostgresLine | None = None
        self._locked = -1  # the epoch whose lock this session has
        self._given_back = False  # at the last look: its leader has left, and no turn is open

    def read(self) -> HeldLease:
        return self._asked(self._read)

    def try_acquire(self, seen_epoch: int, holder: str, address: str, ttl_s: float) -> HeldLease:
        def take(line: PostgresLine) -> HeldLease:
            if not self._given_back:
                line.own(_END_STUCK, [_LOCK, NAME, STUCK_S, seen_epoch])
            self._change(line, _TRY, [_LOCK, holder, address, ttl_s, JUMP, seen_epoch])
            told = self._read(line)
            if told.holder == holder and told.epoch != self._locked:
                raise RowUnknown("a lost session took the row, and has not ended on the server")
            return told

        return self._asked(take)

    def renew(self, fence: LeaderFence, holder: str, ttl_s: float) -> HeldLease:
        def extend(line: PostgresLine) -> HeldLease:
            self._change(line, _RENEW, [*_named(fence, holder), ttl_s])
            return self._read(line)

        return self._asked(extend)

    def release(self, fence: LeaderFence, holder: str) -> HeldLease:
        def end(line: PostgresLine) -> HeldLease:
            line.own(_RELEASE, _named(fence, holder))
            return self._read(line)

        return self._asked(end)

    def wait(self, seconds: float) -> bool:
        """Let the time pass; False at once when the session has ended."""
        line = self._line
        if line is None:
            select.select([], [], [], seconds)
            return True
        with suppress(OSError, psycopg.Error):
            # A server that says something without a question says that it ends the session.
            if not line.has_news(seconds):
                return True
        self.close()
        return False

    def abandon(self) -> None:
        """From any thread: the question that is out ends with RowUnknown."""
        line = self._line
        if line is not None:
            line.abandon()

    def close(self) -> None:
        """End the session; a lease that it holds is free then."""
        line, self._line, self._locked = self._line, None, -1
        if line is not None:
            line.close()

    # --- helpers, in order of use -------------------------------------------------------------

    def _asked(self, question: Any) -> HeldLease:
        try:
            if self._line is None:
                self._line = PostgresLine(self._place, _settings(self._ttl_s))
            self._line.warned = ""
            told: HeldLease = question(self._line)
            if self._line.warned:  # the commit did not wait for the second server
                raise RowUnknown(self._line.warned)
        except (psycopg.Error, DlqError, RowUnknown, OSError) as error:
            self.close()
            raise RowUnknown(str(error).strip()) from error
        return told

    def _change(self, line: PostgresLine, statement: LiteralString, values: Sequence[Any]) -> None:
        """Change the row if the conditions hold, and have the lock of its epoch before anybody sees
        the change.
        """
        line.own("BEGIN")
        row = line.own(statement, values).fetchone()
        if row is not None and self._locked != row[0]:
            half = int(row[0]) & 0x7FFFFFFF
            found = line.own(
                "SELECT pg_try_advisory_lock(CAST($1 AS int), CAST($2 AS int))", [_LOCK, half]
            )
            if not (found.fetchone() or (False,))[0]:
                raise RowUnknown("a session that was lost has not ended on the server")
            self._locked = int(row[0])
        line.own("COMMIT")

    def _read(self, line: PostgresLine) -> HeldLease:
        row = line.own(_READ, [_LOCK]).fetchone()
        if row is None:
            raise RowUnknown("the row of the leader is gone")
        *held, self._given_back = row
        return HeldLease(*held)


def _named(fence: LeaderFence, holder: str) -> list[Any]:
    return [fence.epoch, holder, fence.system, fence.timeline]
