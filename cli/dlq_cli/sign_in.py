"""Signing in at the broker on the master's host: by `dlq login`, or by any command that needs
it.
"""

from __future__ import annotations

import getpass
import re
from pathlib import Path
from typing import TYPE_CHECKING

from dlq_cli.quiet import quiet_grpc
from dlq_common.errors import ConfigError

if TYPE_CHECKING:
    from dlq_client.line.identity import Identity


def log_in(home: Path, socket: Path) -> Identity:
    """Ask the broker and keep its answer in `home`."""
    with quiet_grpc():
        from dlq_client.line.identity import save_identity
        from dlq_client.login import login as ask_broker

    identity = ask_broker(socket, _wished_name())
    try:
        save_identity(home, identity)
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}", hint="dlq --home DIR names another directory"
        ) from None
    return identity


def _wished_name() -> str:
    """A name for the request; the broker decides by the kernel's word, not by this."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = ""
    return re.sub(r"[^a-z0-9_.-]", "_", name.lower())[:32] or "user"
