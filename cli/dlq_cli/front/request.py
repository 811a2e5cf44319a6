"""The bytes of a call, as client/dlq_compat/front/talk.c writes them."""

from __future__ import annotations

import array
import socket
import struct
from typing import NamedTuple

MAGIC, VERSION = 0x51464C44, 2
LIMITS = 16
"""Resource limits that are numbered from 0, as the kernel numbers them."""
LARGEST_BYTES = 64 * 1024 * 1024
DESCRIPTORS = 4
"""stdin, stdout, stderr, and the directory."""

_HEADER = struct.Struct("=III")
_NUMBERS = struct.Struct(f"={3 + LIMITS}Q")
_PEER = struct.Struct("=iII")


class FrontRequest(NamedTuple):
    """One call of a command, and what its process had."""

    words: list[bytes]  # the name of the command, then its arguments
    environment: list[bytes]
    umask: int
    limits: tuple[int, ...]  # soft ones
    descriptors: list[int]


class NoRequest(Exception):
    """The caller is not one of ours, or has gone."""


def peer_uid(line: socket.socket) -> int:
    """The user at the other end, as the kernel says."""
    return _peer(line)[1]


def peer_pid(line: socket.socket) -> int:
    """The process at the other end."""
    return _peer(line)[0]


def _peer(line: socket.socket) -> tuple[int, int, int]:
    raw = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, gid = _PEER.unpack(raw)
    return pid, uid, gid


def receive(line: socket.socket) -> FrontRequest:
    """Read one call. NoRequest when it is none; then no descriptor of it is left open."""
    rights = socket.CMSG_SPACE(DESCRIPTORS * array.array("i").itemsize)
    header, control, flags, _ = line.recvmsg(_HEADER.size, rights, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    if (
        len(header) != _HEADER.size
        or len(descriptors) != DESCRIPTORS
        or flags & socket.MSG_CTRUNC
        or _HEADER.unpack(header)[:2] != (MAGIC, VERSION)
    ):
        raise NoRequest("not a call of this version")
    return _read_body(line, int(_HEADER.unpack(header)[2]), list(descriptors))


def _read_body(line: socket.socket, size: int, descriptors: list[int]) -> FrontRequest:
    if not _NUMBERS.size <= size <= LARGEST_BYTES:
        raise NoRequest("a call of that size")
    body = bytearray()
    while len(body) < size:
        part = line.recv(min(size - len(body), 1 << 20))
        if not part:
            raise NoRequest("the caller has gone")
        body += part
    umask, words, variables, *limits = _NUMBERS.unpack_from(body)
    texts = bytes(body[_NUMBERS.size :]).split(b"\0")
    if len(texts) != words + variables + 1 or words < 1 or texts.pop():
        raise NoRequest("the counts of a call are wrong")
    return FrontRequest(texts[:words], texts[words:], umask, tuple(limits), descriptors)
