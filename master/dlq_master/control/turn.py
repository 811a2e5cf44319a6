"""One turn's draft: handlers change the working state through it, and it remembers what to write.

The working state *is* the draft. Readers see only what was published after a commit, and a commit
that fails ends the process; so a draft never has to be taken back (docs/adr: one turn, one commit).
A handler therefore refuses (raises a DlqError) before it changes anything.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Protocol

from dlq_common.errors import AlreadyExists, NotFound
from dlq_master.control.state import State
from dlq_master.control.stimuli import Caller, SubmitJob
from dlq_master.model import attempt_steps, job_steps, node
from dlq_master.model.attempt import Attempt
from dlq_master.model.event import Fact, JournalEvent
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.job import Job
from dlq_master.model.machine import StopAttempt, StopCause
from dlq_master.store.batch import Batch, Intention, JoinToken, StoredRequest, User

Answer = Callable[[], Any]  # evaluated at the end of the turn, after the plan


class Archive(Protocol):
    """What a turn reads of what is not in memory: committed rows only."""

    def request(self, user: str, request_id: str) -> StoredRequest | None: ...
    def attempt(self, key: AttemptKey) -> Attempt | None: ...


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
        self._answered: dict[tuple[str, str], StoredRequest] = {}

    # --- values -------------------------------------------------------------------------------

    def job(self, job_id: JobId) -> Job:
        """The job, or NotFound."""
        job = self.state.cluster.jobs.get(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id}", kind="job", id=job_id)
        return job

    def step_job(
        self,
        job_id: JobId,
        event: job_steps.JobEvent,
        *,
        actor: str = "scheduler",
        cause: str = "",
        **facts: Fact,
    ) -> Job:
        """Let something happen to a job, note it, and let its effects follow."""
        result = job_steps.step(self.job(job_id), event, at_s=self.now_s)
        self.state.cluster.put_job(result.value)
        self.plan_due = True
        self.note(
            f"job_{word(event)}",
            job_id=job_id,
            attempt=result.value.live_attempt,
            actor=actor,
            cause=cause,
            **facts,
        )
        for effect in result.effects:
            if isinstance(effect, StopAttempt):
                self.stop(effect.key, effect.cause, actor=actor, detail=cause)
        return result.value

    def step_attempt(
        self,
        key: AttemptKey,
        event: attempt_steps.AttemptEvent,
        *,
        actor: str = "scheduler",
        cause: str = "",
        **facts: Fact,
    ) -> Attempt:
        """Let something happen to a living attempt and note it."""
        before = self.state.cluster.attempts[key]
        after = attempt_steps.step(before, event, at_s=self.now_s).value
        self.state.cluster.put_attempt(after)
        self.plan_due = True
        self.note(
            f"attempt_{word(event)}",
            job_id=key.job_id,
            attempt=key.number,
            actor=actor,
            cause=cause,
            **facts,
        )
        return after

    def step_node(
        self, node_id: NodeId, event: node.NodeEvent, *, actor: str = "master", cause: str = ""
    ) -> node.Node:
        """Let something happen to a node and note it."""
        after = node.step(self.state.cluster.nodes[node_id], event, at_s=self.now_s).value
        self.state.cluster.put_node(after)
        self.plan_due = True
        self.note(f"node_{word(event)}", node_id=node_id, actor=actor, cause=cause)
        return after

    # --- stopping -----------------------------------------------------------------------------

    def stop(
        self,
        key: AttemptKey,
        cause: StopCause,
        *,
        grace_s: float | None = None,
        delay_s: float = 0.0,
        actor: str = "scheduler",
        detail: str = "",
    ) -> None:
        """Ask all ranks of a living attempt to save and go; `grace_s` None = the job's own."""
        attempt = self.state.cluster.attempts.get(key)
        if attempt is None:
            return
        job = self.job(key.job_id)
        if grace_s is None:
            grace_s = self.grace_s(job)
        self.step_attempt(
            key,
            attempt_steps.StopRequested(cause=cause, grace_s=grace_s, detail=detail),
            actor=actor,
            cause=cause.value,
            grace_s=grace_s,
        )
        for rank, status in enumerate(attempt.ranks):
            if not status.gone:
                self.intend(
                    "stop", status.node_id, key, attempt.epoch, rank, cause.value, grace_s, delay_s
                )

    def grace_s(self, job: Job) -> float:
        """From notice to kill: learned from the job's own saves."""
        jobs = self.state.config.jobs
        return grace_s(job.saves, job.rules, floor_s=jobs.grace_floor, cap_s=jobs.grace_cap)

    def intend(
        self,
        kind: str,
        node_id: NodeId,
        key: AttemptKey,
        epoch: int,
        rank: int,
        cause: str = "",
        grace_s: float = 0.0,
        delay_s: float = 0.0,
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
            delay_s=delay_s,
        )
        self.state.next_command += 1
        self.state.outbox[row.sequence] = row
        self.batch.intentions.append(row)

    def delivered(self, sequence: int) -> None:
        """A command was taken, or has become pointless."""
        if self.state.outbox.pop(sequence, None) is not None:
            self.batch.delivered.append(sequence)

    # --- answering once -----------------------------------------------------------------------

    def replay(self, ask: Request) -> str | None:
        """The result of an earlier request with this id; None for the first of its kind.

        Raises AlreadyExists when the id was used for something else.
        """
        if not ask.request_id:
            return None
        key = (ask.caller.name, ask.request_id)
        known = self._answered.get(key) or self.archive.request(*key)
        if known is None:
            return None
        if known.digest != digest(ask):
            raise AlreadyExists(
                f"request id {ask.request_id} was used for another request", kind="request_id"
            )
        return known.result

    def remember(self, ask: Request, result: object) -> None:
        """Keep the result of a request, so that a repeat changes nothing."""
        if not ask.request_id:
            return
        row = StoredRequest(ask.caller.name, ask.request_id, digest(ask), str(result), self.now_s)
        self._answered[row.user, row.request_id] = row
        self.batch.requests.append(row)

    # --- people -------------------------------------------------------------------------------

    def put_user(self, user: User) -> None:
        """Add or change a user."""
        self.state.users[user.name] = user
        self.batch.users.append(user)

    def drop_user(self, name: str) -> None:
        """Remove a user."""
        del self.state.users[name]
        self.batch.deleted_users.append(name)

    def put_token(self, token: JoinToken) -> None:
        """Add or change a join token."""
        self.state.tokens[token.token_id] = token
        self.batch.tokens.append(token)

    def drop_token(self, token_id: str) -> None:
        """Remove a join token."""
        del self.state.tokens[token_id]
        self.batch.deleted_tokens.append(token_id)

    # --- the journal --------------------------------------------------------------------------

    def note(
        self,
        kind: str,
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


def word(event: object) -> str:
    """`StopRequested(...)` -> "stop_requested": the journal's word for an event of a machine."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()


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


_MADE_ANEW = ("request_id", "token_id", "secret_hash")  # by the server at every try
