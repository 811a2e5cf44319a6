"""The devices controller of v2: an eBPF program on a group that decides about every open.

The kernel keeps the program as long as the group exists, so a restart or the death of an agent does
not matter. All programs above and on a group must agree.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from dlq_nodeagent.cgroups.port import OnlyMinors

# linux/bpf.h
_PROG_LOAD, _PROG_ATTACH, _PROG_DETACH = 5, 8, 9
_PROG_BY_ID, _INFO_BY_FD, _PROG_QUERY = 13, 15, 16
_CGROUP_DEVICE_PROGRAM, _CGROUP_DEVICE = 15, 6
_ALLOW_MULTI = 2  # systemd and engines have programs of their own on groups
_SYSCALL = {"x86_64": 321, "aarch64": 280}
_NAME = b"dlq_devices"
_NAME_AT, _NAME_BYTES = 64, 16  # in struct bpf_prog_info
_MOST_PROGRAMS = 64  # that the kernel takes on one group
_CHARACTER = 2  # lower half of bpf_cgroup_dev_ctx.access_type

# Instructions: opcode, registers, jump, constant.
_LOAD32, _AND, _MOVE, _EXIT = 0x61, 0x57, 0xB7, 0x95
_JUMP_UNEQUAL, _JUMP_EQUAL = 0x55, 0x15
_TYPE, _MAJOR, _MINOR = 2, 3, 4  # registers; 1 holds the context, 0 the answer


def program(rules: Iterable[OnlyMinors]) -> bytes:
    """Instructions that refuse character devices of a rule's major, except the listed minors."""
    code = [
        _one(_LOAD32, _TYPE, source=1, offset=0),
        _one(_AND, _TYPE, constant=0xFFFF),
        _one(_LOAD32, _MAJOR, source=1, offset=4),
        _one(_LOAD32, _MINOR, source=1, offset=8),
    ]
    for rule in rules:
        refuse = [_one(_MOVE, 0, constant=0), _one(_EXIT, 0)]
        minors = sorted(rule.minors)
        past = len(minors) + len(refuse)
        code += [
            _one(_JUMP_UNEQUAL, _TYPE, offset=past + 1, constant=_CHARACTER),
            _one(_JUMP_UNEQUAL, _MAJOR, offset=past, constant=rule.major),
        ]
        for left, minor in zip(range(len(minors), 0, -1), minors, strict=True):
            code.append(_one(_JUMP_EQUAL, _MINOR, offset=left + 1, constant=minor))
        code += refuse
    return b"".join([*code, _one(_MOVE, 0, constant=1), _one(_EXIT, 0)])


def attach(group: Path, rules: Iterable[OnlyMinors]) -> None:
    """Apply the rules to a v2 group from the next open on. Raises OSError."""
    loaded = _load(program(rules))
    directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _bpf(_PROG_ATTACH, struct.pack("=IIII", directory, loaded, _CGROUP_DEVICE, _ALLOW_MULTI))
    finally:
        os.close(directory)
        os.close(loaded)


def exchange(group: Path, rules: Iterable[OnlyMinors]) -> None:
    """Replace the rules of `attach` by these; a group without rules stays without. Raises OSError.

    The new program is attached first. An agent that dies in between has opened nothing, and a
    program of ours is left to exchange.
    """
    directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        before = [it for it in _attached(directory) if _name(it) == _NAME]
        try:
            if before:
                attach(group, rules)
            for old in before:
                _bpf(_PROG_DETACH, struct.pack("=III", directory, old, _CGROUP_DEVICE))
        finally:
            for old in before:
                os.close(old)
    finally:
        os.close(directory)


def _attached(directory: int) -> list[int]:
    """Descriptors of the programs on a group itself; the caller closes them."""
    numbers = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    at = ctypes.addressof(numbers)
    attributes = struct.pack("=IIIIQI4x", directory, _CGROUP_DEVICE, 0, 0, at, _MOST_PROGRAMS)
    room = ctypes.create_string_buffer(attributes, len(attributes))
    _bpf_in(_PROG_QUERY, room)
    (count,) = struct.unpack_from("=I", room, struct.calcsize("=IIIIQ"))
    found = []
    for number in numbers[:count]:
        with suppress(FileNotFoundError):  # it has just been detached
            found.append(_bpf(_PROG_BY_ID, struct.pack("=III", number, 0, 0)))
    return found


def _name(loaded: int) -> bytes:
    """The name under which a program was loaded."""
    about = ctypes.create_string_buffer(_NAME_AT + _NAME_BYTES)
    attributes = struct.pack("=IIQ", loaded, len(about), ctypes.addressof(about))
    _bpf(_INFO_BY_FD, attributes)
    return about.raw[_NAME_AT:].rstrip(b"\0")


def obstacle() -> str:
    """Why this process cannot load such a program; empty: it can."""
    try:
        os.close(_load(program(())))
    except OSError as error:
        return f"eBPF programs cannot be loaded: {error.strerror}"
    return ""


def _load(code: bytes) -> int:
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"")
    attributes = struct.pack(
        "=IIQQIIQII16sII",
        _CGROUP_DEVICE_PROGRAM,
        len(code) // 8,
        ctypes.addressof(instructions),
        ctypes.addressof(licence),
        0,  # no log
        0,
        0,
        0,  # any kernel version
        0,  # flags
        _NAME,
        0,
        _CGROUP_DEVICE,
    )
    return _bpf(_PROG_LOAD, attributes)


def _bpf(command: int, attributes: bytes) -> int:
    return _bpf_in(command, ctypes.create_string_buffer(attributes, len(attributes)))


def _bpf_in(command: int, room: "ctypes.Array[ctypes.c_char]") -> int:
    """A call of bpf(2), which also answers in `room`."""
    number = _SYSCALL.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"the number of bpf(2) on {os.uname().machine} is not known")
    libc = ctypes.CDLL(None, use_errno=True)
    answer = int(libc.syscall(number, command, room, len(room)))
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "bpf")
    return answer


def _one(code: int, target: int, *, source: int = 0, offset: int = 0, constant: int = 0) -> bytes:
    return struct.pack("<BBhi", code, target | source << 4, offset, constant)
