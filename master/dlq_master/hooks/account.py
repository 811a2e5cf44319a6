"""In whose account hooks run: never in one that owns a key, as with programs of providers.

A master that is root starts the process, which becomes the account of `[hooks] user`. Another one
asks systemd by the socket of `dlq-hooks.socket`, whose unit names the account.
"""

from __future__ import annotations

import os
import pwd

from dlq_common.errors import ConfigError
from dlq_master.control.config import HooksConfig
from dlq_master.hooks.process import HookFile, HookStarter, dialling, spawning

_DEVELOPING = "on a development machine: [hooks] allow_master_account = true"
LARGEST_FILE = 1 << 20


def starter(config: HooksConfig) -> HookStarter:
    """How the process is started. ConfigError, in words, where it could only be the master's own
    account, or root's.
    """
    if config.allow_master_account:
        return spawning("")
    if os.geteuid() != 0:
        return dialling(config.socket)
    try:
        account = pwd.getpwnam(config.user)
    except KeyError:
        told = f"hooks.user: there is no account {config.user}"
        raise ConfigError(told, hint=_DEVELOPING, key="hooks.user") from None
    if account.pw_uid == 0:
        told = "hooks.user: hooks would run as root"
        raise ConfigError(told, hint="name an account that owns no key", key="hooks.user")
    return spawning(f"{account.pw_uid}:{account.pw_gid}")


def read_file(path: str) -> HookFile:
    """The operator's file. ConfigError for one that cannot be read, or is no Python."""
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_FILE + 1)
        source = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise ConfigError(f"hooks.file: {path}: {why}", key="hooks.file") from None
    if len(content) > LARGEST_FILE:
        raise ConfigError(f"hooks.file: {path} has more than 1 MiB", key="hooks.file")
    try:
        compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        told = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ConfigError(f"hooks.file: {path}: {told}{line}", key="hooks.file") from None
    return HookFile(path, source)
