"""Where the CPU time of a turn went: to the controllers, to the rest of ours, and to others.

The race is the subreaper of all that it starts, so no process leaves its tree. The CPU time of the
tree is exact: that of the living processes, each with the time of the dead ones that it has reaped.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks.node.agent_load import children
from benchmarks.race.pairs import Turn

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_PATIENCE_S = 10.0
T = TypeVar("T")


class Process(NamedTuple):
    """A process: its parent, and its CPU seconds with those of the children that it has reaped."""

    parent: int
    cpu_s: float
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is counted, at one instant."""

    at_s: float
    busy_s: float  # of all cores
    stolen_s: float
    ours_s: float  # our tree, without this very process
    trees_s: Mapping[str, float]  # controllers and sides by name


def adopt_orphans() -> None:
    """Orphans of our tree become children of this process, and are reaped when they end.

    Slurm waits for the end of a whole process group, and a zombie is still a member of it.
    """
    signal.signal(signal.SIGCHLD, lambda *_: reap_orphans())
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def reap_orphans() -> None:
    """Reap dead children of other sessions. Those of our own session are waited for elsewhere."""
    with suppress(ChildProcessError):
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while (dead := os.waitid(os.P_ALL, 0, look)) is not None:
            if not _reaped(dead.si_pid):
                break  # it hides the others
        else:
            return
        for pid in children(os.getpid()):
            _reaped(pid)


def _reaped(pid: int) -> bool:
    with suppress(ProcessLookupError, ChildProcessError):
        if os.getsid(pid) != os.getsid(0):
            return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False


def parsed(stat: str) -> Process:
    """A process of a line of /proc/PID/stat. Its name may hold blanks and brackets."""
    fields = stat.rpartition(")")[2].split()
    return Process(int(fields[1]), sum(map(int, fields[11:15])) * TICK_S, fields[0] == "Z")


def processes() -> dict[int, Process]:
    """All that there are."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            found[int(path.parent.name)] = parsed(path.read_text())
    return found


def tree(found: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """The roots that live, and their descendants."""
    below: dict[int, list[int]] = {}
    for pid, process in found.items():
        below.setdefault(process.parent, []).append(pid)
    reached: set[int] = set()
    coming = [pid for pid in roots if pid in found]
    while coming:
        pid = coming.pop()
        if pid not in reached:
            reached.add(pid)
            coming += below.get(pid, [])
    return reached


def cores_s(text: str) -> tuple[float, float]:
    """Busy and stolen seconds of all cores since boot, of the first line of /proc/stat."""
    user, nice, system, _, _, irq, softirq, stolen = map(int, text.split()[1:9])
    return (user + nice + system + irq + softirq) * TICK_S, stolen * TICK_S


def snapshot(groups: Mapping[str, Iterable[int]]) -> Snapshot:
    """Read everything; `groups` are roots of trees that are told apart."""
    with open("/proc/stat") as file:
        busy_s, stolen_s = cores_s(file.readline())
    found = processes()
    own = tree(found, [os.getpid()]) - {os.getpid()}
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    trees_s = {
        name: sum(found[pid].cpu_s for pid in tree(found, pids)) for name, pids in groups.items()
    }
    return Snapshot(
        at_s=time.perf_counter(),
        busy_s=busy_s,
        stolen_s=stolen_s,
        ours_s=sum(found[pid].cpu_s for pid in own) + reaped.ru_utime + reaped.ru_stime,
        trees_s=trees_s,
    )


def turn(
    work: Callable[[], float],
    operations: int,
    groups: Callable[[], Mapping[str, Iterable[int]]],
    side: str,
    rival: str,
) -> Turn:
    """Do the work, whose result is the value, and say where the CPU time went.

    `groups` names the roots: `SIDE controller` and all daemons of SIDE, for both sides.
    """
    before = snapshot(groups())
    own_s = time.process_time()
    value = work()
    own_s = time.process_time() - own_s
    after = snapshot(groups())
    return shared(value, operations, before, after, own_s, side, rival)


def beside(work: Callable[[], T]) -> tuple[Turn, T]:
    """The result of the work, and a turn that says what others took meanwhile."""
    found: list[T] = []

    def once() -> float:
        found.append(work())
        return 0.0

    return turn(once, 1, dict, "", ""), found[0]


def shared(
    value: float,
    operations: int,
    before: Snapshot,
    after: Snapshot,
    own_s: float,
    side: str,
    rival: str,
) -> Turn:
    """The turn between two snapshots; `own_s`: CPU time of this very process meanwhile."""

    def used_s(name: str) -> float:
        # Daemons that came new in this turn began at nothing.
        return max(0.0, after.trees_s.get(name, 0.0) - before.trees_s.get(name, 0.0))

    ours_s = after.ours_s - before.ours_s
    controller_s = used_s(f"{side} controller")
    beside_s = max(0.0, ours_s - controller_s - used_s(rival))
    whole_s = (after.at_s - before.at_s) * CORES
    others_s = max(0.0, after.busy_s - before.busy_s - ours_s - own_s)
    return Turn(
        value=value,
        controller_ms=1e3 * controller_s / operations,
        beside_ms=1e3 * beside_s / operations,
        others=min(1.0, others_s / whole_s),
        stolen=(after.stolen_s - before.stolen_s) / whole_s,
    )


def end_all() -> None:
    """Kill whatever is left of our tree: jobs outlive their daemons."""
    until_s = time.monotonic() + _PATIENCE_S
    while left := tree(processes(), [os.getpid()]) - {os.getpid()}:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > until_s:
            raise TimeoutError(f"processes of the race do not end: {sorted(left)}")
        time.sleep(0.05)
