"""What must hold after every turn of the master (the numbers are those of the reliability
facts).
"""

import math
import re
from collections import Counter

from dlq_master.control.attempts.bookkeeping import Bookkeeping
from dlq_master.control.composition.state import State
from dlq_master.control.jobs.gates import holds_place
from dlq_master.control.people.counts import of_user
from dlq_master.control.read_model.living_tally import LivingTally
from dlq_master.control.read_model.node_tally import NodeTally
from dlq_master.control.read_model.published import Published
from dlq_master.model.attempts.attempt import LIVE, AttemptState
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.job import ENDED, JobState
from dlq_master.model.usage.accounting import Level
from dlq_master.store.batch import Loaded
from support.memory_store import MemoryStore
from support.validate import validate


def check_turn(state: State, store: MemoryStore) -> None:
    """Raise AssertionError naming what is broken."""
    validate(state.cluster)  # I4: no GPU twice, no index that drifted
    rows = store.onlooker()
    loaded = rows.load()
    _stored(state, loaded)
    _jobs(state)
    _attempts(state, loaded, rows)
    _outbox(state)
    _arrays(state)
    _levels(state)


def _arrays(state: State) -> None:
    """No array has more tasks in the queue or running than it may, unless its limit was lowered."""
    inside: Counter[JobId] = Counter()
    running: Counter[JobId] = Counter()
    limits: dict[JobId, int] = {}
    for job in state.cluster.jobs.values():
        if job.array is None:
            continue
        inside[job.array.array_id] += job.blocked is None and holds_place(job)
        running[job.array.array_id] += job.live_attempt is not None
        if not job.ended:
            assert limits.setdefault(job.array.array_id, job.array.concurrent) == (
                job.array.concurrent
            )
    for array_id, limit in limits.items():
        assert not limit or inside[array_id] <= max(limit, running[array_id]), array_id


def _levels(state: State) -> None:
    """How many GPUs are held, free and neither is what the attempts and nodes say."""
    kept = state.attempts.bookkeeping
    afresh = Bookkeeping.begin(state.cluster, None, 0.0)
    assert kept.held == afresh.held
    assert {pool: level for pool, level in kept.sums.items() if level.capacity} == {
        pool: level for pool, level in afresh.sums.items() if level.capacity
    }
    for pool, (_, level) in kept.levels.pools.items():
        assert level == kept.sums.get(pool, Level()), "written as it is"


def check_books(store: MemoryStore, capacity_gpu_s: float, now_s: float) -> None:
    """Used, idle and withheld are all there was; and what jobs are charged is what they held, by
    the journal.
    """
    books = store.books_of(0, round(now_s), now_s)
    whole = sum((level.capacity for level in books.pools.values()), 0.0)
    assert math.isclose(whole, capacity_gpu_s, abs_tol=1e-3), (whole, capacity_gpu_s)
    used = sum((level.used for level in books.pools.values()), 0.0)
    charged = sum((used.held for used in books.uses.values()), 0.0)
    assert math.isclose(used, charged, abs_tol=1e-3), (used, charged)
    assert all(min(used) >= 0.0 for used in books.uses.values()), books.uses
    ends = {f"attempt_{state.value}" for state in AttemptState if state not in LIVE}
    when = {
        (event.job_id, event.attempt, event.kind in ends): event.time_s
        for event in store.events(0, 1_000_000)
        if event.kind in ends | {"attempt_assigned"}
    }
    held = 0.0
    for (job_id, number, ended), at_s in when.items():
        if not ended:
            assert job_id is not None
            attempt = store.attempts(job_id)[(number or 0) - 1]
            until_s = when.get((job_id, number, True), now_s)
            held += (until_s - at_s) * attempt.lease.allocation.width
    assert math.isclose(charged, held, abs_tol=1e-3), (charged, held)


def check_published(state: State, read: Published) -> None:
    """After a turn readers see all of it, and nothing else."""
    cluster = state.cluster
    assert {job.job_id: job for job in read.jobs()} == dict(cluster.jobs)
    assert [job.job_id for job in read.jobs()] == sorted(cluster.jobs)
    assert {node.node_id: node for node in read.nodes()} == dict(cluster.nodes)
    assert {user.name: user for user in read.users()} == state.people.users
    assert {token.token_id: token for token in read.tokens()} == state.people.tokens
    assert all(read.attempt(key) == attempt for key, attempt in cluster.attempts.items())
    for node_id in cluster.nodes:
        assert tuple(read.attempts_on(node_id)) == cluster.attempts_on(node_id)
        held = cluster.capacity.claimed(node_id) | cluster.nodes[node_id].withheld
        free = [gpu for gpu in cluster.nodes[node_id].gpus if not held >> gpu.index & 1]
        assert read.free_gpu_count(node_id) == len(free)
    assert read.last_sequence == state.journal.next_sequence - 1
    assert read.epoch == state.epoch
    if read.last_sequence % 5 == 0:  # a count afresh takes as long as all the rest
        _sums(state, read)


def _sums(state: State, read: Published) -> None:
    """Sums that are kept at each change are those of a count afresh."""
    afresh = NodeTally(state.cluster.nodes.keys())
    assert read.node_sums() == afresh.sums(read._seen)
    living = LivingTally()
    for job_id, job in state.cluster.jobs.items():
        living.look(job_id, job, state.cluster.live_attempt(job))
    kept, counted = read.living_tally, living
    for ours, theirs in (
        (kept.states, counted.states),
        (kept.used_gpus, counted.used_gpus),
        (kept.borrowed_gpus, counted.borrowed_gpus),
    ):
        assert {key: n for key, n in ours.items() if n} == {k: n for k, n in theirs.items() if n}
    waits = [
        job for job in state.cluster.jobs.values() if not job.ended and job.live_attempt is None
    ]
    pending = sum(job.request.real_gpus for job in waits)
    assert read.pending_gpus().total() == pending


def check_journal(state: State, store: MemoryStore) -> None:
    """The story that the journal tells ends where the rows are."""
    told = told_states(store)
    assert told == {job.job_id: job.state for job in store.load().jobs}
    assert told.keys() >= state.cluster.jobs.keys()


def told_states(store: MemoryStore) -> dict[JobId, JobState]:
    """The job machine, driven by the words of the journal alone."""
    kinds = {_word(event): event for _, event in job_steps.TABLE}
    states: dict[JobId, JobState] = {}
    for event in store.events(0, 1_000_000):
        if event.job_id is None:
            continue
        if event.kind == "job_submitted":
            states[event.job_id] = JobState.PENDING
        elif event.kind in kinds:
            states[event.job_id] = job_steps.TABLE[states[event.job_id], kinds[event.kind]]
        elif event.kind == "attempt_assigned":
            assert states[event.job_id] is JobState.QUEUED
    return states


def _word(event: type) -> str:
    return "job_" + re.sub(r"(?<!^)(?=[A-Z])", "_", event.__name__).lower()


def _stored(state: State, loaded: Loaded) -> None:
    """I1, I10: memory is exactly what a restart would load, but for jobs that ended long ago."""
    here = state.cluster.jobs
    assert {job.job_id: job for job in loaded.jobs if job.job_id in here} == dict(here)
    gone = [job for job in loaded.jobs if job.job_id not in here]
    assert all((job.end_time_s or math.inf) <= state.jobs.recent.complete_from_s for job in gone)
    assert all(job.live_attempt is None for job in gone)
    settled = [job.job_id for job in here.values() if job.ended and job.live_attempt is None]
    assert len(state.jobs.recent) == len(settled) <= state.jobs.recent.window.most
    assert all(job_id in state.jobs.recent for job_id in settled)
    assert {a.key: a for a in loaded.attempts} == dict(state.cluster.attempts)
    assert {node.node_id: node for node in loaded.nodes} == dict(state.cluster.nodes)
    assert {user.name: user for user in loaded.users} == state.people.users
    assert {token.token_id: token for token in loaded.tokens} == state.people.tokens
    assert {row.sequence: row for row in loaded.intentions} == state.attempts.outbox
    assert loaded.last_event == state.journal.next_sequence - 1
    unended = Counter(job.user for job in loaded.jobs if not job.ended)
    assert {user: state.jobs.counts[of_user(user)] for user in unended} == dict(unended)


def _jobs(state: State) -> None:
    for job in state.cluster.jobs.values():
        assert (job.state in ENDED) == (job.end_time_s is not None), job
        assert (job.state is JobState.HELD) == (job.hold is not None), job
        assert job.infra_failures <= job.rules.max_infra_failures + 1, job  # I8
        assert (job.live_attempt or 0) in (0, job.attempts), job  # I6


def _attempts(state: State, loaded: Loaded, rows: MemoryStore) -> None:
    """I3, I6, I11: at most one lives, numbers and epochs rise, each ends once."""
    ended: set[AttemptKey] = set()
    for job in loaded.jobs:
        tries = rows.attempts(job.job_id)
        ended |= {attempt.key for attempt in tries if not attempt.live}
        assert [attempt.key.number for attempt in tries] == list(range(1, job.attempts + 1))
        living = [attempt.key for attempt in tries if attempt.state in LIVE]
        assert living == ([] if job.live_key is None else [job.live_key])
        assert [a.epoch for a in tries] == sorted(a.epoch for a in tries)
    if state.journal.horizon:
        return  # the journal does not tell the whole story any more
    ends: Counter[AttemptKey] = Counter()
    for event in rows.events(0, 1_000_000):
        if event.kind in END_WORDS:
            assert event.job_id is not None
            assert event.attempt is not None
            ends[AttemptKey(event.job_id, event.attempt)] += 1
    assert dict(ends) == dict.fromkeys(ended, 1)


END_WORDS = frozenset(
    f"attempt_{state}"
    for state in (
        "succeeded",
        "measured",
        "failed",
        "preempted",
        "preempted_lost",
        "cancelled",
        "timed_out",
        "node_lost",
        "start_failed",
    )
)


def _outbox(state: State) -> None:
    """A launch is kept only for a living attempt whose rank has not ended."""
    for row in state.attempts.outbox.values():
        attempt = state.cluster.attempts.get(row.key)
        if row.kind == "launch":
            assert attempt is not None, f"launch for nobody: {row}"
            assert not attempt.ranks[row.node_rank].gone, f"launch of an ended rank: {row}"
