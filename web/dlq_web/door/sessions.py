"""Sessions of browsers and of programs: random secrets, of which only digests are kept.

Sessions are in memory. A restarted server knows none, and everybody signs in anew. The server of
one person asks as that person in all of them. A server for all asks in each as the person who
signed in.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from starlette.requests import HTTPConnection

from dlq_common.clock import Clock
from dlq_common.identity.acting import ActsFor
from dlq_common.text.units import HOUR, MINUTE
from dlq_web.line.calls import Asking
from dlq_web.line.common_feed import MemberFeed
from dlq_web.line.feed import EventFeed
from dlq_web.line.scope import Scope, ScopedLine

LONGEST_S, IDLE_S = 12 * HOUR, 2 * HOUR
PROGRAM_IDLE_S = 10 * MINUTE  # then a program with a token of its user costs nothing any more
LINK_S = 5 * MINUTE
MOST_SESSIONS = 200
MOST_OF_A_PERSON = 8  # where many people have sessions; each may cost the master a stream
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Person:
    """The person for whom the server asks the master."""

    name: str
    role: str
    cluster: str
    line: Asking
    feed: EventFeed | MemberFeed
    user: ActsFor | None = None  # for whom the server acts; None: with the person's certificate
    own: ActsFor | None = None  # the same without groups of an issuer, and what these give


def _stays(_person: Person) -> None:
    """Nothing is to be tidied up."""


@dataclass(slots=True)
class Session:
    """One browser, or one program."""

    csrf: str  # what a change must carry beside the cookie
    began_s: float
    seen_s: float
    by_cookie: bool = True
    person: Person | None = None  # None: the server's own
    certificate: str = ""  # the serial of the one that each connection must show; "": none
    scope: Scope = Scope.ALL
    longest_s: float = LONGEST_S
    over: asyncio.Event = field(default_factory=asyncio.Event)  # its open streams end then


class WebSessions:
    """Everybody who has signed in, by the digest of a secret."""

    def __init__(
        self,
        clock: Clock,
        *,
        most: int = MOST_SESSIONS,
        most_of_a_person: int = MOST_SESSIONS,
        left: Callable[[Person], None] = _stays,
    ) -> None:
        """`left` hears of the person of each session that ends, where it has one of its own."""
        self._clock = clock
        self._most, self._most_of_a_person = most, most_of_a_person
        self._left = left
        self._sessions: dict[str, Session] = {}
        self._links: dict[str, float] = {}  # the end of each, by the digest of its secret

    def new_link(self) -> str:
        """A secret that opens one session, within LINK_S."""
        now_s, secret = self._clock.boottime_s(), secrets.token_urlsafe(SECRET_BYTES)
        self._links = {key: end_s for key, end_s in self._links.items() if end_s > now_s}
        self._links[digest_of(secret)] = now_s + LINK_S
        return secret

    def enter(self, link: str) -> str | None:
        """The secret of a new session; None for a link that is used up, too old or made up."""
        ends_s = self._links.pop(digest_of(link), None)
        if ends_s is None or self._clock.boottime_s() >= ends_s:
            return None
        return self.begin(by_cookie=True)

    def begin(
        self,
        person: Person | None = None,
        *,
        by_cookie: bool,
        certificate: str = "",
        scope: Scope = Scope.ALL,
        longest_s: float = LONGEST_S,
    ) -> str:
        """The secret of a new session, which ends after `longest_s`. Where browsers have many, the
        longest unused one makes way: of the same person first.
        """
        now_s, secret = self._clock.boottime_s(), secrets.token_urlsafe(SECRET_BYTES)
        if by_cookie:  # programs are as many as the tokens
            self._make_room(person)
        session = Session(
            secrets.token_urlsafe(SECRET_BYTES), now_s, now_s, by_cookie, person, certificate,
            scope, longest_s,
        )  # fmt: skip
        self._sessions[digest_of(secret)] = session
        return secret

    def _make_room(self, person: Person | None) -> None:
        browsers = [key for key, one in self._sessions.items() if one.by_cookie]
        own = [key for key in browsers if _name(self._sessions[key].person) == _name(person)]
        if len(own) < self._most_of_a_person:
            own = browsers if len(self._sessions) >= self._most else []
        if own:
            self._end(min(own, key=lambda key: self._sessions[key].seen_s))

    def of(self, secret: str) -> Session | None:
        """The session with this secret, seen now; None: there is none, or it is over."""
        key, now_s = digest_of(secret), self._clock.boottime_s()
        session = self._sessions.get(key)
        if session is None:
            return None
        if _is_over(session, now_s):
            self._end(key)
            return None
        session.seen_s = now_s
        return session

    def leave(self, secret: str) -> None:
        """End the session, and what it has open."""
        self._end(digest_of(secret))

    def living(self) -> list[Session]:
        """All that have not ended."""
        return list(self._sessions.values())

    def leave_everywhere(self, name: str) -> None:
        """End all sessions of the user of this name."""
        self._end_where(lambda one: _name(one.person) == name)

    def dismiss(self, person: Person) -> None:
        """End the session of a person whom the master knows no more."""
        self._end_where(lambda one: one.person is person)

    def sweep(self) -> None:
        """End those that are over although nobody asks: their streams end, too."""
        now_s = self._clock.boottime_s()
        self._end_where(lambda one: _is_over(one, now_s))

    def end_all(self) -> None:
        """End every session."""
        self._end_where(lambda _one: True)

    def _end_where(self, wanted: Callable[[Session], bool]) -> None:
        for key in [key for key, one in self._sessions.items() if wanted(one)]:
            self._end(key)

    def _end(self, key: str) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            session.over.set()
            if session.person is not None:
                self._left(session.person)


def _name(person: Person | None) -> str:
    return "" if person is None else person.name


def _is_over(session: Session, now_s: float) -> bool:
    """A program of the server's own person goes on for as long as the server does."""
    if not session.by_cookie and session.person is None:
        return False
    idle_s = IDLE_S if session.by_cookie else PROGRAM_IDLE_S
    return now_s - session.began_s >= session.longest_s or now_s - session.seen_s >= idle_s


def is_token(session: Session, told: str) -> bool:
    """Whether this is the token that a change of the session must carry."""
    return hmac.compare_digest(session.csrf.encode(), told.encode())


def session_of(http: HTTPConnection) -> Session:
    """The session that the guard has found."""
    return cast(Session, http.state.session)


def person_of(http: HTTPConnection) -> Person:
    """The person for whom the master is asked."""
    session: Session | None = getattr(http.state, "session", None)  # none at the open pages
    own = None if session is None else session.person
    return own or cast(Person, http.app.state.person)


def line_of(http: HTTPConnection) -> Asking:
    """The way to the master for this request: no wider than the scope of its token."""
    line = person_of(http).line
    session: Session | None = getattr(http.state, "session", None)
    if session is None or session.scope is Scope.ALL:
        return line
    return ScopedLine(line, session.scope)


def digest_of(secret: str) -> str:
    """256 random bits need no salt and no slow hash."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
