"""The processes of a box: finding their programs, knowing them again, and ending them.

A process is known by its number and its start time. A number that the kernel gave to somebody else
is nobody of ours, however old a file is.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from dlq_cli.up.place import Box
from dlq_common.errors import ConfigError

MASTER, AGENT, PAGE = "master", "agent", "page"
PARTS = (MASTER, AGENT, PAGE)
STOP_S = 20.0  # a daemon's own time to end, before SIGKILL
LOOK_S = 0.05
# A package of each part's extra that no other extra brings.
_NEEDS = {MASTER: ("sqlite_utils", "apscheduler", "scipy"), AGENT: ("psutil", "pynvml"),
          PAGE: ("starlette", "uvicorn", "jinja2")}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KnownProcess:
    """A process that ran when it was written down."""

    pid: int
    started: int  # in the kernel's ticks since its boot

    @classmethod
    def of(cls, pid: int) -> KnownProcess:
        return cls(pid, _started(pid))

    def lives(self) -> bool:
        """Whether it still runs; a zombie does not."""
        return self.started > 0 and _started(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        if self.lives():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self, patience_s: float = STOP_S) -> None:
        """SIGTERM, and SIGKILL after `patience_s`."""
        self.send(signal.SIGTERM)
        if not wait_for(lambda: not self.lives(), patience_s):
            self.send(signal.SIGKILL)
            wait_for(lambda: not self.lives(), patience_s)


@dataclass(frozen=True, slots=True)
class RunningParts:
    """The notes of a keeper: itself, its parts, and its starts of each."""

    keeper: KnownProcess
    parts: dict[str, KnownProcess]
    starts: dict[str, int]
    record: str  # the mark of the record that the keeper follows

    def text(self) -> bytes:
        parts = {name: [each.pid, each.started] for name, each in self.parts.items()}
        keeper = [self.keeper.pid, self.keeper.started]
        facts = {"keeper": keeper, "parts": parts, "starts": self.starts, "record": self.record}
        return json.dumps(facts).encode()


def read_running(box: Box) -> RunningParts | None:
    """None without such a file, or with a damaged one: a full disk cuts files short."""
    try:
        facts = json.loads(box.running.read_bytes())
        parts = {name: KnownProcess(*facts["parts"][name]) for name in facts["parts"]}
        keeper, starts = KnownProcess(*facts["keeper"]), dict(facts["starts"])
        return RunningParts(keeper, parts, starts, facts["record"])
    except (OSError, KeyError, TypeError, ValueError):
        return None


def keeper_lives(box: Box) -> bool:
    """Whether a keeper holds the lock of this box."""
    try:
        with box.lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def sole_keeper(box: Box) -> Iterator[bool]:
    """Hold the lock; False when another keeper does. The kernel takes it back at any end."""
    with box.lock.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def jobs_here(box: Box) -> list[int]:
    """The guards of jobs that live on this box, by the kernel's word: also without a master.

    Each keeps the directory of its attempt open.
    """
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "comm").read_text() == "dlq-shim\n":
                links = [os.readlink(each) for each in (entry / "fd").iterdir()]
                if any(link.startswith(f"{box.agent}/attempts/") for link in links):
                    found.append(int(entry.name))
    return found


def missing(part: str) -> str:
    """The first package that a part needs and this installation lacks; "" if none."""
    return next((name for name in _NEEDS[part] if find_spec(name) is None), "")


def program(name: str) -> str:
    """The path of one of our programs: beside this Python, or where it puts scripts."""
    schemes = {"posix_user", "posix_local"} & {*sysconfig.get_scheme_names()}
    paths = [sysconfig.get_path("scripts", scheme) for scheme in sorted(schemes)]
    for place in (str(Path(sys.executable).parent), sysconfig.get_path("scripts"), *paths):
        if os.access(f"{place}/{name}", os.X_OK):
            return f"{place}/{name}"
    if found := shutil.which(name):
        return found
    raise ConfigError(f"{name} is not beside {sys.executable}", hint="pip install 'dlq[all]'")


def wait_for(holds: Callable[[], bool], patience_s: float) -> bool:
    """Look again and again; False when the time is over."""
    end_s = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > end_s:
            return False
        time.sleep(LOOK_S)
    return True


def _started(pid: int) -> int:
    """The start of a process in ticks; 0 when there is none, or only what its parent must reap."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])
