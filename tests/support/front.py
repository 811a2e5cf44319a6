"""Slurm's commands through the user's server of commands, in a directory of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from dlq_compat.install import FRONT, install
from support.harness import Daemons
from support.waiting import wait_until


class Front:
    """The installed commands of one cluster, and the server that they start."""

    def __init__(self, daemons: Daemons, root: Path) -> None:
        self.root = root
        self.bin = install(root / "slurm", FRONT)
        self.runtime = root / "x"
        self.runtime.mkdir(mode=0o700)
        self.run_dir = self.runtime / "dlq"
        kept = {name: value for name, value in os.environ.items() if name in ("HOME", "TMPDIR")}
        environment = kept | daemons.environment()
        path = f"{self.bin}:{environment['PATH']}"
        self.environment = environment | {"PATH": path, "XDG_RUNTIME_DIR": str(self.runtime)}

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.bin / words[0]), *words[1:]],
            env=self.environment | more, cwd=self.root, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def said(
        self, *words: str, given: str | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        return subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            env=self.environment | more, cwd=self.root, text=True, capture_output=True,
            input=given, stdin=None if given is not None else subprocess.DEVNULL, timeout=120,
        )  # fmt: skip

    def socket(self) -> Path | None:
        return next(self.run_dir.glob("*.sock"), None) if self.run_dir.exists() else None

    def serve(self) -> Path:
        """Until a server is there; its socket."""
        for tried in self.run_dir.glob("*.tried"):
            tried.unlink()
        assert self.said("squeue").returncode == 0
        wait_until(lambda: self.socket() is not None, what="there is a server", timeout_s=60)
        path = self.socket()
        assert path is not None
        return path

    def only_fast(self) -> None:
        """From now on the slow way does not exist."""
        (self.root / "slurm" / "lib" / "slow").rename(self.root / "away")

    def also_slow(self) -> None:
        if (self.root / "away").exists():
            (self.root / "away").rename(self.root / "slurm" / "lib" / "slow")

    def servers(self) -> list[int]:
        """The processes of the server: itself, its keeper and its spares."""
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            try:
                words = (each / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(self.run_dir).encode() in words and b"serve" in words:
                found.append(int(each.name))
        return sorted(found)

    def server(self) -> int:
        """The one that has started all others."""
        pids = self.servers()
        return next(pid for pid in pids if _parent(pid) not in pids)

    def end(self) -> None:
        for pid in self.servers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
