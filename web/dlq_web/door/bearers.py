"""The sessions of programs with tokens: the first request opens one. It ends when its program is
idle, or when the token is revoked.
"""

from __future__ import annotations

import asyncio

from dlq_common.clock import Clock
from dlq_common.errors import Unauthenticated
from dlq_web.door.budgets import Budgets
from dlq_web.door.persons import Persons
from dlq_web.door.sessions import Session, WebSessions
from dlq_web.door.tokens import Tokens

STARTS_EACH_SECOND, STARTS_AT_ONCE = 0.2, 10.0  # of one token; a session lasts for many requests


class Bearers:
    """For each token in use the secret of its session."""

    def __init__(
        self, tokens: Tokens, sessions: WebSessions, persons: Persons, clock: Clock
    ) -> None:
        self._tokens = tokens
        self._sessions = sessions
        self._persons = persons
        self._open: dict[str, str] = {}
        self._starts = Budgets(
            "starts of a program", clock, each_second=STARTS_EACH_SECOND, at_once=STARTS_AT_ONCE
        )
        self._opening: dict[str, asyncio.Lock] = {}

    async def session(self, text: str) -> Session | None:
        """The session of a token's program; None for a token that is made up, over or revoked.
        Raises the DlqError by which the master refuses its user, and TryAgain where that is asked
        too often.
        """
        token = self._tokens.find(text)
        if token is None:
            return None
        lock = self._opening.setdefault(token.token_id, asyncio.Lock())
        async with lock:  # many requests at once open one session
            session = self._sessions.of(self._open.get(token.token_id, ""))
            if session is None:
                self._starts.take(token.token_id)  # the master is asked each time
                person = await self._persons.admit(token.user)
                secret = self._sessions.begin(person, by_cookie=False, scope=token.scope)
                self._open[token.token_id] = secret
                session = self._sessions.of(secret)
        if self._tokens.find(text) is None:  # revoked meanwhile
            self.end(token.token_id)
            raise Unauthenticated("this token was revoked")
        return session

    def end(self, token_id: str) -> None:
        """The token was revoked: the streams of its program end."""
        self._opening.pop(token_id, None)
        self._sessions.leave(self._open.pop(token_id, ""))

    def sweep(self) -> None:
        """Forget the sessions of tokens that have ended."""
        for token_id in [key for key in self._open if not self._tokens.holds(key)]:
            self.end(token_id)
