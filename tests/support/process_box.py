"""A node's state directory with a `process` runtime over it, and what tests do to its jobs."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dlq_common.clock import SteadyClock
from dlq_nodeagent.cgroups import directories
from dlq_nodeagent.cgroups.detect import detect
from dlq_nodeagent.cgroups.port import CgroupTree
from dlq_nodeagent.cgroups.trees import NoTree
from dlq_nodeagent.model.launch import LaunchPlan
from dlq_nodeagent.model.port import ExitRecord, Handle, NotDelivered
from dlq_nodeagent.runtimes.process.attempts import OpenAttempt
from dlq_nodeagent.runtimes.process.runtime import ProcessRuntime
from dlq_nodeagent.shim.binary import ensure_shim
from dlq_nodeagent.shim.contact import ContactFile
from support.waiting import wait_until

SYSTEM_ENV = {"PATH": "/usr/bin:/bin"}


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


class ProcessBox:
    """Everything of one node agent that matters to its runtime."""

    def __init__(self, state_dir: Path, *, tree: CgroupTree, shim: Path | None = None) -> None:
        self.state_dir = state_dir
        self.state_dir.mkdir(parents=True, exist_ok=True)
        self.state_dir.chmod(0o711)
        self.tree = tree
        self.shim = shim or ensure_shim()
        self.clock = SteadyClock()
        self.contact = ContactFile(self.state_dir / "contact")
        self.contact.renew(self.clock.boottime_s())
        self.runtime = self._new_runtime()
        self.plans = 0

    def _new_runtime(self) -> ProcessRuntime:
        return ProcessRuntime(
            state_dir=self.state_dir,
            contact=self.state_dir / "contact",
            cgroups=self.tree,
            shim=self.shim,
            clock=self.clock,
        )

    def contact_was(self, seconds_ago: float) -> None:
        """The agent's last contact, also one longer ago than what the file says."""
        self.contact.close()
        (self.state_dir / "contact").unlink()
        self.contact = ContactFile(self.state_dir / "contact")
        self.contact.renew(self.clock.boottime_s() - seconds_ago)

    def plan(self, *argv: str, **fields: Any) -> LaunchPlan:
        """A plan for these words, as the user who runs the tests, with a job id of its own."""
        self.plans += 1
        known: dict[str, Any] = {
            "job_id": str(self.plans),
            "attempt": 1,
            "epoch": 5,
            "node_rank": 0,
            "argv": argv,
            "env": SYSTEM_ENV,
            "uid": os.geteuid(),
            "gid": os.getegid(),
            "allow_root": os.geteuid() == 0,
        }
        return LaunchPlan(**(known | fields))

    def run(self, *argv: str, **fields: Any) -> Handle:
        return self.runtime.start(self.plan(*argv, **fields))

    def sh(self, script: str, **fields: Any) -> Handle:
        return self.run("/bin/sh", "-c", script, **fields)

    def wait_exit(self, handle: Handle, timeout_s: float = 30.0) -> ExitRecord:
        def ended() -> ExitRecord | None:
            return self.runtime.poll(handle)

        record = wait_until(ended, what=f"the end of {handle.key}", timeout_s=timeout_s)
        assert record is not None
        return record

    def log(self, handle: Handle) -> bytes:
        """All of a log that has no gap."""
        data, offset = b"", 0
        while chunk := self.runtime.read_log(handle, offset, 1 << 20).data:
            data, offset = data + chunk, offset + len(chunk)
        return data

    def wait_log(self, handle: Handle, text: bytes) -> bytes:
        wait_until(lambda: text in self.log(handle), what=f"{text!r} in the log of {handle.key}")
        return self.log(handle)

    def restart_agent(self) -> None:
        """Forget everything in memory, as a new agent process does, and read the directory."""
        self.runtime.close()
        self.runtime = self._new_runtime()
        self.runtime.recover()

    def attempt(self, handle: Handle) -> OpenAttempt:
        return self.runtime._known(handle)

    def path(self, handle: Handle) -> Path:
        return self.state_dir / "attempts" / str(handle.key)

    def clean(self) -> None:
        """Kill what a failed test left, by its groups and its shims, and remove it all."""
        for handle in self.runtime.recover():
            attempt = self.attempt(handle)
            if self.runtime.poll(handle) is None:
                with suppress(AssertionError, NotDelivered):
                    self.runtime.kill(handle, epoch=2**40)
                    self.wait_exit(handle, timeout_s=5)
            if self.runtime.poll(handle) is None:
                started = attempt.started()
                if started is not None:
                    os.kill(started.shim_pid, signal.SIGKILL)
                directories.kill(attempt.dirs)
                self.wait_exit(handle)
            self.runtime.forget(handle)
        self.runtime.close()
        self.contact.close()
        self.tree.remove()


def tree_for_tests(mode: str) -> CgroupTree:
    """The host's own kind of tree, or the fallback that every host has."""
    return NoTree("asked for by the test") if mode == "none" else detect(f"test-{os.getpid()}")


@contextmanager
def process_box(
    state_dir: Path, mode: str = "host", shim: Path | None = None
) -> Iterator[ProcessBox]:
    box = ProcessBox(state_dir, tree=tree_for_tests(mode), shim=shim)
    try:
        yield box
    finally:
        box.clean()
