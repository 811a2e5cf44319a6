"""What the loop may expect of a store, whichever it is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.eligible import Array
from dlq_master.model.jobs.job import Foretold, Job, JobState, Lateness
from dlq_master.model.jobs.person import Owner
from dlq_master.model.machines.fleet import DAY_S, MOST_ENDED
from dlq_master.model.machines.rented import MachineState
from dlq_master.model.resources import CORE_TYPE, Request
from dlq_master.shipping.chain import rebuild
from dlq_master.store.batch import (
    HORIZON,
    Batch,
    JournalCut,
    Loaded,
    MemoryWindow,
    PastJobs,
    StoredRequest,
    User,
)
from dlq_master.store.committing import BatchWriter
from dlq_master.store.list_order import KEYS, ListOrder
from dlq_master.store.postgres.halves import PostgresReader, PostgresWriter
from dlq_master.store.postgres.line import PostgresPlace
from dlq_master.store.reader import StoreReader
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import create_database
from dlq_master.store.stored_tables import (
    FORESEEN,
    MACHINES,
    NOTIFY_RULES,
    RESERVATIONS,
    REVOCATIONS,
    TOKENS,
    USERS,
    WAITED,
)
from dlq_master.store.tables.table import put
from support.memory_store import MemoryStore, admits
from support.postgres_site import DURABLE, postgres_site
from support.postgres_store import begin_anew
from support.shipped_site import ShippedSite
from support.stored_values import (
    a_job,
    a_machine,
    a_node,
    a_notify_rule,
    a_recording,
    a_reservation,
    a_start,
    a_team,
    a_wait,
    an_attempt,
    an_event,
    an_evidence,
    an_intention,
    first_batch,
    mixed_batch,
)


class Commits(Protocol):
    """The writing half."""

    async def commit(self, batch: Batch) -> None: ...
    async def prune_journal(self, sequences: Sequence[int], horizon: int) -> None: ...


@dataclass
class Halves:
    """A store under test."""

    writer: Commits
    records: StoreReader | MemoryStore

    async def commit(self, *batches: Batch) -> None:
        for batch in batches:
            await self.writer.commit(batch)

    def load(self, *window: MemoryWindow) -> Loaded:
        return self.records.load(*window)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresPlace]:
    """A server without a standby; each test begins with empty tables."""
    with postgres_site() as site:
        yield PostgresPlace(site.primary.dsn, allow_asynchronous=True)


@pytest.fixture(scope="module")
def pair() -> Iterator[PostgresPlace]:
    """A server each of whose commits waits for a second one."""
    with postgres_site(DURABLE) as site:
        site.add_standby()
        yield PostgresPlace(site.primary.dsn)


MANY = pytest.mark.long("contract/test_store.py")


@pytest.fixture(
    params=["sqlite", "recovered", "postgresql", pytest.param("pair", marks=MANY), "memory"]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Halves]:
    if request.param == "memory":
        memory = MemoryStore()
        yield Halves(memory, memory)
        return
    if request.param in ("sqlite", "recovered"):
        writer, reader = {"sqlite": sqlite_halves, "recovered": recovered_halves}[request.param](
            tmp_path
        )
    else:
        server = {"postgresql": "server", "pair": "pair"}[request.param]
        writer, reader = postgres_halves(request.getfixturevalue(server))
    yield Halves(writer, reader)
    writer.close()
    reader.close()


def sqlite_halves(tmp_path: Path) -> tuple[BatchWriter, StoreReader]:
    create_database(tmp_path / "dlq.db")
    return Writer(tmp_path / "dlq.db"), Reader(tmp_path / "dlq.db")


def recovered_halves(tmp_path: Path) -> tuple[BatchWriter, StoreReader]:
    """A store that was put together from a shipped snapshot and the segment behind it."""
    site = ShippedSite(tmp_path)
    site.shipper().cycle()
    site.writer.close()
    rebuild(site.place, tmp_path / "dlq.db")
    return Writer(tmp_path / "dlq.db"), Reader(tmp_path / "dlq.db")


def postgres_halves(server: PostgresPlace) -> tuple[BatchWriter, StoreReader]:
    begin_anew(server)
    writer = PostgresWriter(server, "test")
    return writer, PostgresReader(server, writer.fence)


async def test_a_new_store_is_empty(store: Halves) -> None:
    assert store.load() == Loaded({}, (), (), (), (), (), (), 0, 0.0)


async def test_everything_of_a_batch_is_loaded_again(store: Halves) -> None:
    batch = first_batch()
    await store.commit(batch)

    loaded = store.load()
    assert loaded == Loaded(
        meta=batch.meta,
        jobs=tuple(batch.jobs),
        attempts=tuple(batch.attempts),
        nodes=tuple(batch.nodes),
        users=tuple(batch.values(USERS)),
        tokens=tuple(batch.values(TOKENS)),
        intentions=tuple(batch.intentions),
        last_event=3,
        last_time_s=103.0,
        last_job=2,
        recordings=tuple(batch.recordings),
        teams=(a_team("nlp"), a_team()),
        reservations=tuple(batch.values(RESERVATIONS)),
        notify_rules=tuple(batch.values(NOTIFY_RULES)),
        revocations=tuple(batch.values(REVOCATIONS)),
        waited=tuple(batch.values(WAITED)),
        foreseen=tuple(batch.values(FORESEEN)),
        machines=tuple(batch.values(MACHINES)),
    )


async def test_a_later_batch_adds_changes_and_drops(store: Halves) -> None:
    await store.commit(first_batch(), mixed_batch())

    loaded = store.load()
    assert [(job.job_id, job.state.value) for job in loaded.jobs] == [
        (1, "completed"),
        (2, "queued"),
        (3, "queued"),
    ]
    assert [str(attempt.key) for attempt in loaded.attempts] == ["3.1"]
    assert [(node.node_id, node.boot_id) for node in loaded.nodes] == [
        ("gpu01", "b2"),
        ("gpu03", ""),
    ]
    assert [user.name for user in loaded.users] == ["alice", "carol"]
    assert [token.token_id for token in loaded.tokens] == ["t2"]
    assert [row.sequence for row in loaded.intentions] == [2, 3]
    assert loaded.meta == {"epoch": "4", "cluster": "lab"}
    assert (loaded.last_event, loaded.last_time_s) == (5, 105.0)


async def test_what_is_told_of_tenants_is_kept(store: Halves) -> None:
    await store.commit(first_batch(), mixed_batch())

    loaded = store.load()
    assert loaded.teams == (a_team("robots"), a_team(version=2))
    assert loaded.reservations == (a_reservation(active=True),)
    assert loaded.notify_rules == (a_notify_rule(events=("failed", "ended")),)
    assert loaded.waited == (a_wait(2, now=()), a_wait(3)), "job 1 has ended"
    assert store.records.waited(JobId(1)) == a_wait(1)
    ended, here, new = loaded.machines
    assert (ended.state, ended.fault, here, new) == (
        "failed",
        "no host",
        a_machine("spot-3-2"),
        a_machine("spot-4-1"),
    )
    assert store.records.waited(JobId(9)) is None


async def test_what_machines_and_lateness_have_cost_is_reckoned_from_what_is_stored(
    store: Halves,
) -> None:
    late = a_job(2, lateness=Lateness(130.0, 2.0), foretold=Foretold(101.0, 7.0))
    ended = a_job(4, lateness=Lateness(130.0, 2.0), end_time_s=150.0, state=JobState.COMPLETED)
    await store.commit(first_batch(), mixed_batch())
    ups = [
        a_machine(state=MachineState.AWAY, up_s=112.0, end_s=140.0),
        a_machine("spot-3-2", up_s=114.0),
    ]
    await store.commit(Batch(jobs=[late, ended], changes=put(MACHINES, ups)))
    costs = await store.records.costs(0, 0, 160.0)
    rate = 12.5 / 3600.0
    assert {account.job_id: cost.running for account, cost in costs.jobs.items() if cost.running} == {  # noqa: E501
        1: pytest.approx(0.25 * 20.0 * rate),
        2: pytest.approx(0.25 * 45.0 * rate),
    }  # fmt: skip
    told = {
        account.job_id: (cost.late, cost.own_late)
        for account, cost in costs.jobs.items()
        if any(cost[1:])
    }
    assert told == {2: (60.0, 7.0), 4: (40.0, 0.0)}
    assert costs.pools[0, "spot"].whole == pytest.approx((30.0 + 50.0 + 50.0) * rate)
    assert {2, 4} <= costs.known.keys()
    next_day = await store.records.costs(1, 1, 90_000.0)
    assert {account.job_id for account in next_day.jobs} == {2}, "the other one ended on the first"


async def test_foreseen_starts_are_kept_changed_and_dropped(store: Halves) -> None:
    await store.commit(first_batch(), mixed_batch())
    assert store.load().foreseen == (a_start(1, started_s=450.0), a_start(3))


async def test_what_nodes_told_of_traffic_is_kept_with_the_start_that_it_is_of(
    store: Halves,
) -> None:
    await store.commit(first_batch(), mixed_batch())

    assert [one.key for one in store.load().recordings] == [(1, 1), (2, 1), (3, 1)]
    assert store.records.recordings(JobId(1)) == (a_recording(1, told=(0,)),)
    assert store.records.recordings(JobId(9)) == ()
    assert store.records.evidence(AttemptKey(JobId(3), 1)) == (an_evidence(3),)
    assert store.records.evidence(AttemptKey(JobId(2), 1)) == ()


async def test_a_start_reads_the_newest_recordings_only(
    store: Halves, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("dlq_master.store.reader", "support.memory_store"):
        monkeypatch.setattr(f"{module}.MOST_RECORDINGS", 2)
    await store.commit(first_batch(), mixed_batch())

    assert [one.key.job_id for one in store.load().recordings] == [2, 3]


async def test_a_spec_is_kept_byte_for_byte(store: Halves) -> None:
    await store.commit(first_batch())

    assert store.records.spec(JobId(1)) == b"\x00one"
    assert store.records.spec(JobId(9)) is None


async def test_all_attempts_of_a_job_are_kept_oldest_first(store: Halves) -> None:
    tries = [an_attempt(1, number, ended_time_s=number * 1.0) for number in (2, 10, 1)]
    await store.commit(Batch(jobs=[a_job(1)], attempts=[*tries]))

    assert [attempt.key.number for attempt in store.records.attempts(JobId(1))] == [1, 2, 10]
    assert store.records.attempts(JobId(2)) == ()


async def test_an_answered_request_is_found_until_it_is_forgotten(store: Halves) -> None:
    await store.commit(first_batch())
    row = StoredRequest("alice", "r1", "d1", "1", 50.0)
    assert store.records.request("alice", "r1") == row
    assert store.records.request("bob", "r1") is None

    await store.commit(Batch(forget_requests_before_s=50.0))
    assert store.records.request("alice", "r1") == row
    await store.commit(Batch(forget_requests_before_s=50.1))
    assert store.records.request("alice", "r1") is None


async def test_events_are_paged_in_order_and_by_job(store: Halves) -> None:
    await store.commit(first_batch(), mixed_batch())
    seqs = [event.seq for event in store.records.events(0, 3)]

    assert seqs == [1, 2, 3]
    assert [event.seq for event in store.records.events(3, 10)] == [4, 5]
    assert [event.seq for event in store.records.events(0, 10, JobId(1))] == [1, 5]
    assert store.records.events(0, 10, JobId(3)) == (an_event(4, 3, why="because"),)
    assert store.records.events(5, 10) == ()


@pytest.mark.parametrize(
    "batch",
    [
        Batch(jobs=[a_job(1)], specs=[(JobId(1), b"another")]),
        Batch(requests=[StoredRequest("alice", "r1", "d2", "2", 60.0)]),
        Batch(events=[an_event(3)]),
        Batch(intentions=[an_intention(2)]),
    ],
    ids=["spec", "request", "event", "intention"],
)
async def test_what_is_written_once_cannot_be_written_again(store: Halves, batch: Batch) -> None:
    await store.commit(first_batch())
    before = store.load()

    with pytest.raises(Exception, match=r"(?i)unique|written already"):
        await store.commit(batch)
    assert store.load() == before


async def test_a_row_that_is_put_and_dropped_in_one_batch_is_gone(store: Halves) -> None:
    batch = Batch(
        nodes=[a_node("gpu09")],
        forgotten_nodes=[NodeId("gpu09")],
        intentions=[an_intention(7)],
        delivered=[7],
    )
    batch.put(USERS, User("dave", "user", 9, 9, (), 1.0))
    batch.drop(USERS, "dave")
    await store.commit(batch)

    loaded = store.load()
    assert (loaded.users, loaded.nodes, loaded.intentions) == ((), (), ())


async def test_a_row_that_is_dropped_and_put_in_one_batch_stays(store: Halves) -> None:
    await store.commit(first_batch())
    batch = Batch()
    batch.drop(USERS, "bob")
    batch.put(USERS, User("bob", "admin", 2, 2, (), 3.0))
    await store.commit(batch)

    assert store.load().users[-1] == User("bob", "admin", 2, 2, (), 3.0)


async def test_what_is_loaded_does_not_change_with_later_commits(store: Halves) -> None:
    await store.commit(first_batch())
    before = store.load()
    await store.commit(mixed_batch())

    assert before.meta == {"epoch": "3"}
    assert [job.state.value for job in before.jobs] == ["queued", "queued"]


def test_an_empty_batch_says_so() -> None:
    assert not Batch()
    assert Batch(meta={"epoch": "1"})
    assert Batch(forget_requests_before_s=1.0)


# --- jobs that have ended
#   ---------------------------------------------------------------------------


def ended(number: int, end_s: float, **changes: object) -> Job:
    return a_job(number, **{"state": JobState.COMPLETED, "end_time_s": end_s, **changes})


def ids(jobs: object) -> list[int]:
    return [job.job_id for job in jobs]  # type: ignore[attr-defined] # any list of jobs


async def with_a_past(store: Halves) -> None:
    """Ten jobs ended, one a second, the highest first; 11 lives, 12 is cancelled and still
    saves.
    """
    jobs = [ended(number, 100.0 - number, name=f"n{number % 2}") for number in range(1, 11)]
    jobs[3] = jobs[3]._replace(user="bob", queue="urgent", state=JobState.FAILED)
    own: dict[int, dict[str, Any]] = {
        2: {"team": "vision", "priority_base": -3},
        3: {"team": "vision", "name": "Grün n1", "first_start_time_s": 5.5},
        5: {"person": "alice#2", "request": Request(gpus=1, gpu_type="H100")},
        6: {"request": Request(gpus=4, gpu_type="A100", or_gpu_types=("H100",))},
        7: {"gpu_type_ran": "H100", "first_start_time_s": 4.0},
        8: {"array": Array(JobId(900), 9, 0, 0, 8, 1), "array_index": 2},
        9: {"array": Array(JobId(900), 9, 0, 0, 8, 1), "array_index": 3},
        10: {"request": Request(gpus=7, gpu_type=CORE_TYPE)},
    }
    jobs = [job._replace(**own.get(job.job_id, {})) for job in jobs]
    await store.commit(
        Batch(
            jobs=[*jobs, a_job(11), ended(12, 3.0, live_attempt=1, attempts=1)],
            attempts=[an_attempt(12), an_attempt(1, ended_time_s=99.0)],
            events=[an_event(1)],  # at 101 s
        )
    )


@pytest.mark.parametrize(
    ("window", "expected", "complete_from_s"),
    [
        (MemoryWindow(), [*range(1, 13)], -float("inf")),
        (MemoryWindow(kept_s=5.0), [1, 2, 3, 4, 11, 12], 96.0),
        (MemoryWindow(kept_s=5.0, most=2), [1, 2, 11, 12], 98.0),
        (MemoryWindow(most=0), [11, 12], float("inf")),
    ],
    ids=["all", "young", "few", "none"],
)
async def test_a_start_loads_what_lives_and_the_newest_of_what_has_ended(
    store: Halves, window: MemoryWindow, expected: list[int], complete_from_s: float
) -> None:
    await with_a_past(store)

    loaded = store.load(window)
    assert ids(loaded.jobs) == expected
    # Of what has left memory, jobs that completed are still learned from, the first to end first.
    left = [number for number in range(10, 0, -1) if number not in expected and number != 4]
    assert ids(loaded.completed) == left
    assert loaded.complete_from_s == complete_from_s
    assert loaded.last_job == 12


async def test_a_job_is_found_by_its_id_whether_it_lives_or_not(store: Halves) -> None:
    await with_a_past(store)

    assert store.records.job(JobId(4)) == store.load().jobs[3]
    assert store.records.owner(JobId(4)) == Owner("bob", "", store.load().jobs[3].submit_time_s)
    assert store.records.job(JobId(11)) == a_job(11)
    assert store.records.job(JobId(13)) is None
    assert store.records.owner(JobId(13)) is None


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (PastJobs(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]),
        (PastJobs(user="alice", name="n0"), [2, 6, 8, 10]),
        (PastJobs(user="bob"), [4]),
        (PastJobs(user="carol"), []),
        (PastJobs(queue="urgent"), [4]),
        (PastJobs(states=frozenset({"failed", "timed_out"})), [4]),
        (PastJobs(ended_from_s=97.0), [1, 2, 3]),
        (PastJobs(ended_from_s=93.0, ended_before_s=95.0), [6, 7]),
        (PastJobs(user="alice", ended_from_s=94.0, ended_before_s=97.0), [5, 6]),
        (PastJobs(ended_before_s=92.0), [9, 10, 12]),
        (PastJobs(ended_from_s=1e9), []),
        (PastJobs(team="vision"), [2, 3]),
        (PastJobs(gpu_type="H100"), [5, 6, 7]),
        (PastJobs(words=("n0", "ali")), [2, 6, 8, 10]),
        (PastJobs(words=("grün",)), [3]),
        (PastJobs(words=("7",)), [7]),
        (PastJobs(words=("900",)), [8, 9]),
        (PastJobs(words=("900_3",)), [9]),
        (PastJobs(words=("900_",)), [8, 9]),
        (PastJobs(words=("%",)), []),
        (PastJobs(words=("_",)), []),
        (PastJobs(words=("n_",)), []),
        (PastJobs(words=("!",)), []),
        (PastJobs(user="alice", person="alice#2", since_s=104.5), [5, 6, 7, 8, 9, 10, 12]),
        (PastJobs(user="alice", person="alice#1"), [1, 2, 3, 6, 7, 8, 9, 10, 12]),
    ],
)
async def test_ended_jobs_are_listed_by_what_is_asked_for(
    store: Halves, wanted: PastJobs, expected: list[int]
) -> None:
    await with_a_past(store)

    found = await store.records.past_jobs(wanted, 0, 100)
    assert ids(found) == expected
    assert await store.records.past_count(wanted) == len(expected)
    assert all(admits(wanted, job) for job in found)
    assert not any(admits(wanted, job) for job in store.load().jobs if job not in found)


async def test_ended_jobs_are_listed_in_pages(store: Halves) -> None:
    await with_a_past(store)

    pages, after = [], 0
    while page := await store.records.past_jobs(PastJobs(user="alice"), after, 3):
        pages.append(ids(page))
        after = page[-1].job_id
    assert pages == [[1, 2, 3], [5, 6, 7], [8, 9, 10], [12]]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("falling", [False, True])
async def test_ended_jobs_are_listed_in_any_order(store: Halves, key: str, falling: bool) -> None:
    await with_a_past(store)
    order = ListOrder(key, falling)
    everything = await store.records.past_jobs(PastJobs(), 0, 100)

    found: list[Job] = []
    after = None
    while page := await store.records.past_in_order(PastJobs(), order, after, 3):
        found += page
        assert len(found) <= len(everything), "a page was told twice"
        after = order.rank(page[-1])
    assert found == sorted(everything, key=order.rank)


# --- the journal's retention
#   ------------------------------------------------------------------------


async def with_a_story(store: Halves) -> None:
    """Twelve events, one a second from 101 s on. Job 1 ended at 101 s, job 2 at 109 s, 3 lives,
    4 is cancelled and still saves; 5, 10 and 12 are of no job, 11 of one that nobody knows."""
    owners = {1: 1, 2: 2, 3: 3, 4: 4, 6: 1, 7: 2, 8: 3, 9: 4, 11: 77}
    await store.commit(
        Batch(
            jobs=[
                ended(1, 101.0),
                ended(2, 109.0),
                a_job(3),
                ended(4, 101.0, live_attempt=1, attempts=1),
            ],
            attempts=[an_attempt(1, ended_time_s=101.0), an_attempt(4)],
            events=[an_event(seq, owners.get(seq)) for seq in range(1, 13)],
        )
    )


@pytest.mark.parametrize(
    ("from_s", "most", "expected", "behind"),
    [
        (0.0, 100, (0, 0), []),
        (101.0, 100, (0, 0), []),
        (101.5, 100, (1, 0), [1]),
        (108.0, 100, (7, 0), [1, 5, 6]),
        (109.5, 100, (9, 0), [1, 2, 5, 6, 7]),
        (0.0, 12, (0, 0), []),
        (0.0, 11, (0, 1), [1]),
        (0.0, 5, (0, 7), [1, 2, 5, 6, 7]),
        (106.0, 7, (5, 5), [1, 2, 5]),
        (1e9, 1, (11, 11), [1, 2, 5, 6, 7, 10, 11]),
    ],
)
async def test_retention_takes_what_is_old_or_too_much_but_no_living_story(
    store: Halves, from_s: float, most: int, expected: tuple[int, int], behind: list[int]
) -> None:
    await with_a_story(store)

    cut = await store.records.journal_cut(from_s, most)
    assert cut == JournalCut(*expected, from_s)
    assert cut.horizon == max(expected)
    assert await store.records.journal_behind(cut, 0, 100) == behind
    assert await store.records.journal_behind(cut, 0, 2) == behind[:2]
    assert await store.records.journal_behind(cut, 5, 100) == [seq for seq in behind if seq > 5]


async def test_a_gap_left_by_a_restored_copy_is_no_trouble(store: Halves) -> None:
    await store.commit(Batch(events=[an_event(seq) for seq in (1, 2, 100_000_003, 100_000_004)]))

    cut = await store.records.journal_cut(102.5, 3)
    assert cut == JournalCut(2, 1, 102.5)
    assert await store.records.journal_behind(cut, 0, 9) == [1, 2]


async def test_an_empty_journal_has_nothing_to_cut(store: Halves) -> None:
    cut = await store.records.journal_cut(1e9, 0)
    assert cut.horizon <= 0
    assert await store.records.journal_behind(cut, 0, 9) == []


async def test_what_was_pruned_is_gone_and_the_rest_is_there(store: Halves) -> None:
    await with_a_story(store)
    await store.writer.prune_journal([1, 5, 6], 7)

    kept = [event.seq for event in store.records.events(0, 100)]
    assert kept == [2, 3, 4, 7, 8, 9, 10, 11, 12]
    assert store.records.events(0, 9, JobId(1)) == ()
    loaded = store.load()
    assert (loaded.meta[HORIZON], loaded.last_event) == ("7", 12)
    await store.writer.prune_journal([1], 8)  # again, and further
    assert store.load().meta[HORIZON] == "8"


async def test_machines_of_the_last_day_are_loaded_however_many_they_are(store: Halves) -> None:
    """What a budget of a day counts."""
    state, last_s = MachineState.AWAY, 10 * DAY_S
    lately = [a_machine(f"new-{n}", state=state, end_s=last_s - n) for n in range(MOST_ENDED + 1)]
    older = a_machine("old", state=state, end_s=last_s - DAY_S)
    await store.commit(Batch(changes=put(MACHINES, [older, a_machine(), *lately])))
    loaded = [one.request_id for one in store.load().machines]
    assert sorted(loaded) == sorted(["spot-3-1", *(one.request_id for one in lately)])


async def test_of_machines_that_are_long_gone_the_last_are_loaded(store: Halves) -> None:
    state = MachineState.AWAY
    gone = [a_machine(f"m{n}", state=state, end_s=n * DAY_S) for n in range(MOST_ENDED + 1)]
    await store.commit(Batch(changes=put(MACHINES, gone)))
    assert {one.request_id for one in gone} - {one.request_id for one in store.load().machines} == {
        "m0"
    }
