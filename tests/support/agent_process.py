"""A real `dlq-nodeagent` process over a state directory of its own, against a stub master."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from support.daemon_logs import shown_on_failure
from support.stub_master import StubMaster

AGENT = Path(sys.executable).with_name("dlq-nodeagent")

_CONFIG = """
[node]
name = "node-a"
state_dir = "{state_dir}"
devices = "fake:8xH100-80GB"
[master]
join = "127.0.0.1:{join_port}"
[jobs]
run_as = "self"
allow_root = true
startup_grace = "2s"
term = "1s"
[reconnect]
first_try = "100ms"
jitter = "200ms"
longest = "500ms"
"""


class AgentProcess:
    """Starts, kills and stops one agent; its output goes to `output`."""

    def __init__(self, root: Path, master: StubMaster) -> None:
        self.state_dir = root / "agent"
        self.output = root / "agent.log"
        self.config = root / "nodeagent.toml"
        self.config.write_text(_CONFIG.format(state_dir=self.state_dir, join_port=master.join_port))
        self._process: subprocess.Popen[bytes] | None = None
        self._shown = ExitStack()
        self._shown.enter_context(shown_on_failure(lambda: [self.output]))

    def join(self, token: str) -> subprocess.CompletedProcess[str]:
        """Run `dlq-nodeagent join` with the token on stdin."""
        return subprocess.run(
            [AGENT, "join", "-", "--config", self.config],
            input=f"{token}\n",
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self, *, program: tuple[str, ...] = (str(AGENT),)) -> None:
        """Start it; returns at once."""
        with self.output.open("ab") as log:
            self._process = subprocess.Popen(
                [*program, "run", "--config", str(self.config)], stdout=log, stderr=log
            )

    @property
    def pid(self) -> int:
        """Of the running agent."""
        assert self._process is not None
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=60)

    def clean_up(self) -> None:
        """Leave nothing running, whatever the test did."""
        if self.is_alive():
            self.stop()
        for path in (self.state_dir / "attempts").glob("*/started.json"):
            try:
                os.kill(json.loads(path.read_text())["main_pid"], signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._shown.close()
