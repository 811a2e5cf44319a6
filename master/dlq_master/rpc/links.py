"""One-time links with which a browser signs in as the user who asked for one on the command line.

They are in memory only: after a restart of the master a user asks for another one. Only digests of
their secrets are kept.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from typing import Final, NamedTuple

from dlq_common.clock import Clock

LIFETIME_S: Final = 300.0
MOST_OF_A_USER: Final = 5
MOST: Final = 10_000
_SECRET_BYTES: Final = 32


class SignInLink(NamedTuple):
    """The user, role and time of a link."""

    name: str
    role: str
    since_s: float


class SignInLinks:
    """The unused links, the oldest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._links: OrderedDict[str, SignInLink] = OrderedDict()

    def make(self, name: str, role: str) -> str:
        """Make a link and return its secret. A user with many links loses the oldest one."""
        secret, now_s = secrets.token_urlsafe(_SECRET_BYTES), self._clock.now_s()
        self._forget(now_s)
        own = [key for key, link in self._links.items() if link.name == name]
        if len(own) >= MOST_OF_A_USER:
            del self._links[own[0]]
        if len(self._links) >= MOST:
            self._links.popitem(last=False)
        self._links[_digest(secret)] = SignInLink(name, role, now_s)
        return secret

    def use(self, name: str, secret: str) -> SignInLink | None:
        """Use up the link of this user with this secret, and return it; None: there is none (any
        more).
        """
        self._forget(self._clock.now_s())
        link = self._links.get(_digest(secret))
        if link is None or link.name != name:
            return None
        return self._links.pop(_digest(secret))

    def _forget(self, now_s: float) -> None:
        while self._links and now_s - next(iter(self._links.values())).since_s >= LIFETIME_S:
            self._links.popitem(last=False)


def _digest(secret: str) -> str:
    """A digest. 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
