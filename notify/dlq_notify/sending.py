"""Sends letters: each until its target has taken it, or until a day is over.

A letter leaves the database only after it was taken. A process that is killed in between sends it
again, with the same id. So a message comes at least once, and a receiver knows a repeat.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from operator import attrgetter
from typing import Protocol

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_notify.config import NotifySection
from dlq_notify.letters import Content, Output, content_of
from dlq_notify.rules import Rule, RuleBook
from dlq_notify.store import DEAD, NotifyLetter, NotifyStore
from dlq_notify.targets.refusal import NotSent, unreachable
from dlq_notify.wording import TEST_WORD

AT_ONCE = 16
# Slow targets do not hold up the others:
AT_ONCE_OF_A_USER, AT_ONCE_TO_A_SERVER = 2, 8
FIRST_WAIT_S, LONGEST_WAIT_S = 10.0, 3_600.0
MOST_OUTPUTS = 3
MOST_ASLEEP = 20  # letters that one look puts off to the end of quiet hours
_USER, _SERVER = attrgetter("user"), attrgetter("server")
ReadOutput = Callable[[str, int, int], tuple[str, ...]]


class Sends(Protocol):
    """A way to send."""

    def send(self, rule: Rule, content: Content) -> None: ...


class Sending:
    """Letters on their way. All but the calls of targets happens in the caller's thread."""

    def __init__(
        self,
        store: NotifyStore,
        settings: NotifySection,
        targets: Mapping[str, Sends],
        clock: Clock,
        rng: random.Random,
        cluster: str,
        read_output: ReadOutput = lambda _job, _attempt, _rank: (),
    ) -> None:
        self._store, self._settings, self._targets = store, settings, targets
        self._clock, self._rng, self._cluster = clock, rng, cluster
        self._read_output = read_output
        self._log = get_logger("notify")
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="send")
        self._flying: dict[str, tuple[Rule, NotifyLetter, Future[None]]] = {}
        self._turn = 0
        self._turns: dict[str, int] = {}  # the last one of each rule

    @property
    def flying(self) -> int:
        """Letters that a target has just now."""
        return len(self._flying)

    def begin_due(self, book: RuleBook) -> None:
        """Hand over what is due: one letter of a rule at a time, in their order. Users take turns,
        and then the rules of a user. A letter that failed before may be due in quiet hours: it
        waits for their end.
        """
        flying = [rule for rule, _, _ in self._flying.values()]
        busy = {rule.rule_id for rule in flying}
        users, servers = (Counter(map(key, flying)) for key in (_USER, _SERVER))
        now_s = self._clock.now_s()
        for rule in self._in_turn(book, now_s):
            if len(self._flying) >= AT_ONCE:
                return
            if rule.rule_id in busy or users[rule.user] >= AT_ONCE_OF_A_USER:
                continue
            if servers[rule.server] >= AT_ONCE_TO_A_SERVER:
                continue
            if self._begin(rule, now_s):
                users[rule.user] += 1
                servers[rule.server] += 1

    def collect(self) -> int:
        """Store what has become of letters; how many."""
        done = [key for key, (_, _, flight) in self._flying.items() if flight.done()]
        for key in done:
            _, letter, flight = self._flying[key]
            error = flight.exception()
            if error is not None and not isinstance(error, NotSent):
                self._log.error("letter_fault", letter=key, error=type(error).__name__)
                error = unreachable(f"a fault of dlq-notify ({type(error).__name__})")
            self._settle(letter, error)
            del self._flying[key]
        return len(done)

    def close(self) -> None:
        """Wait for what is on its way, and store what has become of it."""
        self._pool.shutdown(wait=True)
        self.collect()

    def _in_turn(self, book: RuleBook, now_s: float) -> list[Rule]:
        """Rules with something due; first those of the user with the oldest turn."""
        self._turns = {key: turn for key, turn in self._turns.items() if key in book.by_id}
        of_users: dict[str, int] = {}
        for rule_id, turn in self._turns.items():
            user = book.by_id[rule_id].user
            of_users[user] = max(of_users.get(user, 0), turn)
        due = [book.by_id[one] for one in self._store.due_rules(now_s) if one in book.by_id]
        return sorted(
            due, key=lambda rule: (of_users.get(rule.user, 0), self._turns.get(rule.rule_id, 0))
        )

    def _begin(self, rule: Rule, now_s: float) -> bool:
        """Hand over the oldest letter of a rule that may be sent now; whether there was one."""
        asleep_until_s = rule.wakes_s(now_s)
        for letter in self._store.due_letters(rule.rule_id, now_s, MOST_ASLEEP):
            if asleep_until_s > now_s and TEST_WORD not in letter.counts:
                with self._store.write():
                    self._store.put_letter(letter._replace(next_s=asleep_until_s))
                continue
            self._turn += 1
            self._turns[rule.rule_id] = self._turn
            flight = self._pool.submit(self._send, rule, letter)
            self._flying[letter.letter_id] = rule, letter, flight
            return True
        return False

    def _send(self, rule: Rule, letter: NotifyLetter) -> None:
        """In a thread of the pool."""
        target = self._targets.get(rule.target)
        if target is None:
            raise NotSent(f"no target {rule.target} here", for_good=True)
        outputs = self._outputs(letter) if rule.with_output else ()
        target.send(rule, content_of(letter, self._cluster, outputs))

    def _outputs(self, letter: NotifyLetter) -> tuple[Output, ...]:
        failed = [one for one in letter.notices if one.is_failure][:MOST_OUTPUTS]
        found = []
        for one in failed:
            with suppress(Exception):  # a message without output is better than none
                lines = self._read_output(one.job_id, one.attempt, one.rank)
                if lines:
                    found.append(Output(one.job_id, one.rank, lines))
        return tuple(found)

    def _settle(self, letter: NotifyLetter, error: NotSent | None) -> None:
        told = {"letter": letter.letter_id, "user": letter.user, "events": letter.total}
        if error is None:
            with self._store.write():
                self._store.drop_letter(letter.letter_id)
            self._log.info("letter_sent", **told)
            return
        now_s, tries = self._clock.now_s(), letter.tries + 1
        wait_s = min(FIRST_WAIT_S * 2.0 ** min(tries - 1, 20), LONGEST_WAIT_S)
        wait_s = max(wait_s * self._rng.uniform(0.8, 1.2), error.after_s)
        over = now_s + wait_s > letter.made_s + self._settings.keep_trying
        dead = error.for_good or over
        changed = letter._replace(
            tries=tries, next_s=now_s + wait_s, fault=error.fault,
            state=DEAD if dead else letter.state,
        )  # fmt: skip
        with self._store.write():
            if self._store.letter(letter.letter_id) is not None:  # its rule is still there
                self._store.put_letter(changed)
        say = self._log.warning if dead else self._log.info
        say("letter_dead" if dead else "letter_not_sent", **told, fault=error.fault, tries=tries)
