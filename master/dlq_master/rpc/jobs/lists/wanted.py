"""A request for a list, understood: its conditions, its order and its sources."""

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
from dlq_master.rpc.calls.reads import Breathe
from dlq_master.rpc.jobs.lists.conditions import ENDED_STATES, conditions_of, eyes_of, known_state
from dlq_master.rpc.jobs.lists.places import is_hidden, order_of
from dlq_master.rpc.jobs.lists.selection import JobSelection
from dlq_master.rpc.jobs.visible import HIDDEN, NAMED, cost_of, jobs_named, others_for
from dlq_master.rpc.specs.intake import node_id_of, search_words
from dlq_master.store.batch import PastJobs
from dlq_master.store.list_order import ListOrder, Rank

MOST_STATES: Final = 256
MOST_NAMED: Final = 200_000  # jobs that are looked at: a name alone is two


class Wanted(NamedTuple):
    """The jobs of a list."""

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
        """Its place in the order, for the caller."""
        return self.order.rank(job, known=self.open or self.caller.may_see(job))

    @property
    def rank_subject(self) -> tuple[object, ...]:
        """Ranks of a job are equal for equal subjects."""
        return self.order.word, () if self.open else eyes_of(self.caller, self.read)


def understood(
    request: wire.ListJobsRequest,
    caller: Caller,
    read: Published,
    now_s: float,
    notes: BlockNotes,
    breathe: Breathe,
) -> Wanted:
    """The list that is asked for. InvalidRequest: nobody understands it. PermissionDenied: it is
    not the caller's.
    """
    asked = _asked(request, caller, read, now_s)
    if len(request.states) > MOST_STATES:
        raise InvalidRequest(f"more than {MOST_STATES} states", field="states")
    states = frozenset(known_state(word) for word in request.states)
    living, checks = not _only_ended(request), _lists_checks(request)
    conditions = conditions_of(asked, states, caller, read, living=living, checks=checks)
    order = order_of(request.order)
    return Wanted(
        user=EVERYBODY if asked.user is None else asked.user,
        named=_named(request, read),
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
    """The wanted jobs of the disk. Ended jobs of other people are not shown, and not looked for."""
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
    """The request without its states; a living job may lack the end that it names."""
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
    """Lists of everybody's jobs leave checks of nodes out. Those of their user have them, and so
    has a node that is named.
    """
    return request.user != "*" or bool(request.job_ids or request.node_id or request.name)


def _listed_user(request: wire.ListJobsRequest, caller: Caller, read: Published) -> str | None:
    """Whose jobs are listed; None: everybody's. Operators who name jobs mean them, whosever."""
    if caller.sees_all and request.job_ids and not request.user:
        return None
    if request.user in ("", caller.name):
        return caller.name
    if not caller.sees_all:
        _check_others(request, caller, read)
    return None if request.user == "*" else request.user


def _check_others(request: wire.ListJobsRequest, caller: Caller, read: Published) -> None:
    """PermissionDenied for what a user may not list of others."""
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


def _named(request: wire.ListJobsRequest, read: Published) -> Mapping[JobId, Job] | None:
    """The jobs that are named, or that hold something of the node. None: neither is asked for."""
    if request.node_id:
        here = {key.job_id for key in read.attempts_on(node_id_of(request.node_id))}
        jobs = {job_id: job for job_id in here if (job := read.job(job_id)) is not None}
        if not request.job_ids:
            return jobs
        return {job_id: job for job_id, job in _by_ids(request, read).items() if job_id in jobs}
    return _by_ids(request, read) if request.job_ids else None


def _by_ids(request: wire.ListJobsRequest, read: Published) -> dict[JobId, Job]:
    named: dict[JobId, Job] = {}
    looked_at = 0
    for text in dict.fromkeys(request.job_ids):
        found = jobs_named(read, text, "job_ids")
        looked_at += cost_of(text, len(found))
        if looked_at > MOST_NAMED:
            raise InvalidRequest(f"more than {MOST_NAMED} jobs at once", field="job_ids")
        named |= {job.job_id: job for job in found if job is not None}
    return named


def _reaches_back(asked: PastJobs, states: frozenset[str], read: Published) -> bool:
    """Whether jobs that have left memory may be among those asked for."""
    if states and not states & ENDED_STATES:
        return False
    from_s = -math.inf if asked.ended_from_s is None else asked.ended_from_s
    return from_s <= read.complete_from_s > -math.inf
