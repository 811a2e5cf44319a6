"""How long jobs have waited for what: counted, over starts, holds and restarts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlq_master.control.stimuli import PauseJob, ReleaseJob
from dlq_master.control.waits import AT_ONCE, WRITTEN_EVERY_S, settled
from dlq_master.model.ids import JobId, NodeId
from dlq_master.store.tenants import Spent, Waited
from support.master_harness import ALICE, Master
from support.sim_agent import SimAgent

Masters = Callable[..., Master]


def spent(master: Master, job_id: int) -> dict[str, tuple[float, float]]:
    waited = master.why(JobId(job_id)).waited
    assert waited is not None
    return {one.code: (round(one.held_s), round(one.main_s)) for one in waited.spent}


def seconds(master: Master, count: int) -> None:
    for _ in range(count):
        master.tick(1.0)


@pytest.fixture
def busy(master: Master) -> Master:
    """Job 1 holds four GPUs, and job 2 waits for them."""
    SimAgent(master, NodeId("gpu01")).hello()
    master.submit(4)
    master.submit(4)
    return master


def test_every_second_counts_for_what_held_in_it(busy: Master) -> None:
    seconds(busy, 10)
    assert spent(busy, 2) == {"resources": (10, 10)}
    busy.hold(JobId(2))
    seconds(busy, 5)
    found = spent(busy, 2)
    assert (found["resources"], found["held_user"]) == ((11, 11), (4, 4)), "a look a second"


def test_the_main_reasons_add_up_to_the_whole_wait_and_others_overlap() -> None:
    row = Waited(JobId(1), (Spent("quota", 5.0, 5.0),), 100.0, ("quota", "resources"))
    later = settled(row, 130.0)
    assert later.spent == (Spent("quota", 35.0, 35.0), Spent("resources", 30.0, 0.0))
    assert settled(later, 120.0) == later, "time does not go back"


def test_a_wait_ends_with_its_start_and_another_begins_with_its_requeue(busy: Master) -> None:
    seconds(busy, 10)
    agent = SimAgent(busy, NodeId("gpu01"))
    agent.hello()
    busy.cancel(JobId(1))
    agent.obey()
    agent.report()
    seconds(busy, 3)
    assert busy.job(JobId(2)).live_attempt
    before = spent(busy, 2)["resources"]
    seconds(busy, 30)
    assert spent(busy, 2)["resources"] == before
    assert busy.why(JobId(2)).waited.now == ("running",)  # type: ignore[union-attr]  # it is there


def test_a_job_that_started_at_once_has_waited_only_since_it_was_queued_again(
    master: Master,
) -> None:
    agent = SimAgent(master, NodeId("gpu01"))
    agent.hello()
    job = master.submit(4)
    agent.obey()
    for key in list(agent.ranks):
        agent.start(key)
    agent.report()
    seconds(master, 15)
    agent.hello()
    master.ask(PauseJob(caller=ALICE, request_id="p", job_id=job.job_id))
    agent.obey()
    for key in list(agent.ranks):
        agent.exit(key)
    agent.report()
    seconds(master, 3)
    assert sum(main for _, main in spent(master, job.job_id).values()) <= 3


def test_what_was_written_is_known_after_a_restart_and_goes_on(busy: Master) -> None:
    seconds(busy, int(WRITTEN_EVERY_S) + 2)
    written = spent(busy, 2)["resources"][0]
    busy.restart()
    SimAgent(busy, NodeId("gpu01")).hello()
    seconds(busy, 10)
    assert written <= spent(busy, 2)["resources"][0] + 2
    assert sum(main for _, main in spent(busy, 2).values()) == pytest.approx(written + 10, abs=2)


def test_little_is_written_while_nothing_changes(busy: Master) -> None:
    seconds(busy, 5)
    seconds(busy, 100)
    assert busy.store.load().waited == ()
    seconds(busy, 300)
    (row,) = busy.store.load().waited
    seconds(busy, 100)
    assert busy.store.load().waited == (row,)


def test_a_long_queue_is_looked_at_in_turn(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlq_master.control.waits.AT_ONCE", 2)
    assert AT_ONCE == 500
    SimAgent(master, NodeId("gpu01")).hello()
    for _ in range(5):
        master.submit(4)
    seconds(master, 30)
    for number in range(2, 6):
        total = sum(main for _, main in spent(master, number).values())
        assert total == pytest.approx(30, abs=4)


def test_an_ended_job_still_says_what_it_waited_for(busy: Master) -> None:
    seconds(busy, 10)
    busy.cancel(JobId(2))
    seconds(busy, 100)
    assert spent(busy, 2)["resources"] == (10, 10)
    busy.restart()
    assert spent(busy, 2)["resources"] == (10, 10)


def test_a_release_ends_the_hold(busy: Master) -> None:
    busy.hold(JobId(2))
    seconds(busy, 10)
    busy.ask(ReleaseJob(caller=ALICE, request_id="r", job_id=JobId(2)))
    seconds(busy, 10)
    found = spent(busy, 2)
    assert found["held_user"][0] + found["resources"][0] == pytest.approx(20, abs=1)
    assert found["held_user"][0] == pytest.approx(10, abs=2)
