"""Puts notices together into messages, and closes each message in its time.

Notices of a rule wait for a moment, so that what comes together is told together. Those of an array
wait until all its tasks have ended, but for no longer than an hour. Its first failure is told
without this wait. In quiet hours, and beyond the messages that a user may get in an hour, a digest
stays open and grows. Beyond 50 notices it only counts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from dlq.v1 import job_service_pb2, notify_service_pb2
from dlq_common.daemon.logs import get_logger
from dlq_common.notices import TEST_KIND
from dlq_common.text.wire import from_timestamp
from dlq_notify.config import NotifySection
from dlq_notify.rules import Rule, RuleBook
from dlq_notify.store import MOST_NOTICES, Digest, KnownStart, NotifyLetter, NotifyStore
from dlq_notify.wording import ENDS, TEST_WORD, JobNotice, clean, moved_notice, notice_of

HOUR_S, LOOK_AGAIN_S = 3_600.0, 60.0
MOST_RANKS = 10_000  # that failed first, of attempts that have not ended
START_MOVED, EVENTS_LOST = "start_moved", "events_lost"
MOVED_BY = 0.5  # of the wait that was left
LEAST_MOVE_S = 600.0  # estimates of near starts slide


class EndedTask(NamedTuple):
    """The array of an event's job; `over`: all its tasks have ended."""

    array_id: str
    over: bool


class Gathering:
    """Turns events into digests, and digests into letters. Each call is one transaction."""

    def __init__(self, store: NotifyStore, settings: NotifySection) -> None:
        self._store = store
        self._settings = settings
        self._log = get_logger("notify")
        self._ranks: dict[tuple[str, int], int] = {}  # lost by a restart: rank 0 is read then

    def take(
        self,
        told: Sequence[job_service_pb2.WatchEventsResponse],
        cursor: int,
        book: RuleBook,
        now_s: float,
    ) -> None:
        """Take events, and the position behind them. Events that were taken before are left out."""
        known = self._store.cursor
        with self._store.write():
            for message in told:
                if known is None or message.event.sequence > known:
                    self._take_safely(message, book, now_s)
            if known is None or cursor > known:
                self._store.set_cursor(cursor)

    def moves(
        self,
        waiting: Sequence[notify_service_pb2.StartEstimate],
        book: RuleBook,
        now_s: float,
    ) -> None:
        """Compare the starts of waiting jobs with those that their users know."""
        with self._store.write():
            for one in waiting:
                if one.start_estimate.HasField("likely_time"):
                    self._compare(one, book, now_s)

    def lost(self, what: str, cursor: int, book: RuleBook, now_s: float) -> None:
        """Events are gone that nobody has read: go on at `cursor`, and tell operators."""
        notice = JobNotice(cursor, EVENTS_LOST, EVENTS_LOST, now_s, clean(what))
        with self._store.write():
            self._store.set_cursor(cursor)
            for rule in book.with_word(EVENTS_LOST):
                self._add(rule, notice, now_s)

    def close_due(self, book: RuleBook, now_s: float) -> int:
        """Make letters of digests whose time has come; how many."""
        due = self._store.due_digests(now_s)
        if not due:
            return 0
        made = 0
        with self._store.write():
            for digest in due:
                rule = book.by_id.get(digest.rule_id)
                if rule is None:
                    self._store.drop_digest(digest)
                    continue
                later_s = self._not_before_s(rule, now_s)
                if later_s > now_s:
                    self._store.put_digest(digest._replace(due_s=later_s))
                    continue
                self._close(rule, digest, now_s)
                made += 1
        return made

    # --- helpers, in order of use -----------------------------------------------------------------

    def _take_safely(
        self, told: job_service_pb2.WatchEventsResponse, book: RuleBook, now_s: float
    ) -> None:
        """An event that this release does not understand does not keep it from the next one."""
        try:
            self._take_one(told, book, now_s)
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001
            kind, sequence = told.event.kind, told.event.sequence
            self._log.error("event_fault", kind=kind, sequence=sequence, exc_info=error)

    def _take_one(
        self, told: job_service_pb2.WatchEventsResponse, book: RuleBook, now_s: float
    ) -> None:
        event, job = told.event, told.job
        if event.kind == TEST_KIND:
            self._test(told, book, now_s)
            return
        key = (event.job_id, int(event.attempt))
        if event.kind == "rank_exited":
            self._note_rank(key, event.data)
            return
        if not told.HasField("job"):
            return
        array = None
        if job.HasField("array_task") and event.kind in ENDS:
            task = job.array_task
            over = self._store.count_end(task.array_id, task.task_count, now_s)
            array = EndedTask(task.array_id, over)
        rank = 0
        if event.kind in ENDS:
            rank = self._ranks.pop((job.job_id, int(job.attempt_count)), 0)
        for rule in book.of(job.user):
            if word := rule.word_for(told):
                self._add(rule, notice_of(told, word, rank), now_s, array)
        if array is not None and array.over:
            for rule in book.of(job.user):
                self._hasten(rule, array.array_id, now_s)

    def _note_rank(self, key: tuple[str, int], data: object) -> None:
        facts = dict(data)  # type: ignore[call-overload]
        failed = facts.get("exit_code") not in ("0", "") or facts.get("signal") not in ("0", "")
        if failed and key not in self._ranks and facts.get("node_rank", "").isdecimal():
            if len(self._ranks) >= MOST_RANKS:
                del self._ranks[next(iter(self._ranks))]
            self._ranks[key] = int(facts["node_rank"])

    def _test(
        self, told: job_service_pb2.WatchEventsResponse, book: RuleBook, now_s: float
    ) -> None:
        event = told.event
        rule = book.by_id.get(event.data.get("rule", ""))
        if rule is None:
            return
        if self._has_enough(rule.user, now_s):
            self._log.warning("test_refused", rule=rule.rule_id, user=rule.user)
            return
        text = f"this is a test of rule {rule.rule_id}: {', '.join(rule.words)}"
        at_s = from_timestamp(event.event_time)
        notice = JobNotice(event.sequence, TEST_WORD, TEST_WORD, at_s, clean(text))
        digest = Digest(rule.rule_id, "", now_s, now_s, {TEST_WORD: 1}, [notice])
        self._store.note_sent(rule.user, now_s)
        self._write_letter(rule, digest, now_s)

    def _add(
        self, rule: Rule, notice: JobNotice, now_s: float, array: EndedTask | None = None
    ) -> None:
        gather_s = self._settings.gather if rule.gather_s is None else rule.gather_s
        due_s = now_s + gather_s
        if notice.group and rule.gather_s is None:
            ended = array is not None and array.over
            urgent = notice.is_failure and self._store.first_failure(notice.group, rule.rule_id)
            if not (ended or urgent or notice.kind not in ENDS):
                due_s = now_s + max(gather_s, self._settings.gather_arrays)
        group = notice.group if rule.gather_s is None else ""
        digest = self._store.digest(rule.rule_id, group)
        if digest is None:
            digest = Digest(rule.rule_id, group, due_s, now_s, {}, [])
        counts = {**digest.counts, notice.kind: digest.counts.get(notice.kind, 0) + 1}
        # The id of a message is that of its last event, so the last one always stays.
        kept = digest.notices[: MOST_NOTICES - 1]
        if len(digest.notices) < MOST_NOTICES:
            kept = digest.notices
        notices = [*kept, notice]
        due_s = min(digest.due_s, due_s)
        self._store.put_digest(digest._replace(due_s=due_s, counts=counts, notices=notices))

    def _hasten(self, rule: Rule, array_id: str, now_s: float) -> None:
        digest = self._store.digest(rule.rule_id, array_id)
        if digest is not None:
            due_s = min(digest.due_s, now_s + self._settings.gather)
            self._store.put_digest(digest._replace(due_s=due_s))

    def _compare(self, one: notify_service_pb2.StartEstimate, book: RuleBook, now_s: float) -> None:
        likely_s = from_timestamp(one.start_estimate.likely_time)
        known = self._store.start(one.job_id)
        if known is None:
            self._store.put_start(one.job_id, KnownStart(likely_s), now_s)
            return
        left_s = max(known.likely_s - now_s, 0.0)
        moved = abs(likely_s - known.likely_s) >= max(LEAST_MOVE_S, MOVED_BY * left_s)
        if not moved or now_s < known.told_s + HOUR_S:
            self._store.seen_start(one.job_id, now_s)
            return
        self._store.put_start(one.job_id, KnownStart(likely_s, now_s), now_s)
        cursor = self._store.cursor or 0
        notice = moved_notice(
            one.job_id, one.name, known.likely_s, one.start_estimate, cursor, now_s
        )
        for rule in book.of(one.user):
            if START_MOVED in rule.words:
                self._add(rule, notice, now_s)

    def _not_before_s(self, rule: Rule, now_s: float) -> float:
        wakes_s = rule.wakes_s(now_s)
        if wakes_s > now_s:
            return wakes_s
        return now_s + LOOK_AGAIN_S if self._has_enough(rule.user, now_s) else now_s

    def _has_enough(self, user: str, now_s: float) -> bool:
        """Whether this user has had as many messages as they may in an hour."""
        sent = self._store.sent_since(user, now_s - HOUR_S)
        return sent >= self._settings.messages_per_hour

    def _close(self, rule: Rule, digest: Digest, now_s: float) -> None:
        self._store.drop_digest(digest)
        self._store.note_sent(rule.user, now_s)
        self._write_letter(rule, digest, now_s)

    def _write_letter(self, rule: Rule, digest: Digest, now_s: float) -> None:
        """The id holds the number of the last event. Derived notices have none of their own, so a
        number of ours tells two of them apart.
        """
        sequence = digest.notices[-1].sequence
        letter_id = f"{sequence}-{rule.rule_id}-{self._store.next_number()}"
        self._store.put_letter(
            NotifyLetter(
                letter_id, rule.rule_id, rule.user, now_s, now_s, digest.counts, digest.notices
            )
        )
