"""The identity of a service, such as the web server for all users: a directory of its own keeps it.

The login broker of the service's host gives the first one, since it knows the account. The service
renews it in time. After the master has been away until the certificate ended, the broker gives
another one.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dlq_client.line.identity import Identity, load_identity, save_identity
from dlq_client.login import login


class ServiceHome(NamedTuple):
    """Where a service keeps its identity, and the broker that gives it one."""

    directory: Path
    login_socket: Path
    name: str  # of the service, as the request of a certificate says it

    def identity(self, now_s: float) -> Identity:
        """The kept identity while it is valid, else a new one. Raises as `login` and `keep` do."""
        found = load_identity(self.directory)
        return found if found is not None and found.is_valid(now_s) else self.log_in()

    def log_in(self) -> Identity:
        """A new identity of the broker, which is kept. Raises as `login` and `keep` do."""
        fresh = login(self.login_socket, self.name)
        self.keep(fresh)
        return fresh

    def keep(self, identity: Identity) -> None:
        """Write it down in place of the former one. OSError: it cannot be written, and the former
        one stays.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        save_identity(self.directory, identity)
