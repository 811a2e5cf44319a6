"""Boxes of `dlq up` in a directory of their own, as root or as an unprivileged user."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dlq_cli.up.place import Box, read_box
from dlq_cli.up.processes import jobs_here, keeper_lives, read_running
from support.ports import free_ports
from support.waiting import wait_until

DLQ = "from dlq_cli.main import main; main()"
PATIENCE_S = 300.0


class UpBox:
    """One identity directory, and the commands of its user; no port or directory is the usual."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "config" / "dlq"
        claimed = {*free_ports(20)}
        self.port = next(port for port in sorted(claimed) if port + 1 in claimed)
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(root),
            "XDG_CONFIG_HOME": str(root / "config"),
            "XDG_STATE_HOME": str(root / "state"),
            "XDG_RUNTIME_DIR": str(root / "run"),
            "DLQ_PATIENCE_S": "30",
        }

    def ask(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """One command, with any exit code."""
        return subprocess.run(
            [sys.executable, "-P", "-c", DLQ, *words],
            env=self.environment, cwd=self.root, input=given,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def said(self, *words: str, given: str = "") -> str:
        """The output of a command that must go well."""
        done = self.ask(*words, given=given)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    def up(self, *words: str) -> str:
        """`dlq up` with two virtual GPUs, at a port of its own."""
        return self.said("up", "--devices", "fake:2", "--port", str(self.port), *words)

    def facts(self) -> dict[str, Any]:
        """What `dlq up --status --json` says."""
        box: dict[str, Any] = json.loads(self.ask("up", "--status", "--json").stdout)["box"]
        return box

    def pids(self) -> dict[str, int | None]:
        """The processes of the parts."""
        return {part["part"]: part["pid"] for part in self.facts()["parts"]}

    def kill(self, pid: int) -> None:
        """kill -9, and wait until it is gone."""
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not lives(pid), what=f"{pid} is gone")

    def logs(self) -> str:
        found = sorted(self.root.rglob("logs/*.log"))
        return "".join(f"\n== {path.name}\n{path.read_text()[-3000:]}" for path in found)

    def clean_up(self) -> None:
        """End every process of this box, however its test ended."""
        box = read_box(self.home) if (self.home / "up.json").exists() else None
        if box is None:
            return
        if box.lock.exists():  # a keeper that has just begun has not written down itself
            wait_until(lambda: not keeper_lives(box) or keeper_is_known(box), what="its keeper")
        running = read_running(box)
        if running is not None:
            running.keeper.end()
            for known in running.parts.values():
                known.end()
        for pid in jobs_here(box):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def keeper_is_known(box: Box) -> bool:
    """Whether the present keeper has written down itself."""
    running = read_running(box)
    return running is not None and running.keeper.lives()


def lives(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextmanager
def up_box() -> Iterator[UpBox]:
    """A box below a short path; gone afterwards."""
    root = Path(tempfile.mkdtemp(prefix="dlq-up-"))
    (root / "run").mkdir(mode=0o700)
    box = UpBox(root)
    try:
        yield box
    finally:
        box.clean_up()
        shutil.rmtree(root, ignore_errors=True)
