"""The conditions of a list. A job that meets all of them belongs to it.

Each condition also answers for a whole block: all of its jobs meet it, or none, or each must be
tested. Hidden fields of other users' jobs (`job_view.redacted`) count as empty, so that a search
reveals nothing. Job ids are visible in lists of all users.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from dlq_common.errors import InvalidRequest
from dlq_common.text.names import shown
from dlq_common.text.suggest import did_you_mean
from dlq_master.control.read_model.job_blocks import JobBlock
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Caller
from dlq_master.model.attempts.attempt import LIVE, PROFILING
from dlq_master.model.jobs.job import ENDED, Job, JobState, shown_state
from dlq_master.rpc.jobs.visible import HIDDEN, NAMED, may_list, others_for, sees_block
from dlq_master.store.batch import PastJobs
from dlq_master.store.list_order import has_type, has_words

SHOWN_STATES: Final = frozenset({PROFILING, *[state.value for state in (*JobState, *LIVE)]})
ENDED_STATES: Final = frozenset(state.value for state in ENDED)


class Condition(NamedTuple):
    """A condition for jobs. For a block: whether all its jobs meet it, or none; None: test each."""

    job: Callable[[Job], bool]
    block: Callable[[JobBlock], bool | None]
    moves: bool = False  # the clock or an attempt changes the answer, not only the job


class Conditions(NamedTuple):
    """All conditions of a list. Equal subjects mean equal conditions, apart from moving ones."""

    each: tuple[Condition, ...]
    subject: Hashable


def conditions_of(
    asked: PastJobs,
    states: frozenset[str],
    caller: Caller,
    read: Published,
    *,
    living: bool,
    checks: bool,
) -> Conditions:
    """The conditions for jobs in memory. `living`: with living jobs; `checks`: with checks of
    nodes.
    """
    own_only = bool(asked.name or asked.team or asked.user == caller.name)
    found = [*_of_fields(asked), *_of_ends(asked, living=living)]
    if not caller.sees_all:
        found.append(_visible(caller, read, own_only=own_only))
    found += _of_words(asked, caller, read)
    if not checks:
        found.append(Condition(lambda job: not job.check, lambda it: None if it.checks else True))
    if states:
        found.append(
            Condition(
                lambda job: _shown(job, read) in states,
                lambda block: _stand_in(states, block),
                moves=True,
            )
        )
    still = asked.user, asked.queue, asked.name, asked.team, asked.gpu_type, asked.words, checks
    return Conditions(tuple(found), (still, eyes_of(caller, read)))


def eyes_of(caller: Caller, read: Published) -> Hashable:
    """A key of the caller's rights: callers with equal keys see the same facts about all jobs."""
    if caller.sees_all:
        return ()
    return caller.name, caller.person, caller.since_s, others_for(read, caller)


def _of_fields(asked: PastJobs) -> list[Condition]:
    user, queue, name, team = asked.user, asked.queue, asked.name, asked.team
    found = []
    if user is not None:  # blocks are of one user alone
        found.append(Condition(lambda job: job.user == user, lambda _: True))
    if queue:
        found.append(
            Condition(lambda job: job.queue == queue, lambda it: _all_are(queue, it.queues))
        )
    if name:
        found.append(Condition(lambda job: job.name == name, lambda _: None))
    if team:
        found.append(Condition(lambda job: job.team == team, lambda _: None))
    return found


def _of_ends(asked: PastJobs, *, living: bool) -> list[Condition]:
    if not living:
        return [
            Condition(
                lambda job: job.end_time_s is not None and asked.spans(job.end_time_s),
                lambda block: None if block.ended else False,
                moves=True,
            )
        ]
    if asked.ended_from_s is None:
        return []
    return [
        Condition(
            lambda job: job.end_time_s is None or asked.spans(job.end_time_s),
            lambda block: None if block.ended else True,
            moves=True,
        )
    ]


def _of_words(asked: PastJobs, caller: Caller, read: Published) -> list[Condition]:
    gpu_type, words, sees = asked.gpu_type, asked.words, caller.may_see
    named = others_for(read, caller) == NAMED
    found = []
    if gpu_type:
        found.append(
            Condition(lambda job: has_type(gpu_type, job, known=sees(job)), lambda _: None)
        )
    if words:

        def has(job: Job) -> bool:
            known = sees(job)
            return has_words(words, job, known=known, named=known or named)

        found.append(Condition(has, lambda _: None))
    return found


def _visible(caller: Caller, read: Published, *, own_only: bool) -> Condition:
    if own_only or others_for(read, caller) == HIDDEN:
        return Condition(caller.may_see, lambda block: sees_block(caller, block))
    return Condition(
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


def known_state(word: str) -> str:
    """The name of a shown state. InvalidRequest: there is no such state."""
    if word not in SHOWN_STATES:
        guess = did_you_mean(word, SHOWN_STATES)
        raise InvalidRequest(f"no job is ever shown as {shown(word)}{guess}", field="states")
    return word


def _shown(job: Job, read: Published) -> str:
    key = job.live_key
    attempt = read.attempt(key) if key is not None else None
    return shown_state(job, attempt.shown_state if attempt is not None else None)
