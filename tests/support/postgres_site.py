"""Private PostgreSQL servers for tests and benchmarks: started, killed, paused, promoted.

PostgreSQL refuses to run as root, so root's tests run it as another account. All of it lies below
one directory of its own, which goes when the site ends.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import psutil
import psycopg
import pytest

from support.ports import free_ports
from support.waiting import wait_until

NEED: Final = "DLQ_NEED_POSTGRES"  # in the environment: a test without PostgreSQL fails
OLDEST: Final = 15
USER, DATABASE, PASSWORD = "dlq", "dlq", "a-secret-of-tests"
# Of a test's database the host's memory is the disk, unless the test asks for another.
QUICK: Final = {"fsync": "off", "full_page_writes": "off"}
DURABLE: Final = {"fsync": "on", "full_page_writes": "on"}
_SMALL: Final = {
    "shared_buffers": "16MB",
    "max_connections": "40",
    "max_wal_senders": "4",
    "wal_level": "replica",
    "min_wal_size": "32MB",
    "jit": "off",
    "autovacuum": "off",  # it would make counts of work differ from run to run
    "log_line_prefix": "'%m [%p] %q%a '",
}


def programs() -> Path | None:
    """The directory of the newest PostgreSQL's programs on this host; None: there is none."""
    found = [
        (int(path.parent.name), path)
        for path in Path("/usr/lib/postgresql").glob("*/bin")
        if path.parent.name.isdecimal() and (path / "initdb").exists()
    ]
    newest, path = max(found, default=(0, None))
    return path if newest >= OLDEST else None


def need_postgres() -> Path:
    """The programs; without them the test is skipped, or fails where they are asked for."""
    found = programs()
    if found is None:
        _missing(f"PostgreSQL {OLDEST} or newer is not installed (Debian: postgresql)")
    return found


def _missing(said: str) -> NoReturn:
    """Skip the test, or fail it where PostgreSQL is asked for."""
    if os.environ.get(NEED):
        pytest.fail(f"{said}, and {NEED} is set")
    pytest.skip(said)


class PostgresServer:
    """One server. `dsn` is what a client needs to reach it; `log` is what it has written."""

    def __init__(self, home: Path, name: str, bin_dir: Path) -> None:
        self.home, self.name, self._bin = home, name, bin_dir
        self.data, self.log = home / name, home / f"{name}.log"
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """By its socket, where no password is asked for."""
        return f"host={self.home} port={self.port} user={USER} dbname={DATABASE}"

    @property
    def tcp_dsn(self) -> str:
        """By its port on the loopback, where PASSWORD is asked for."""
        return f"host=127.0.0.1 port={self.port} user={USER} dbname={DATABASE}"

    def connect(self, database: str = DATABASE) -> psycopg.Connection[tuple[object, ...]]:
        """A connection that commits each statement."""
        return psycopg.connect(self.dsn, dbname=database, autocommit=True, connect_timeout=20)

    def ask(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """The rows of one statement; none for one that has no rows."""
        with self.connect() as line:
            found = line.execute(sql.encode(), values or None)
            return found.fetchall() if found.description else []

    def configure(self, settings: Mapping[str, str]) -> None:
        """Append to its configuration; `start` or `reload` reads it."""
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())

    def start(self) -> None:
        """Start it and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_as_account(), str(self._bin / "postgres"), "-D", str(self.data)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._answers, what=f"PostgreSQL {self.name} answers")

    def _answers(self) -> bool:
        process = self._process
        if process is None or process.poll() is not None:
            raise AssertionError(f"{self.name} ended: {self.log.read_text()[-2000:]}")
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.dsn, dbname="postgres", connect_timeout=5).close()
            return True
        return False

    def reload(self) -> None:
        """Read the configuration again."""
        self.ask("SELECT pg_reload_conf()")

    def stop(self) -> None:
        """End it as an administrator does: connections are cut, nothing is lost."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End all of its processes by SIGKILL, as a crash of them all does."""
        for process in self._processes():
            with suppress(psutil.Error):
                process.kill()
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP for all of its processes: lines stay open, nothing answers."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):  # it has just ended
                process.suspend()

    def resume(self) -> None:
        """The end of `pause`."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def promote(self) -> None:
        """Make a standby a server that takes writes."""
        with self.connect() as line:
            line.execute("SELECT pg_promote(true, 60)")

    def end_sessions(self, application: str) -> int:
        """Terminate the connections of one application name; so many they were."""
        ended = self.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
            application,
        )
        return len(ended)

    def _processes(self) -> list[psutil.Process]:
        if self._process is None:
            return []
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(self._process.pid)
            return [own, *own.children(recursive=True)]
        return []

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        children = self._processes()
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
        if number != signal.SIGKILL:
            self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
        psutil.wait_procs(children, timeout=30)
        self._process = None


class PostgresSite:
    """A primary and, if asked for, its standbys; `server(name)` is one of them."""

    def __init__(
        self, home: Path, bin_dir: Path, settings: Mapping[str, str], first: str = "primary"
    ) -> None:
        """`first`: the name of the first server, which is the primary."""
        self.home, self._bin, self._settings = home, bin_dir, settings
        self.servers: list[PostgresServer] = []
        self.primary = self._new(first)

    def make_primary(self, databases: Sequence[str] = ()) -> None:
        """Initialise and start it, with a database of each name."""
        secret = self.home / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        server = self.primary
        self._run(
            "initdb", "-D", str(server.data), "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync",
            "--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}",
            *self._wal_options(server),
        )  # fmt: skip
        places = {"listen_addresses": "'127.0.0.1'", "unix_socket_directories": f"'{self.home}'"}
        server.configure({**_SMALL, **places, **self._settings, "port": str(server.port)})
        server.start()
        with server.connect("postgres") as line:
            for name in (DATABASE, *databases):
                line.execute(f"CREATE DATABASE {name}".encode())

    def add_standby(self, name: str = "standby", *, synchronous: bool = True) -> PostgresServer:
        """A standby that streams from the primary; a synchronous one holds each commit."""
        server, primary = self._new(name), self.primary
        self._run(
            "pg_basebackup", "-D", str(server.data), "-R", "-X", "stream", "-c", "fast",
            "--no-sync", "-h", str(self.home), "-p", str(primary.port), "-U", USER,
            *self._wal_options(server),
        )  # fmt: skip
        server.configure({"port": str(server.port), "cluster_name": f"'{name}'"})
        server.start()
        if synchronous:
            primary.configure({"synchronous_standby_names": f"'{name}'"})
            primary.reload()
        wanted = "sync" if synchronous else "async"
        wait_until(
            lambda: primary.ask(
                "SELECT 1 FROM pg_stat_replication WHERE application_name = %s"
                " AND state = 'streaming' AND sync_state = %s",
                name,
                wanted,
            ),
            what=f"{name} streams ({wanted})",
        )
        return server

    def _wal_options(self, server: PostgresServer) -> Sequence[str]:
        """Of initdb and pg_basebackup: where a server's log of writes lies."""
        del server
        return ()

    def end(self) -> None:
        """Nothing is left of any server, nor of its directory."""
        for server in self.servers:
            server.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    def _new(self, name: str) -> PostgresServer:
        server = PostgresServer(self.home, name, self._bin)
        self.servers.append(server)
        return server

    def _run(self, program: str, *options: str) -> None:
        done = subprocess.run(
            [*_as_account(), str(self._bin / program), *options],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.home,
        )
        assert done.returncode == 0, f"{program}: {done.stderr}"


@contextmanager
def postgres_site(
    settings: Mapping[str, str] = QUICK, databases: Sequence[str] = ()
) -> Iterator[PostgresSite]:
    """A site whose primary runs; skips the test where PostgreSQL is not installed."""
    bin_dir = need_postgres()
    site = PostgresSite(make_home(), bin_dir, settings)
    try:
        site.make_primary(databases)
        yield site
    finally:
        site.end()


def make_home() -> Path:
    """A directory of the servers' account: one of tests is root's alone, and a socket's path may
    have 107 letters.
    """
    home = Path(tempfile.mkdtemp(prefix="dlq-pg-", dir="/tmp"))
    give_away(home)
    return home


def give_away(path: Path) -> None:
    """Let the servers' account own a file or a directory of root."""
    if os.getuid() == 0:
        os.chown(path, account().user or 0, account().group or 0)


def _as_account() -> list[str]:
    """The words before a program that runs as the servers' account. Python would fork to change the
    account itself, and a process with gRPC's threads in it must not.
    """
    if os.getuid() != 0:
        return []
    user, group = account()
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--"]


class Account(NamedTuple):
    user: int | None  # None: of this process
    group: int | None


def account() -> Account:
    """As whom the programs run: anybody but root."""
    if os.getuid() != 0:
        return Account(None, None)
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            found = pwd.getpwnam(name)
            return Account(found.pw_uid, found.pw_gid)
    _missing("root may not run PostgreSQL, and this host has no account for it")
