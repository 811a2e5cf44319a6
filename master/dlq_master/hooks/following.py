"""Starts and ends of attempts, told to the operator's hooks one after the other.

The journal is the queue: its events wait there, also while the master is away. The place up to
which they have been told is stored with what came of them, in one transaction. So each event is
told at least once, and its result counts once. Nothing waits for it: a start, an end and the loop
go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from dlq.v1.job_pb2 import JobSpec
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import CursorExpired, DlqError
from dlq_common.text.names import printable
from dlq_master.control.config import CLOSED
from dlq_master.control.read_model.ports import Control
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import HookResult, TakeHookResults
from dlq_master.hooks.desk import HookDesk
from dlq_master.hooks.process import HookFailed
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import Job

_log = get_logger("master.hooks")
ON_START, ON_END = "on_start", "on_end"
STARTED: Final = "attempt_running"
ENDS: Final = frozenset(
    f"attempt_{word}"
    for word in (
        "succeeded", "failed", "preempted", "preempted_lost", "cancelled", "timed_out",
        "node_lost", "start_failed",
    )
)  # fmt: skip
TRIES: Final = 3
SHORTEST_WAIT_S: Final = 0.1
PAUSE_S: Final = 1.0
AT_ONCE: Final = 32  # results of one turn
SKIPPED: Final = 10_000  # events of other kinds after which the place is stored all the same
LONGEST_NOTE, MOST_NOTES = 500, 20


class HookFollower:
    """Follows the journal from where the last result was stored."""

    def __init__(self, desk: HookDesk, control: Control, seen: int) -> None:
        """`seen`: up to this sequence of the journal all is told."""
        self.seen = seen
        self._desk, self._control = desk, control
        self._stored = seen

    async def run(self) -> None:
        """Never comes back."""
        while True:
            try:
                with self._control.watch(self.seen, gathered=True) as events:
                    while True:
                        await self.take(await events.more())
            except CursorExpired:
                last = self._control.published.last_sequence
                _log.error("hook_events_lost", after=self.seen, up_to=last)
                self.seen = last
            except DlqError as error:  # for example the master has put a stimulus aside
                _log.error("hook_results_refused", error=error.what)
                await asyncio.sleep(PAUSE_S)

    async def take(self, events: Sequence[JournalEvent]) -> None:
        """Tell these events, some at a time, and store what comes of them."""
        wanted = [event for event in events if self._hook_of(event)]
        while wanted:
            some, wanted = wanted[:AT_ONCE], wanted[AT_ONCE:]
            results = [await self._result(event) for event in some]
            await self._store(some[-1].seq, tuple(filter(None, results)))
        if events:
            self.seen = max(self.seen, events[-1].seq)
        if self.seen - self._stored >= SKIPPED:
            await self._store(self.seen, ())

    # --- helpers, in order of use -----------------------------------------------------------------

    def _hook_of(self, event: JournalEvent) -> str:
        """The hook that wants to know of it; "": none does."""
        hook = hook_for(event)
        return hook if hook and self._desk.policy(hook) else ""

    async def _store(self, sequence: int, results: tuple[HookResult, ...]) -> None:
        await self._control.ask(TakeHookResults(sequence=sequence, results=results))
        self.seen = self._stored = sequence

    async def _result(self, event: JournalEvent) -> HookResult | None:
        """None: the job is not there any more."""
        hook = self._hook_of(event)
        told = told_of(self._control.published, hook, event)
        if told is None:
            return None
        answer: Mapping[str, Any] | HookFailed
        try:
            answer = await self._answer(hook, told.facts)
        except HookFailed as failed:
            answer = failed
        return result_of(hook, told.key, answer, self._desk.policy(hook))

    async def _answer(self, hook: str, told: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of the hook, after so many tries where another one may help."""
        for left in reversed(range(TRIES)):
            try:
                return await self._desk.call(hook, told)
            except HookFailed as failed:
                if failed.again_s is None or not left:
                    raise
                await asyncio.sleep(max(failed.again_s, SHORTEST_WAIT_S))
        raise AssertionError  # the last try has raised


# --- what a hook is told, and what comes of it; also in a trial -----------------------------------


class ToldAttempt(NamedTuple):
    """A start or an end, as its hook is told of it."""

    key: AttemptKey
    job: Job
    facts: Mapping[str, Any]


def hook_for(event: JournalEvent) -> str:
    """The hook that this event is for, called or not; "": for none."""
    return ON_START if event.kind == STARTED else ON_END if event.kind in ENDS else ""


def told_of(read: Published, hook: str, event: JournalEvent) -> ToldAttempt | None:
    """None: the job is not there any more."""
    job = None if event.job_id is None else read.job(event.job_id)
    if job is None or event.attempt is None:
        return None
    key = AttemptKey(job.job_id, event.attempt)
    attempt = next((one for one in read.attempts(job.job_id) if one.key == key), None)
    if attempt is None:
        return None
    labels = JobSpec.FromString(read.spec(job.spec_id)).labels
    return ToldAttempt(key, job, {"attempt": _told(hook, job, attempt, event, labels)})


def result_of(
    hook: str, key: AttemptKey, answer: Mapping[str, Any] | HookFailed, policy: str
) -> HookResult:
    """The notes and the hold of an answer. A failure holds the job where its policy is "closed"."""
    if isinstance(answer, HookFailed):
        words = _line(answer.words)
        hold = f"hook {hook} failed: {words}" if policy == CLOSED else ""
        return HookResult(key, hook, (), hold, words)
    notes = answer.get("notes") or []
    if not isinstance(notes, list):
        failed = HookFailed("it answered what makes no sense")
        return result_of(hook, key, failed, policy)
    texts = tuple(_line(note) for note in notes[:MOST_NOTES])
    return HookResult(key, hook, texts, _line(answer.get("hold") or ""))


# --- helpers, in order of use ---------------------------------------------------------------------


def _told(
    hook: str, job: Job, attempt: Attempt, event: JournalEvent, labels: Mapping[str, str]
) -> Mapping[str, Any]:
    """The fields of `dlq_hooks.values.HookAttempt`."""
    ended = hook == ON_END
    reason = attempt.end_reason
    return {
        "key": f"{attempt.key.job_id}.{attempt.key.number}.{hook}",
        "job_id": attempt.key.job_id,
        "attempt": attempt.key.number,
        "array_id": None if job.array is None else job.array.array_id,
        "array_index": None if job.array is None else job.array_index,
        "name": job.name,
        "user": job.user,
        "team": job.team,
        "queue": job.queue,
        "labels": dict(labels),
        "gpus": attempt.lease.allocation.width,
        "nodes": [str(status.node_id) for status in attempt.ranks],
        "time_s": event.time_s,
        "started_s": attempt.started_time_s,
        "end": event.kind.removeprefix("attempt_") if ended else "",
        "end_reason": reason.value if ended and reason is not None else "",
        "exit_code": attempt.exit_code if ended else None,
        "signal": attempt.signal if ended else None,
    }


def _line(words: object) -> str:
    return printable(str(words).encode("utf-8", "replace").decode())[:LONGEST_NOTE]
