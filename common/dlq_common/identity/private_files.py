"""Reading a file that only its owner may touch; small, so that a quick command can afford it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from dlq_common.errors import ConfigError

if TYPE_CHECKING:
    import ssl


def read_private(path: Path) -> bytes:
    """The content of a key. ConfigError, with the remedy, when others may read or write it.

    Raises OSError when it cannot be read at all.
    """
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(
                f"{path}: other users may use this key (its mode is {mode:04o})",
                hint=f"chmod 600 {path}; if somebody may have read it, make a new one",
                source=path,
            )
        return file.read()


def load_chain(context: ssl.SSLContext, pem: bytes) -> None:
    """Give TLS a key and its chain by a file in memory: the key never lies on a disk."""
    descriptor = os.memfd_create("dlq-tls")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
