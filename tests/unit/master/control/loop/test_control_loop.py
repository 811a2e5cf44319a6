"""The loop itself: one commit, then the answers; a failure ends everything and tells nobody
lies.
"""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from dlq_common.errors import ConfigError, NotFound, Unavailable
from dlq_master.control.loop.failpoints import Failpoints
from dlq_master.control.loop.inbox import Envelope
from dlq_master.control.loop.loop import HANDLING_S, Loop
from dlq_master.control.loop.ticks import PERIODS_S, Watchdog
from dlq_master.control.stimuli import CancelJob, CloseSession, Tick
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import JobState
from dlq_master.store.batch import Batch
from support.fake_clock import FakeClock
from support.invariants import told_states
from support.master_harness import ALICE, Master
from support.memory_store import MemoryStore
from support.sim_agent import SimAgent


def test_what_arrives_together_is_one_commit(master: Master) -> None:
    before = master.store.commits
    answers = master.turn(*(master.submission() for _ in range(50)))

    assert master.store.commits == before + 1
    assert [answer.job.job_id for answer in answers] == list(range(1, 51))


def test_a_turn_that_changes_nothing_commits_nothing(master: Master, agent: SimAgent) -> None:
    before = master.store.commits
    agent.heartbeat()
    master.turn(Tick("leases"))
    master.turn(*(CancelJob(caller=ALICE, request_id="x", job_id=JobId(n)) for n in range(9)))
    master.turn()

    assert master.store.commits == before


async def test_nobody_reads_and_nobody_is_answered_before_the_commit() -> None:
    master = await asyncio.to_thread(Master)
    answer = asyncio.get_running_loop().create_future()
    seen: list[object] = []

    class Watched(MemoryStore):
        async def commit(self, batch: Batch) -> None:
            seen.append(master.loop.published.job(JobId(1)))
            seen.append(answer.done())
            seen.append(len(batch.jobs))

    master.loop._store = Watched()
    await master.loop.turn([Envelope(master.submission(), answer)])

    assert seen == [None, False, 1]
    assert answer.result().job.job_id == 1
    master.close()


async def test_a_turn_is_progress_once_it_is_on_disk_and_a_hanging_disk_is_none() -> None:
    master = await asyncio.to_thread(Master)
    progress: list[int] = []
    on_disk = asyncio.Event()

    class Slow(MemoryStore):
        async def commit(self, batch: Batch) -> None:
            await on_disk.wait()

    master.loop._store = Slow()
    master.loop._progressed = lambda: progress.append(1)
    turning = _running(master.loop)
    asked = asyncio.ensure_future(master.loop.ask(master.submission()))
    for _ in range(20):
        await asyncio.sleep(0)
    assert progress == []
    on_disk.set()
    await asked
    master.loop.stop()
    await turning
    assert progress != []
    master.close()


def _running(loop: Loop) -> "asyncio.Task[None]":
    return asyncio.get_running_loop().create_task(loop.run())


async def _started() -> tuple[Master, "asyncio.Task[None]"]:
    master = await asyncio.to_thread(Master)
    return master, _running(master.loop)


async def test_stop_answers_what_has_arrived_and_refuses_what_comes_later() -> None:
    master, turning = await _started()
    asked = [asyncio.ensure_future(master.loop.ask(master.submission())) for _ in range(5)]
    await asyncio.sleep(0)
    master.loop.stop()
    await turning

    assert [(await one).job.job_id for one in asked] == [1, 2, 3, 4, 5]
    with pytest.raises(Unavailable):
        await master.loop.ask(master.submission())
    master.close()


async def test_a_failed_commit_ends_the_loop_and_answers_everybody_with_unavailable() -> None:
    master, turning = await _started()
    master.store.fail_with = sqlite3.OperationalError("disk I/O error")
    asked = [asyncio.ensure_future(master.loop.ask(master.submission())) for _ in range(3)]
    outcomes = await asyncio.gather(turning, *asked, return_exceptions=True)

    assert isinstance(outcomes[0], sqlite3.OperationalError)
    assert [type(outcome) for outcome in outcomes[1:]] == [Unavailable] * 3
    assert [event.kind for event in master.store.events(0, 10)] == ["master_started"]
    assert list(master.loop.published.jobs()) == []
    assert master.wires.sent == {}
    with pytest.raises(Unavailable):
        await master.loop.ask(master.submission())
    master.close()


async def test_the_loop_ticks_itself_when_the_metronome_is_silent() -> None:
    master, turning = await _started()
    clock = master.clock
    clock.advance(60.0)  # nobody told a tick
    master.loop._inbox.wake()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert master.loop._watchdog.wait_s(clock.boottime_s()) == 2.0
    master.loop.stop()
    await turning
    master.close()


async def test_a_watcher_gets_every_committed_event_once_from_any_point() -> None:
    master, turning = await _started()
    for _ in range(3):
        await master.loop.ask(master.submission())
    got: list[int] = []

    async def follow() -> None:
        async for event in master.loop.watch(2):
            got.append(event.seq)
            if len(got) == 10:
                return

    following = asyncio.ensure_future(follow())
    await asyncio.sleep(0)
    while not following.done():
        await master.loop.ask(master.submission())
    await following

    assert got == list(range(3, 13))
    master.loop.stop()
    await turning
    master.close()


async def test_a_caller_who_hangs_up_is_not_missed() -> None:
    master, turning = await _started()
    asked = asyncio.ensure_future(master.loop.ask(master.submission()))
    await asyncio.sleep(0)
    asked.cancel()
    again = await master.loop.ask(master.submission())

    assert again.job.job_id == 2, "the first one was accepted all the same"
    master.loop.stop()
    await turning
    master.close()


async def test_an_unknown_job_is_the_callers_trouble_only() -> None:
    master, turning = await _started()
    with pytest.raises(NotFound):
        await master.loop.ask(CancelJob(caller=ALICE, request_id="", job_id=JobId(404)))
    assert (await master.loop.ask(master.submission())).job.job_id == 1
    master.loop.stop()
    await turning
    master.close()


def test_a_tick_is_overdue_after_two_of_its_periods() -> None:
    clock = FakeClock()
    watchdog = Watchdog(clock.boottime_s())
    assert watchdog.wait_s(clock.boottime_s()) == 2.0 * PERIODS_S["leases"]
    clock.advance(1.9)
    assert watchdog.overdue(clock.boottime_s()) == []
    watchdog.heard("leases", clock.boottime_s())
    clock.advance(1.9)
    assert watchdog.overdue(clock.boottime_s()) == []
    clock.advance(0.1)
    assert watchdog.overdue(clock.boottime_s()) == ["leases"]
    assert watchdog.overdue(clock.boottime_s()) == []


def test_a_failpoint_with_a_wrong_name_or_count_is_a_mistake_in_the_configuration() -> None:
    with pytest.raises(ConfigError, match="after_commit"):
        Failpoints("after_comit")
    with pytest.raises(ConfigError, match="passages"):
        Failpoints("after_commit:x")


def test_a_failpoint_may_wait_for_an_event_of_a_kind() -> None:
    died: list[int] = []
    armed = Failpoints("after_commit@promise_made", lambda: died.append(1))
    made, other = (
        JournalEvent(kind=kind, time_s=1.0) for kind in ("promise_made", "job_submitted")
    )
    armed.passed("after_commit")
    armed.passed("after_commit", [other])
    armed.passed("before_commit", [made])
    assert not died
    armed.passed("after_commit", [other, made])
    assert died


# --- the journal tells what the rows say ----------------------------------------------------------


def test_the_states_that_the_journal_tells_are_those_of_the_rows(
    master: Master, agent: SimAgent, tmp_path: Path
) -> None:
    ids = [master.submit(gpus, hold=gpus == 2).job_id for gpus in (1, 2, 1, 1, 1, 4)]
    agent.obey()
    for number, key in enumerate(list(agent.ranks)):
        agent.start(key)
        agent.report()
        if number:
            agent.exit(key, number - 1)
            agent.report()
    master.cancel(ids[5])
    master.restart()
    agent.hello()

    told = told_states(master.store)
    assert told == {job.job_id: job.state for job in master.state.cluster.jobs.values()}
    assert {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.HELD} <= set(
        told.values()
    )


def test_while_the_master_did_not_listen_nobody_was_silent(master: Master, agent: SimAgent) -> None:
    """Stopped for a minute (SIGSTOP, a stalled disk): no node is judged by it."""
    master.turn()
    master.clock.advance(60.0)
    master.loop._note_lag(2.0)
    assert master.state.loop_lag_s == 58.0
    master.tick()

    assert master.node(str(agent.node_id)).state == "up"
    assert master.loop.published.freeze_reason(), "requeues wait for a turn that comes in time"
    master.loop._note_lag(2.0)
    master.tick()
    assert not master.loop.published.freeze_reason()


class Dragging(FakeClock):
    """Each look at the clock takes half of the time that a turn may handle stimuli."""

    def boottime_s(self) -> float:
        self.advance(HANDLING_S / 2.0)
        return super().boottime_s()


async def test_a_turn_of_a_storm_leaves_the_rest_to_the_next_turn_in_order() -> None:
    master = await asyncio.to_thread(Master, clock=Dragging())
    letters = [Envelope(master.submission(), None) for _ in range(5)]
    counts = []
    while letters:
        await master.loop.turn(letters)
        counts.append(len(master.state.cluster.jobs))
        rest = master.loop._inbox.take()
        assert rest == letters[len(letters) - len(rest) :]
        letters = rest

    assert counts == [2, 4, 5], "after its second stimulus the time of a turn is over"
    master.close()


async def test_between_two_turns_of_a_storm_the_sockets_are_read() -> None:
    master = await asyncio.to_thread(Master, clock=Dragging())
    heard: list[str] = []
    letters = [Envelope(CloseSession(node_id=NodeId("n1"), session_id=1), None) for _ in range(3)]
    asyncio.get_running_loop().call_soon(heard.append, "a message")
    await master.loop.turn(letters)
    assert len(master.loop._inbox.take()) == 1
    assert heard == ["a message"], "that turn wrote nothing, so it waited for no disk"
    master.close()


async def test_a_turn_waits_for_its_commit_in_its_own_task() -> None:
    """Another task would cost each submit that comes alone two more rounds of the event loop."""
    master = await asyncio.to_thread(Master)
    tasks: list[object] = []

    class Seen(MemoryStore):
        async def commit(self, batch: Batch) -> None:
            tasks.append(asyncio.current_task())

    master.loop._store = Seen()
    turning = asyncio.create_task(master.loop.turn([Envelope(master.submission(), None)]))
    await turning
    assert tasks == [turning]
    master.close()
