"""Opens files with the rights of a job's user, inside the agent's own process.

Linux keeps file system ids and supplementary groups per thread. Leaving uid 0 as the file system id
drops the capabilities that override permissions. So no path that a user controls is ever opened as
root, even if root is squashed (NFS), and nothing is forked. A thread that is started in the block
inherits the rights, so start none.
"""

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass

_SYS_SETGROUPS = {"x86_64": 116, "aarch64": 159}
_NOBODY_ELSE = -1  # setfsuid(-1) changes nothing and returns the present id


@dataclass(frozen=True, slots=True)
class UserRights:
    """Numeric ids; the agent's own ids mean that nothing is changed."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Inside the block, this thread opens files as the user. Leave it in the same thread.

        PermissionError: the agent may not become that user.
        """
        if os.getuid() != 0 or self.uid == 0:
            if self.uid != os.getuid():
                raise PermissionError(f"only root reads files as uid {self.uid}")
            yield
            return
        before = os.getgroups(), os.getegid()
        try:
            _become(self.uid, self.gid, self.groups)
            yield
        finally:
            _become(0, before[1], tuple(before[0]))


def _become(uid: int, gid: int, groups: tuple[int, ...]) -> None:
    # Groups can be changed only with fsuid 0 or CAP_SETGID, which setfsuid does not take away. The
    # system call is used because the library's function would change every thread.
    array = (ctypes.c_uint32 * len(groups))(*groups)
    if _LIBC.syscall(_SYS_SETGROUPS[platform.machine()], len(groups), array) != 0:
        raise PermissionError(ctypes.get_errno(), "setgroups")
    _LIBC.setfsgid(gid)
    _LIBC.setfsuid(uid)
    if _LIBC.setfsuid(_NOBODY_ELSE) != uid or _LIBC.setfsgid(_NOBODY_ELSE) != gid:
        raise PermissionError(f"cannot take the rights of uid {uid}, gid {gid}")


_LIBC = ctypes.CDLL(None, use_errno=True)
