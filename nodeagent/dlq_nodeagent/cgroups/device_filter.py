"""The v2 answer to the devices controller: an eBPF program on a group that judges every open.

The kernel keeps the program as long as the group exists, so neither a restart nor the death of an
agent matters. All programs above and on a group must agree.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from dlq_nodeagent.cgroups.port import OnlyMinors

# linux/bpf.h
_PROG_LOAD, _PROG_ATTACH = 5, 8
_CGROUP_DEVICE_PROGRAM, _CGROUP_DEVICE = 15, 6
_ALLOW_MULTI = 2  # systemd and engines have programs of their own on groups
_SYSCALL = {"x86_64": 321, "aarch64": 280}
_CHARACTER = 2  # lower half of bpf_cgroup_dev_ctx.access_type

# Instructions: opcode, registers, jump, constant.
_LOAD32, _AND, _MOVE, _EXIT = 0x61, 0x57, 0xB7, 0x95
_JUMP_UNEQUAL, _JUMP_EQUAL = 0x55, 0x15
_TYPE, _MAJOR, _MINOR = 2, 3, 4  # registers; 1 holds the context, 0 the answer


def program(rules: Iterable[OnlyMinors]) -> bytes:
    """Instructions that refuse character devices of a rule's major unless it lists their minor."""
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
    """Let the rules hold in a v2 group from the next open on. Raises OSError."""
    loaded = _load(program(rules))
    directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _bpf(_PROG_ATTACH, struct.pack("=IIII", directory, loaded, _CGROUP_DEVICE, _ALLOW_MULTI))
    finally:
        os.close(directory)
        os.close(loaded)


def obstacle() -> str:
    """Why this process cannot load such a program; empty when it can."""
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
        b"dlq_devices",
        0,
        _CGROUP_DEVICE,
    )
    return _bpf(_PROG_LOAD, attributes)


def _bpf(command: int, attributes: bytes) -> int:
    number = _SYSCALL.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"the number of bpf(2) on {os.uname().machine} is not known")
    libc = ctypes.CDLL(None, use_errno=True)
    room = ctypes.create_string_buffer(attributes, len(attributes))
    answer = int(libc.syscall(number, command, room, len(attributes)))
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "bpf")
    return answer


def _one(code: int, target: int, *, source: int = 0, offset: int = 0, constant: int = 0) -> bytes:
    return struct.pack("<BBhi", code, target | source << 4, offset, constant)
