"""Makes the processes of a rank stand still: by its control groups, else by SIGSTOP.

A rank can neither see nor undo the kernel's freezer. It can see and undo SIGSTOP, which stops only
its own session. So SIGSTOP is used only without groups.
"""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dlq_nodeagent.cgroups import directories
from dlq_nodeagent.cgroups.port import CgroupDir, OnlyMinors
from dlq_nodeagent.cgroups.trees import open_only
from dlq_nodeagent.model.port import NotStill, Standstill

_WAIT_S = 5.0
_STEP_S = 0.005
_ROUNDS = 50
_LIMITS = ("memory.max", "memory.limit_in_bytes")
_USES = ("memory.current", "memory.usage_in_bytes")
_CACHED = ("inactive_file", "total_inactive_file")
_NO_LIMIT = 1 << 62


class GroupStandstill(Standstill):
    """Processes in control groups, of version 2 or 1."""

    def __init__(self, dirs: Sequence[CgroupDir]) -> None:
        self._dirs = tuple(dirs)
        at = {each.kind: Path(each.path) for each in dirs}
        self._unified, self._freezer = at.get("unified"), at.get("freezer")
        self._memory = at.get("memory") or self._unified

    def pids(self) -> frozenset[int]:
        return frozenset(directories.pids(self._dirs))

    def freeze(self) -> None:
        self._set(frozen=True)

    def thaw(self) -> None:
        if not self._moves():
            self._set(frozen=False)

    def room(self) -> int | None:
        limit = _number(self._memory, _LIMITS)
        used = _number(self._memory, _USES)
        if limit is None or used is None or limit >= _NO_LIMIT:
            return None
        return max(0, limit - max(0, used - _cached(self._memory)))

    def open_only(self, rules: Sequence[OnlyMinors]) -> None:
        try:
            open_only(self._dirs, rules)
        except OSError as error:
            raise NotStill(f"its device nodes cannot be changed: {error}") from None

    def _moves(self) -> bool:
        """Whether the group is not frozen, so that there is nothing to write."""
        for at, name, word in (
            (self._unified, "cgroup.freeze", "0"),
            (self._freezer, "freezer.state", "THAWED"),
        ):
            if at is not None and (at / name).exists():
                try:
                    return (at / name).read_text().strip() == word
                except OSError:
                    return False
        return True  # it has no freezer, or is gone

    def _set(self, *, frozen: bool) -> None:
        if self._unified is not None and (self._unified / "cgroup.freeze").exists():
            self._write(self._unified / "cgroup.freeze", "1" if frozen else "0")
            events = self._unified / "cgroup.events"
            self._wait(lambda: f"frozen {int(frozen)}" in events.read_text().splitlines())
        elif self._freezer is not None:
            state = self._freezer / "freezer.state"
            word = "FROZEN" if frozen else "THAWED"
            self._write(state, word)
            self._wait(lambda: state.read_text().strip() == word)
        else:
            raise NotStill("its control groups have no freezer")

    def _write(self, path: Path, word: str) -> None:
        try:
            directories.write_existing(path, word)
        except FileNotFoundError:
            raise NotStill("its control group is gone") from None
        except OSError as error:
            raise NotStill(str(error)) from None

    def _wait(self, done: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(round(_WAIT_S / _STEP_S)):
            with suppress(FileNotFoundError):
                if done():
                    return
            pause.wait(_STEP_S)
        raise NotStill(f"the kernel has not done it after {_WAIT_S:g} s")


class SessionStandstill(Standstill):
    """Processes of a session, on a host without control groups for us."""

    def __init__(self, found: Callable[[], frozenset[int]]) -> None:
        self._found = found

    def pids(self) -> frozenset[int]:
        return self._found()

    def freeze(self) -> None:
        """Stop processes in rounds until there is no new one: each may have started another."""
        known: frozenset[int] = frozenset()
        for _ in range(_ROUNDS):
            fresh = self.pids() - known
            if not fresh:
                return
            for pid in fresh:
                _send(pid, signal.SIGSTOP)
            known |= fresh
        self.thaw()
        raise NotStill("it starts processes faster than they can be stopped")

    def thaw(self) -> None:
        for pid in self.pids():
            with suppress(NotStill):  # one that takes no signal was not stopped by one either
                _send(pid, signal.SIGCONT)

    def room(self) -> int | None:
        return None

    def open_only(self, rules: Sequence[OnlyMinors]) -> None:
        """Nothing: without groups no rule was made at its start either."""


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise NotStill(str(error)) from None


def _cached(directory: Path | None) -> int:
    """Bytes of files that the kernel drops first when the group needs memory."""
    known: dict[str, int] = {}
    if directory is not None:
        with suppress(OSError, ValueError):
            for line in (directory / "memory.stat").read_text().splitlines():
                name, _, number = line.partition(" ")
                if name in _CACHED:
                    known[name] = int(number)
    return max(known.values(), default=0)


def _number(directory: Path | None, names: Sequence[str]) -> int | None:
    for name in names if directory is not None else ():
        with suppress(OSError, ValueError):
            return int((directory / name).read_text())  # type: ignore[operator]  # not None here
    return None
