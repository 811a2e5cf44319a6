"""PostgreSQL servers of a demo: a primary, and a standby that confirms each of its commits.

PostgreSQL refuses to run as root. Then another account owns the servers and their directory.
"""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import psutil

from cluster import free_ports, wait_until
from proof import ProofFailed

OLDEST = 15
PLACE = Path("/usr/lib/postgresql")
ACCOUNTS = ("postgres", "nobody")
USER = "dlq"
NAMES = ("one", "two")
# Whichever of them is the primary, the other one confirms its commits.
SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{home}'
shared_buffers = 16MB
max_connections = 40
"""


class Missing(Exception):
    """This host cannot show it, and the message says what to install."""


def programs(place: Path = PLACE) -> Path:
    """The directory of the newest PostgreSQL's programs. Raises Missing."""
    found = [
        (int(path.parent.name), path)
        for path in place.glob("*/bin")
        if path.parent.name.isdecimal() and (path / "initdb").exists()
    ]
    newest, path = max(found, default=(0, Path()))
    if newest < OLDEST:
        raise Missing(
            f"this demo needs PostgreSQL {OLDEST} or newer, and there is none below {place}. On "
            "Debian and Ubuntu: apt-get install postgresql"
        )
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise Missing(f"{error}. Install it: pip install 'psycopg[binary]'") from None
    return path


class Account(NamedTuple):
    """As whom the servers run, and the words before a program that runs as this account."""

    user: int
    group: int
    words: Sequence[str] = ()


def account() -> Account:
    """Anybody but root. Raises Missing."""
    if os.getuid() != 0:
        return Account(os.getuid(), os.getgid())
    if shutil.which("setpriv") is None:
        raise Missing("root needs setpriv to start PostgreSQL. Debian and Ubuntu: util-linux")
    for name in ACCOUNTS:
        with suppress(KeyError):
            _, _, user, group, *_ = pwd.getpwnam(name)
            # Python would fork to change it, and a process with gRPC's threads in it must not.
            words = ("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--")
            return Account(user, group, words)
    raise Missing(f"root may not run PostgreSQL, and no account is named {' or '.join(ACCOUNTS)}")


def need_servers() -> None:
    """See that this host can run them. Raises Missing."""
    programs()
    account()


class Servers:
    """Two servers below `root`; all of their processes end with the block."""

    def __init__(self, root: Path) -> None:
        self._programs, self._account = programs(), account()
        self.home = root / "servers"
        self._ports = dict(zip(NAMES, free_ports(2), strict=True))
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.primary, self.standby = NAMES

    @property
    def dsn(self) -> str:
        """For the masters: both servers; they use the one that takes writes."""
        ports = ",".join(str(port) for port in self._ports.values())
        return f"host={self.home},{self.home} port={ports} user={USER} dbname=postgres"

    def __enter__(self) -> Self:
        self.home.parent.chmod(0o711)  # the other account passes, and reads nothing
        self.home.mkdir(mode=0o700)
        os.chown(self.home, self._account.user, self._account.group)
        try:
            self._make_primary()
            self.make_standby()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def kill_primary(self) -> None:
        """kill -9 of all its processes."""
        self._kill(self.primary)

    def promote(self) -> None:
        """The standby takes writes from now on; each waits for the next `make_standby`."""
        self._run("pg_ctl", "promote", "-w", "-D", str(self.home / self.standby))
        self.primary, self.standby = self.standby, self.primary

    def make_standby(self) -> None:
        """A new copy of the primary, which follows it and confirms its commits."""
        name, data = self.standby, self.home / self.standby
        shutil.rmtree(data, ignore_errors=True)
        self._run(
            "pg_basebackup", "-D", str(data), "-R", "-X", "stream", "-c", "fast", "--no-sync",
            "-h", str(self.home), "-p", str(self._ports[self.primary]), "-U", USER,
        )  # fmt: skip
        self._configure(name)
        self._start(name)
        wait_until(self.confirms, f"server {name} to confirm commits")

    def confirms(self) -> bool:
        """Whether the standby confirms each commit of the primary."""
        told = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
        return self._ask(self.primary, told) == "sync"

    # --- helpers, in order of use -------------------------------------------------------------

    def _make_primary(self) -> None:
        self._run(
            "initdb", "-D", str(self.home / self.primary), "-U", USER, "-E", "UTF8",
            "--locale=C", "--auth=trust", "--no-sync",
        )  # fmt: skip
        self._configure(self.primary)
        self._start(self.primary)

    def _configure(self, name: str) -> None:
        (other,) = set(NAMES) - {name}
        with (self.home / name / "postgresql.conf").open("a") as file:
            file.write(SETTINGS.format(home=self.home))
            file.write(f"port = {self._ports[name]}\ncluster_name = '{name}'\n")
            file.write(f"synchronous_standby_names = '{other}'\n")

    def _start(self, name: str) -> None:
        with (self.home.parent / f"server-{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*self._account.words, self._programs / "postgres", "-D", self.home / name],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                cwd=self.home,
            )  # fmt: skip
        wait_until(lambda: self._ask(name, "SELECT 1") == "1", f"server {name} to answer")

    def _ask(self, name: str, statement: str) -> str:
        """The first value of its answer; "" without one."""
        import psycopg

        process = self._running[name]
        if process.poll() is not None:
            log = self.home.parent / f"server-{name}.log"
            raise ProofFailed(f"server {name} has ended: {log.read_text()[-1000:]}")
        with suppress(psycopg.OperationalError):
            where = f"host={self.home} port={self._ports[name]} user={USER} dbname=postgres"
            with psycopg.connect(where, connect_timeout=5) as line:
                row = line.execute(statement.encode()).fetchone()
                return str(row[0]) if row else ""
        return ""

    def _run(self, program: str, *options: str) -> None:
        words = [*self._account.words, str(self._programs / program), *options]
        done = subprocess.run(words, cwd=self.home, capture_output=True, text=True)
        if done.returncode:
            raise ProofFailed(f"{program} failed: {done.stderr.strip()}")

    def _kill(self, name: str) -> None:
        process = self._running.pop(name)
        own = psutil.Process(process.pid)
        for each in (own, *own.children()):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()

    def _end(self) -> None:
        for name in list(self._running):
            process = self._running.pop(name)
            process.send_signal(signal.SIGQUIT)  # at once; nobody needs these rows any more
            try:
                process.wait(timeout=20.0)
            except subprocess.TimeoutExpired:
                self._running[name] = process
                self._kill(name)
