"""Finds the processes of a demo by its directory in their arguments or environment."""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Found:
    """A living process."""

    pid: int
    command: str
    environment: dict[str, str]

    @property
    def job(self) -> tuple[str, str, str] | None:
        """Job, attempt and node rank, for a process that a job runs in."""
        names = ("DLQ_JOB_ID", "DLQ_ATTEMPT", "DLQ_NODE_RANK")
        if not all(name in self.environment for name in names):
            return None
        job, attempt, rank = (self.environment[name] for name in names)
        return job, attempt, rank


def belonging_to(root: Path) -> list[Found]:
    """All processes but this one that name `root`; zombies name nothing."""
    found = (_look(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [
        each
        for each in found
        if each is not None
        and each.pid != os.getpid()
        and any(str(root) in text for text in (each.command, *each.environment.values()))
    ]


def of_jobs(root: Path) -> dict[tuple[str, str, str], int]:
    """The oldest process of each rank that runs now, as {(job, attempt, rank): pid}."""
    pids: dict[tuple[str, str, str], int] = {}
    for each in sorted(belonging_to(root), key=lambda found: found.pid):
        if each.job is not None:
            pids.setdefault(each.job, each.pid)
    return pids


def cgroups_of(pid: int) -> set[str]:
    """The control groups that an agent made for a process, and their parents, which it made too."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return set()
    groups = {Path(line.split(":", 2)[2]) for line in lines}
    return {str(each) for group in groups if "dlq" in group.parts for each in (group, group.parent)}


def existing(cgroups: set[str]) -> list[str]:
    """The existing ones among them, in any hierarchy."""
    trees = [CGROUPS, *CGROUPS.glob("*/")]
    places = (tree / group.lstrip("/") for tree in trees for group in sorted(cgroups))
    return [str(place) for place in places if place.is_dir()]


def kill(pid: int) -> None:
    """kill -9, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_all(root: Path) -> None:
    """The last resort of a demo that failed: no process lives, and no control group of theirs."""
    cgroups: set[str] = set()
    deadline_s = time.monotonic() + PATIENCE_S
    while (found := belonging_to(root)) or existing(cgroups):
        cgroups.update(*(cgroups_of(each.pid) for each in found))  # ranks fall with each other
        for each in found:
            kill(each.pid)
        for path in sorted(existing(cgroups), reverse=True):  # children before their parents
            with suppress(OSError):  # busy as long as the kernel has not done with its processes
                os.rmdir(path)
        if time.monotonic() > deadline_s:
            return
        time.sleep(0.1)


def _look(pid: int) -> Found | None:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    pairs = (pair.partition("=") for pair in environment.decode(errors="replace").split("\0"))
    return Found(pid, command.decode(errors="replace"), {name: value for name, _, value in pairs})
