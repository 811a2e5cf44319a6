"""The walls around the process of hooks: its account, its limits, no network, no child.

Only what the kernel offers to any process. The unit `dlq-hooks@.service` adds what systemd has.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from contextlib import suppress
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_NO_NEW_PRIVS: Final = 38
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000
MOST_FILES: Final = 64


def become(account: str) -> list[str]:
    """Take this account, `UID:GID`; "": stay. Return the walls that stand. OSError when root cannot
    build one of them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    walls = _without_network(libc)
    if account:
        user, group = map(int, account.split(":"))
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
        walls.append("account")
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        walls.append("privileges")
    return walls


def follow_master() -> None:
    """The end of the process that has started this one kills it. After `become`, which the kernel
    takes for another program.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def limit(memory_bytes: int) -> list[str]:
    """Memory, files and processes. Return the walls that stand."""
    walls = ["memory", "files"]
    _set(resource.RLIMIT_AS, memory_bytes)
    _set(resource.RLIMIT_NOFILE, MOST_FILES)
    _set(resource.RLIMIT_FSIZE, 0)
    _set(resource.RLIMIT_CORE, 0)
    if os.getuid() != 0:
        _set(resource.RLIMIT_NPROC, 0)
        walls.append("processes")
    return walls


def watch_call(seconds: float) -> None:
    """Have the kernel kill this process when the call takes so long; 0: the call is over. It is the
    second guard: the master kills before that.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def resident_bytes() -> int:
    """The memory that this process uses now."""
    with open("/proc/self/statm", "rb") as told:
        return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _without_network(libc: ctypes.CDLL) -> list[str]:
    """A network of its own has no way out. Root may have one; others where the kernel lets them."""
    if os.geteuid() == 0:
        if libc.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "no network of its own")
        return ["network"]
    return ["network"] if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 else []


def _set(which: int, most: int) -> None:
    with suppress(ValueError, OSError):  # a lower hard limit is there already
        resource.setrlimit(which, (most, most))
