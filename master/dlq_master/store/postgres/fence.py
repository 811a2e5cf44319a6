"""The fence of a master: its server, the server's timeline, and the master's epoch.

The row `leader` is the one truth. A change of its epoch waits for open transactions of the former
leader, and the server refuses every later one (`hold_fence` in the schema). So no clock decides
about a write.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import psycopg

from dlq_common.errors import ConfigError
from dlq_master.store.port import DatabaseDamaged, DatabaseInUse, FencedOff
from dlq_master.store.postgres.line import PostgresLine, ReadingLine
from dlq_master.store.postgres.schema import is_there

OLDEST: Final = 15
# An epoch that a promoted server has not seen must not be given again.
JUMP: Final = 1 << 20
_CLAIM: Final = 0x646C7131_00000002  # a lock of the session: one master without a lease at a time
_IDENTITY: Final = """SELECT system_identifier,
    CAST(CAST('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS bit(32)) AS bigint)
    FROM pg_control_system()"""
# Above every epoch that was ever given, also by a master on another database (meta).
_TAKE: Final = """UPDATE leader SET holder = $1, addresses = $2, ttl_s = $3,
    renewed = clock_timestamp(), system_identifier = $4, timeline = $5,
    epoch = greatest(epoch,
        coalesce((SELECT CAST(value AS bigint) FROM meta WHERE key = 'epoch'), 0))
        + CASE WHEN system_identifier IN (0, $4) AND timeline IN (0, $5) THEN 1 ELSE $6 END
    WHERE epoch = $7 RETURNING epoch"""


class Fence(NamedTuple):
    """A write counts only while all three values are unchanged."""

    system_identifier: int  # of the server's data; a standby has that of its primary
    timeline: int  # raised by every promotion of a standby
    epoch: int  # raised by every master that takes the lead


class Leader(NamedTuple):
    """The row of the leader. Its age is by the database's clock."""

    epoch: int
    holder: str
    addresses: str
    ttl_s: float
    age_s: float  # since it was renewed


def read_leader(line: PostgresLine) -> Leader:
    """The row of the leader."""
    row = line.own(
        "SELECT epoch, holder, addresses, ttl_s,"
        " CAST(extract(epoch FROM clock_timestamp() - renewed) AS double precision) FROM leader"
    ).fetchone()
    if row is None:
        raise DatabaseDamaged("the row of the leader is gone; restore the database")
    return Leader(*row)


def identity(line: PostgresLine) -> tuple[int, int]:
    """The identity of the server's data, and their timeline."""
    system_identifier, timeline = line.own(_IDENTITY).fetchone() or (0, 0)
    return int(system_identifier), int(timeline)


def take_lead(
    line: PostgresLine, holder: str, addresses: str, ttl_s: float, seen: int
) -> Fence | None:
    """Take the lead with a higher epoch; None: another master has taken it since epoch `seen`.

    Waits for a running transaction of the former leader.
    """
    here = identity(line)
    row = line.own(_TAKE, [holder, addresses, ttl_s, *here, JUMP, seen]).fetchone()
    return None if row is None else Fence(*here, int(row[0]))


def claim_session(line: PostgresLine) -> None:
    """Become the only master without a lease, while this connection lasts. DatabaseInUse: there is
    another.
    """
    (mine,) = line.own("SELECT pg_try_advisory_lock($1)", [_CLAIM]).fetchone() or (False,)
    if not mine:
        raise DatabaseInUse("another master writes to this database")


def check_server(line: PostgresLine, *, allow_asynchronous: bool) -> tuple[str, ...]:
    """Refuse a server that may lose an acknowledged commit.

    Returns, in words, the losses that the configuration allows by name. Raises ConfigError, or
    DatabaseDamaged without a cluster.
    """
    shown = dict(
        line.own(
            "SELECT name, setting FROM pg_settings WHERE name IN"
            " ('server_version_num', 'synchronous_standby_names', 'fsync', 'full_page_writes')"
        ).fetchall()
    )
    if int(shown["server_version_num"]) // 10_000 < OLDEST:
        raise ConfigError(f"store.dsn: the server is older than PostgreSQL {OLDEST}")
    if not is_there(line):
        raise DatabaseDamaged(
            "the database holds no cluster; move one there with `dlq-master copy-store`"
        )
    lost: list[str] = []
    if not shown["synchronous_standby_names"].strip():
        lost.append(
            "synchronous_standby_names is empty: the loss of the server's disk, or a failover, "
            "loses the last acknowledged commits"
        )
    if "off" in (shown["fsync"], shown["full_page_writes"]):
        lost.append("fsync or full_page_writes is off: a power cut loses acknowledged commits")
    if lost and not allow_asynchronous:
        raise ConfigError(
            f"store.dsn: {'; '.join(lost)}",
            hint="name a synchronous standby, or accept it: [store] allow_asynchronous = true",
        )
    return tuple(lost)


class FencedLine(ReadingLine):
    """A leader's reading connection: reopened, it reaches the same server, or fails."""

    fence: Fence | None = None

    def _opened(self) -> psycopg.Connection[object]:
        line = super()._opened()
        if self.fence is not None:
            self._line = line
            here = identity(self)
            if here != self.fence[:2]:
                line.close()
                raise FencedOff("another server answers now; this master leads no more")
        return line
