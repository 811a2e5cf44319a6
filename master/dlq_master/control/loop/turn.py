"""The draft of one turn: handlers change the working state through it, and it gathers the batch.

There is no copy: the working state is the draft. Readers see only values that were published after
a commit, and a failed commit ends the process. So a draft is never rolled back (ADR 4), and a
handler must raise its DlqError before it changes anything.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from dlq_common.errors import AlreadyExists, NotFound, Unauthenticated
from dlq_master.control.loop.incidents import Incident
from dlq_master.control.loop.ports import Archive, ForeseenStarts, HistoryRecords
from dlq_master.control.stimuli import Caller, Command, SubmitGroup, SubmitJob, UpdateJob
from dlq_master.model.attempts import attempt_steps
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Touched
from dlq_master.model.event import Fact, JournalEvent
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes import node_steps as node_machine
from dlq_master.model.nodes.node import Node
from dlq_master.model.transitions import StopCause
from dlq_master.store.batch import Batch, Intention, StoredRequest
from dlq_master.store.tables.table import Rows

if TYPE_CHECKING:
    from dlq_master.control.composition.state import State as State
    from dlq_master.control.read_model.published import Published as Published
else:  # types only: the loop imports no other room of control
    State = Published = Any

K = TypeVar("K")
V = TypeVar("V")
_JOB_LEAP = 10_000_000  # a job id of an agent that is higher by this is not believed
WITHDRAWN = "withdrawn"  # the result of a submission that was withdrawn before it arrived
Answer = Callable[[], Any]  # evaluated at the end of the turn, after the plan


class OnceRequest(Protocol):
    """A request of a caller that takes effect once (control/loop/once.py)."""

    @property
    def caller(self) -> Caller: ...
    @property
    def request_id(self) -> str: ...


class Steps(NamedTuple):
    """Steps of state machines, with actor and cause (empty: the events themselves say it)."""

    happened: list[drive.Happened]
    actor: str
    cause: str


class Wiring(NamedTuple):
    """The functions that take part in turns, each in the order of its calls
    (control/composition).
    """

    handlers: Mapping[type, Callable[[Turn, Any], Answer]]
    ticks: Mapping[str, Sequence[Callable[[Turn], None]]]
    stepped: Sequence[Callable[[Turn, Steps], None]]
    before_plan: Sequence[Callable[[Turn], None]]
    plan: Callable[[Turn], float | None]  # tells when to plan again at the latest
    before_commit: Sequence[Callable[[Turn, Touched], None]]
    commands: Callable[
        [State, Archive, Sequence[Intention], float], Mapping[NodeId, Sequence[Command]]
    ]
    after_turn: Sequence[Callable[[State, float], None]]
    published: Callable[
        [State, HistoryRecords, ForeseenStarts, Callable[[], tuple[Incident, ...]]], Published
    ]


class Turn:
    """The draft of one turn at one instant."""

    def __init__(self, state: State, archive: Archive, now_s: float, wiring: Wiring) -> None:
        self._wiring = wiring
        self.state = state
        self.archive = archive
        self.now_s = now_s
        self.batch = Batch()
        self.plan_due = False
        self.saving = 0  # jobs that save now ...
        self.waves = 1  # ... and the waves of the saves of this turn (control/attempts/stops.py)
        # Jobs accepted in this turn, by user and queue (control/people/counts.py).
        self.entered: Counter[str] = Counter()
        self.looks: dict[NodeId, int] = {}  # nodes that are to look for processes on their GPUs
        self.ended_sessions: list[tuple[NodeId, int]] = []  # sessions to close after the commit
        self._answered: dict[tuple[str, str], StoredRequest] = {}  # in this turn
        self._recalled: dict[tuple[str, str], StoredRequest | None] = {}  # None: there is none

    # --- values -------------------------------------------------------------------------------

    def job(self, job_id: JobId) -> Job:
        """The job, whether it lives or has ended; or NotFound."""
        job = self.known_job(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id}", kind="job", id=job_id)
        return job

    def known_job(self, job_id: JobId) -> Job | None:
        """The same, or None. A job that ended long ago is read from the disk."""
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
        """Apply an event to a job; the consequences for its attempt follow."""
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
        """Apply an event to a living attempt; the consequences for its job follow."""
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
        """Apply an event to a node, and return the node after it."""
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
        """Ask all ranks of a live attempt to save and leave. `grace_s` None: the job's grace."""
        if grace_s is None:
            happened = drive.stop_attempt(self.state.cluster, key, cause, self.now_s)
            self.follow(happened, actor=actor)
        else:
            event = attempt_steps.StopRequested(cause=cause, grace_s=grace_s)
            self.step_attempt(key, event, actor=actor)

    def move_away(self, node_id: NodeId, *, actor: str) -> None:
        """Stop all attempts on a draining node, so that they resume elsewhere. A suspended attempt
        first comes back to its GPUs (control/attempts/suspensions.py).
        """
        for key in self.state.cluster.attempts_on(node_id):
            attempt = self.state.cluster.attempts[key]
            if attempt.stop_cause is None and attempt.suspension is None:
                self.stop(key, StopCause.DRAIN, actor=actor)

    def put_attempt(self, attempt: Attempt) -> None:
        """Change an attempt without an event of its state machine: its ranks, its port."""
        self.state.cluster.put_attempt(attempt)
        self.plan_due = True

    def follow(self, happened: list[drive.Happened], *, actor: str, cause: str = "") -> None:
        """Call the `stepped` functions of the wiring with these steps."""
        self.plan_due = True
        if not happened:  # of most plans
            return
        steps = Steps(happened, actor, cause)
        for learn in self._wiring.stepped:
            learn(self, steps)

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
        """Put a command into the outbox. It is sent after the commit, and again until its node
        confirms it.
        """
        row = Intention(
            sequence=self.state.attempts.next_command,
            node_id=node_id,
            kind=kind,
            key=key,
            epoch=epoch,
            node_rank=rank,
            cause=cause,
            grace_s=grace_s,
        )
        self.state.attempts.next_command += 1
        self.state.attempts.outbox.put(row)
        self.batch.intentions.append(row)

    def delivered(self, sequence: int) -> None:
        """Remove a command that its node has confirmed, or that is of no use any more."""
        if self.state.attempts.outbox.drop(sequence):
            self.batch.delivered.append(sequence)

    def skip_job_id(self, job_id: JobId) -> None:
        """Give new jobs ids above this one, which an earlier database has used."""
        if self.state.jobs.next_id <= job_id < self.state.jobs.next_id + _JOB_LEAP:
            self.state.jobs.next_id = job_id + 1
            self.batch.meta["next_job"] = str(self.state.jobs.next_id)

    def end_session(self, node_id: NodeId) -> None:
        """End the node's session, so that its agent must say hello again."""
        session_id = self.state.nodes.sessions.pop(node_id, None)
        if session_id is not None:
            self.ended_sessions.append((node_id, session_id))

    def take_batch(self) -> Batch:
        """All changes of this turn, to be written in one transaction."""
        touched = self.state.cluster.take_touched()
        self.batch.jobs += touched.jobs
        self.batch.attempts += touched.attempts
        self.batch.nodes += touched.nodes
        # A batch deletes nodes after it writes them, so a node that joined again is not deleted.
        joined = {node.node_id for node in touched.nodes}
        self.batch.forgotten_nodes = [
            node_id for node_id in self.batch.forgotten_nodes if node_id not in joined
        ]
        for write in self._wiring.before_commit:
            write(self, touched)
        self.state.cluster.claims.outgrown.clear()
        return self.batch

    # --- answering once -----------------------------------------------------------------------

    def recall(self, asks: Sequence[OnceRequest]) -> None:
        """Read the earlier results of these request ids, in one search for each caller."""
        ids: dict[str, list[str]] = {}
        for ask in asks if len(asks) > 1 else ():
            if ask.request_id:
                ids.setdefault(ask.caller.key, []).append(ask.request_id)
        for user, request_ids in ids.items():
            self._recalled.update(((user, request_id), None) for request_id in request_ids)
            for found in self.archive.requests(user, request_ids):
                self._recalled[user, found.request_id] = found

    def replay(self, ask: OnceRequest) -> str | None:
        """The result of the earlier request with this id; None: there was none.

        Raises AlreadyExists if the id was used for another request.
        """
        self._check_person(ask.caller)
        if not ask.request_id:
            return None
        known = self.known_request(ask)
        if known is None:
            return None
        if known.digest != digest(ask):
            withdrawn = known.result == WITHDRAWN
            use = "withdrawn before its job came" if withdrawn else "used for another request"
            raise AlreadyExists(f"request id {ask.request_id} was {use}", kind="request_id")
        return known.result

    def known_request(self, ask: OnceRequest) -> StoredRequest | None:
        """The earlier request of this caller with this id, even one with other content."""
        key = (ask.caller.key, ask.request_id)
        return self._answered.get(key) or self._stored_request(key)

    def _stored_request(self, key: tuple[str, str]) -> StoredRequest | None:
        if key in self._recalled:
            return self._recalled[key]
        return self.archive.request(*key)

    def _check_person(self, caller: Caller) -> None:
        """Raises Unauthenticated if the user was removed after the call was accepted."""
        if caller.person:
            user = self.state.people.users.get(caller.name)
            if user is None or user.key != caller.person:
                raise Unauthenticated(f"there is no user {caller.name} (any more)")

    def remember(self, ask: OnceRequest, result: object) -> None:
        """Keep the result of a request, so that a repeat changes nothing."""
        if not ask.request_id:
            return
        row = StoredRequest(ask.caller.key, ask.request_id, digest(ask), str(result), self.now_s)
        self._answered[row.user, row.request_id] = row
        self.batch.requests.append(row)

    # --- small tables -------------------------------------------------------------------------

    def put(self, rows: Rows[K, V], value: V) -> None:
        """Add or change a row of a table of the state."""
        rows[rows.table.key_of(value)] = value
        self.batch.put(rows.table, value)

    def drop(self, rows: Rows[K, V], key: K) -> None:
        """Remove a row; KeyError if there is none."""
        del rows[key]
        self.batch.drop(rows.table, key)

    # --- the journal --------------------------------------------------------------------------

    def note(
        self,
        kind: str,
        /,
        *,
        job_id: JobId | None = None,
        key: AttemptKey | None = None,
        node_id: NodeId | str | None = None,
        actor: str = "master",
        cause: str = "",
        **facts: Fact,
    ) -> None:
        """Write a line of the journal, about a job or an attempt (`key`), a node, or neither."""
        self.batch.events.append(
            JournalEvent(
                kind=kind,
                time_s=self.now_s,
                seq=self.state.journal.next_sequence,
                job_id=job_id if key is None else key.job_id,
                attempt=None if key is None else key.number,
                node_id=None if node_id is None else NodeId(node_id),
                cause=cause,
                actor=actor,
                data=facts,
            )
        )
        self.state.journal.next_sequence += 1


def digest(ask: OnceRequest) -> str:
    """A hash of a request without its id: equal for a repeat, different for any other request."""
    if isinstance(ask, SubmitJob | SubmitGroup):
        return ask.digest
    if isinstance(ask, UpdateJob) and ask.hooked is not None:
        return ask.hooked.digest
    parts = [type(ask).__name__]
    for field in fields(ask):  # type: ignore[arg-type] # every stimulus is a dataclass
        if field.name not in _MADE_ANEW:
            value = getattr(ask, field.name)
            parts.append(repr(sorted(value) if isinstance(value, frozenset) else value))
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:32]


# Fields that the server fills at every try.
_MADE_ANEW = (
    "request_id",
    "token_id",
    "new_serial",
    "secret_hash",
    "signing_key",
    "found",
    "hurry",
    "living_only",
    "respec",
    "validate_only",
    "hooked",
)
