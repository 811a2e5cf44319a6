"""A real master, and a real agent when asked for, in a directory of their own on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from dlq_master.store.batch import Batch
from dlq_master.store.rows import write_batch
from dlq_master.store.sqlite.open import open_database, write
from support.ports import free_ports

BIN = Path(sys.executable).parent


class Living:
    """The daemons of one benchmark. Everything ends with it."""

    def __init__(
        self, root: Path, settings: str = "", master: tuple[str, ...] = ("dlq-master",)
    ) -> None:
        """`master`: the command of the master, such as one with a clock (timed_master.py)."""
        self._command = master
        self.root = root
        self.state_dir = root / "master"
        self.home = root / "home"
        self.environment = {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "DLQ_HOME": str(self.home),
            "DLQ_LOGIN_SOCKET": str(self.state_dir / "login.sock"),
        }
        self.config = self.state_dir / "master.toml"
        self._settings = settings
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.join = ""

    def __enter__(self) -> Self:
        api, self.join = (f"127.0.0.1:{port}" for port in free_ports(2))
        self.run(
            "dlq-master", "init", "--state-dir", str(self.state_dir), "--cluster", "bench",
            "--listen", api, "--join-listen", self.join,
        )  # fmt: skip
        with self.config.open("a") as file:
            file.write(self._settings)
        self.master = self.start_master()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(timeout=30)

    def start_anew(self, rows: Batch) -> None:
        """The master starts again, with one logged-in user and these rows in its database."""
        self.run("dlq", "login")
        self.master.terminate()
        self.master.wait(timeout=30)
        db = open_database(self.state_dir / "dlq.db")
        with write(db):
            write_batch(db, rows)
        db.close()
        self.master = self.start_master()

    def start_master(self) -> subprocess.Popen[bytes]:
        """Start it and wait until it answers."""
        master = self._start(*self._command, "run", "--config", str(self.config))
        self.wait_until_serving()
        return master

    def wait_until_serving(self, patience_s: float = 60.0) -> None:
        """Return as soon as the login broker answers."""
        deadline_s = time.monotonic() + patience_s
        while time.monotonic() < deadline_s:
            try:
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(self.environment["DLQ_LOGIN_SOCKET"])
                return
            except OSError:
                time.sleep(0.01)
        raise TimeoutError("the master does not serve; see " + str(self.root / "dlq-master.log"))

    def start_agent(self, name: str, devices: str, settings: str = "") -> subprocess.Popen[bytes]:
        """Join and start an agent with virtual devices, and wait until its node is UP.

        `settings` is its configuration file.
        """
        agent = self.start_agent_soon(name, devices, settings)
        while " up " not in self.run("dlq", "nodes"):
            if agent.poll() is not None:
                raise RuntimeError("the agent ended; see " + str(self.root / "dlq-nodeagent.log"))
            time.sleep(0.05)
        return agent

    def start_agent_soon(
        self, name: str, devices: str, settings: str = ""
    ) -> subprocess.Popen[bytes]:
        """The same without the wait."""
        token = self.run("dlq", "admin", "token", "create").strip()
        state_dir = str(self.root / name)
        self.run(
            "dlq-nodeagent", "join", "--token", token, "--master", self.join,
            "--name", name, "--state-dir", state_dir,
        )  # fmt: skip
        config = self.root / f"{name}.toml"
        config.write_text(settings)
        root_jobs = ["--allow-root-jobs"] if os.geteuid() == 0 else []
        return self._start(
            "dlq-nodeagent", "run", "--config", str(config), "--state-dir", state_dir,
            "--devices", devices, *root_jobs,
        )  # fmt: skip

    def run(self, *command: str) -> str:
        """The output of one command of ours. RuntimeError has its words if it fails."""
        name, *arguments = command
        done = subprocess.run(
            [BIN / name, *arguments],
            env=self.environment, check=False, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            raise RuntimeError(f"{name} {arguments[0]} ends with {done.returncode}: {said}")
        return done.stdout

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        name, *arguments = command
        with (self.root / f"{name}.log").open("ab") as log:
            daemon = subprocess.Popen(
                [BIN / name, *arguments], env=self.environment, stdout=log, stderr=log
            )
        self._daemons.append(daemon)
        return daemon


def cpu_s(pid: int) -> float:
    """User and system time that a process has used, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
