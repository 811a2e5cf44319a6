"""Planted bugs: each is a mistake that somebody could make, and the world must find it.

A bug is planted by its name while a world runs, and is gone afterwards. The list only grows: a bug
of the field adds one, and a change of the world is not done before it still finds all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch
from weakref import WeakKeyDictionary

from dlq.v1 import agent_service_pb2 as wire
from dlq_common.errors import Unavailable
from dlq_master.ahead import Ahead, _Made
from dlq_master.control.attempts import reports
from dlq_master.control.composition import starting
from dlq_master.control.composition.handlers import HANDLERS
from dlq_master.control.jobs import gates, groups
from dlq_master.control.loop import loop as loop_module
from dlq_master.control.loop.loop import Loop
from dlq_master.control.loop.turn import Turn
from dlq_master.control.nodes import nodes
from dlq_master.control.nodes.contacts import Contacts
from dlq_master.control.people import teams
from dlq_master.control.stimuli import (
    Caller,
    CallerRequest,
    CancelJob,
    RankReports,
    ReleaseJob,
)
from dlq_master.leader.lease import LeaderLease
from dlq_master.leader.row import HeldLease
from dlq_master.model.attempts import gang
from dlq_master.model.attempts import groups as member_rules
from dlq_master.model.jobs import job_changes
from dlq_master.model.jobs.job import JobState
from dlq_master.model.nodes.node import Node
from dlq_master.policy.legal import check
from dlq_master.policy.place.allocation import together
from dlq_master.policy.transit import kept_gpus
from dlq_master.rpc.reports import agent_service
from dlq_master.rpc.reports.agent_service import _Conversation
from dlq_master.store.batch import Batch
from dlq_master.store.port import CommitFailed
from dlq_master.store.postgres import turns
from dlq_master.store.postgres.tail import StoreTail
from dlq_master.store.tables import codec
from dlq_master.taking_part import Leadership, WarmRows
from dlq_nodeagent.core import AgentCore
from dlq_nodeagent.line.uplink import Uplink
from dlq_nodeagent.model import report
from dlq_nodeagent.model.port import ExitWhy
from dlq_nodeagent.ranks.pending import PendingReports
from dlq_nodeagent.supervisor import Supervisor
from support.invariants import END_WORDS
from support.memory_store import MemoryStore
from world.cast import masters
from world.cast.clients import Client
from world.cast.hosts import HostAttempt, NodeHost
from world.cast.masters import Led
from world.stage.disk import Disk, DiskHarmed, Door
from world.stage.followed import TurnsHere
from world.stage.lease_row import Candidate

Plant = Callable[[Any, str, Any], None]


class Bug(NamedTuple):
    """What somebody got wrong, and the code that does so."""

    words: str
    plant: Callable[[Plant], None]


BUGS: dict[str, Bug] = {}


def bug(words: str) -> Callable[[Callable[[Plant], None]], Callable[[Plant], None]]:
    """Put it on the list."""

    def enlist(plant: Callable[[Plant], None]) -> Callable[[Plant], None]:
        BUGS[plant.__name__] = Bug(words, plant)
        return plant

    return enlist


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The bug of this name is in the code; "": none is."""
    with ExitStack() as stack:

        def plant(owner: Any, attribute: str, value: Any) -> None:
            if isinstance(owner, Mapping):
                stack.enter_context(patch.dict(owner, {attribute: value}))
            else:
                stack.enter_context(patch.object(owner, attribute, value))

        if name:
            BUGS[name].plant(plant)
        yield


# --- the master: disk and answers -----------------------------------------------------------------


@bug("callers are answered before their turn is on disk")
def answers_before_the_commit(plant: Plant) -> None:
    original = Loop._commit

    async def commit(
        self: Loop, batch: Any, letters: Any, outcomes: Any, now_s: Any, laps: Any
    ) -> None:
        for letter, outcome in zip(letters, outcomes, strict=True):
            loop_module._answer(letter, outcome)
        await original(self, batch, letters, outcomes, now_s, laps)

    plant(Loop, "_commit", commit)


@bug("readers see a turn before it is on disk")
def publishes_before_the_commit(plant: Plant) -> None:
    async def write(self: Loop, batch: Any, laps: Any) -> None:
        self._failpoints.passed("before_commit", batch.events)
        self.published.publish(batch)
        await self._written(batch)
        laps.ended("persist")
        self._failpoints.passed("after_commit", batch.events)
        self._watchers.publish(batch.events)

    plant(Loop, "_write", write)


@bug("commands leave before their turn is on disk")
def sends_before_the_commit(plant: Plant) -> None:
    original = Loop._commit

    async def commit(
        self: Loop, batch: Any, letters: Any, outcomes: Any, now_s: Any, laps: Any
    ) -> None:
        if all(self._records.spec(row.key.job_id) for row in batch.intentions):
            self._send_commands(batch, letters, now_s)
        await original(self, batch, letters, outcomes, now_s, laps)

    plant(Loop, "_commit", commit)


@bug("a commit that has failed is tried again")
def retries_after_an_error(plant: Plant) -> None:
    original = Loop._written

    async def written(self: Loop, batch: Any) -> None:
        try:
            await original(self, batch)
        except CommitFailed:
            await original(self, batch)

    plant(Loop, "_written", written)


@bug("a row of a turn with several changed jobs is not written")
def forgets_a_row(plant: Plant) -> None:
    original = Turn.take_batch

    def take_batch(self: Turn) -> Any:
        batch = original(self)
        if len(batch.jobs) > 1:
            batch.jobs.pop()
        return batch

    plant(Turn, "take_batch", take_batch)


@bug("an end of an attempt is written twice")
def notes_ends_twice(plant: Plant) -> None:
    original = Turn.note

    def note(self: Turn, kind: str, /, **facts: Any) -> None:
        original(self, kind, **facts)
        if kind in END_WORDS:
            original(self, kind, **facts)

    original_follow = Turn.follow

    def follow(self: Turn, happened: Any, **facts: Any) -> None:
        before = len(self.batch.events)
        original_follow(self, happened, **facts)
        for event in [it for it in self.batch.events[before:] if it.kind in END_WORDS]:
            again = replace(event, seq=self.state.journal.next_sequence)
            self.state.journal.next_sequence += 1
            self.batch.events.append(again)

    plant(Turn, "note", note)
    plant(Turn, "follow", follow)


@bug("a master that starts takes the epoch of the one before")
def keeps_the_epoch(plant: Plant) -> None:
    original = starting.start

    def start(config: Any, loaded: Any, now_s: float, **more: Any) -> Any:
        epoch = max(0, int(loaded.meta["epoch"]) - 1)
        before = replace(loaded, meta={**loaded.meta, "epoch": str(epoch)})
        return original(config, before, now_s, **more)

    plant(masters, "start", start)


@bug("a body that the disk has changed is served")
def serves_changed_bodies(plant: Plant) -> None:
    plant(codec, "is_intact", lambda body: True)


@bug("a start that cannot read the database takes it for a new one")
def starts_empty(plant: Plant) -> None:
    original = Disk.load

    def load(self: Disk, window: Any) -> Any:
        try:
            return original(self, window)
        except DiskHarmed:
            fresh = MemoryStore()
            fresh.write(Batch(meta={"epoch": str(self.rows.load(window).meta["epoch"])}))
            return fresh.load(window)

    plant(Disk, "load", load)


@bug("a batch that is torn at the end of the log counts, as far as it is there")
def keeps_torn_batches(plant: Plant) -> None:
    original = Door._settle

    def settle(self: Door) -> bool:
        torn = self._waiting
        kept = original(self)
        if torn is not None and not kept and self._fence.holds() and torn.requests:
            self._disk.write(Batch(jobs=torn.jobs, specs=torn.specs), self._writer)
        return kept

    plant(Door, "_settle", settle)


@bug("the sync of a commit says that all is on disk, and the last batch is lost with the master")
def loses_synced_batches(plant: Plant) -> None:
    original, last = Door.commit, WeakKeyDictionary[Door, Any]()

    async def commit(self: Door, batch: Any) -> None:
        before, last[self] = last.get(self), batch
        if before is not None:
            await original(self, before)

    plant(Door, "commit", commit)


# --- the master: requests -------------------------------------------------------------------------


@bug("request ids of all users are one set")
def keys_without_users(plant: Plant) -> None:
    plant(Caller, "key", property(lambda self: ""))


@bug("answers to requests are not remembered")
def forgets_requests(plant: Plant) -> None:
    plant(Turn, "remember", lambda self, ask, result: None)


@bug("a cancel of a running job is answered, and forgotten")
def forgets_cancels(plant: Plant) -> None:
    original = HANDLERS[CancelJob]

    def cancel(turn: Turn, ask: Any) -> Any:
        job = turn.state.cluster.jobs.get(ask.job_id)
        if job is not None and job.live_attempt is not None:
            return lambda: turn.job(ask.job_id)
        return original(turn, ask)

    plant(HANDLERS, CancelJob, cancel)  # type: ignore[arg-type] # its key


@bug("a cancel changes a job that has ended")
def cancels_the_ended(plant: Plant) -> None:
    original = HANDLERS[CancelJob]

    def cancel(turn: Turn, ask: Any) -> Any:
        job = turn.state.cluster.jobs.get(ask.job_id)
        if job is not None and job.ended:
            changed = job._replace(state=JobState.CANCELLED, version=job.version + 1)
            turn.state.cluster.put_job(changed)
        return original(turn, ask)

    plant(HANDLERS, CancelJob, cancel)  # type: ignore[arg-type] # its key


@bug("a job that is let go is not looked at, although its dependency can never come true")
def lets_go_for_ever(plant: Plant) -> None:
    original = HANDLERS[ReleaseJob]

    def release(turn: Turn, ask: Any) -> Any:
        reply = original(turn, ask)
        turn.state.jobs.gates.stirred.pop(ask.job_id, None)
        return reply

    plant(HANDLERS, ReleaseJob, release)  # type: ignore[arg-type] # its key


@bug("a master that starts forgets which tasks of an array are in")
def forgets_array_places(plant: Plant) -> None:
    plant(gates, "holds_place", lambda job: False)


@bug("nobody counts the jobs of a user in a queue")
def forgets_quotas(plant: Plant) -> None:
    plant(teams, "check_count", lambda *given, **named: None)


@bug("a job that the cluster fails is never held for it")
def forgives_all_failures(plant: Plant) -> None:
    original = gang._infra

    def infra(reason: Any, attempt: Any, job: Any, usage: Any, also: Any = ()) -> Any:
        rules = job.rules._replace(max_infra_failures=1000)
        return original(reason, attempt, job._replace(rules=rules), usage, also)

    plant(gang, "_infra", infra)


@bug("a job may ask to be run again for ever")
def forgives_all_requeues(plant: Plant) -> None:
    original = gang._after_failure

    def after_failure(end: Any, attempt: Any, job: Any, usage: Any) -> Any:
        return original(end, attempt, job._replace(requeues=0), usage)

    plant(gang, "_after_failure", after_failure)


@bug("the answer to a caller that has gone ends the master")
def stumbles_over_callers_that_left(plant: Plant) -> None:
    def answer(letter: Any, outcome: Any) -> None:
        if letter.answer is None:
            return
        if isinstance(outcome, BaseException):
            letter.answer.set_exception(outcome)
        else:
            letter.answer.set_result(outcome)

    plant(loop_module, "_answer", answer)


@bug("the answer to a caller that has gone is not remembered")
def forgets_requests_of_callers_that_left(plant: Plant) -> None:
    original = Loop._commit

    async def commit(
        self: Loop, batch: Any, letters: Any, outcomes: Any, now_s: Any, laps: Any
    ) -> None:
        left = [it.stimulus for it in letters if it.answer is not None and it.answer.cancelled()]
        asks = [it for it in left if isinstance(it, CallerRequest)]
        gone = {(it.caller.key, it.request_id) for it in asks}
        batch.requests = [it for it in batch.requests if (it.user, it.request_id) not in gone]
        await original(self, batch, letters, outcomes, now_s, laps)

    plant(Loop, "_commit", commit)


@bug("a program that starts again counts its request ids from the first one")
def counts_requests_anew(plant: Plant) -> None:
    plant(Client, "_last_number", lambda self: 0)


# --- the master: nodes and leases -----------------------------------------------------------------


@bug("GPUs are given away at the end of the hold, without its margin")
def leaves_out_the_margin(plant: Plant) -> None:
    plant(nodes, "requeue_time_s", lambda contact_s, hold_s, terms: contact_s + hold_s)


@bug("GPUs of a node are given away as soon as it is unreachable")
def gives_away_at_once(plant: Plant) -> None:
    plant(nodes, "requeue_time_s", lambda contact_s, hold_s, terms: contact_s + 25.0)


@bug("a master that starts takes all nodes for silent since long ago")
def forgets_contacts(plant: Plant) -> None:
    original = Contacts.__init__

    def begin(self: Contacts, node_ids: Any = (), now_s: float = 0.0) -> None:
        original(self, node_ids, now_s - 10_000.0)

    plant(Contacts, "__init__", begin)


@bug("a host that has booted keeps its attempts")
def ignores_boots(plant: Plant) -> None:
    original = nodes._register

    def register(turn: Turn, ask: Any) -> None:
        before = turn.state.cluster.nodes.get(ask.node_id)
        if before is not None and before.boot_id:
            ask = replace(ask, facts=replace(ask.facts, boot_id=before.boot_id))
        original(turn, ask)

    plant(nodes, "_register", register)


@bug("a drained node gets new work")
def ignores_drains(plant: Plant) -> None:
    plant(Node, "closed", property(lambda self: False))
    plant(Node, "takes_work", property(lambda self: self.state == "up"))
    plant(Node, "open", property(lambda self: True))


@bug("reports are acknowledged before their turn is on disk")
def acknowledges_reports_early(plant: Plant) -> None:
    async def report(self: _Conversation) -> None:
        with self._ending("reports cannot be taken"):
            while True:
                one = await self._reports.get()
                ack = wire.ReportAck(sequence=one.sequence)
                self._line.say(wire.SessionResponse(report_ack=ack))
                await self._control.ask(
                    RankReports(
                        node_id=self._line.node_id, session_id=self._session_id, reports=(one,)
                    )
                )

    plant(_Conversation, "report", report)


# --- the agent ------------------------------------------------------------------------------------


@bug("the hold is counted from the answer to a heartbeat, not from its sending")
def counts_the_hold_from_the_answer(plant: Plant) -> None:
    original = Uplink.heartbeat_answered

    def heartbeat_answered(self: Uplink, sequence: int) -> None:
        if sequence in self._sent:
            self._sent[sequence] = self._clock.boottime_s()
        original(self, sequence)

    plant(Uplink, "heartbeat_answered", heartbeat_answered)


@bug("shims do not end their jobs when the hold is over")
def shims_outlive_the_hold(plant: Plant) -> None:
    plant(HostAttempt, "_hold_events", lambda self, kill_s: iter(()))


@bug("a rank starts although the master has been silent")
def starts_without_contact(plant: Plant) -> None:
    plant(AgentCore, "_may_start", lambda self, launch: True)


@bug("a rank that the master does not want any more is neither dropped nor stopped, and starts")
def starts_the_unwanted(plant: Plant) -> None:
    """Each of the two guards is enough: the stop comes with the same welcome."""

    def drop(self: Supervisor, wanted: Any) -> None:
        for watched in self._open.values():
            watched.confirmed = True

    plant(Supervisor, "drop_unwanted_unstarted", drop)
    plant(reports, "_reject_report", lambda turn, node_id, report, found: None)


@bug("a shim that is gone without a record counts as an exit with 0")
def takes_lost_shims_for_success(plant: Plant) -> None:
    exit_code, ended_by = report._exit_code, report._ended_by

    def lost(record: Any) -> bool:
        return record is not None and record.why is ExitWhy.SHIM_LOST

    plant(report, "_exit_code", lambda rank: 0 if lost(rank.record) else exit_code(rank))
    plant(report, "_ended_by", lambda record: "exited" if lost(record) else ended_by(record))


@bug("an agent waits for the record of a shim that is gone")
def waits_for_lost_shims(plant: Plant) -> None:
    plant(HostAttempt, "found", lambda self, now_s: None)


@bug("a master keeps the place of an agent whose line ended before its first word")
def keeps_places_of_the_silent(plant: Plant) -> None:
    original, taken = agent_service.session, WeakKeyDictionary[Any, set[str]]()

    async def session(call: Any, requests: Any) -> Any:
        places, node = taken.setdefault(call.parts.sessions, set()), call.caller.name
        if node in places:
            raise Unavailable("its place is taken")
        places.add(node)

        async def heard() -> Any:
            async for request in requests:
                places.discard(node)
                yield request

        async for message in original(call, heard()):
            yield message

    plant(masters, "session", session)


@bug("the first hello after a boot does not wait for the ends of before")
def greets_before_the_ends(plant: Plant) -> None:
    plant(AgentCore, "_awaits_ends", lambda self: False)


@bug("an agent forgets an end when it has sent it")
def forgets_ends_when_sent(plant: Plant) -> None:
    original = AgentCore._send_reports

    def send(self: AgentCore) -> None:
        original(self)
        self._confirmed(self._sequences._next - 1)

    plant(AgentCore, "_send_reports", send)


@bug("a confirmation of one report counts for all that were sent")
def confirms_all_that_was_sent(plant: Plant) -> None:
    def confirmed(self: PendingReports, sequence: int) -> Any:
        found = [key for key, it in self._waiting.items() if it.sent_s is not None]
        for key in found:
            del self._waiting[key]
        return found

    plant(PendingReports, "confirmed", confirmed)


@bug("the record of an end is lost with the host's power")
def loses_records_of_ends(plant: Plant) -> None:
    original = NodeHost.power_cut

    def power_cut(self: NodeHost) -> None:
        original(self)
        for key in list(self.attempts):
            del self.attempts[key]

    plant(NodeHost, "power_cut", power_cut)


@bug("an order for a rank is obeyed before it is written down")
def starts_unwritten(plant: Plant) -> None:
    plant(Supervisor, "sync", lambda self: None)


# --- groups, and GPUs that are kept ---------------------------------------------------------------


@bug("a plan starts a group without one of its members")
def starts_without_a_member(plant: Plant) -> None:
    def decided(cluster: Any, order: Any, walked: Any, now_s: float = 0.0) -> Any:
        return walked(order)

    plant(together, "decided", decided)
    plant(check, "torn", lambda cluster, starting: iter(()))


@bug("the end of a member ends nobody else")
def ends_members_alone(plant: Plant) -> None:
    original = member_rules.consequences

    def consequences(parts: Any) -> Any:
        return [it for it in original(parts) if not it.ends]

    plant(groups, "consequences", consequences)


@bug("the others run on when a member has left its GPUs to come back")
def leaves_members_running(plant: Plant) -> None:
    original = member_rules.consequences

    def consequences(parts: Any) -> Any:
        return [it for it in original(parts) if it.ends]

    plant(groups, "consequences", consequences)


@bug("GPUs are kept after a lost node for as long as nobody completes the set")
def keeps_gpus_for_ever(plant: Plant) -> None:
    original = kept_gpus._holds
    plant(kept_gpus, "_holds", lambda job, now_s: original(job, 0.0))


@bug("each member of a group keeps its GPUs for a time of its own")
def keeps_each_for_itself(plant: Plant) -> None:
    original = member_rules.keeps_until_s

    def keeps_until_s(*given: Any) -> float | None:
        *_, now_s, keep_s = given
        return None if original(*given) is None else now_s + keep_s

    plant(member_rules, "keeps_until_s", keeps_until_s)


@bug("a job that has ended, or is held, keeps its GPUs")
def keeps_gpus_of_the_ended(plant: Plant) -> None:
    original = job_changes.waits_no_more

    def waits_no_more(job: Any, at_s: float) -> Any:
        return {key: it for key, it in original(job, at_s).items() if key != "kept"}

    plant(job_changes, "waits_no_more", waits_no_more)


# --- two masters ----------------------------------------------------------------------------------


@bug("a master that has lost the row still writes")
def writes_without_the_row(plant: Plant) -> None:
    plant(Candidate, "holds", lambda self: True)
    plant(LeaderLease, "is_over", lambda self, now_s: False)


@bug("a master speaks, and goes on, although its lease is over")
def speaks_without_a_lease(plant: Plant) -> None:
    async def at_once(self: Leadership) -> None:
        """Nothing is waited for."""

    plant(Leadership, "until_it_may_speak", at_once)
    plant(Led, "until_it_may_speak", at_once)
    plant(LeaderLease, "is_over", lambda self, now_s: False)


@bug("a master answers reads although its lease is over")
def reads_after_its_lease(plant: Plant) -> None:
    plant(Loop, "current", lambda self: self.published)


@bug("a master leads on a database that has lost commits")
def leads_on_lost_commits(plant: Plant) -> None:
    plant(LeaderLease, "_objection", lambda self, row: "")


@bug("a standby that leads does not read the last turns")
def leads_without_the_last_turns(plant: Plant) -> None:
    """Nor does it remember that there were any: each of the two guards is enough."""
    original = WarmRows.taken

    def taken(self: WarmRows, fence: Any, last_turn: int) -> Any:
        self._read = lambda ready: self._tail is not None  # type: ignore[method-assign]
        return original(self, fence, last_turn)

    plant(WarmRows, "taken", taken)
    plant(TurnsHere, "of", lambda self, system: 0)


@bug("a turn does not say which commands have been delivered")
def keeps_delivered_commands(plant: Plant) -> None:
    plant(turns._LISTS, "delivered", ("nothing", int))


@bug("a standby counts the turns of a reading that has failed as read")
def counts_failed_readings(plant: Plant) -> None:
    original = StoreTail._changed

    def changed(self: StoreTail, copy: Any, told: Any, newest: int) -> Any:
        copy.number = newest
        return original(self, copy, told, newest)

    plant(StoreTail, "_changed", changed)


@bug("a standby leads from what it had built before the last turns")
def leads_from_what_was_built_before(plant: Plant) -> None:
    plant(Ahead, "_followed", lambda self, loaded: self._made is not None)
    plant(_Made, "is_of", lambda self, loaded: True)


@bug("what a standby builds ahead keeps attempts that have ended")
def builds_on_ended_attempts(plant: Plant) -> None:
    plant(_Made, "_end_attempts", lambda self, loaded: None)
    plant(_Made, "is_of", lambda self, loaded: True)


@bug("the row is taken while another master holds it")
def takes_the_row_early(plant: Plant) -> None:
    plant(HeldLease, "free", property(lambda self: True))
