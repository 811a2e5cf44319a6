"""A request for a list as values: its conditions, its order and its sources."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from dlq.v1 import job_service_pb2 as wire
from dlq_common.errors import InvalidRequest, PermissionDenied
from dlq_common.text.wire import from_timestamp
from dlq_master.control.read_model.job_blocks import EVERYBODY, BlockNotes
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Caller
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.calls.reads import LOOKED_AT, Breathe
from dlq_master.rpc.jobs.lists.conditions import ENDED_STATES, conditions_of, eyes_of, known_state
from dlq_master.rpc.jobs.lists.places import is_hidden, order_of
from dlq_master.rpc.jobs.lists.selection import JobSelection
from dlq_master.rpc.jobs.visible import HIDDEN, NAMED, each_named, jobs_named, others_for
from dlq_master.rpc.specs.intake import node_id_of, search_words
from dlq_master.store.batch import PastJobs
from dlq_master.store.list_order import ListOrder, Rank

MOST_STATES: Final = 256
LONGEST_WORD: Final = 1_024  # longer than any name of a job, a user or a queue
MOST_NAMED: Final = 200_000  # jobs that are looked at: a name alone is two


class Wanted(NamedTuple):
    """A requested list of jobs."""

    user: str  # whose blocks, or EVERYBODY's
    named: Mapping[JobId, Job] | None  # only some of these; None: of all
    past: PastJobs | None  # None: all that may belong to it are in memory
    selection: JobSelection
    order: ListOrder
    open: bool  # the value of the order is shown of everybody's jobs
    caller: Caller
    read: Published
    notes: BlockNotes

    def rank(self, job: Job) -> Rank:
        """The place of a job in the order, for the caller."""
        return self.order.rank(job, known=self.open or self.caller.may_see(job))

    @property
    def rank_subject(self) -> tuple[object, ...]:
        """A key: ranks of a job are equal for equal keys."""
        return self.order.word, () if self.open else eyes_of(self.caller, self.read)


async def understood(
    request: wire.ListJobsRequest,
    caller: Caller,
    read: Published,
    now_s: float,
    notes: BlockNotes,
    breathe: Breathe,
) -> Wanted:
    """The requested list. InvalidRequest: it makes no sense. PermissionDenied: the caller may not
    see it.
    """
    for field in ("user", "queue", "name", "team", "gpu_type"):
        if len(getattr(request, field)) > LONGEST_WORD:  # notes of late lists keep them
            raise InvalidRequest(f"{field} has more than {LONGEST_WORD} characters", field=field)
    asked = _asked(request, caller, read, now_s)
    if len(request.states) > MOST_STATES:
        raise InvalidRequest(f"more than {MOST_STATES} states", field="states")
    states = frozenset(known_state(word) for word in request.states)
    living, checks = not _only_ended(request), _lists_checks(request)
    conditions = conditions_of(asked, states, caller, read, living=living, checks=checks)
    order = order_of(request.order)
    return Wanted(
        user=EVERYBODY if asked.user is None else asked.user,
        named=await _named(request, read, breathe),
        past=_past(asked, states, caller, read),
        selection=JobSelection(conditions, notes, breathe),
        order=order,
        open=caller.sees_all or not is_hidden(order, read),
        caller=caller,
        read=read,
        notes=notes,
    )


def _past(
    asked: PastJobs, states: frozenset[str], caller: Caller, read: Published
) -> PastJobs | None:
    """The jobs of the list on disk. Other users' ended jobs are not shown, and not read."""
    if not _reaches_back(asked, states, read):
        return None
    past = asked._replace(states=states & ENDED_STATES)
    if caller.sees_all:
        return past
    if asked.user not in (None, caller.name):
        return None
    return past._replace(
        user=caller.name, person=caller.person or caller.name, since_s=caller.since_s
    )


def _asked(
    request: wire.ListJobsRequest, caller: Caller, read: Published, now_s: float
) -> PastJobs:
    """The conditions of the request, without its states."""
    from_s, before_s = None, None
    if request.HasField("ended_within_seconds"):
        from_s = now_s - request.ended_within_seconds
    if request.HasField("ended_from_time"):
        from_s = max(from_s or -math.inf, _instant_s(request.ended_from_time, "ended_from_time"))
    if request.HasField("ended_before_time"):
        before_s = _instant_s(request.ended_before_time, "ended_before_time")
    return PastJobs(
        user=_listed_user(request, caller, read),
        queue=request.queue,
        name=request.name,
        ended_from_s=from_s,
        ended_before_s=before_s,
        team=request.team,
        gpu_type=request.gpu_type,
        words=search_words(request.text),
    )


def _instant_s(instant: Timestamp, field: str) -> float:
    if not 0 <= instant.nanos < 1_000_000_000:
        raise InvalidRequest(f"{field} is not an instant", field=field)
    return from_timestamp(instant)


def _only_ended(request: wire.ListJobsRequest) -> bool:
    return request.HasField("ended_from_time") or request.HasField("ended_before_time")


def _lists_checks(request: wire.ListJobsRequest) -> bool:
    """Whether checks of nodes are listed.

    Lists of all users' jobs leave them out. Lists of one user, of a named node and of named jobs
    have them.
    """
    return request.user != "*" or bool(request.job_ids or request.node_id or request.name)


def _listed_user(request: wire.ListJobsRequest, caller: Caller, read: Published) -> str | None:
    """The user whose jobs are listed; None: all users. Jobs that an operator names may be any
    user's.
    """
    if caller.sees_all and request.job_ids and not request.user:
        return None
    if request.user in ("", caller.name):
        return caller.name
    if not caller.sees_all:
        _check_others(request, caller, read)
    return None if request.user == "*" else request.user


def _check_others(request: wire.ListJobsRequest, caller: Caller, read: Published) -> None:
    """PermissionDenied: a user may not list this of other users."""
    known = others_for(read, caller)
    if known == HIDDEN or (request.user != "*" and known != NAMED):
        raise PermissionDenied(
            "other people's jobs are for operators", user=caller.name, needs="operator"
        )
    if _only_ended(request) or request.job_ids:
        raise PermissionDenied(
            "of other people's jobs users see those that wait or run, in lists",
            user=caller.name,
            needs="operator",
        )


async def _named(
    request: wire.ListJobsRequest, read: Published, breathe: Breathe
) -> Mapping[JobId, Job] | None:
    """The named jobs, or those that hold something of a named node. None: the request
    has neither.
    """
    if request.node_id:
        here = {key.job_id for key in read.attempts_on(node_id_of(request.node_id))}
        jobs = {job_id: job for job_id in here if (job := read.job(job_id)) is not None}
        if not request.job_ids:
            return jobs
        named = await _by_ids(request, read, breathe)
        return {job_id: job for job_id, job in named.items() if job_id in jobs}
    return await _by_ids(request, read, breathe) if request.job_ids else None


async def _by_ids(
    request: wire.ListJobsRequest, read: Published, breathe: Breathe
) -> dict[JobId, Job]:
    """The existing jobs that `job_ids` name."""

    def look_up(name: str) -> list[Job | None]:
        return jobs_named(read, name, "job_ids")

    found: dict[JobId, Job] = {}
    for named in each_named(dict.fromkeys(request.job_ids), look_up, "job_ids", MOST_NAMED):
        await breathe(LOOKED_AT * named.cost)
        found |= {job.job_id: job for job in named.jobs if job is not None}
    return found


def _reaches_back(asked: PastJobs, states: frozenset[str], read: Published) -> bool:
    """Whether jobs that have left memory may be in the list."""
    if states and not states & ENDED_STATES:
        return False
    from_s = -math.inf if asked.ended_from_s is None else asked.ended_from_s
    return from_s <= read.complete_from_s > -math.inf
