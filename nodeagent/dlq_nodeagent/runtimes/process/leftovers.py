"""Ranks that run on this host although the agent has no record of them: found before its hello.

Their shims are known by the directory of their attempt, and their fence by the plan: they keep both
open, even without their names. Processes without a shim are known by their control group.
They are left alone until the master orders their end, then killed whole.
"""

import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.cgroups import directories
from dlq_nodeagent.cgroups.port import CgroupTree
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.runtimes.process import layout, planfile

_PROC = Path("/proc")
_LONGEST_PLAN = 4 * 1024 * 1024
_LOOK_S = 1.0

log = get_logger("nodeagent.leftovers")


class Leftover(NamedTuple):
    """One rank by its processes; epoch 0: its plan cannot be read."""

    key: RankKey
    epoch: int
    pids: frozenset[int]


Find = Callable[[Collection[RankKey]], dict[RankKey, Leftover]]


class Leftovers:
    """The found ranks, and the ones to end. `find` leaves out the keys that it is given."""

    def __init__(self, clock: Clock, find: Find) -> None:
        self._clock = clock
        self._find = find
        self._found: dict[RankKey, Leftover] = {}
        self._doomed: set[RankKey] = set()
        self._looked_s = 0.0

    def look(self, known: Collection[RankKey]) -> None:
        """Find all that runs and is not known. Call before the first hello."""
        self._looked_s = self._clock.boottime_s()
        self._found = self._find(known)
        for found in self._found.values():
            log.error("rank_unexplained", key=str(found.key), pids=sorted(found.pids))

    @property
    def any(self) -> bool:
        """Whether some of them are still there."""
        return bool(self._found)

    def all(self) -> tuple[Leftover, ...]:
        """The remaining ones, for a hello."""
        return tuple(self._found.values())

    def has(self, key: RankKey) -> bool:
        """Whether processes of this rank were found and are still there."""
        return key in self._found

    def end(self, key: RankKey) -> None:
        """The master has ordered its end: kill it with the next ticks, until nothing is left."""
        log.warning("rank_unexplained_ends", key=str(key))
        self._doomed.add(key)

    def tick(self, known: Collection[RankKey]) -> bool:
        """Kill what is doomed and look again; True when one is gone."""
        now_s = self._clock.boottime_s()
        if not self._found or now_s - self._looked_s < _LOOK_S:
            return False
        self._looked_s = now_s
        self._kill_doomed()
        before = set(self._found)
        self._found = self._find(known)
        self._doomed &= set(self._found)
        return set(self._found) != before

    def _kill_doomed(self) -> None:
        for key in self._doomed:
            for pid in self._found[key].pids:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


def finder(state_dir: Path, cgroups: CgroupTree, proc: Path = _PROC) -> Find:
    """Finds the ranks of this state directory on the host."""
    attempts = state_dir.absolute() / layout.ATTEMPTS

    def find(known: Collection[RankKey]) -> dict[RankKey, Leftover]:
        found: dict[RankKey, Leftover] = {}
        for pid, key in _shims(attempts, proc):
            if key not in known:
                pids = frozenset({pid, *_below(pid)})
                found[key] = Leftover(key, _epoch_of(pid, proc), pids)
        for name, dirs in cgroups.groups().items():
            key_of_group = _key(name)
            pids = frozenset(directories.pids(dirs))
            if key_of_group is not None and key_of_group not in known and pids:
                before = found.get(key_of_group, Leftover(key_of_group, 0, frozenset()))
                found[key_of_group] = before._replace(pids=before.pids | pids)
        return found

    return find


def _shims(attempts: Path, proc: Path) -> Iterator[tuple[int, RankKey]]:
    for name in os.listdir(proc):
        if not name.isdecimal():
            continue
        try:
            program = (proc / name / "cmdline").read_bytes().split(b"\0")[0]
        except OSError:
            continue
        if os.path.basename(program) != b"dlq-shim":
            continue
        for _, path in _open_files(name, proc):
            key = _key(path.name)
            if path.parent == attempts and key is not None:
                yield int(name), key
                break


def _open_files(pid: str, proc: Path) -> Iterator[tuple[Path, Path]]:
    """The descriptors of a process, each with its file, even if that has been removed."""
    with suppress(OSError):
        for entry in (proc / pid / "fd").iterdir():
            yield entry, Path(os.readlink(entry).removesuffix(" (deleted)"))


def _key(name: str) -> RankKey | None:
    try:
        return RankKey.parse(name)
    except LaunchRefused:
        return None


def _below(pid: int) -> set[int]:
    import psutil  # rarely of use, and 0.8 MB

    with suppress(psutil.Error):
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    return set()


def _epoch_of(pid: int, proc: Path) -> int:
    """The epoch of the plan that the living shim keeps open; 0: it cannot be read."""
    with suppress(OSError, ValueError):
        for entry, path in _open_files(str(pid), proc):
            if path.name == layout.PLAN:
                with entry.open("rb") as plan:
                    return planfile.decode(plan.read(_LONGEST_PLAN)).epoch
    return 0
