"""A dlq cluster of one master and some agents on this machine, in a directory of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

BIN = Path(sys.executable).parent
MASTER = "master"
PATIENCE_S = 180.0
# Neither where jobs meet (jobs.port_first) nor where the kernel takes ports of its own.
PORTS = range(10_000, 20_000)
_given: set[int] = set()

# Appended to the file of `dlq-master init`. Everything is quicker than in production, so that there
# is something to see; a job with more GPU-seconds than the threshold is demoted.
_MASTER = """
[lease]
heartbeat = "1s"
ttl = "6s"
unreachable = "10s"
be_term = "1s"
slo_term = "4s"
save_lead = "0s"
resume = "0s"

[nodes]
reconnect_jitter = "1s"
start_grace = "10s"

[scheduler]
policy = "tiresias-las"
settings = {{ thresholds = "{threshold}" }}
"""

_AGENT = """\
[node]
name = "{name}"
state_dir = "{state_dir}"
devices = "fake:8xH100-80GB"
pool = "{pool}"

[jobs]
allow_root = {allow_root}  # needed by an agent that runs as root itself; shown with the node
startup_grace = "3s"  # for jobs without a beat
leave = "60s"  # a torchrun on a busy machine takes its time

[reconnect]
jitter = "1s"
longest = "1s"
"""


class Cluster:
    """Starts the daemons, talks to them by the `dlq` command, and stops them all at the end."""

    def __init__(
        self,
        root: Path,
        *,
        threshold: float = 0.0,
        nodes: tuple[str, ...],
        lenders: frozenset[str] = frozenset(),
        settings: str = "",
    ) -> None:
        """Its files go below `root`, which exists; a stopped cluster leaves them there. `settings`
        replace those above, which need the threshold. `lenders`: nodes that are servers of an
        inference side.
        """
        self.root = root
        self.nodes = nodes
        self.client_environment = {
            "DLQ_HOME": str(root / "home"),
            "DLQ_LOGIN_SOCKET": str(root / MASTER / "login.sock"),
        }
        self._lenders = lenders
        self._settings = settings or _MASTER.format(threshold=threshold)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.masters: tuple[str, ...] = (MASTER,)
        self.api, self._join_address = (f"127.0.0.1:{port}" for port in free_ports(2))

    @property
    def home(self) -> Path:
        """Where the client's certificate lies."""
        return self.root / "home"

    def __enter__(self) -> Self:
        try:
            self._start_all()
        except BaseException:
            self._stop_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop_all()

    def dlq(self, *arguments: str) -> str:
        """The output of one `dlq` command."""
        return self.run("dlq", *arguments)

    def ask(self, *command: str) -> subprocess.CompletedProcess[str]:
        """One command of ours, with any exit code."""
        name, *arguments = command
        words = [str(BIN / name), *arguments]
        return subprocess.run(words, env=self._environment(), capture_output=True, text=True)

    def run(self, *command: str) -> str:
        """The output of one command of ours; CalledProcessError, with its errors shown, if it
        fails.
        """
        done = self.ask(*command)
        if done.returncode:
            sys.stderr.write(done.stderr)
        done.check_returncode()
        return done.stdout

    def start(self, name: str) -> None:
        """Start a master or an agent; its output is appended to `root/NAME.log`."""
        program = "dlq-master" if name in self.masters else "dlq-nodeagent"
        with (self.root / f"{name}.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [BIN / program, "run", "--config", self.config(name)],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops it in order
            )

    def kill(self, name: str) -> None:
        """kill -9."""
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Such as SIGSTOP: it is there, and does nothing."""
        self._daemons[name].send_signal(number)

    def stop(self, name: str) -> None:
        """A graceful stop; nothing if it does not run."""
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def leave_running(self) -> list[int]:
        """Forget the daemons without stopping them; their process ids."""
        pids = [daemon.pid for daemon in self._daemons.values()]
        self._daemons.clear()
        return pids

    def _start_all(self) -> None:
        self._make_master()
        self.start(MASTER)
        wait_until(self._logged_in, "the master to answer")
        for name in self.nodes:
            self._make_agent(name)
            self.start(name)
        wait_until(self.all_up, "the nodes to be up")

    def _stop_all(self) -> None:
        for name in (*self.nodes, *reversed(self.masters)):
            self.stop(name)

    def _make_master(self) -> None:
        self.run(
            "dlq-master", "init", "--cluster", "demo", "--state-dir", str(self.root / MASTER),
            "--config", self.config(MASTER), "--checkpoint-root", str(self.root / "checkpoints"),
            "--listen", self.api, "--join-listen", self._join_address,
        )  # fmt: skip
        with Path(self.config(MASTER)).open("a") as file:
            file.write(self._settings)

    def _make_agent(self, name: str) -> None:
        text = _AGENT.format(
            name=name,
            state_dir=self.root / name,
            pool="inference" if name in self._lenders else "training",
            allow_root="true" if os.getuid() == 0 else "false",
        )
        Path(self.config(name)).write_text(text)
        token = self.dlq("admin", "token", "create", "--node", name).strip()
        self.run(
            "dlq-nodeagent", "join", token, "--master", self._join_address,
            "--config", self.config(name),
        )  # fmt: skip

    def _logged_in(self) -> bool:
        if MASTER in self._daemons and self._daemons[MASTER].poll() is not None:
            raise TimeoutError(f"the master did not start, see {self.root / MASTER}.log")
        done = subprocess.run([BIN / "dlq", "login"], env=self._environment(), capture_output=True)
        return done.returncode == 0

    def all_up(self) -> bool:
        nodes = json.loads(self.dlq("nodes", "--json"))["nodes"]
        return {node["node_id"] for node in nodes if node["state"] == "up"} == set(self.nodes)

    def _environment(self) -> dict[str, str]:
        return {"PATH": f"{BIN}:{os.environ.get('PATH', os.defpath)}"} | self.client_environment

    def config(self, name: str) -> str:
        """The file of a daemon's configuration."""
        return str(self.root / f"{name}.toml")


def wait_until(
    holds: Callable[[], bool],
    what: str,
    *,
    patience_s: float = PATIENCE_S,
    every_s: float = 0.25,
) -> None:
    """Poll until `holds`; TimeoutError naming `what` after `patience_s`."""
    deadline_s = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {patience_s:.0f} s in vain for {what}")
        time.sleep(every_s)


def free_ports(count: int) -> list[int]:
    """Ports without a listener, each given once; a process begins at a place of its own."""
    first = os.getpid() * 7 % len(PORTS)
    order = (*PORTS[first:], *PORTS[:first])
    found = (port for port in order if port not in _given and _is_free(port))
    ports = [next(found) for _ in range(count)]
    _given.update(ports)
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
