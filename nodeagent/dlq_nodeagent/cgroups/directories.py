"""Operations on existing groups of any version: read, list, kill, remove.

A container's groups are made by its engine below the attempt's own, so every operation includes
those.
"""

import os
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from dlq_nodeagent.cgroups.port import CgroupDir, RankUsage

_DEEPEST = 6
_MOST_PROCESSES = 256  # of a group, whose use of disks is summed
_DEVICE_KEYS = ("rbytes", "wbytes")


def usage(dirs: Iterable[CgroupDir]) -> RankUsage:
    """The present and past use of the group; None for a figure of a missing group."""
    at = {each.kind: Path(each.path) for each in dirs}
    memory, unified = at.get("memory"), at.get("unified")
    cpu_ns = _number(at.get("cpuacct"), "cpuacct.usage")
    cpu_us = _number(unified, "cpu.stat", "usage_usec")
    return RankUsage(
        memory_bytes=_first(
            _without_files(_number(memory, "memory.usage_in_bytes"), memory, "total_"),
            _without_files(_number(unified, "memory.current"), unified),
        ),
        peak_memory_bytes=_first(
            _number(memory, "memory.max_usage_in_bytes"), _number(unified, "memory.peak")
        ),
        cpu_s=cpu_ns / 1e9 if cpu_ns is not None else cpu_us / 1e6 if cpu_us is not None else None,
        pids=_first(_number(at.get("pids"), "pids.current"), _number(unified, "pids.current")),
        oom_kills=_first(_v1_oom_kills(memory), _number(unified, "memory.events", "oom_kill")),
    )


def disk(dirs: Sequence[CgroupDir]) -> tuple[int, int] | None:
    """Bytes that the group has read from disks, and written. None: unknown on this node.

    If the kernel does not count for the group, it is the sum over its present processes.
    """
    at = {each.kind: Path(each.path) for each in dirs}
    if not at:
        return None
    told = _of_devices(at["unified"] / "io.stat") if "unified" in at else None
    return told or of_processes(sorted(pids(dirs))[:_MOST_PROCESSES])


def _of_devices(file: Path) -> tuple[int, int] | None:
    """The sums of a file with lines such as `8:0 rbytes=1 wbytes=2`."""
    try:
        words = [word.partition("=") for word in file.read_text().split()]
        read, written = (sum(int(n) for k, _, n in words if k == key) for key in _DEVICE_KEYS)
    except (OSError, ValueError):
        return None
    return read, written


def of_processes(found: Iterable[int]) -> tuple[int, int] | None:
    """The sum over these processes; None: the kernel reports none of them."""
    read = written = 0
    seen = False
    for pid in found:
        with suppress(OSError, ValueError, KeyError), open(f"/proc/{pid}/io") as file:
            told = dict(line.split(": ") for line in file.read().splitlines())
            read, written = read + int(told["read_bytes"]), written + int(told["write_bytes"])
            seen = True
    return (read, written) if seen else None


def pids(dirs: Iterable[CgroupDir]) -> set[int]:
    found: set[int] = set()
    for each in dirs:
        for directory in _with_below(each.path):
            with suppress(OSError), open(f"{directory}/cgroup.procs") as procs:
                found.update(int(line) for line in procs.read().split())
    return found


def kill(dirs: Sequence[CgroupDir]) -> int:
    """Send SIGKILL to all processes once; return how many there were. Repeat until 0.

    `cgroup.kill` (v2) is atomic against forks; on plain v1 the freezer stops them meanwhile.
    """
    at = {each.kind: Path(each.path) for each in dirs}
    if not _write(at.get("unified"), "cgroup.kill", "1"):
        _write(at.get("freezer"), "freezer.state", "FROZEN")
    alive = pids(dirs) - {os.getpid()}
    for pid in alive:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _write(at.get("freezer"), "freezer.state", "THAWED")
    return len(alive)


def remove(dirs: Iterable[CgroupDir]) -> bool:
    """Remove the directories; False: one is still busy, so try again later.

    Few have others below them, so these are looked for only after a refusal.
    """
    gone = True
    for each in dirs:
        if not _removed(each.path):
            for directory in reversed(_with_below(each.path)):
                gone &= _removed(directory)
    return gone


def _removed(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _with_below(directory: str, depth: int = 0) -> list[str]:
    """A group and those below it, parents first. A plain directory has none."""
    found = [directory]
    try:
        with os.scandir(directory) as entries:
            kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except OSError:
        return found
    names = [name for name, is_directory in kinds.items() if is_directory]
    for name in sorted(names) if depth < _DEEPEST and "cgroup.procs" in kinds else ():
        found += _with_below(f"{directory}/{name}", depth + 1)
    return found


def _v1_oom_kills(memory: Path | None) -> int | None:
    """The number of OOM kills. v1 counts a kill only in the group in which it happened."""
    if memory is None:
        return None
    found = map(Path, _with_below(str(memory)))
    counts = [_number(at, "memory.oom_control", "oom_kill") for at in found]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _without_files(used: int | None, group: Path | None, prefix: str = "") -> int | None:
    """Memory without the cache of files.

    With it, a job that reads files seems to grow until it fills its node. Shared memory is no such
    cache.
    """
    if used is None:
        return None
    keys = (f"{prefix}inactive_file", f"{prefix}active_file")
    return max(0, used - sum(_number(group, "memory.stat", key) or 0 for key in keys))


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one


def _number(directory: Path | None, name: str, key: str | None = None) -> int | None:
    """The number in a file, or the one behind `key` in a file of `key value` lines."""
    if directory is None:
        return None
    try:
        words = [line.split() for line in (directory / name).read_text().splitlines()]
        return next(int(line[-1]) for line in words if key is None or line[0] == key)
    except (OSError, ValueError, StopIteration):
        return None


def _write(directory: Path | None, name: str, text: str) -> bool:
    if directory is None:
        return False
    try:
        write_existing(directory / name, text)
    except OSError:
        return False
    return True


def write_existing(path: Path, text: str) -> None:
    """Write a control file in one call; it is never created. OSError says which and why."""
    write_each(path, (text,))


def write_each(path: Path, texts: Iterable[str]) -> None:
    """Write several words, one at a time, as the kernel takes them."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    text = ""
    try:
        for text in texts:
            os.write(descriptor, text.encode())
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: writing {text!r}", str(path)) from error
    finally:
        os.close(descriptor)
