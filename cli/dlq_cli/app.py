"""The parts that every command needs: identity, connection to the master, form of the output."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlq_cli.exit_codes import FAILURE, Ended
from dlq_cli.quiet import quiet_grpc
from dlq_common.errors import DlqError, InvalidRequest, Unauthenticated
from dlq_common.text.instants import format_instant

if TYPE_CHECKING:
    from dlq_cli.output.render import OutputLook
    from dlq_cli.settings import ClientSettings
    from dlq_client.line.connection import Connection
    from dlq_client.line.identity import Identity
    from dlq_common.clock import Clock


_HOME_VARIABLES = ("DLQ_HOME", "XDG_CONFIG_HOME")

_called_by: list[int] = [0]  # 0: this process itself


def called_by(pid: int) -> None:
    """From now on this process runs commands for that caller."""
    _called_by[0] = pid


def session_of_caller() -> int:
    """The number of the session in which the command was called."""
    return os.getsid(_called_by[0])


GUEST = "guest"  # the role of a user of another organisation
ASK_EVERY_S = 3600.0  # whether the CA of the cluster changes


def _changed_s(path: Path) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0


class App:
    """One run of `dlq`. Each part is made at its first use."""

    def __init__(self, *, home: Path | None, flags: Mapping[str, str], cluster: str = "") -> None:
        """`flags`: the settings on the command line.

        `cluster`: the name of the home's cluster in the user's list.
        """
        from dlq_common.clock import SteadyClock

        self._home = home
        self._cluster = cluster
        self._flags = flags
        self._connection: Connection | None = None
        self.clock: Clock = SteadyClock()

    @property
    def home(self) -> Path:
        """The identity directory."""
        from dlq_client.line.identity import default_home

        return self._home or default_home(os.environ)

    def at(self, cluster: str, home: Path) -> App:
        """The same run at another cluster."""
        return App(home=home, flags=self._flags, cluster=cluster)

    def own(self, home: Path) -> App:
        """The same run at the user's own cluster, which introduces its users to others."""
        return App(home=home, flags=self._flags)

    def named(self, job_id: str) -> str:
        """The job's name for this user: a global one for a cluster in the list."""
        return f"{self._cluster}:{job_id}" if self._cluster else job_id

    @property
    def home_origin(self) -> str:
        """The setting that names the identity directory."""
        if self._home:
            return "--home"
        return next((f"${name}" for name in _HOME_VARIABLES if os.environ.get(name)), "default")

    @cached_property
    def settings(self) -> ClientSettings:
        from dlq_cli.settings import ClientSettings

        return ClientSettings(self.home, self._flags, os.environ)

    def connection(self) -> Connection:
        """The connection to the master, with an identity that is logged in and renewed
        as needed.
        """
        if self._connection is None:
            with quiet_grpc():
                from dlq_client.line.connection import Connection

            self._connection = Connection(
                self._identity(),
                clock=self.clock,
                patience_s=self.settings.number("patience_s"),
            )
            self._keep_identity(self._connection)
        return self._connection

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def look(self) -> OutputLook:
        """The form of output on stdout."""
        from dlq_cli.output.render import OutputLook

        tty = sys.stdout.isatty()
        color = {
            "auto": tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
            "always": True,
            "never": False,
        }[self.settings.get("color").value]
        return OutputLook(tty=tty, color=color, now_s=self.clock.now_s())

    def say(self, text: str) -> None:
        """Print a message for people on stderr; hostile characters in it are made harmless.

        With JSON output each line there is an object.
        """
        from dlq_cli.output import json_errors
        from dlq_cli.output.render import clean_line
        from dlq_cli.output.said import say_line
        from dlq_cli.output.zone import in_viewers_zone

        if json_errors.are_lines():
            from dlq_cli.facts.common import document

            say_line(document({"message": clean_line(text)}))
            return
        say_line(f"dlq: {in_viewers_zone(clean_line(text))}")

    def confirm(self, impact: str, *, yes: bool, declined: str = "nothing was done") -> None:
        """Ask before an action that cannot be undone; without a terminal only `-y` confirms."""
        if yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise InvalidRequest(
                f"{impact}; there is no terminal to ask on", hint="-y does it without asking"
            )
        if not click.confirm(f"{impact}. Go on?", err=True):
            self.say(declined)
            raise Ended(FAILURE)

    def _identity(self) -> Identity:
        from dlq_client.line.identity import load_identity

        identity = load_identity(self.home)
        if identity is None or (identity.role == GUEST and self._is_due(identity)):
            identity = self._entered(identity)
        if identity is None or not identity.is_valid(self.clock.now_s()):
            identity = self._login_by_socket(expired=identity is not None)
            if not identity.is_valid(self.clock.now_s()):
                raise Unauthenticated(
                    "the clock of this host is ahead of the master's: to it, the new certificate "
                    f"ended at {format_instant(identity.expires_s)}",
                    hint="set the clock (timedatectl)",
                )
        return identity

    def _is_due(self, identity: Identity) -> bool:
        return identity.renewal_due(self.clock.now_s())

    def _entered(self, identity: Identity | None) -> Identity | None:
        """A new identity of a guest, if `dlq login --grant` has made the present one.

        If that fails, a valid identity is used on.
        """
        if not os.path.exists(self.home / "grant.json"):
            return identity
        from dlq_cli.sign_in import enter_as_guest
        from dlq_client.guest_login import read_place

        place = read_place(self.home)
        assert place is not None
        own = self.own(place.own_home)
        try:
            return enter_as_guest(self.home, own.connection(), place.grant, place.own_home)
        except (DlqError, OSError) as error:
            if identity is None or not identity.is_valid(self.clock.now_s()):
                raise
            self.say(f"your certificate could not be renewed yet: {error}")
            return identity
        finally:
            own.close()

    def _login_by_socket(self, *, expired: bool) -> Identity:
        """Log in without being asked, if the master's host offers it."""
        from dlq_cli.sign_in import log_in

        socket = Path(self.settings.get("login_socket").value)
        # The broker of this host is not asked for a cluster of the list: it may be another one's.
        if os.path.exists(socket) and not self._cluster:
            return log_in(self.home, socket)
        raise self._no_identity(expired=expired)

    def _no_identity(self, *, expired: bool) -> Unauthenticated:
        state = "your certificate has expired" if expired else "nobody is logged in here"
        page = self.settings.get("web_address").value
        at_home = "run `dlq login` on the master's host, or name a directory with --home"
        return Unauthenticated(
            f"{state}: {self.home} holds no valid identity",
            hint="run `dlq login --oidc`" if page else at_home,
        )

    def _renewal_wanted(self, connection: Connection) -> bool:
        """Whether the master orders a renewal because the CA changes; it is asked once an hour."""
        asked, now_s = self.home / "ca.asked", self.clock.now_s()
        try:
            newest_s = max(os.stat(self.home / "identity.crt").st_mtime, _changed_s(asked))
            if now_s - newest_s < ASK_EVERY_S:
                return False
            asked.touch(mode=0o600)
            with quiet_grpc():
                from dlq_client.login import renewal_wanted

            return renewal_wanted(connection)
        except (DlqError, OSError):
            return False

    def _keep_identity(self, connection: Connection) -> None:
        """Renew a certificate at two thirds of its life; a failure does not matter yet."""
        identity = connection.identity
        if identity.role == GUEST:
            return
        due = self._is_due(identity)
        if not due and not (identity.renews and self._renewal_wanted(connection)):
            return
        if not identity.renews:
            if sys.stderr.isatty():
                until = format_instant(identity.expires_s)
                self.say(f"your certificate ends at {until}; `dlq login --oidc` gets another one")
            return
        with quiet_grpc():
            from dlq_client.line.identity import save_identity
            from dlq_client.login import renew

        try:
            save_identity(self.home, renew(connection))
        except (DlqError, OSError) as error:
            self.say(f"your certificate could not be renewed yet: {error}")
