"""Why the profiler would not see a program, or not all of it: said before it starts, and while it
runs.

The libraries never harm a program that they cannot watch. These functions only name the reason, so
that a result can be "unknown, because" instead of wrong. They read files and decide.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlq_profiler.results import JobProfile, TrafficReason, TrafficVerdict

_SHEBANGS = 4  # an interpreter may be a script itself, but not for ever
_LARGEST_TABLE = 1 << 20  # bytes of headers or names of one file; more is not read
_LARGEST_OFFSET = 1 << 62
_X86_64, _AARCH64 = 62, 183
_MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}
_PT_DYNAMIC, _PT_INTERP = 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ = 1, 5, 10
_GO_SECTIONS = {b".go.buildinfo", b".note.go.buildid"}


# Why, as one clause.
SENTENCES = {
    TrafficReason.NOT_FOUND: "the program was not found",
    TrafficReason.UNREADABLE: "its file may not be read, so nothing is known of it",
    TrafficReason.NOT_A_PROGRAM: "it is neither an ELF program nor a script",
    TrafficReason.OTHER_MACHINE: "it is built for another processor, or has 32 bits",
    TrafficReason.STATIC: "it is linked statically: nothing can be preloaded into it",
    TrafficReason.SETUID: "it is setuid, setgid or has capabilities: the loader ignores preloads",
    TrafficReason.GO: "it is written in Go, which makes its system calls itself",
    TrafficReason.IO_URING: "it sends through io_uring, past the functions that are watched",
    TrafficReason.PLUGIN_TAKEN: "NCCL_PROFILER_PLUGIN names another plugin; wrappers watch instead",
    TrafficReason.PLUGIN_OFF: "NCCL_PROFILER_PLUGIN is none; wrappers watch instead",
    TrafficReason.NO_LIBRARY: "the profiler's library was not built on this host",
}
# Of these nothing at all is seen; of the others a part, or by another way.
BLIND = frozenset(
    {
        TrafficReason.NOT_FOUND,
        TrafficReason.NOT_A_PROGRAM,
        TrafficReason.OTHER_MACHINE,
        TrafficReason.STATIC,
        TrafficReason.SETUID,
        TrafficReason.GO,
        TrafficReason.NO_LIBRARY,
    }
)


def why_unwatched(
    program: str, environ: Mapping[str, str], *, cwd: Path | None = None
) -> tuple[TrafficReason, ...]:
    """The reasons known before a start, from the file that `program` names (a script: its
    interpreter) and from the environment. Its child processes are not known.
    """
    found = list(_of_environment(environ))
    try:
        found += _of_program(program, environ, cwd or Path.cwd())
    except OSError:
        found.append(TrafficReason.UNREADABLE)
    return tuple(dict.fromkeys(found))


def why_unwatched_process(pid: int, proc: Path = Path("/proc")) -> tuple[TrafficReason, ...]:
    """The reasons known of a running process: its program, and the io_urings that it has open.

    Raises OSError when it is gone or another user's.
    """
    found = list(_of_elf(proc / str(pid) / "exe"))
    for descriptor in os.scandir(proc / str(pid) / "fd"):
        try:
            target = os.readlink(descriptor.path)
        except FileNotFoundError:
            continue
        if target == "anon_inode:[io_uring]":
            found.append(TrafficReason.IO_URING)
    return tuple(dict.fromkeys(found))


def _of_environment(environ: Mapping[str, str]) -> Iterator[TrafficReason]:
    plugin = environ.get("NCCL_PROFILER_PLUGIN", "")
    if plugin.lower() == "none":
        yield TrafficReason.PLUGIN_OFF
    elif plugin and "nccl-profiler-dlq" not in plugin:
        yield TrafficReason.PLUGIN_TAKEN


def _of_program(program: str, environ: Mapping[str, str], cwd: Path) -> Iterator[TrafficReason]:
    for _ in range(_SHEBANGS):
        path = _find(program, environ, cwd)
        if path is None:
            yield TrafficReason.NOT_FOUND
            return
        with path.open("rb") as file:
            head = file.read(256)
        if head[:4] == b"\x7fELF":
            yield from _of_elf(path)
            return
        words = head.split(b"\n")[0][2:].decode("utf-8", "replace").split()
        if head[:2] != b"#!" or not words:
            yield TrafficReason.NOT_A_PROGRAM
            return
        if Path(words[0]).name == "env":
            words = [w for w in words[1:] if not w.startswith("-") and "=" not in w] or words
        program = words[0]
    yield TrafficReason.NOT_A_PROGRAM


def _find(program: str, environ: Mapping[str, str], cwd: Path) -> Path | None:
    if "/" in program:
        path = cwd / program
        return path if path.is_file() else None
    found = shutil.which(program, path=environ.get("PATH", os.defpath))
    return cwd / found if found else None


def _of_elf(path: Path) -> Iterator[TrafficReason]:
    with path.open("rb") as file:
        held = os.fstat(file.fileno())
        try:
            elf = _read_elf(file.fileno())
        except (ValueError, struct.error):
            yield TrafficReason.NOT_A_PROGRAM
            return
    if elf is None or elf.machine != _MACHINES.get(os.uname().machine):
        yield TrafficReason.OTHER_MACHINE
        return
    if not elf.has_loader:
        yield TrafficReason.STATIC
    if held.st_mode & (stat.S_ISUID | stat.S_ISGID) or _has_capabilities(path):
        yield TrafficReason.SETUID
    if elf.is_go:
        yield TrafficReason.GO
    if any(name.startswith(b"liburing.so") for name in elf.needed):
        yield TrafficReason.IO_URING


def _has_capabilities(path: Path) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class _Elf:
    machine: int
    has_loader: bool
    is_go: bool
    needed: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def _read_elf(fd: int) -> _Elf | None:
    """None: not little-endian, or not of 64 bits. Raises ValueError, struct.error."""
    head = os.pread(fd, 64, 0)
    if head[:4] != b"\x7fELF":
        raise ValueError("no ELF file")
    if head[4:6] != b"\2\1":
        return None
    machine = struct.unpack_from("<H", head, 18)[0]
    programs_at, sections_at = struct.unpack_from("<QQ", head, 32)
    size, count, section_size, sections, names = struct.unpack_from("<HHHHH", head, 54)
    segments = [
        _Segment(entry[0], entry[2], entry[3], entry[5])
        for entry in _table(fd, "<IIQQQQ", programs_at, size, count)
    ]
    return _Elf(
        machine=machine,
        has_loader=any(segment.kind == _PT_INTERP for segment in segments),
        is_go=bool(
            _GO_SECTIONS & set(_section_names(fd, sections_at, section_size, sections, names))
        ),
        needed=tuple(_needed(fd, segments)),
    )


def _table(fd: int, layout: str, offset: int, size: int, count: int) -> Iterator[tuple[int, ...]]:
    raw = _read(fd, offset, size * count)
    for i in range(count):
        yield struct.unpack_from(layout, raw, i * size)


def _section_names(fd: int, offset: int, size: int, count: int, names: int) -> Iterator[bytes]:
    if not count or names >= count:
        return
    sections = list(_table(fd, "<IIQQQQ", offset, size, count))
    text = _read(fd, sections[names][4], sections[names][5])
    for section in sections:
        yield text[section[0] :].split(b"\0", 1)[0]


def _needed(fd: int, segments: list[_Segment]) -> Iterator[bytes]:
    dynamic = next((s for s in segments if s.kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return
    entries = list(_table(fd, "<QQ", dynamic.offset, 16, dynamic.size // 16))
    found = {entry[0]: entry[1] for entry in reversed(entries)}
    address, length = found.get(_DT_STRTAB, 0), found.get(_DT_STRSZ, 0)
    at = next(
        (s for s in segments if s.kind == 1 and s.address <= address < s.address + s.size), None
    )
    if at is None:
        return
    text = _read(fd, at.offset + address - at.address, length)
    for tag, value in entries:
        if tag == _DT_NEEDED:
            yield text[value:].split(b"\0", 1)[0]


def _read(fd: int, offset: int, length: int) -> bytes:
    if length > _LARGEST_TABLE or offset > _LARGEST_OFFSET:
        raise ValueError("a table is larger than any program's")
    raw = os.pread(fd, length, offset)
    if len(raw) != length:
        raise ValueError("the file is cut short")
    return raw


# Unknown for one of these, a job may be unknown because nothing could see its traffic.
_UNSEEN = frozenset(
    {
        TrafficReason.NOTHING_RECORDED,
        TrafficReason.NO_TRAFFIC,
        TrafficReason.NOT_PERIODIC,
        TrafficReason.TOO_FEW_ITERATIONS,
        TrafficReason.BYPASS,
    }
)


def limited(profile: JobProfile, limits: Sequence[TrafficReason]) -> JobProfile:
    """The profile with the limit as the reason of its unknown values, if that is likely."""
    if not limits:
        return profile
    limit = next((limit for limit in limits if limit in BLIND), limits[0])
    return replace(
        profile, traffic=_verdict(profile.traffic, limit), sizes=_verdict(profile.sizes, limit)
    )


def _verdict(verdict: TrafficVerdict, limit: TrafficReason) -> TrafficVerdict:
    return verdict._replace(reason=limit) if verdict.reason in _UNSEEN else verdict
