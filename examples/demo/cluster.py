"""A dlq cluster of one master and two agents on this machine, in a directory of its own."""

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
NODES = ("node-a", "node-b")
PATIENCE_S = 30.0

_MASTER = """\
[cluster]
name = "demo"
state_dir = "{state_dir}"

[listen]
api = "127.0.0.1:{api_port}"
join = "127.0.0.1:{join_port}"

[lease]  # everything is quicker than in production, so that there is something to see
heartbeat = "1s"
ttl = "4s"
unreachable = "6s"
be_term = "2s"
slo_term = "8s"
save_lead = "0s"

[nodes]
reconnect_jitter = "1s"
start_grace = "10s"

[scheduler]
policy = "tiresias-las"
[scheduler.settings]
thresholds = "{threshold}"  # GPU-seconds: six GPUs cross it after some seconds

[jobs]
checkpoint_root = "{checkpoint_root}"
"""

_AGENT = """\
[node]
name = "{name}"
state_dir = "{state_dir}"
devices = "fake:8xH100-80GB"
"""


class Cluster:
    """Starts the daemons, talks to them by the `dlq` command, and stops them all at the end."""

    def __init__(self, root: Path, *, threshold: float) -> None:
        self.root = root
        self.home = root / "home"
        self.client_environment = {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "DLQ_HOME": str(self.home),
            "DLQ_LOGIN_SOCKET": str(root / "master" / "login.sock"),
        }
        self._threshold = threshold
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._configure_master()
        self.run("dlq-master", "init", "--config", self._config("master"))
        self.start("master")
        wait_until(self._answers, "the master to answer")
        for name in NODES:
            self._configure_agent(name)
            token = self.dlq("admin", "token", "create").strip()
            self.run("dlq-nodeagent", "join", token, "--config", self._config(name))
            self.start(name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for name in (*NODES, "master"):
            self.stop(name)

    def dlq(self, *arguments: str) -> str:
        """The output of one `dlq` command."""
        return self.run("dlq", *arguments)

    def run(self, *command: str) -> str:
        """The output of one command of ours; CalledProcessError, with its errors shown, if it fails."""
        name, *arguments = command
        done = subprocess.run(
            [BIN / name, *arguments], env=self.client_environment, capture_output=True, text=True
        )
        if done.returncode:
            sys.stderr.write(done.stderr)
        done.check_returncode()
        return done.stdout

    def start(self, name: str) -> None:
        """Start the master or an agent; its output is appended to `root/NAME.log`."""
        program = "dlq-master" if name == "master" else "dlq-nodeagent"
        with (self.root / f"{name}.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [BIN / program, "run", "--config", self._config(name)],
                env=self.client_environment,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops it in order
            )

    def kill(self, name: str) -> None:
        """kill -9."""
        self._daemons[name].kill()
        self._daemons.pop(name).wait()

    def stop(self, name: str) -> None:
        """A graceful stop; nothing if it does not run."""
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(timeout=15)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def leave_running(self) -> list[int]:
        """Forget the daemons without stopping them; their process ids."""
        pids = [daemon.pid for daemon in self._daemons.values()]
        self._daemons.clear()
        return pids

    def _answers(self) -> bool:
        done = subprocess.run(
            [BIN / "dlq", "login"], env=self.client_environment, capture_output=True, check=False
        )
        return done.returncode == 0

    def _config(self, name: str) -> str:
        return str(self.root / f"{name}.toml")

    def _configure_master(self) -> None:
        api_port, join_port = _free_ports(2)
        Path(self._config("master")).write_text(
            _MASTER.format(
                state_dir=self.root / "master",
                api_port=api_port,
                join_port=join_port,
                threshold=self._threshold,
                checkpoint_root=self.root / "checkpoints",
            )
        )

    def _configure_agent(self, name: str) -> None:
        Path(self._config(name)).write_text(_AGENT.format(name=name, state_dir=self.root / name))


def wait_until(holds: Callable[[], bool], what: str, *, patience_s: float = PATIENCE_S) -> None:
    """Poll twice a second until `holds`; TimeoutError naming `what` after `patience_s`."""
    deadline_s = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {patience_s:.0f} s in vain for {what}")
        time.sleep(0.5)


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
