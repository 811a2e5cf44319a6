"""Command lines that wait for a certificate, by the rules of RFC 8628.

A command line has a secret, and its user types a short code on a page. Both belong to one key,
whose other half never leaves the host of the command line. So an answer that somebody else reads is
of no use to them. All is in memory: after a restart a command line begins anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from dlq_common.clock import Clock
from dlq_common.errors import TryAgain
from dlq_common.text.units import MINUTE
from dlq_web.door.sessions import SECRET_BYTES, digest_of

SLOW_DOWN = "slow_down"
LASTS_S, INTERVAL_S, SLOWER_S = 10 * MINUTE, 5.0, 5.0
MOST, MOST_OF_AN_ADDRESS = 2_000, 64
SILENT_S = 2 * MINUTE  # a command line asks at least once a minute, so this one has gone
# Letters that nobody takes for another one, and that make no words (RFC 8628, 6.1).
LETTERS, HALF = "BCDFGHJKLMNPQRSTVWXZ", 4
EARLY_S = 0.5  # a clock of another host may run so much faster over one interval


@dataclass(slots=True)
class Waiting:
    """A command line that waits."""

    code: str  # "BCDF-GHJK", for its user
    request: bytes  # PKCS #10, PEM
    place: str  # "ada@login1", as it says itself
    address: str  # from which it has come
    asked_s: float  # UTC
    began_s: float
    interval_s: float = INTERVAL_S
    polled_s: float = 0.0
    confirmed: bool = False  # by a button, which is pressed once
    answer: Mapping[str, str] | None = None  # a certificate and what belongs to it
    refused: str = ""  # in words


class NothingYet(Exception):
    """The word of the standard for a command line that gets nothing, now or ever."""

    def __init__(self, word: str, what: str = "") -> None:
        super().__init__(word)
        self.word, self.what = word, what


class DeviceCodes:
    """All that wait, the oldest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, Waiting] = {}  # by the digest of the command line's secret

    def begin(self, request: bytes, place: str, address: str) -> tuple[str, Waiting]:
        """The secret of a command line, and what it waits for. TryAgain where very many wait:
        a new one pushes out none that waits.
        """
        self._forget()
        own = [key for key, one in self._waiting.items() if one.address == address]
        self._make_room(own, MOST_OF_AN_ADDRESS, "from this address")
        self._make_room(list(self._waiting), MOST, "here")
        secret = secrets.token_urlsafe(SECRET_BYTES)
        waiting = Waiting(
            self._new_code(), request, place, address, self._clock.now_s(),
            self._clock.boottime_s(),
        )  # fmt: skip
        self._waiting[digest_of(secret)] = waiting
        return secret, waiting

    def of_code(self, text: str) -> Waiting | None:
        """The command line with this code that nobody has answered yet, however it was typed."""
        self._forget()
        code, living = plain_code(text), self._waiting.values()
        return next((one for one in living if one.code == code and not one.confirmed), None)

    def knows(self, secret: str) -> bool:
        """Whether a command line with this secret waits."""
        self._forget()
        return digest_of(secret) in self._waiting

    def poll(self, secret: str) -> Mapping[str, str]:
        """The certificate, told once. Raises NothingYet."""
        self._forget()
        key, now_s = digest_of(secret), self._clock.boottime_s()
        waiting = self._waiting.get(key)
        if waiting is None:
            raise NothingYet("expired_token")
        early = now_s - waiting.polled_s < waiting.interval_s - EARLY_S
        waiting.polled_s, first = now_s, not waiting.polled_s
        if waiting.refused or waiting.answer is not None:
            del self._waiting[key]
            if waiting.answer is None:
                raise NothingYet("access_denied", waiting.refused)
            return waiting.answer
        if early and not first:
            waiting.interval_s += SLOWER_S
            raise NothingYet(SLOW_DOWN)
        raise NothingYet("authorization_pending")

    def _make_room(self, keys: list[str], most: int, where: str) -> None:
        """Forget those of these that have gone, where there are too many. Raises TryAgain."""
        if len(keys) < most:
            return
        now_s = self._clock.boottime_s()
        for key in keys:
            one = self._waiting[key]
            if now_s - max(one.began_s, one.polled_s) >= SILENT_S:
                del self._waiting[key]
        left = [self._waiting[key] for key in keys if key in self._waiting]
        if len(left) >= most:
            raise TryAgain(
                f"{len(left)} command lines {where} wait for their users",
                limit="command lines",
                retry_after_s=max(1, round(left[0].began_s + LASTS_S - now_s)),
            )

    def _new_code(self) -> str:
        taken = {one.code for one in self._waiting.values()}
        while True:
            letters = "".join(secrets.choice(LETTERS) for _ in range(2 * HALF))
            if (code := f"{letters[:HALF]}-{letters[HALF:]}") not in taken:
                return code

    def _forget(self) -> None:
        now_s = self._clock.boottime_s()
        while self._waiting:
            key, first = next(iter(self._waiting.items()))
            if now_s - first.began_s < LASTS_S:
                return
            del self._waiting[key]


def plain_code(text: str) -> str:
    """A code as it is kept: in capitals, with its dash. Spaces and dashes do not matter."""
    letters = "".join(one for one in text[:64].upper() if one.isalnum())
    return f"{letters[:HALF]}-{letters[HALF:]}"
