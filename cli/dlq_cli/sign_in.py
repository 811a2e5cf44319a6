"""Signing in: at the broker on the master's host, by `dlq login` or any command that needs it; and
through the cluster's web page, by `dlq login --oidc`.
"""

from __future__ import annotations

import getpass
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dlq_cli.quiet import quiet_grpc
from dlq_common.errors import ConfigError

if TYPE_CHECKING:
    from dlq_client.line.connection import Connection
    from dlq_client.line.identity import Identity
    from dlq_common.clock import Clock

_PLAIN = "dlq-python"  # FRONT_PLAIN of client/dlq_compat/front/front.h


def log_in(home: Path, socket: Path) -> Identity:
    """Ask the broker and keep its answer in `home`."""
    with quiet_grpc():
        from dlq_client.login import login as ask_broker

    return _kept(home, ask_broker(socket, _wished_name()))


def log_in_at_page(home: Path, page: str, say: Callable[[str], None], clock: Clock) -> Identity:
    """Have the user confirm a code on the web page, and keep the certificate in `home`."""
    from dlq_client.line.page_login import Shown, login_at_page, posting
    from dlq_common.text.units import approximate_span

    def show(shown: Shown) -> None:
        say(f"open {shown.page} and type the code {shown.code}")
        if shown.page_with_code:
            say(f"or open {shown.page_with_code} and see that it shows this code")
        say(f"waiting for you to confirm, at most {approximate_span(shown.lasts_s)}")

    own = _wished_name()
    place = f"{own}@{platform.node() or 'host'}"[:80]
    identity = _kept(home, login_at_page(posting(page), place, show, clock, time.sleep))
    if identity.user != own:
        # Somebody else may have confirmed the code, to see what is submitted here.
        say(f"you are {own} on this host: unless you are {identity.user} too, remove {home}")
    return identity


def enter_as_guest(home: Path, own: Connection, grant: str, own_home: Path) -> Identity:
    """Have the own cluster introduce the user, and keep the guest's certificate in `home`."""
    with quiet_grpc():
        from dlq_client.guest_login import GuestPlace, enter, keep_place

    identity = _kept(home, enter(own, grant))
    keep_place(home, GuestPlace(grant, own_home))
    return identity


def _kept(home: Path, identity: Identity) -> Identity:
    with quiet_grpc():
        from dlq_client.line.identity import save_identity

    try:
        save_identity(home, identity)
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}", hint="dlq --home DIR names another directory"
        ) from None
    return identity


def start_ahead() -> None:
    """Have the front beside this program start the helper, in the background.

    Every call does so where no helper lives. This one is for the shortest command there is, so that
    the calls after a login find a helper. Without a compiled front nothing happens.
    """
    own = Path(sys.argv[0])
    if own.name != _PLAIN:
        return
    with suppress(OSError):
        subprocess.Popen(
            [own.with_name("dlq"), "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _wished_name() -> str:
    """A name for the request; the broker decides by the kernel's word, not by this."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = ""
    return re.sub(r"[^a-z0-9_.-]", "_", name.lower())[:32] or "user"
