"""Accounts of the master's host, read anew each time, perhaps from a directory service.

Look-ups run in threads of their own. So a directory that hangs delays logins and nothing else.
"""

from __future__ import annotations

import asyncio
import ctypes
import pwd
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from dlq_common.errors import PermissionDenied
from dlq_common.text.names import check_user_name

NOBODY_UIDS: Final = frozenset({65534, 65535, 2**32 - 2, 2**32 - 1})
_OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")
_PASSWD: Final = Path("/etc/passwd")
_NO_LOGIN_SHELLS: Final = frozenset({"nologin", "false", "sync", "true"})
_THREADS: Final = 2


class AccountGone(PermissionDenied):
    """The host answers that there is no such account. A failed directory may answer so too."""


class HostAccount(NamedTuple):
    """An account as the host knows it now.

    `groups`: supplementary groups, without those of root. `local`: it is in the host's own file, so
    that no directory is asked.
    """

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    shell: str
    local: bool = False

    @property
    def may_log_in(self) -> bool:
        """Whether it can be a person's account: system accounts have a shell without logins."""
        return Path(self.shell).name not in _NO_LOGIN_SHELLS


class HostAccounts:
    """Finds accounts by uid. `close` frees its threads without waiting for them."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="host-accounts")

    def close(self) -> None:
        """No further look-ups."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def find(self, uid: int) -> HostAccount:
        """The account of a uid. PermissionDenied: there is none that a person could have."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, host_account, uid)


def host_account(uid: int) -> HostAccount:
    """The account of a uid; may block. PermissionDenied: the uid is no person's."""
    if uid in NOBODY_UIDS or uid == _overflow_uid():
        raise PermissionDenied(
            f"uid {uid} stands for nobody: processes of many origins share it",
            hint="log in with an account of your own",
        )
    try:
        entry = pwd.getpwuid(uid)
        name = check_user_name(entry.pw_name)
    except (KeyError, ValueError) as error:
        kind = AccountGone if isinstance(error, KeyError) and _is_gone(uid) else PermissionDenied
        raise kind(
            f"uid {uid} has no account here with a usable name",
            hint="the master's host must know the account: getent passwd UID",
        ) from None
    others = {gid for gid in _group_list(name, entry.pw_gid) if gid > 0} - {entry.pw_gid}
    groups = tuple(sorted(others))
    return HostAccount(name, uid, entry.pw_gid, groups, entry.pw_shell, _is_local(uid))


def named_account(name: str) -> HostAccount:
    """The account with this name; may block.

    PermissionDenied: no guest may have it, because it does not exist, or is root's, nobody's, or in
    root's group.
    """
    try:
        account = host_account(pwd.getpwnam(check_user_name(name)).pw_uid)
    except (KeyError, ValueError):
        raise PermissionDenied(f"there is no account {name[:64]!r} on the master's host") from None
    if account.uid == 0 or account.gid == 0 or account.name != name:
        raise PermissionDenied(f"the account {name} is root's, in its group, or has two names")
    return account


def _is_gone(uid: int) -> bool:
    """Whether the answer was "no such account", not the failure of a service."""
    libc = ctypes.CDLL(None, use_errno=True)
    entry, room = ctypes.create_string_buffer(512), ctypes.create_string_buffer(1 << 16)
    found = ctypes.c_void_p()
    code = libc.getpwuid_r(
        ctypes.c_uint32(uid), entry, room, ctypes.c_size_t(len(room)), ctypes.byref(found)
    )
    return code == 0 and not found.value


def _is_local(uid: int) -> bool:
    try:
        lines = _PASSWD.read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.split(":")[2:3] == [str(uid)] for line in lines)


def _group_list(name: str, gid: int) -> list[int]:
    """getgrouplist(3). The one of `os` holds the interpreter while a directory service is asked."""
    libc = ctypes.CDLL(None, use_errno=True)
    room = 64
    while True:
        count = ctypes.c_int(room)
        found = (ctypes.c_uint32 * room)()
        if libc.getgrouplist(name.encode(), ctypes.c_uint32(gid), found, ctypes.byref(count)) >= 0:
            return list(found[: count.value])
        if count.value <= room:
            raise PermissionDenied(f"the groups of {name} could not be read")
        room = count.value


def _overflow_uid() -> int:
    try:
        return int(_OVERFLOW_UID.read_text())
    except (OSError, ValueError):
        return -1
