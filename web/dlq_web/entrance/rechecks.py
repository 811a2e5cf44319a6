"""Asks the issuer again and again whether it still stands by the sessions that it has opened.

The issuer gives a refresh token with a sign-in, and takes it back when it ends a user's session, or
the account. It stays in memory, and goes to the issuer alone. An answer may bring a new ID token: a
session whose user or groups it tells otherwise is over, and its user signs in anew. While the
issuer is away, sessions go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError, Unauthenticated, Unavailable
from dlq_common.text.units import MINUTE
from dlq_web.door.sessions import Person
from dlq_web.entrance.id_tokens import TokenReader
from dlq_web.entrance.issuer import Issuer
from dlq_web.entrance.rules import ClaimRules

AT_ONCE = 4  # questions to the issuer: asyncio's pool has 5 threads or more, for sign-ins too
AGAIN_S = MINUTE / 2  # while it is away
LOOK_S = 5.0


@dataclass(slots=True)
class _Stood:
    """A session by which the issuer stood when it was asked last."""

    person: Person
    token: str  # the newest refresh token
    subject: str
    groups: tuple[str, ...]  # those that the master has heard of
    due_s: float


class Rechecks:
    """Of all sessions by this issuer. `dismiss` ends that of a person."""

    def __init__(
        self,
        issuer: Issuer,
        reader: TokenReader,
        rules: ClaimRules,
        clock: Clock,
        every_s: float,
        dismiss: Callable[[Person], None],
    ) -> None:
        """`every_s`: so long a session may go on that the issuer has ended; 0: nobody asks."""
        self._issuer = issuer
        self._reader = reader
        self._rules = rules
        self._clock = clock
        self._every_s = every_s
        self._dismiss = dismiss
        self._stood: dict[int, _Stood] = {}
        self._places = asyncio.Semaphore(AT_ONCE)

    def begun(self, person: Person, token: str, subject: str, groups: tuple[str, ...]) -> None:
        """A session has begun. Without a refresh token nothing can be asked about it."""
        if token and self._every_s:
            due_s = self._clock.boottime_s() + self._every_s
            self._stood[id(person)] = _Stood(person, token, subject, groups, due_s)

    def left(self, person: Person) -> None:
        """The session of this person is over."""
        self._stood.pop(id(person), None)

    async def sweep(self) -> None:
        """Ask about all that are due."""
        now_s = self._clock.boottime_s()
        due = [one for one in self._stood.values() if one.due_s <= now_s]
        is_away = asyncio.Event()  # one question has found it so: the others wait for later
        await asyncio.gather(*(self._ask(one, is_away) for one in due))

    async def keep(self) -> None:
        """Sweep for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.sweep()

    async def _ask(self, one: _Stood, is_away: asyncio.Event) -> None:
        async with self._places:
            if not self._stands(one):
                return
            wait_s = AGAIN_S
            try:
                if not is_away.is_set():
                    await self._judge(one)
                    wait_s = self._every_s
            except Unavailable:
                is_away.set()
                self._put_last(one)
            except Exception as error:  # noqa: BLE001 - the other sessions are asked about still
                get_logger("web").error(
                    "recheck_failed", user=one.person.name, error=repr(error), exc_info=error
                )
            one.due_s = self._clock.boottime_s() + wait_s

    async def _judge(self, one: _Stood) -> None:
        """End the session if the issuer stands by it no more. Unavailable while it is away."""
        try:
            why = await self._objection(one)
        except Unavailable:
            raise
        except DlqError as error:
            why = error.what
        if why and self._stands(one):
            get_logger("web").info("signed_out", way="recheck", user=one.person.name, cause=why)
            self._dismiss(one.person)

    def _put_last(self, one: _Stood) -> None:
        """One that always fails must not put the others off each time."""
        if self._stands(one):
            self._stood[id(one.person)] = self._stood.pop(id(one.person))

    def _stands(self, one: _Stood) -> bool:
        return self._stood.get(id(one.person)) is one

    async def _objection(self, one: _Stood) -> str:
        """Why the session is over; "": it is not. Raises Unavailable while the issuer is away."""
        try:
            told = await self._issuer.refresh(one.token)
        except Unauthenticated:
            return "the issuer has ended it"
        one.token = told.refresh or one.token
        if not told.identity:
            return ""
        claims = await self._reader.refreshed(told.identity, one.subject)
        groups, own = self._rules.group_names(claims), one.person.own
        role = one.person.role if own is None else own.role
        if self._rules.user(claims) != one.person.name:
            return "the issuer tells another user"
        if not self._rules.groups.allow(role, groups) or self._rules.told(groups) != one.groups:
            return "the issuer tells other groups"
        return ""
