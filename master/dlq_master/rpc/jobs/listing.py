"""The jobs of a list, a few at a time, and their order: those of memory and those of the disk as
one. Where all jobs of a block belong into the list, or none, nobody looks at each of them.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from dlq.v1 import job_service_pb2 as wire
from dlq_common.errors import InvalidRequest, PermissionDenied
from dlq_common.text.names import shown
from dlq_common.text.suggest import did_you_mean
from dlq_common.text.wire import from_timestamp
from dlq_master.control.read_model.job_blocks import EVERYBODY, JobBlock, ids_of
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Caller
from dlq_master.model.attempts.attempt import LIVE, PROFILING
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import ENDED, Job, JobState, shown_state
from dlq_master.rpc.calls.paging import position_of
from dlq_master.rpc.calls.reads import LOOKED_AT, Breathe
from dlq_master.rpc.jobs.visible import HIDDEN, NAMED, jobs_named, may_list, sees_block
from dlq_master.store.batch import PastJobs

PAST_AT_ONCE: Final = 256  # rows of the disk
AT_ONCE: Final = 32  # jobs: if none of them was encoded before, they fill a slice
A_BLOCK: Final = 4  # the cost of a look at one
MOST_NAMED: Final = 100_000
SHOWN_STATES = frozenset({PROFILING, *[state.value for state in (*JobState, *LIVE)]})
ENDED_STATES = frozenset(state.value for state in ENDED)


class ListedJobs(NamedTuple):
    """Some jobs that belong into a list."""

    jobs: Sequence[Job]
    block: JobBlock | None = None  # they are this whole block


class _Sieve(NamedTuple):
    """A condition for jobs. Of a block: whether all its jobs pass, or none; None: look at each."""

    job: Callable[[Job], bool]
    block: Callable[[JobBlock], bool | None]


async def listed(
    request: wire.ListJobsRequest, caller: Caller, read: Published, now_s: float, breathe: Breathe
) -> AsyncIterator[ListedJobs]:
    """The jobs asked for after the page token, some at a time in the order of their ids, without
    end of page. `breathe`: others get their turn meanwhile.

    PermissionDenied when the list is not the caller's.
    """
    asked = _asked(request, caller, read, now_s)
    states = frozenset(_known_state(word) for word in request.states)
    sieves = _sieves(asked, states, caller, read, living=not _only_ended(request))
    after = position_of(request.page_token)
    # Ended jobs of other people are not shown, and not looked for.
    past = asked if caller.sees_all else asked._replace(user=caller.name)
    past = past._replace(states=states & ENDED_STATES)
    reaches_back = _reaches_back(asked, states, read)
    async for some in _candidates(request, asked.user, past if reaches_back else None, read, after):
        if isinstance(some, JobBlock):
            await breathe(A_BLOCK)
            verdicts = [sieve.block(some) for sieve in sieves]
            if all(verdicts):
                yield ListedJobs(some.jobs, some)
            elif False in verdicts:
                continue
            else:
                async for found in _sifted(some.jobs, sieves, breathe):
                    yield found
        else:
            async for found in _sifted(some, sieves, breathe):
                yield found


async def _sifted(
    some: Sequence[Job], sieves: Sequence[_Sieve], breathe: Breathe
) -> AsyncIterator[ListedJobs]:
    for first in range(0, len(some), AT_ONCE):
        here = some[first : first + AT_ONCE]
        await breathe(LOOKED_AT * len(here))
        for sieve in sieves:
            here = [job for job in here if sieve.job(job)]
        if here:
            yield ListedJobs(here)


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
    )


def _instant_s(instant: Timestamp, field: str) -> float:
    if not 0 <= instant.nanos < 1_000_000_000:
        raise InvalidRequest(f"{field} is not an instant", field=field)
    return from_timestamp(instant)


def _only_ended(request: wire.ListJobsRequest) -> bool:
    return request.HasField("ended_from_time") or request.HasField("ended_before_time")


def _sieves(
    asked: PastJobs, states: frozenset[str], caller: Caller, read: Published, *, living: bool
) -> list[_Sieve]:
    """A job that passes all of them belongs into the list. Nothing is learnt of other people's jobs
    by asking for a name, and their numbers are for lists of everybody."""
    user, queue, name = asked.user, asked.queue, asked.name
    sieves: list[_Sieve] = []
    if user is not None:  # blocks are of one user alone
        sieves.append(_Sieve(lambda job: job.user == user, lambda _: True))
    if queue:
        sieves.append(_Sieve(lambda job: job.queue == queue, lambda it: _all_are(queue, it.queues)))
    if name:
        sieves.append(_Sieve(lambda job: job.name == name, lambda _: None))
    if not living:
        sieves.append(
            _Sieve(
                lambda job: job.end_time_s is not None and asked.spans(job.end_time_s),
                lambda block: None if block.ended else False,
            )
        )
    elif asked.ended_from_s is not None:
        sieves.append(
            _Sieve(
                lambda job: job.end_time_s is None or asked.spans(job.end_time_s),
                lambda block: None if block.ended else True,
            )
        )
    if not caller.sees_all:
        sieves.append(_visible(caller, read, own_only=bool(name or user == caller.name)))
    if states:
        sieves.append(
            _Sieve(lambda job: _shown(job, read) in states, lambda block: _stand_in(states, block))
        )
    return sieves


def _visible(caller: Caller, read: Published, *, own_only: bool) -> _Sieve:
    if own_only or read.others_shown == HIDDEN:
        return _Sieve(caller.may_see, lambda block: sees_block(caller, block))
    return _Sieve(
        lambda job: may_list(read, caller, job),
        lambda block: True if not block.ended or sees_block(caller, block) else None,
    )


def _all_are(value: str, there: frozenset[str]) -> bool | None:
    return False if value not in there else True if len(there) == 1 else None


def _stand_in(states: frozenset[str], block: JobBlock) -> bool | None:
    if block.living:
        return None
    here = {state.value for state in block.states}
    return True if here <= states else None if here & states else False


def _known_state(word: str) -> str:
    if word not in SHOWN_STATES:
        guess = did_you_mean(word, SHOWN_STATES)
        raise InvalidRequest(f"no job is ever shown as {shown(word)}{guess}", field="states")
    return word


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
    known = read.others_shown
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


async def _candidates(
    request: wire.ListJobsRequest,
    user: str | None,
    past: PastJobs | None,
    read: Published,
    after: int,
) -> AsyncIterator[Sequence[Job] | JobBlock]:
    """The jobs of `user`, or without one of everybody. The disk is read for `past` alone."""
    if request.job_ids:
        by_id = _named(request, read)
        yield [by_id[job_id] for job_id in sorted(by_id) if job_id > after]
        return
    user = EVERYBODY if user is None else user
    while past is not None and (chunk := await read.past_jobs(past, after, PAST_AT_ONCE)):
        for some in _with_past(chunk, user, read, after):
            yield some
        after = chunk[-1].job_id
        if len(chunk) < PAST_AT_ONCE:
            break
    # A job may leave memory before its block is read. Then it has ended before the times that are
    # asked for, or thousands of other jobs have ended within this list.
    for number in read.block_numbers(user, after):
        block = read.block(user, number)
        yield block if ids_of(number)[0] > after else _between(block, after, ids_of(number)[-1])


def _named(request: wire.ListJobsRequest, read: Published) -> dict[JobId, Job]:
    named: dict[JobId, Job] = {}
    looked_at = 0
    for text in dict.fromkeys(request.job_ids):
        found = jobs_named(read, text, "job_ids")
        looked_at += len(found)
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


def _with_past(
    chunk: Sequence[Job], user: str, read: Published, after: int
) -> Iterator[Sequence[Job] | JobBlock]:
    """The jobs of the disk, and the jobs of memory between them, in the order of their ids. Of a
    job in both, the value of memory counts.
    """
    place, last = 0, chunk[-1].job_id
    for number in read.block_numbers(user, after):
        ids = ids_of(number)
        if ids[0] > last:
            break
        block, first = read.block(user, number), place
        while place < len(chunk) and chunk[place].job_id <= ids[-1]:
            place += 1
        if first == place and after < ids[0]:
            yield block
        else:
            both = {job.job_id: job for job in chunk[first:place]}
            both |= {job.job_id: job for job in _between(block, after, last)}
            yield [both[job_id] for job_id in sorted(both)]
    yield chunk[place:]


def _between(block: JobBlock, after: int, last: int) -> Sequence[Job]:
    return [job for job in block.jobs if after < job.job_id <= last]


def _shown(job: Job, read: Published) -> str:
    key = job.live_key
    attempt = read.attempt(key) if key is not None else None
    return shown_state(job, attempt.shown_state if attempt is not None else None)
