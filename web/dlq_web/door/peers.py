"""Whose process is at the other end of a connection: the kernel knows, no cookie or link can lie.

A browser sends the cookies of one port of a host to all its ports. So another user of this host may
come by the cookie of this server's person: it must be of no use to them.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

TABLE = Path("/proc/net/tcp")
ROOT_UID, ESTABLISHED = 0, "01"
Address = tuple[str, int]


def is_stranger(theirs: Address | None, ours: tuple[str, int | None] | None) -> bool:
    """Whether a connection over loopback comes from another user than this process has. Root may
    do all that this user may. Nobody is a stranger where the kernel does not tell.
    """
    if theirs is None or ours is None or ours[1] is None:
        return True
    try:
        table = TABLE.read_text("ascii")
    except OSError:
        return False
    wanted = f" {_entry(theirs)} {_entry((ours[0], ours[1]))} "
    found = next((line for line in table.splitlines() if wanted in line), "")
    if not found:
        return True
    state, uid = found.split()[3], int(found.split()[7])
    # A socket whose process has gone is shown as root's.
    return uid != os.getuid() and not (uid == ROOT_UID and state == ESTABLISHED)


def _entry(address: Address) -> str:
    host, port = address
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
