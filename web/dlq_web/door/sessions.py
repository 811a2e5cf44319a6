"""WebSessions of browsers and of programs: random secrets, of which only digests are kept.

WebSessions are in memory. A restarted server knows none, and everybody signs in anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import cast

from starlette.requests import HTTPConnection

from dlq_common.clock import Clock
from dlq_common.text.units import HOUR, MINUTE
from dlq_web.line.calls import Asking
from dlq_web.line.feed import EventFeed

LONGEST_S, IDLE_S = 12 * HOUR, 2 * HOUR
LINK_S = 5 * MINUTE
MOST_SESSIONS = 200
SECRET_BYTES = 32


@dataclass(slots=True)
class Session:
    """One browser, or one program, of the server's person."""

    csrf: str  # what a change must carry beside the cookie
    began_s: float
    seen_s: float
    by_cookie: bool = True
    over: asyncio.Event = field(default_factory=asyncio.Event)  # its open streams end then


@dataclass(frozen=True, slots=True)
class Person:
    """The person for whom the server asks the master."""

    name: str
    role: str
    cluster: str
    line: Asking
    feed: EventFeed


class WebSessions:
    """Everybody who has signed in, by the digest of a secret."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._links: dict[str, float] = {}  # the end of each, by the digest of its secret

    def new_link(self) -> str:
        """A secret that opens one session, within LINK_S."""
        now_s, secret = self._clock.boottime_s(), secrets.token_urlsafe(SECRET_BYTES)
        self._links = {key: end_s for key, end_s in self._links.items() if end_s > now_s}
        self._links[_digest(secret)] = now_s + LINK_S
        return secret

    def enter(self, link: str) -> str | None:
        """The secret of a new session; None for a link that is used up, too old or made up."""
        ends_s = self._links.pop(_digest(link), None)
        if ends_s is None or self._clock.boottime_s() >= ends_s:
            return None
        return self.begin(by_cookie=True)

    def begin(self, *, by_cookie: bool) -> str:
        """The secret of a new session. The longest unused one makes way where there are many."""
        now_s, secret = self._clock.boottime_s(), secrets.token_urlsafe(SECRET_BYTES)
        if len(self._sessions) >= MOST_SESSIONS:
            browsers = [key for key, one in self._sessions.items() if one.by_cookie]
            self._end(min(browsers, key=lambda key: self._sessions[key].seen_s))
        session = Session(secrets.token_urlsafe(SECRET_BYTES), now_s, now_s, by_cookie)
        self._sessions[_digest(secret)] = session
        return secret

    def of(self, secret: str) -> Session | None:
        """The session with this secret, seen now; None: there is none, or it is over."""
        key, now_s = _digest(secret), self._clock.boottime_s()
        session = self._sessions.get(key)
        if session is None:
            return None
        over = session.by_cookie and (
            now_s - session.began_s >= LONGEST_S or now_s - session.seen_s >= IDLE_S
        )
        if over:
            self._end(key)
            return None
        session.seen_s = now_s
        return session

    def leave(self, secret: str) -> None:
        """End the session, and what it has open."""
        self._end(_digest(secret))

    def end_all(self) -> None:
        """End every session."""
        for key in list(self._sessions):
            self._end(key)

    def _end(self, key: str) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            session.over.set()


def is_token(session: Session, told: str) -> bool:
    """Whether this is the token that a change of the session must carry."""
    return hmac.compare_digest(session.csrf.encode(), told.encode())


def session_of(http: HTTPConnection) -> Session:
    """The session that the guard has found."""
    return cast(Session, http.state.session)


def person_of(http: HTTPConnection) -> Person:
    """The person for whom the master is asked."""
    return cast(Person, http.app.state.person)


def line_of(http: HTTPConnection) -> Asking:
    """The way to the master for this request."""
    return person_of(http).line


def _digest(secret: str) -> str:
    """256 random bits need no salt and no slow hash."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
