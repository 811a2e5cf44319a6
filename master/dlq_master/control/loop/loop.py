"""The loop: the one place where the state of the cluster changes, turn by turn.

The ideal: a stimulus and all its consequences are one atomic, durable step, and nobody learns of it
before it is on disk. A turn does exactly that for all stimuli that have arrived:

1. read the clock once, and note from which nodes messages have arrived;
2. handle each stimulus: step the state machines of the draft. A refused stimulus changes nothing.
   The turn stops after HANDLING_S, and leaves the rest to the next turn;
3. settle the consequences: jobs become eligible, nodes are avoided, migrated jobs arrive;
4. plan, if anything changed or the last plan asked for this moment; check the plan, O(changes);
5. evaluate the answers, as of the end of the turn;
6. write all changes in ONE transaction and wait for the disk, then publish them. Stimuli that
   arrive meanwhile are the next batch: that is the group commit;
7. answer the callers;
8. send the commands, and close ended sessions;
9. ask helper processes for plans and machines that take long, and keep house.

`control/composition/wiring.py` lists the functions that take part in 3, 4 and 9, and after each
step of 2.

A handler that raises anything but a DlqError leaves a half-changed draft. The stimulus is put
aside (control/loop/incidents.py), and the same process loads its state from the disk again.

There are three deviations. A session answers a heartbeat before its turn, because a heartbeat
changes nothing stored. The progress of a job is shown before the commit, because it is never
stored. A failed commit ends the process: no caller was told of the turn, and the next process
starts from the disk.
"""

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger, tell_each
from dlq_common.errors import DlqError, Unavailable
from dlq_master.control.loop import compaction
from dlq_master.control.loop.failpoints import AFTER, Failpoints
from dlq_master.control.loop.inbox import Envelope, Inbox
from dlq_master.control.loop.incidents import HandlerFailed, Incidents, refused_for, sent_by
from dlq_master.control.loop.listening import LISTEN_S, Listening
from dlq_master.control.loop.meter import Meter
from dlq_master.control.loop.ports import (
    NOBODY_FORESEES,
    ForeseenStarts,
    HistoryRecords,
    Leads,
    Transport,
)
from dlq_master.control.loop.slow_turns import Laps
from dlq_master.control.loop.ticks import PERIODS_S, Watchdog
from dlq_master.control.loop.turn import Answer, Published, State, Turn, Wiring
from dlq_master.control.loop.watch import EVERYTHING, Interest, Subscription, Watchers
from dlq_master.control.stimuli import (
    CallerRequest,
    Heartbeat,
    LookAtGpus,
    OpenSession,
    RankReports,
    Stimulus,
    Tick,
    audit_note,
)
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.store.batch import Batch
from dlq_master.store.port import BackupFailed

_log = get_logger("master.loop")
# A turn that is later than this was stalled, and nodes do not count as silent during a stall. But
# this much of each stall does count. So a master that stalls all the time still notices a dead
# node: after 25 stalls, if a node may be silent for 25 s.
LAG_NOTED_S = 1.0
# The longest time for step 2 of a turn: sockets are not read meanwhile.
HANDLING_S = 0.02


class Store(Protocol):
    """Where batches go. `commit` returns when they are on disk, or raises once and for all."""

    async def commit(self, batch: Batch) -> None: ...
    async def prune_journal(self, sequences: Sequence[int], horizon: int) -> None: ...
    async def drop_steps(self, keys: Sequence[AttemptKey]) -> None: ...

    async def back_up(self) -> Path | None:
        """Copy the database and return the path; None: this store leaves backups to its server.
        Raises BackupFailed.
        """


class Records(HistoryRecords, compaction.CompactedJournal, Protocol):
    """Committed rows, for lookups by turns and readers."""


class Loop:
    """Owns the working state. Other code asks (`ask`, `tell`) or reads `published`."""

    def __init__(
        self,
        *,
        state: State,
        wiring: Wiring,
        clock: Clock,
        store: Store,
        records: Records,
        transport: Transport,
        failpoints: Failpoints,
        state_dir: Path,
        periods_s: Mapping[str, float] = PERIODS_S,
        progressed: Callable[[], None] = lambda: None,
        foreseen: ForeseenStarts = NOBODY_FORESEES,
        meter: Meter | None = None,
        incidents: Incidents | None = None,
        leads: Leads | None = None,
    ) -> None:
        """`leads`: answers and commands wait until it confirms the lead; None: there is no other
        master. `progressed` is called after every turn, at least every two seconds. `foreseen` gets
        every batch that is on disk.
        """
        self._state = state
        self._wiring = wiring
        self._clock = clock
        self._store = store
        self._records = records
        self._transport = transport
        self._failpoints = failpoints
        self._state_dir = state_dir
        self._incidents = Incidents(state_dir / "incidents") if incidents is None else incidents
        self._inbox = Inbox()
        self._watchers = Watchers(records, self._owner_of)
        self._progressed = progressed
        self._leads = leads
        self._foreseen = foreseen
        self._meter = meter or Meter()
        self._watchdog = Watchdog(clock.boottime_s(), periods_s)
        self._stopping = False
        self._failure: BaseException | None = None
        self._backing_up: asyncio.Task[None] | None = None
        self._compacting: asyncio.Task[None] | None = None
        self._wake_at_s: float | None = None
        self._last_turn_s = clock.now_s()
        self._listened_s = 0.0  # of the last turn: it waited for the disk and read the sockets
        self._listen_every_s = LISTEN_S
        self.published = wiring.published(state, records, foreseen, self._incidents.told)
        self._watchers.horizon, self._watchers.last = (
            state.journal.horizon,
            state.journal.next_sequence - 1,
        )

    # --- the doors ----------------------------------------------------------------------------

    async def ask(self, stimulus: Stimulus) -> Any:
        """Wait until the stimulus' turn is on disk; return its answer or raise its DlqError."""
        if self._stopping:
            raise Unavailable("the master is stopping")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._inbox.put(stimulus, answer, self._clock.now_s(), audit_note.CURRENT.get())
        return await answer

    def tell(self, stimulus: Stimulus) -> None:
        """Put a stimulus into the inbox and do not wait for an answer."""
        if isinstance(stimulus, Heartbeat):
            self._inbox.put_by(stimulus, self._clock.now_s())
        else:
            self._inbox.put(stimulus, arrived_s=self._clock.now_s())

    @property
    def waiting(self) -> int:
        """Envelopes that no turn has taken yet."""
        return len(self._inbox)

    def current(self) -> Published:
        """The published state, for an answer. Raises Unavailable if another master may lead: a
        process that was stopped for a while may not know yet that its lease has ended.
        """
        if self._leads is not None and not self._leads.may_speak():
            raise Unavailable("another master may lead: this one has not confirmed its lease")
        return self.published

    def watch(
        self, after: int, interest: Interest = EVERYTHING, *, gathered: bool = False
    ) -> Subscription:
        """Committed events with a sequence above `after`: the past first, then as they come."""
        last = self.published.last_sequence
        return self._watchers.subscribe(after, last, interest, gathered=gathered)

    def _owner_of(self, job_id: JobId) -> str:
        owner = self.published.owner(job_id)
        return "" if owner is None else owner.user

    def stop(self) -> None:
        """Finish the present turn and handle the rest of the inbox, then return from `run`."""
        self._stopping = True
        self._inbox.wake()

    def fail(self, error: BaseException) -> None:
        """Make `run` raise this error: nothing can be committed any more."""
        self._failure = error
        self._inbox.wake()

    # --- the loop -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Make turns until `stop`. Raises the error of a failed commit: it must not be retried."""
        while not (self._stopping and not len(self._inbox)):
            patience_s = self._longest_wait_s()
            envelopes = await self._inbox.drain(patience_s)
            self._note_lag(patience_s)
            envelopes += [Envelope(Tick(name), None) for name in self._late_ticks()]
            try:
                if self._failure is not None:
                    raise self._failure
                await self.turn(envelopes)
                self._progressed()
            except BaseException:
                self._stopping = True
                for envelope in (*envelopes, *self._inbox.take()):
                    if envelope.answer is not None and not envelope.answer.done():
                        envelope.answer.set_exception(Unavailable("the master has failed"))
                raise

    async def turn(self, envelopes: list[Envelope]) -> None:
        """One turn. The numbers are the steps in the docstring of the module."""
        laps, now_s = Laps(self._clock.boottime_s), self._clock.now_s()
        self._note_contacts(envelopes, now_s)  # 1
        turn = Turn(self._state, self._records, now_s, self._wiring)
        turn.recall([it.stimulus for it in envelopes if isinstance(it.stimulus, CallerRequest)])
        replies = self._handle_some(turn, envelopes)  # 2
        envelopes, later = envelopes[: len(replies)], envelopes[len(replies) :]
        self._inbox.put_back(later)
        for follow in self._wiring.before_plan:  # 3
            follow(turn)
        laps.ended("decide")
        if turn.plan_due or self._plan_time(now_s):  # 4
            self._wake_at_s = self._wiring.plan(turn)
            laps.ended("plan")
            self._meter.planned(laps.spent_s["plan"])
        laps.ended("plan")
        outcomes = [reply() for reply in replies]  # 5
        batch = turn.take_batch()
        laps.ended("decide")
        await self._commit(batch, envelopes, outcomes, now_s, laps)  # 6
        if self._leads is not None:
            await self._leads.until_it_may_speak()
        for envelope, outcome in zip(envelopes, outcomes, strict=True):  # 7
            _answer(envelope, outcome)
        self._send(turn, batch, envelopes)  # 8
        for ask in self._wiring.after_turn:  # 9
            ask(self._state, now_s)
        self._housekeep(envelopes)
        laps.ended("publish")
        self._meter.turned(laps.total_s)
        self._meter.slow.turned(laps, now_s, envelopes, batch)
        if later:
            await asyncio.sleep(0)  # the sockets are read before the next turn of a storm

    def _handle_some(self, turn: Turn, envelopes: Sequence[Envelope]) -> list[Callable[[], Any]]:
        """Handle envelopes for HANDLING_S, and one at least; return their replies."""
        tell_s = self._clock.boottime_s
        replies: list[Callable[[], Any]] = []
        end_s = tell_s() + HANDLING_S
        for envelope in envelopes:
            if replies and tell_s() >= end_s:
                break
            replies.append(self._handle(turn, envelope))
        return replies

    def _handle(self, turn: Turn, envelope: Envelope) -> Callable[[], Any]:
        """Handle one stimulus; the result is called at the end of the turn and gives its answer."""
        if isinstance(envelope.stimulus, Tick):
            self._watchdog.heard(envelope.stimulus.name, self._clock.boottime_s())
        refused = self._incidents.refusal(envelope.stimulus, turn.now_s)
        kind, sender = sent_by(envelope.stimulus)
        if refused is not None and not self._failpoints.forgives(sender):
            return lambda: refused
        try:
            self._failpoints.met(kind, sender)
            answer = self._take(turn, envelope.stimulus)
            if self._failpoints.stumbles:
                self._failpoints.stumble(sender, AFTER)
        except DlqError as error:
            refusal = error
            if isinstance(envelope.stimulus, Tick):  # no caller gets the error: log it
                _log.error("tick_refused", tick=envelope.stimulus.name, error=error.what)
            return lambda: refusal
        except Exception as fault:
            raise self._failed(envelope, fault, turn.now_s) from fault
        return lambda: self._evaluate(envelope, answer, turn.now_s)

    def _take(self, turn: Turn, stimulus: Stimulus) -> Answer:
        if not isinstance(stimulus, Tick):
            return self._wiring.handlers[type(stimulus)](turn, stimulus)
        for watch in self._wiring.ticks.get(stimulus.name, ()):
            watch(turn)
        return lambda: None

    def _evaluate(self, envelope: Envelope, answer: Callable[[], Any], now_s: float) -> Any:
        try:
            return answer()
        except DlqError as refusal:
            return refusal
        except Exception as fault:
            raise self._failed(envelope, fault, now_s) from fault

    def _failed(self, envelope: Envelope, fault: Exception, now_s: float) -> HandlerFailed:
        """Put the stimulus aside as an incident, and answer its sender at once."""
        incident = self._incidents.put_aside(envelope.stimulus, fault, now_s)
        if envelope.answer is not None and not envelope.answer.done():
            envelope.answer.set_exception(refused_for(incident))
        return HandlerFailed(incident)

    async def _commit(
        self,
        batch: Batch,
        envelopes: list[Envelope],
        outcomes: list[Any],
        now_s: float,
        laps: Laps,
    ) -> None:
        if batch:
            notes = audit_note.owed([envelope.note for envelope in envelopes], outcomes)
            batch.audit_owed += [(note.note_id, note.text) for note in notes]
            await self._write(batch, laps)
            for note in notes:
                note.committed = True
        self._forget_ended(batch, now_s)

    async def _write(self, batch: Batch, laps: Laps) -> None:
        self._failpoints.passed("before_commit", batch.events)
        await self._written(batch)
        laps.ended("persist")
        self._failpoints.passed("after_commit", batch.events)
        self.published.publish(batch)
        self._foreseen.committed(batch)
        self._meter.committed(batch.events, laps.spent_s["persist"])
        self._meter.charged(batch.uses)
        self._watchers.publish(batch.events)
        tell_each(_log, [(event.kind, _facts_of(event)) for event in batch.events])

    async def _written(self, batch: Batch) -> None:
        """Commit the batch, and count how long the sockets were read meanwhile."""
        listening = Listening(self._clock.now_s, self._listen_every_s)
        try:
            await self._store.commit(batch)
        finally:
            self._listened_s += listening.end()

    def _forget_ended(self, batch: Batch, now_s: float) -> None:
        """Drop jobs that ended a while ago from memory: they are on disk."""
        for job_id in self._state.jobs.recent.turned(now_s, batch.jobs):
            self._state.forget(job_id)
            self.published.forget(job_id)

    def _send(self, turn: Turn, batch: Batch, envelopes: list[Envelope]) -> None:
        """Send commands, ask nodes what is on their GPUs, and close sessions."""
        self._send_commands(batch, envelopes, turn.now_s)
        sessions = self._state.nodes.sessions
        for node_id, number in turn.looks.items():
            look = LookAtGpus(node_id=node_id, number=number)
            self._transport.send(node_id, sessions[node_id], [look])
        for node_id, session_id in turn.ended_sessions:
            self._transport.close(node_id, session_id)

    def _send_commands(self, batch: Batch, envelopes: list[Envelope], now_s: float) -> None:
        """Send new commands. A node that has just said hello gets all its open commands again."""
        came = {x.stimulus.node_id for x in envelopes if isinstance(x.stimulus, OpenSession)}
        rows = [row for row in batch.intentions if row.node_id not in came]
        for node_id in sorted(came):
            rows += self._state.attempts.outbox.of_node(node_id)
        if not rows:
            return
        self._failpoints.passed("before_send", batch.events)
        for node_id, commands in self._wiring.commands(
            self._state, self._records, rows, now_s
        ).items():
            self._transport.send(node_id, self._state.nodes.sessions[node_id], commands)
        self._failpoints.passed("after_send", batch.events)

    def _housekeep(self, envelopes: list[Envelope]) -> None:
        ticks = {x.stimulus.name for x in envelopes if isinstance(x.stimulus, Tick)}
        if "leases" in ticks:
            free_bytes = shutil.disk_usage(self._state_dir).free
            self._state.disk_full = free_bytes < self._state.config.store.free_disk_floor
        if "backup" in ticks and (self._backing_up is None or self._backing_up.done()):
            self._backing_up = asyncio.create_task(self._back_up())
        if "compact" in ticks and (self._compacting is None or self._compacting.done()):
            self._compacting = asyncio.create_task(self._compact())

    async def _compact(self) -> None:
        """Drop journal events beyond their retention, while turns go on."""
        retention = self._state.config.retention
        try:
            count = await compaction.compact(
                self._records,
                self._store,
                retention,
                self._clock,
                self._state.journal.horizon,
                self._move_horizon,
            )
        except DlqError as error:
            _log.error("journal_not_compacted", error=error.what)
        else:
            _log.info("journal_compacted", events=count, horizon=self._state.journal.horizon)

    def _move_horizon(self, horizon: int) -> None:
        self._state.journal.horizon = self._watchers.horizon = horizon

    async def _back_up(self) -> None:
        try:
            made = await self._store.back_up()
        except BackupFailed as error:
            _log.error("backup_failed", error=str(error))
        else:
            if made is not None:
                _log.info("backup_made", path=str(made))

    # --- time ---------------------------------------------------------------------------------

    def _plan_time(self, now_s: float) -> bool:
        return self._wake_at_s is not None and now_s >= self._wake_at_s

    def _note_contacts(self, envelopes: Sequence[Envelope], now_s: float) -> None:
        """Note when each node's message arrived, however late this turn handles it. This precedes
        the tick that judges which nodes are silent.
        """
        self._last_turn_s, self._listened_s = now_s, 0.0
        state = self._state
        for envelope in envelopes:
            told = envelope.stimulus
            if not isinstance(told, Heartbeat | RankReports):
                continue
            if state.nodes.sessions.get(told.node_id) == told.session_id:
                arrived_s = now_s if envelope.arrived_s is None else envelope.arrived_s
                state.nodes.contacts.hear(told.node_id, arrived_s)

    def _note_lag(self, patience_s: float) -> None:
        """Note how late this turn is: the process was stopped, or the disk was slow.

        Nodes were not silent while their sockets were not read. So all their contacts are moved by
        that time, less LAG_NOTED_S. A slow commit does not count: sockets are read meanwhile.
        """
        lag_s = max(0.0, self._clock.now_s() - self._last_turn_s - patience_s)
        self._state.loop_lag_s = lag_s
        unread_s = max(0.0, lag_s - self._listened_s)
        if unread_s > LAG_NOTED_S:
            self._state.nodes.contacts.shift(unread_s - LAG_NOTED_S)
        if lag_s >= LAG_NOTED_S:
            _log.warning("master_lagged", lag_s=round(lag_s, 3), unread_s=round(unread_s, 3))

    def _longest_wait_s(self) -> float:
        """Seconds until the next tick or plan is due, by the monotonic clock."""
        patience_s = self._watchdog.wait_s(self._clock.boottime_s())
        if self._wake_at_s is not None:
            patience_s = min(patience_s, max(0.0, self._wake_at_s - self._clock.now_s()))
        return patience_s

    def _late_ticks(self) -> list[str]:
        late = self._watchdog.overdue(self._clock.boottime_s())
        for name in late:
            _log.warning("metronome_late", tick=name)
        return late


def _facts_of(event: JournalEvent) -> Mapping[str, object]:
    """The facts of its line in the log."""
    return {
        "job_id": event.job_id,
        "attempt": event.attempt,
        "node_id": event.node_id,
        "cause": event.cause,
        "actor": event.actor,
        "facts": dict(event.data),
    }


def _answer(envelope: Envelope, outcome: Any) -> None:
    if envelope.answer is None or envelope.answer.done():
        return
    if isinstance(outcome, BaseException):
        envelope.answer.set_exception(outcome)
    else:
        envelope.answer.set_result(outcome)
