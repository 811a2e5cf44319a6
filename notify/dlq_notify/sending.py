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
from typing import Protocol

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_notify.config import NotifySection
from dlq_notify.letters import Content, Output, content_of
from dlq_notify.rules import Rule, RuleBook
from dlq_notify.store import DEAD, NotifyLetter, NotifyStore
from dlq_notify.targets.refusal import NotSent, unreachable
from dlq_notify.wording import TEST_WORD

AT_ONCE = 8
AT_ONCE_OF_A_USER = 2  # slow targets of one user do not hold up the others
FIRST_WAIT_S, LONGEST_WAIT_S = 10.0, 3_600.0
MOST_OUTPUTS = 3
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
        self._flying: dict[str, tuple[NotifyLetter, Future[None]]] = {}

    @property
    def flying(self) -> int:
        """Letters that a target has just now."""
        return len(self._flying)

    def begin_due(self, book: RuleBook) -> None:
        """Hand over what is due: one letter of a rule at a time, in their order. A letter that
        failed before may be due in quiet hours: it waits for their end.
        """
        busy = {letter.rule_id for letter, _ in self._flying.values()}
        users = Counter(letter.user for letter, _ in self._flying.values())
        now_s = self._clock.now_s()
        for letter in self._store.due_letters(now_s):
            if len(self._flying) >= 2 * AT_ONCE:
                return
            rule = book.by_id.get(letter.rule_id)
            if rule is None or letter.rule_id in busy or users[rule.user] >= AT_ONCE_OF_A_USER:
                continue
            wakes_s = now_s if TEST_WORD in letter.counts else rule.wakes_s(now_s)
            if wakes_s > now_s:
                with self._store.write():
                    self._store.put_letter(letter._replace(next_s=wakes_s))
                continue
            busy.add(letter.rule_id)
            users[rule.user] += 1
            flight = self._pool.submit(self._send, rule, letter)
            self._flying[letter.letter_id] = letter, flight

    def collect(self) -> int:
        """Store what has become of letters; how many."""
        done = [key for key, (_, flight) in self._flying.items() if flight.done()]
        for key in done:
            letter, flight = self._flying[key]
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
