"""One turn's draft: handlers change the working state through it, and it remembers what to write.

The working state *is* the draft. Readers see only what was published after a commit, and a commit
that fails ends the process; so a draft never has to be taken back (docs/adr: one turn, one commit).
A handler therefore refuses (raises a DlqError) before it changes anything.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Protocol, TypeGuard, TypeVar

from dlq_common.errors import AlreadyExists, NotFound, Unauthenticated
from dlq_master.control.attempts import lapses
from dlq_master.control.attempts.dispatch import RESIZE
from dlq_master.control.loop.state import State
from dlq_master.control.placement import usage
from dlq_master.control.read_model import journal
from dlq_master.control.stimuli import Caller, SubmitJob
from dlq_master.model.attempts import attempt_steps
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.cluster import drive
from dlq_master.model.event import Fact, JournalEvent
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.recording import Evidence, Recording
from dlq_master.model.machine import StopCause
from dlq_master.model.nodes import node_steps as node_machine
from dlq_master.model.nodes.node import Node
from dlq_master.model.plan import Change, Lapse, Resize
from dlq_master.model.why import ReasonCode
from dlq_master.store.batch import Batch, Intention, JoinToken, StoredRequest, User
from dlq_master.store.tables.tenants import Reservation, Team, Waited

Name = TypeVar("Name", bound=str)
_JOB_LEAP = 10_000_000  # an agent that claims a higher one is not believed
Answer = Callable[[], Any]  # evaluated at the end of the turn, after the plan


class Archive(Protocol):
    """What a turn reads of what is not in memory: committed rows only."""

    def job(self, job_id: JobId) -> Job | None: ...
    def attempts(self, job_id: JobId) -> tuple[Attempt, ...]: ...
    def request(self, user: str, request_id: str) -> StoredRequest | None: ...
    def spec(self, job_id: JobId) -> bytes | None: ...
    def recordings(self, job_id: JobId) -> tuple[Recording, ...]: ...
    def evidence(self, key: AttemptKey) -> tuple[Evidence, ...]: ...
    def waited(self, job_id: JobId) -> Waited | None: ...


class Request(Protocol):
    """A stimulus that changes something for somebody, once."""

    @property
    def caller(self) -> Caller: ...
    @property
    def request_id(self) -> str: ...


class Turn:
    """The draft of one turn at one instant."""

    def __init__(self, state: State, archive: Archive, now_s: float) -> None:
        self.state = state
        self.archive = archive
        self.now_s = now_s
        self.batch = Batch()
        self.plan_due = False
        self._told = 0  # of the lapses, and of those that were saving before
        self._waves = 1
        self.entered: Counter[str] = (
            Counter()
        )  # jobs that came in this turn (control/jobs/crowd.py)
        self.looks: dict[NodeId, int] = {}  # nodes to be asked what is on their GPUs
        self.hung_up: list[tuple[NodeId, int]] = []  # sessions to close after the commit
        self._answered: dict[tuple[str, str], StoredRequest] = {}

    # --- values -------------------------------------------------------------------------------

    def job(self, job_id: JobId) -> Job:
        """The job, whether it lives or has ended; or NotFound."""
        job = self.known_job(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id}", kind="job", id=job_id)
        return job

    def known_job(self, job_id: JobId) -> Job | None:
        """The same, or None. One that ended long ago is read from the disk, and cannot change."""
        return self.state.cluster.jobs.get(job_id) or self.archive.job(job_id)

    def node(self, node_id: NodeId) -> Node:
        """The node, or NotFound."""
        node = self.state.cluster.nodes.get(node_id)
        if node is None:
            raise NotFound(f"there is no node {node_id}", kind="node", id=node_id)
        return node

    def step_job(
        self,
        job_id: JobId,
        event: job_steps.JobEvent,
        *,
        actor: str = "scheduler",
        cause: str = "",
    ) -> None:
        """Let something happen to a job; what follows for its attempt follows."""
        happened = drive.step_job(self.state.cluster, job_id, event, self.now_s)
        self.follow(happened, actor=actor, cause=cause)

    def step_attempt(
        self,
        key: AttemptKey,
        event: attempt_steps.AttemptEvent,
        *,
        actor: str = "scheduler",
        cause: str = "",
    ) -> None:
        """Let something happen to a living attempt; what follows for its job follows."""
        happened = drive.step_attempt(self.state.cluster, key, event, self.now_s)
        self.follow(happened, actor=actor, cause=cause)

    def step_node(
        self,
        node_id: NodeId,
        event: node_machine.NodeEvent,
        *,
        actor: str = "master",
        cause: str = "",
    ) -> Node:
        """Let something happen to a node."""
        happened = drive.step_node(self.state.cluster, node_id, event, self.now_s)
        self.follow(happened, actor=actor, cause=cause)
        return self.state.cluster.nodes[node_id]

    def stop(
        self,
        key: AttemptKey,
        cause: StopCause,
        *,
        grace_s: float | None = None,
        actor: str = "scheduler",
    ) -> None:
        """Ask all ranks of a living attempt to save and go; `grace_s` None = the job's own."""
        if grace_s is None:
            happened = drive.stop_attempt(self.state.cluster, key, cause, self.now_s)
            self.follow(happened, actor=actor)
        else:
            event = attempt_steps.StopRequested(cause=cause, grace_s=grace_s)
            self.step_attempt(key, event, actor=actor)

    def move_away(self, node_id: NodeId, *, actor: str) -> None:
        """Everything that runs on a draining node saves and goes on elsewhere."""
        for key in self.state.cluster.attempts_on(node_id):
            if self.state.cluster.attempts[key].stop_cause is None:
                self.stop(key, StopCause.DRAIN, actor=actor)

    def put_attempt(self, attempt: Attempt) -> None:
        """A change of an attempt that is no event of its machine: its ranks, its port."""
        self.state.cluster.put_attempt(attempt)
        self.plan_due = True

    def follow(self, happened: list[drive.Happened], *, actor: str, cause: str = "") -> None:
        """Note what happened, and tell the nodes of stops."""
        self.plan_due = True
        self.state.gates.moved(one.job_id for one in happened)
        self.state.retries.moved(self.state, happened)
        self.state.risks.moved(happened)
        self.state.bookings.moved(happened)
        self._note_waits(happened)
        self._count_lapses(happened)
        for one in happened:
            if isinstance(one.event, attempt_steps.Renewed):
                continue  # no edge of the machine; the row has the new term
            kind, facts = journal.line(one)
            self.note(
                kind,
                job_id=one.job_id,
                attempt=one.attempt,
                node_id=one.node_id,
                actor=actor,
                cause=cause or journal.cause(one),
                **facts,
            )
            if (told := journal.resized(one)) is not None:
                why, sizes = told
                self.note(
                    "job_resized",
                    job_id=one.job_id,
                    attempt=one.attempt,
                    node_id=one.node_id,
                    actor=actor,
                    cause=why,
                    **sizes,
                )
            if isinstance(one.event, attempt_steps.StopRequested):
                self._tell_to_stop(one)
            elif isinstance(one.event, attempt_steps.ResizeBegun | attempt_steps.LeaveAsked):
                self._tell_to_resize(one)

    def _note_waits(self, happened: list[drive.Happened]) -> None:
        jobs = self.state.cluster.jobs
        for one in happened:
            if one.job_id is not None and not isinstance(one.event, attempt_steps.Renewed):
                self.state.waits.moved(jobs[one.job_id], self.now_s)

    def _tell_to_stop(self, one: drive.Happened) -> None:
        assert one.job_id is not None
        assert one.attempt is not None
        attempt = self.state.cluster.attempts[AttemptKey(one.job_id, one.attempt)]
        due_s = self.now_s + self._delay_s(one)
        if attempt.notice_due_s is None or due_s < attempt.notice_due_s:
            attempt = attempt._replace(notice_due_s=due_s)
            self.put_attempt(attempt)
        for rank, status in enumerate(attempt.ranks):
            if not status.gone:
                self.intend(
                    "stop",
                    status.node_id,
                    attempt.key,
                    attempt.epoch,
                    rank,
                    cause=(attempt.stop_cause or StopCause.PREEMPT).value,
                    grace_s=attempt.grace_s or 0.0,
                )

    def _tell_to_resize(self, one: drive.Happened) -> None:
        """Who joins is launched, who leaves is stopped as for a boundary; the others hear nothing."""
        assert one.job_id is not None
        assert one.attempt is not None
        attempt = self.state.cluster.attempts[AttemptKey(one.job_id, one.attempt)]
        resize = attempt.resize
        assert resize is not None
        begins = isinstance(one.event, attempt_steps.ResizeBegun)
        if begins and attempt.leaves.slots:
            later = resize._replace(due_s=self.now_s + self._delay_s(one))
            self.put_attempt(attempt._replace(resize=later))
        self.state.resizing.add(attempt.key)
        for rank, status in enumerate(attempt.ranks):
            to, grace_s = (status.node_id, attempt.key, attempt.epoch, rank), resize.grace_s
            if status.joining and begins:
                self.intend("launch", *to)
            elif status.leaving and not status.gone:
                self.intend("stop", *to, cause=RESIZE, grace_s=grace_s)

    def _delay_s(self, one: drive.Happened) -> float:
        """Who stops at a boundary waits for the last moment to save; any other stop is told at once."""
        if not _at_boundary(one.change) or one.job_id is None:
            return 0.0
        concurrent = self.state.config.jobs.concurrent_saves
        wave = self._told // max(1, concurrent)
        self._told += 1
        return lapses.delay_s(
            one.change.at_s - self.now_s,
            self.state.cluster.jobs[one.job_id].saves,
            wave=wave,
            waves=self._waves,
        )

    def _count_lapses(self, happened: list[drive.Happened]) -> None:
        """How many are to save, beside those that are at it already."""
        lapsing = sum(
            _at_boundary(one.change) and isinstance(one.event, attempt_steps.StopRequested)
            for one in happened
        )
        if not lapsing:
            return
        living = self.state.cluster.attempts.values()
        self._told = sum(attempt.state is AttemptState.PAUSING for attempt in living) - lapsing
        concurrent = self.state.config.jobs.concurrent_saves
        self._waves = lapses.waves_of(lapsing, self._told, concurrent)

    def intend(
        self,
        kind: str,
        node_id: NodeId,
        key: AttemptKey,
        epoch: int,
        rank: int,
        cause: str = "",
        grace_s: float = 0.0,
    ) -> None:
        """Put a command into the outbox: it is sent after the commit, until its node takes it."""
        row = Intention(
            sequence=self.state.next_command,
            node_id=node_id,
            kind=kind,
            key=key,
            epoch=epoch,
            node_rank=rank,
            cause=cause,
            grace_s=grace_s,
        )
        self.state.next_command += 1
        self.state.outbox.put(row)
        self.batch.intentions.append(row)

    def delivered(self, sequence: int) -> None:
        """A command was taken, or has become pointless."""
        if self.state.outbox.drop(sequence):
            self.batch.delivered.append(sequence)

    def never_again(self, job_id: JobId) -> None:
        """A job of this id was there before us: ours get higher ones, also after a restart."""
        if self.state.next_job <= job_id < self.state.next_job + _JOB_LEAP:
            self.state.next_job = job_id + 1
            self.batch.meta["next_job"] = str(self.state.next_job)

    def hang_up(self, node_id: NodeId) -> None:
        """End the node's session: whatever its agent thinks, it has to say hello again."""
        session_id = self.state.sessions.pop(node_id, None)
        if session_id is not None:
            self.hung_up.append((node_id, session_id))

    def take_batch(self) -> Batch:
        """Everything this turn has changed, ready to be written."""
        touched = self.state.cluster.take_touched()
        self.state.waits.touched(touched.jobs)
        self.batch.waited += self.state.waits.rows(self.now_s)
        self.batch.foreseen += self.state.starts.rows(touched.jobs)
        self.batch.dropped_foreseen += self.state.starts.dropped()
        self.batch.meta.update(usage.to_write(self.state.cluster))
        self.batch.jobs += touched.jobs
        self.batch.attempts += touched.attempts
        self.batch.nodes += touched.nodes
        for node in touched.nodes:
            _take_back(self.batch.forgotten_nodes, node.node_id)
        self.state.bookkeeping.write(self.batch, self.state.cluster, self.now_s)
        self._note_costs()
        self.state.cluster.claims.outgrown.clear()
        return self.batch

    def _note_costs(self) -> None:
        pools, batch = self.state.pools, self.batch
        if not (self.state.config.pools or pools.machines):
            return
        pools.note_unforetold(batch.jobs)
        nodes = self.state.cluster.nodes
        batch.stays += self.state.stays.take(batch.attempts, nodes, pools, self.now_s)

    # --- answering once -----------------------------------------------------------------------

    def replay(self, ask: Request) -> str | None:
        """The result of an earlier request with this id; None for the first of its kind.

        Raises AlreadyExists when the id was used for something else.
        """
        self._check_person(ask.caller)
        if not ask.request_id:
            return None
        key = (ask.caller.key, ask.request_id)
        known = self._answered.get(key) or self.archive.request(*key)
        if known is None:
            return None
        if known.digest != digest(ask):
            raise AlreadyExists(
                f"request id {ask.request_id} was used for another request", kind="request_id"
            )
        return known.result

    def _check_person(self, caller: Caller) -> None:
        """Unauthenticated for who was removed after the call had been let in."""
        if caller.person:
            user = self.state.users.get(caller.name)
            if user is None or user.key != caller.person:
                raise Unauthenticated(f"there is no user {caller.name} (any more)")

    def remember(self, ask: Request, result: object) -> None:
        """Keep the result of a request, so that a repeat changes nothing."""
        if not ask.request_id:
            return
        row = StoredRequest(ask.caller.key, ask.request_id, digest(ask), str(result), self.now_s)
        self._answered[row.user, row.request_id] = row
        self.batch.requests.append(row)

    # --- people -------------------------------------------------------------------------------

    def put_user(self, user: User) -> None:
        """Add or change a user."""
        self.state.users[user.name] = user
        self.batch.users.append(user)
        # A batch drops after it puts: the last word of the turn counts.
        _take_back(self.batch.deleted_users, user.name)

    def drop_user(self, name: str) -> None:
        """Remove a user."""
        del self.state.users[name]
        self.batch.deleted_users.append(name)

    def put_token(self, token: JoinToken) -> None:
        """Add or change a join token."""
        self.state.tokens[token.token_id] = token
        self.batch.tokens.append(token)
        _take_back(self.batch.deleted_tokens, token.token_id)

    def drop_token(self, token_id: str) -> None:
        """Remove a join token."""
        del self.state.tokens[token_id]
        self.batch.deleted_tokens.append(token_id)

    def put_team(self, team: Team) -> None:
        """Add or change a team."""
        self.state.teams[team.name] = team
        self.batch.teams.append(team)
        _take_back(self.batch.deleted_teams, team.name)

    def drop_team(self, name: str) -> None:
        """Remove a team."""
        del self.state.teams[name]
        self.batch.deleted_teams.append(name)

    # --- reservations -------------------------------------------------------------------------

    def put_reservation(self, one: Reservation) -> None:
        """Add or change a reservation."""
        self.state.reservations[one.reservation_id] = one
        self.batch.reservations.append(one)
        _take_back(self.batch.deleted_reservations, one.reservation_id)

    def drop_reservation(self, reservation_id: str) -> None:
        """Remove a reservation."""
        del self.state.reservations[reservation_id]
        self.batch.deleted_reservations.append(reservation_id)

    # --- the journal --------------------------------------------------------------------------

    def note(
        self,
        kind: str,
        /,
        *,
        job_id: JobId | None = None,
        attempt: int | None = None,
        node_id: NodeId | str | None = None,
        actor: str = "master",
        cause: str = "",
        **facts: Fact,
    ) -> None:
        """Write a line of the journal."""
        self.batch.events.append(
            JournalEvent(
                kind=kind,
                time_s=self.now_s,
                seq=self.state.next_event,
                job_id=job_id,
                attempt=attempt,
                node_id=None if node_id is None else NodeId(node_id),
                cause=cause,
                actor=actor,
                data=facts,
            )
        )
        self.state.next_event += 1


def _at_boundary(change: Change | None) -> TypeGuard[Lapse | Resize]:
    """Whether it stops somebody at the end of its term, for which it is told early; a reclaim does not wait."""
    if isinstance(change, Resize):
        return change.reason.code is ReasonCode.RESIZED
    return isinstance(change, Lapse)


def _take_back(dropped: list[Name], name: Name) -> None:
    while name in dropped:
        dropped.remove(name)


def digest(ask: Request) -> str:
    """What a request asks for, without its id: equal for a repeat, different for anything else."""
    if isinstance(ask, SubmitJob):
        return ask.digest
    parts = [type(ask).__name__]
    for field in fields(ask):  # type: ignore[arg-type] # every stimulus is a dataclass
        if field.name not in _MADE_ANEW:
            value = getattr(ask, field.name)
            parts.append(repr(sorted(value) if isinstance(value, frozenset) else value))
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:32]


_MADE_ANEW = (
    "request_id",
    "token_id",
    "secret_hash",
    "found",
    "hurry",
)  # by the server at every try
