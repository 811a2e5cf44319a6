"""Real daemons on loopback that may be killed at any moment: one master, some agents, a ledger."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path

import click
from click.testing import CliRunner

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.line.identity import load_identity
from dlq_client.nodes import Nodes
from dlq_master.app import main as founding
from dlq_nodeagent.command import main as agents
from support.cli_run import Dlq, Said
from support.daemon_logs import shown_on_failure
from support.ports import free_ports
from support.waiting import wait_until

BIN = Path(sys.executable).parent
HERE = Path(__file__).parent
START_S = 60.0
# As in production but quicker; the hold stays far above any outage of a run, and silence and the
# way back are given the time that a machine may stand still.
SILENCE_S = (20, 25)
BRIEF_SILENCE_S = (4, 6)
MASTER_TOML = """
[lease]
heartbeat = "500ms"
ttl = "{ttl_s}s"
unreachable = "{unreachable_s}s"
hold = "{hold_s}s"
{lease}

[nodes]
reconnect_jitter = "300ms"
start_grace = "30s"

[scheduler]
policy = "best-effort"

[twin]
enabled = {twin}
refresh_every = "200ms"
cpu_share = 1.0

[jobs]
port_first = 30000
port_last = 30999
"""
AGENT_TOML = """\
[node]
name = "{name}"
state_dir = "{state_dir}"
devices = "fake:8xH100-80GB"

[master]
address = "{address}"

[jobs]
allow_root = {allow_root}
startup_grace = "2s"
term = "2s"
leave = "2s"
{kept}
[reconnect]
first_try = "100ms"
jitter = "300ms"
longest = "500ms"
"""


class Daemons:
    """Starts, kills and watches them; `log(name)` is what one has written so far."""

    ledger_user = "*"  # whose jobs all keep a ledger
    kept = 'command_kept = "15s"\n'  # no test waits 45 s for the end of a command
    relay = '[relay]\nlisten = "127.0.0.1:0"\n'  # its usual port may be another test's

    def __init__(
        self,
        root: Path,
        agents: tuple[str, ...] = ("n1", "n2", "n3"),
        *,
        hold_s: int = 120,
        silence_s: tuple[int, int] = SILENCE_S,
        lease: str = "",
        settings: str = "",
        twin: bool = False,
    ) -> None:
        """`silence_s`: of a node that is suspect, and unreachable. `twin`: starts are foreseen, by
        a process that the master starts. `lease` goes into [lease], `settings` is appended to
        master.toml. `dialled` may be changed before `up`: it is where agents dial, the master
        itself by default."""
        self.root = root
        self._lasts = {"hold_s": hold_s, "ttl_s": silence_s[0], "unreachable_s": silence_s[1]}
        self._lease = lease
        self._settings = settings
        self._twin = twin
        self.agents = agents
        self.kills = dict.fromkeys(("master", *agents), 0)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._seen: dict[str, int] = {}
        self.api, self.join = (f"127.0.0.1:{port}" for port in free_ports(2))
        self.dialled = self.api

    @contextmanager
    def up(self) -> Iterator["Daemons"]:
        """A new cluster with every node up; everything is gone afterwards."""
        with shown_on_failure(self._logs):
            try:
                self._make_master()
                self.start("master")
                self.wait_for("master")
                self._login()
                for name in self.agents:
                    self._make_agent(name)
                    self.start(name)
                with self.connect() as line:
                    nodes = Nodes(line)
                    wait_until(
                        lambda: sum(1 for node in nodes.list() if _is_up(node)) == len(self.agents),
                        what="every node is up",
                        timeout_s=START_S,
                    )
                yield self
            finally:
                self._end_all()

    # --- daemons ------------------------------------------------------------------------------

    def start(self, name: str, **env: str) -> None:
        """Start one; its output goes to `root/NAME.log`."""
        path = self.root / f"{name}.log"
        self._seen[name] = path.stat().st_size if path.exists() else 0
        with path.open("ab") as log:
            self._running[name] = subprocess.Popen(
                self._command(name),
                env=self.environment() | {"PYTHONFAULTHANDLER": "1"} | env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _command(self, name: str) -> list[str]:
        program = "dlq-master" if name == "master" else "dlq-nodeagent"
        return [str(BIN / program), "run", "--config", str(self.root / f"{name}.toml")]

    def pid(self, name: str) -> int:
        """Of a daemon that runs."""
        return self._running[name].pid

    def kill(self, name: str) -> None:
        """kill -9, and wait until it is gone."""
        self._running[name].kill()
        self._running.pop(name).wait()
        self.kills[name] += 1

    def stop(self, name: str) -> None:
        """SIGTERM: it leaves in order, with exit code 0."""
        process = self._running.pop(name)
        process.terminate()
        assert process.wait(timeout=60.0) == 0, self.log(name)[-3_000:]

    def freeze(self, name: str) -> None:
        """SIGSTOP: it is there, and does nothing."""
        self._running[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        self._running[name].send_signal(signal.SIGCONT)

    def wait_for(self, name: str) -> None:
        """Until a started daemon does its work: serves, or has been welcomed."""
        word = b"master_serving" if name == "master" else b"welcomed"
        try:
            wait_until(lambda: self._said(name, word), what=f"{name} says it", timeout_s=START_S)
        except AssertionError as never:
            self._running[name].send_signal(signal.SIGABRT)  # it writes where its threads stand
            self._running[name].wait()
            raise AssertionError(f"{never} ({word!r})\n{self.log(name)[-5_000:]}") from None

    def wait_for_death(self, name: str) -> None:
        """Until it has killed itself (a failpoint)."""
        process = self._running[name]
        wait_until(lambda: process.poll() is not None, what=f"{name} dies", timeout_s=START_S)
        assert self._running.pop(name).returncode == -signal.SIGKILL
        self.kills[name] += 1

    def wait_for_failure(self, name: str) -> None:
        """Until it has given up by itself, with an exit code that says so."""
        process = self._running[name]
        wait_until(lambda: process.poll() is not None, what=f"{name} ends", timeout_s=START_S)
        assert self._running.pop(name).returncode > 0

    def log(self, name: str) -> str:
        """All that a daemon has written, over all its lives."""
        return (self.root / f"{name}.log").read_text(errors="replace")

    def is_alive(self, name: str) -> bool:
        """Whether a started daemon has not ended by itself."""
        return self._running[name].poll() is None

    def _logs(self) -> list[Path]:
        return [self.root / f"{name}.log" for name in ("master", *self.agents)]

    def _said(self, name: str, word: bytes) -> bool:
        assert self._running[name].poll() is None, self.log(name)[-3_000:]
        with (self.root / f"{name}.log").open("rb") as log:
            log.seek(self._seen[name])
            return word in log.read()

    # --- clients ------------------------------------------------------------------------------

    def connect(self, address: str = "", *, patience_s: float = 60.0) -> Connection:
        """A line to the master, or to whatever stands before it."""
        identity = load_identity(self.root / "home")
        assert identity is not None
        identity = replace(identity, address=address or self.api)
        return Connection(identity, patience_s=patience_s, deadline_s=5.0)

    def connect_as_user(self, address: str) -> Connection:
        """A line of whoever submits the jobs that keep a ledger."""
        return self.connect(address, patience_s=120.0)

    def dlq(self, *arguments: str) -> Said:
        """One command to its end, in this process: a new one needs half a second to import
        itself.
        """
        with chdir("/tmp"):
            return Dlq(self.root / "home", self.environment())(*arguments, patience_s=60.0)

    def said(self, *arguments: str) -> str:
        """What a command prints that succeeds."""
        done = self.dlq(*arguments)
        assert done.code == 0, done.err
        return done.out

    def ran(
        self, *words: str, stdin: bytes, timeout_s: float
    ) -> subprocess.CompletedProcess[bytes]:
        """A program to its end, as a user of this cluster."""
        return subprocess.run(
            words,
            env=self.environment(),
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            cwd="/tmp",
        )

    @contextmanager
    def begun(self, *words: str, stdin: int) -> Iterator[subprocess.Popen[bytes]]:
        """A program that goes on, as a user of this cluster; killed at the end of the block."""
        process = subprocess.Popen(
            words,
            env=self.environment(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/tmp",
            start_new_session=True,
            bufsize=0,  # what `readline` reads ahead would be missing from `communicate`
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def ledger_job(self, seconds: float, code: int, *, nodes: int = 1) -> job_pb2.JobSpec:
        """A job that writes its start and its end into the ledger."""
        spec = job_pb2.JobSpec(
            name="ledger",
            command=[
                sys.executable, "-I", "-S", str(HERE / "ledger_job.py"), str(self.root / "ledger"),
                str(seconds), str(code),
            ],
            working_directory=str(self.root),
        )  # fmt: skip
        spec.resources.gpu_count = nodes
        if nodes > 1:
            spec.resources.node_count = nodes
        return spec

    def write_rows(self, jobs: Jobs) -> None:
        """What the master says at the end, for the checker."""
        with (self.root / "rows").open("w") as file:
            for job in jobs.list(user=self.ledger_user).jobs:
                attempts = jobs.get(job.job_id).attempts
                row = {
                    "job_id": job.job_id,
                    "state": job_pb2.JobState.Name(job.state),
                    "exit_code": job.exit_code if job.HasField("exit_code") else None,
                    "attempts": len(attempts),
                    "fence": _fence(attempts[-1]) if attempts else "",
                }
                file.write(json.dumps(row) + "\n")

    def judge(self) -> dict[str, int]:
        """Let the checker, a program of its own, look at the three files; its counts."""
        (self.root / "ledger").touch()
        done = subprocess.run(
            [sys.executable, "-I", HERE / "ledger_check.py", self.root],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[:5_000]
        found: dict[str, int] = json.loads(done.stdout)
        return found

    # --- making -------------------------------------------------------------------------------

    def _make_master(self) -> None:
        self._run(
            founding, "init", "--cluster", "torture", "--state-dir", str(self.root / "master"),
            "--config", str(self.root / "master.toml"), "--listen", self.api,
            "--join-listen", self.join,
        )  # fmt: skip
        twin = str(self._twin).lower()
        extra = MASTER_TOML.format(**self._lasts, lease=self._lease, twin=twin)
        config = self.root / "master.toml"
        made = config.read_text()
        checkpoint_root = next(x for x in made.splitlines() if x.startswith("checkpoint_root"))
        made = made.replace(f"[jobs]\n{checkpoint_root}\n", "")
        if "[relay]" not in self._settings:
            extra = f"{self.relay}{extra}"
        config.write_text(f"{made}{extra}{checkpoint_root}\n{self._settings}")

    def _make_agent(self, name: str) -> None:
        (self.root / f"{name}.toml").write_text(
            AGENT_TOML.format(
                name=name,
                state_dir=self.root / name,
                address=self.dialled,
                allow_root="true" if os.getuid() == 0 else "false",
                kept=self.kept,
            )
        )
        token = self.said("admin", "token", "create", "--node", name).strip()
        self._run(
            agents, "join", token, "--master", self.join,
            "--config", str(self.root / f"{name}.toml"),
        )  # fmt: skip

    def _login(self) -> None:
        self.said("login")

    def _run(self, command: click.Command, *arguments: str) -> str:
        """One command to its end, in this process."""
        done = CliRunner().invoke(command, arguments, env=self.environment())
        assert done.exit_code == 0, f"{command.name} {arguments}: {done.output} {done.exception}"
        return done.stdout

    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{BIN}:{os.environ.get('PATH', os.defpath)}",
            "DLQ_HOME": str(self.root / "home"),
            "DLQ_LOGIN_SOCKET": str(self.root / "master" / "login.sock"),
        }

    def _end_all(self) -> None:
        for name in sorted(self._running, key=lambda name: name == "master"):  # the master last
            process = self._running.pop(name)
            process.terminate()
            try:
                process.wait(timeout=15.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _is_up(node: object) -> bool:
    return "NODE_STATE_UP" in str(node)


def _fence(attempt: job_pb2.Attempt) -> str:
    return f"{attempt.fence.epoch}.{attempt.fence.attempt}"
