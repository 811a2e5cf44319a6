"""Three PostgreSQL servers whose roles change: a primary, and two that confirm its commits.

A commit waits for one of the two, whichever is quicker. So the service goes on at once when the
primary is lost: the better one of the others is promoted, and the third one confirms its commits.
Each server's log of writes lies on a small disk of its own where this process may mount one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psycopg

from support.postgres_site import (
    DATABASE,
    DURABLE,
    USER,
    PostgresServer,
    PostgresSite,
    give_away,
    make_home,
    need_postgres,
)
from support.waiting import wait_until

NAMES: Final = ("one", "two", "three")
_DISK_BYTES: Final = 256 << 20
_SETTINGS: Final = {
    "max_wal_size": "64MB",
    "wal_keep_size": "96MB",  # a standby that lags behind a full disk still follows
    "restart_after_crash": "off",  # a tool of the site decides
    "wal_retrieve_retry_interval": "100ms",  # a standby finds its new primary soon
}
STREAM_S: Final = 3.0


class RotatingSite(PostgresSite):
    """`primary` is the present one, `others` are those that run beside it."""

    def __init__(self, home: Path, bin_dir: Path, settings: Mapping[str, str]) -> None:
        super().__init__(home, bin_dir, {**_SETTINGS, **settings}, NAMES[0])
        self.others: list[PostgresServer] = []
        self._disks: list[Path] = []

    def make(self) -> None:
        """Start all three."""
        self._mount_disks()
        self.make_primary()
        self._name_confirmers(self.primary)
        for name in NAMES[1:]:
            self._follow(self._new(name))
        self.primary.reload()

    @property
    def dsn(self) -> str:
        """All of them; a client uses the one that takes writes."""
        hosts = ",".join(str(self.home) for _ in self.servers)
        ports = ",".join(str(server.port) for server in self.servers)
        return f"host={hosts} port={ports} user={USER} dbname={DATABASE}"

    # --- what befalls the servers -------------------------------------------------------------

    def kill_primary(self) -> None:
        """All of its processes die. Nobody is promoted."""
        self.primary.kill()

    def promote_best(self) -> PostgresServer:
        """Promote the one that has received most. Return the lost primary."""
        lost = self.primary
        best = max(self.others, key=_received)
        self.others.remove(best)
        best.promote()
        self.primary = best
        for other in list(self.others):
            self._follow_on(other)
        return lost

    def come_back(self, lost: PostgresServer) -> None:
        """A server that was lost begins anew, as a copy of the primary."""
        lost.kill()
        self._follow(lost)

    def turn(self, server: PostgresServer | None = None) -> int:
        """The last turn of a master that a server has; by default, the primary."""
        told = "SELECT CAST(value AS bigint) FROM meta WHERE key = 'batch'"
        ((number,),) = (server or self.primary).ask(told)
        assert isinstance(number, int)
        return number

    def epoch(self, server: PostgresServer) -> int:
        """The last epoch of a master that a server has."""
        ((number,),) = server.ask("SELECT epoch FROM leader")
        assert isinstance(number, int)
        return number

    def end_wait(self, how: str) -> int:
        """Cancel or terminate the commits of a turn that wait for the other servers; so many they
        were. The session that renews the lease has a lock, and is left alone. So is the server's
        own vacuum, whose commits wait too: ending that does no master any harm.
        """
        ended = self.primary.ask(
            f"SELECT pg_{how}_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            " AND backend_type = 'client backend'"
            " AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
        )
        return len(ended)

    def told(self) -> str:
        """The end of each server's log, who confirms the commits, and the room for logs."""
        lines = [f"primary: {self.primary.name}"]
        with suppress(psycopg.Error):
            rows = self.primary.ask(
                "SELECT application_name, state, sync_state, flush_lsn FROM pg_stat_replication"
            )
            waits = self.primary.ask(
                "SELECT pid, state, wait_event, left(query, 60) FROM pg_stat_activity"
                " WHERE wait_event IN ('SyncRep', 'tuple', 'transactionid')"
            )
            lines += [f"streams: {rows}", f"waits: {waits}"]
        for server in self.servers:
            room = shutil.disk_usage(self._disk(server)).free if self._disks else -1
            lines.append(f"--- {server.name}, {room} bytes free for its log")
            lines += server.log.read_text().splitlines()[-12:]
        return "\n".join(lines)

    # --- disks --------------------------------------------------------------------------------

    @property
    def can_fill(self) -> bool:
        """Whether the servers have small disks."""
        return bool(self._disks)

    def fill(self, server: PostgresServer) -> None:
        """Its disk of the log has no room from now on, and it wants some."""
        disk = self._disk(server)
        used = shutil.disk_usage(disk).used
        _mounted("remount", used, disk)
        # A backend that finds no room for the log takes the whole server with it.
        write = "SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000))"
        with suppress(psycopg.Error), server.connect() as line:
            for _ in range(2 * _DISK_BYTES // 1_000_000):
                line.execute(write)

    def widen(self, server: PostgresServer) -> None:
        """There is room again."""
        _mounted("remount", _DISK_BYTES, self._disk(server))

    def end(self) -> None:
        for server in self.servers:
            server.kill()
        for disk in self._disks:
            subprocess.run(["umount", "-l", str(disk)], check=False)
        super().end()

    # --- helpers, in order of use -------------------------------------------------------------

    def _mount_disks(self) -> None:
        if os.geteuid() != 0:
            return
        for name in NAMES:
            disk = self.home / f"wal-{name}"
            disk.mkdir()
            if _mounted("", _DISK_BYTES, disk):
                give_away(disk)
                disk.chmod(0o700)
                self._disks.append(disk)

    def _disk(self, server: PostgresServer) -> Path:
        return self.home / f"wal-{server.name}"

    def _wal_options(self, server: PostgresServer) -> Sequence[str]:
        return (f"--waldir={self._disk(server)}",) if self._disks else ()

    def _name_confirmers(self, server: PostgresServer) -> None:
        others = ", ".join(name for name in NAMES if name != server.name)
        server.configure({"synchronous_standby_names": f"'ANY 1 ({others})'"})

    def _follow(self, server: PostgresServer) -> None:
        shutil.rmtree(server.data, ignore_errors=True)
        if self._disks:
            for path in self._disk(server).iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            self.widen(server)
        self._run(
            "pg_basebackup", "-D", str(server.data), "-R", "-X", "stream", "-c", "fast",
            "--no-sync", "-h", str(self.home), "-p", str(self.primary.port), "-U", USER,
            *self._wal_options(server),
        )  # fmt: skip
        server.configure({"port": str(server.port), "cluster_name": f"'{server.name}'"})
        self._name_confirmers(server)
        server.start()
        wait_until(lambda: self._streams(server), what=f"{server.name} streams")
        if server not in self.others:
            self.others.append(server)

    def _follow_on(self, server: PostgresServer) -> None:
        """Follow the promoted one; anew, if it has received what that one has not."""
        where = f"user={USER} host={self.home} port={self.primary.port}"
        with (server.data / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = '{where} application_name={server.name}'\n")
        server.reload()
        try:
            wait_until(
                lambda: self._streams(server), what=f"{server.name} streams", timeout_s=STREAM_S
            )
        except AssertionError:
            self.come_back(server)

    def _streams(self, server: PostgresServer) -> bool:
        return bool(
            self.primary.ask(
                "SELECT 1 FROM pg_stat_replication WHERE application_name = %s"
                " AND state = 'streaming'",
                server.name,
            )
        )


def _received(server: PostgresServer) -> int:
    told = "SELECT CAST(coalesce(pg_last_wal_receive_lsn(), '0/0') - '0/0' AS bigint)"
    ((bytes_,),) = server.ask(told)
    assert isinstance(bytes_, int)
    return bytes_


def _mounted(option: str, size: int, disk: Path) -> bool:
    """Mount a disk of this size in memory, or give it another size."""
    options = ",".join(word for word in (option, f"size={size}") if word)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], capture_output=True
    )
    return done.returncode == 0


@contextmanager
def rotating_site(settings: Mapping[str, str] = DURABLE) -> Iterator[RotatingSite]:
    """A site whose three servers run; skips the test where PostgreSQL is not installed."""
    site = RotatingSite(make_home(), need_postgres(), settings)
    try:
        site.make()
        yield site
    finally:
        site.end()
