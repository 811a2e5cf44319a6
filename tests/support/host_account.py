"""Accounts of this host that exist for one test, made with the host's own programs. Root only."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CAN_MAKE_ACCOUNTS = os.getuid() == 0 and shutil.which("useradd") is not None


def free_name(kind: str = "t") -> str:
    """A name that nobody has."""
    return f"dlq{kind}{secrets.token_hex(4)}"


@contextmanager
def host_account(
    name: str, *, groups: tuple[str, ...] = (), shell: str = "/bin/sh"
) -> Iterator[pwd.struct_passwd]:
    """An account with a uid that nobody has; gone afterwards, whatever happens."""
    uids = ("-K", "UID_MIN=20000", "-K", "UID_MAX=50000")  # users of tests have lower ones
    _run("useradd", *uids, "-M", "-U", "-s", shell, "-G", ",".join(groups), name)
    try:
        yield pwd.getpwnam(name)
    finally:
        _end_processes(pwd.getpwnam(name).pw_uid)
        subprocess.run(["userdel", name], check=False, capture_output=True)


@contextmanager
def host_group(name: str) -> Iterator[None]:
    """A group; gone afterwards."""
    _run("groupadd", name)
    try:
        yield
    finally:
        subprocess.run(["groupdel", name], check=False, capture_output=True)


def leave_group(name: str, group: str) -> None:
    """Take an account out of a group."""
    _run("gpasswd", "-d", name, group)


def _end_processes(uid: int) -> None:
    """The server of its commands waits for minutes, and keeps the account from being removed."""
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if each.stat().st_uid == uid:
                os.kill(int(each.name), signal.SIGKILL)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
