"""Start ranges of a live master: asked of its twin, shown when they are there, measured when jobs
start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from dlq_master.control.composition.state import State
from dlq_master.control.config import TwinConfig
from dlq_master.control.forecast.forecasts import (
    IDLE_S,
    MOST_QUESTIONS,
    NEW_S,
    NOT_SUBMITTED,
    STALE_S,
    ForecastKeeper,
    Unknown,
)
from dlq_master.control.placement.policies import live_policy
from dlq_master.control.stimuli import CreateReservation
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs.job import Job, JobState, RunRules
from dlq_master.model.resources import Request
from dlq_master.planner.forecasts import Changes, Range, StartEstimate
from support.builders import a_node
from support.fake_clock import FakeClock
from support.master_harness import ROOT, Master
from support.sim_agent import SimAgent
from support.twins import NearTwin

LIMIT_S = 3_000.0
COARSE = 1.03  # the twin decides at once about what happens within such a part of the time ahead
NONSENSE: tuple[Any, ...] = (
    {"starts": "none"},
    {"at_s": 1.0, "starts": [[1, 5.0, 4.0, 3.0]], "complete_to_s": None, "worlds": 1, "cpu_s": 0.0},
    {"at_s": 1.0, "starts": [["x", 5, 6, 7]], "complete_to_s": None, "worlds": 1, "cpu_s": 0.0},
    {"at_s": 1.0, "starts": [[1, 5]], "complete_to_s": None, "worlds": 1, "cpu_s": 0.0},
    {"at_s": True, "starts": [], "complete_to_s": None, "worlds": 1, "cpu_s": 0.0},
)


def reserve(master: Master, begin_s: float | None, end_s: float) -> None:
    """The node is away in between."""
    nodes = (NodeId("gpu01"),)
    ask = CreateReservation(
        caller=ROOT, request_id="", node_ids=nodes, begin_s=begin_s, end_s=end_s, reason=""
    )
    master.ask(ask)


class Story:
    """A full node, one job that runs on it, and one that waits."""

    def __init__(self) -> None:
        self.twin = NearTwin()
        self.master = Master(foresees=self._foresees)
        self.agent = SimAgent(self.master, NodeId("gpu01"))
        self.agent.hello()
        self.runs = self.submit("first", time_limit_s=LIMIT_S)
        self.begin(self.runs)
        self.waits = self.submit("second", time_limit_s=LIMIT_S)

    def _foresees(self, state: State, clock: FakeClock) -> ForecastKeeper:
        self.forecasts = ForecastKeeper(state, TwinConfig(), self.twin, clock)
        return self.forecasts

    def submit(self, name: str, **more: Any) -> Job:
        """A job for the whole node."""
        return self.master.submit(4, name=name, **more)

    def begin(self, job: Job) -> None:
        """Its agent lets it run."""
        self.agent.obey()
        self.agent.start(AttemptKey(job.job_id, 1))
        self.agent.report()

    def end(self, job: Job) -> None:
        self.agent.exit(AttemptKey(job.job_id, 1))
        self.agent.report()

    def look(self) -> Range | None:
        """Let the twin look, then see what is published of the job that waits."""
        asyncio.run(self.forecasts.refresh())
        return self.shown()

    def shown(self) -> Range | None:
        return self.master.loop.published.start_range(self.master.job(self.waits.job_id))

    def estimate(self, job: Job) -> StartEstimate:
        return asyncio.run(self.forecasts.estimate(job, 10.0))


@pytest.fixture
def story() -> Iterator[Story]:
    story = Story()
    yield story
    story.master.close()


def test_a_waiting_job_starts_when_the_running_one_ends_within_its_limit(story: Story) -> None:
    assert story.shown() is None  # nobody has looked yet
    now_s = story.master.clock.now_s()
    range_ = story.look()
    assert range_ is not None
    assert now_s < range_.low_s <= range_.likely_s <= range_.high_s <= now_s + COARSE * LIMIT_S
    assert story.master.loop.published.start_range(story.master.job(story.runs.job_id)) is None


def test_what_jobs_have_done_before_is_what_they_are_expected_to_do(story: Story) -> None:
    ended = [story.runs._replace(total_executed_s=700.0, state=JobState.COMPLETED)] * 3
    story.forecasts.remember(ended)
    now_s = story.master.clock.now_s()
    range_ = story.look()
    assert range_ is not None
    assert [at_s - now_s for at_s in range_] == [pytest.approx(700.0, rel=COARSE - 1)] * 3


def test_nobody_starts_in_a_reservation_or_where_it_would_run_into_one(story: Story) -> None:
    now_s = story.master.clock.now_s()
    ends_s = now_s + 40_000.0
    reserve(story.master, now_s + LIMIT_S + 600.0, ends_s)
    range_ = story.look()
    assert range_ is not None
    assert range_.likely_s - now_s <= COARSE * LIMIT_S, "there is a term: it saves, and goes on"
    estimate = story.estimate(story.waits)
    assert estimate.end is not None
    assert estimate.end.high_s > ends_s, "if it runs for long it is taken off, and comes back"
    story.master.cancel(story.waits.job_id)
    story.waits = story.submit("third", time_limit_s=LIMIT_S, rules=RunRules(saves=False))
    range_ = story.look()
    assert range_ is not None
    assert range_.likely_s - now_s == pytest.approx(40_000.0, rel=COARSE - 1), "its limit crosses"


def test_a_reservation_that_has_begun_is_over_when_it_says(story: Story) -> None:
    now_s = story.master.clock.now_s()
    story.end(story.runs)
    story.master.cancel(story.waits.job_id)
    reserve(story.master, None, now_s + 7_000.0)
    story.waits = story.submit("third")
    range_ = story.look()
    assert range_ is not None
    assert range_.likely_s - now_s == pytest.approx(7_000.0, rel=COARSE - 1)


def test_while_nobody_waits_nobody_is_asked(story: Story) -> None:
    story.master.cancel(story.waits.job_id)
    assert story.look() is None
    assert story.twin.asked == []


@pytest.mark.parametrize("broken", ["gone", "hangs", *NONSENSE, {"none": "a bug"}])
def test_a_broken_twin_means_no_estimate_and_nothing_else(story: Story, broken: Any) -> None:
    story.twin.broken = broken
    assert story.look() is None
    with pytest.raises(Unknown):
        story.estimate(story.waits)
    believed = broken == "gone" or "none" in broken
    assert bool(story.twin.restarts) is not believed
    story.twin.broken = ""
    assert story.look() is not None
    story.end(story.runs)
    assert story.master.job(story.waits.job_id).live_attempt == 1


def test_an_estimate_that_nobody_renews_is_not_shown_for_ever(story: Story) -> None:
    assert story.look() is not None
    story.twin.broken = "gone"
    story.master.clock.advance(STALE_S)
    assert story.look() is not None  # the one from before
    story.master.clock.advance(1.0)
    assert story.look() is None


def test_a_start_is_never_shown_as_over(story: Story) -> None:
    story.forecasts.remember([story.runs._replace(total_executed_s=20.0)] * 3)
    story.look()
    story.master.clock.advance(500.0)
    assert story.shown() == Range(*[story.master.clock.now_s()] * 3)


def test_a_job_that_nobody_has_submitted_comes_after_those_that_wait(story: Story) -> None:
    new = story.waits._replace(
        job_id=NOT_SUBMITTED, state=JobState.PENDING, sequence=0, name="third"
    )
    first, last = story.estimate(story.waits), story.estimate(new)
    assert first.start is not None
    assert last.start is not None
    assert first.end is not None
    assert last.start.likely_s >= first.end.likely_s
    assert NOT_SUBMITTED not in story.master.state.cluster.jobs


def test_a_question_sees_jobs_that_have_come_since_the_last_look_but_not_at_once(
    story: Story,
) -> None:
    new = story.waits._replace(
        job_id=NOT_SUBMITTED, state=JobState.PENDING, sequence=0, name="asked"
    )

    def start_s() -> float:
        found = story.estimate(new).start
        assert found is not None
        return found.likely_s - story.master.clock.now_s()

    alone_s = start_s()
    story.submit("third", time_limit_s=LIMIT_S)
    assert start_s() == pytest.approx(alone_s)
    story.master.clock.advance(float(TwinConfig().refresh_every) + 1.0)
    assert start_s() > alone_s + LIMIT_S / 4


def test_a_job_that_runs_has_only_an_end(story: Story) -> None:
    found = story.estimate(story.master.job(story.runs.job_id))
    assert found.start is None
    assert found.end is not None
    assert found.end.high_s <= story.master.clock.now_s() + COARSE * LIMIT_S


def test_a_job_that_fits_nowhere_has_no_start(story: Story) -> None:
    wide = story.waits._replace(job_id=NOT_SUBMITTED, request=Request(gpus=8), sequence=0)
    assert story.estimate(wide).start is None


def test_one_more_node_lets_the_waiting_job_start_at_once(story: Story) -> None:
    changes = Changes(more=(a_node("new01", 4, "H100"),))
    compared = asyncio.run(story.forecasts.what_if(changes, 10.0))
    waits = story.waits.job_id
    assert compared.then.starts[waits].likely_s == story.master.clock.now_s()
    assert compared.now.starts[waits].likely_s > story.master.clock.now_s()
    assert NodeId("new01") not in story.master.state.cluster.nodes


def test_a_start_is_compared_with_what_was_foreseen_first(story: Story) -> None:
    story.forecasts.remember([story.runs._replace(total_executed_s=700.0)] * 3)
    story.look()
    story.master.clock.advance(600.0)
    story.look()  # only the first range counts
    assert story.forecasts.quality().jobs == 0
    story.end(story.runs)
    story.begin(story.waits)
    quality = story.forecasts.quality()
    # It was foreseen after 700 s, or somewhat more.
    assert quality.jobs == 1
    assert quality.median_s == -(quality.late_median_s or 0.0) == pytest.approx(100.0, abs=21.0)
    assert (quality.within_share, quality.wait_median_s) == (0.0, 600.0)


def test_what_was_foreseen_and_what_came_outlives_the_master(story: Story) -> None:
    """It dies once between the first range and the start, and once after that."""
    story.forecasts.remember([story.runs._replace(total_executed_s=700.0)])
    story.look()
    story.master.tick(1.0)
    story.master.restart()
    story.agent.hello()
    assert story.forecasts.quality().jobs == 0
    story.master.clock.advance(10.0)
    story.look()  # only the first range counts
    story.agent.hello()
    story.end(story.runs)
    story.begin(story.waits)
    quality = story.forecasts.quality()
    assert quality.jobs == 1
    assert quality.wait_median_s == pytest.approx(11.0), (
        "since the first range, of the first master"
    )
    story.master.restart()
    assert story.forecasts.quality() == quality


def test_a_master_that_starts_again_foresees_again(story: Story) -> None:
    before = story.look()
    story.master.restart()
    assert story.shown() is None
    story.agent.hello()
    after = story.look()
    assert before is not None
    assert after is not None
    assert after.likely_s == pytest.approx(before.likely_s)


def test_no_more_may_ask_at_a_time_than_the_twin_can_answer(story: Story) -> None:
    async def crowd() -> list[Any]:
        asks = [story.forecasts.estimate(story.waits, 10.0) for _ in range(MOST_QUESTIONS + 3)]
        return await asyncio.gather(*asks, return_exceptions=True)

    answers = asyncio.run(crowd())
    assert sum(isinstance(answer, Unknown) for answer in answers) == 3
    assert sum(isinstance(answer, StartEstimate) for answer in answers) == MOST_QUESTIONS


@pytest.mark.parametrize("policy", ["fifo", "chronus", "dlq", "tiresias-gittins"])
def test_another_policy_takes_the_state_over(story: Story, policy: str) -> None:
    changes = Changes(policy=policy, settings=live_policy(policy, {}).settings)
    compared = asyncio.run(story.forecasts.what_if(changes, 10.0))
    assert list(compared.then.starts) == [story.waits.job_id]


async def _soon() -> None:
    """What is under way, with a twin that answers at once, is done."""
    for _ in range(20):
        await asyncio.sleep(0.01)


async def test_the_twin_is_asked_when_somebody_looks_and_leaves_when_nobody_does(
    story: Story,
) -> None:
    running = asyncio.create_task(story.forecasts.run())
    assert story.shown() is None  # as in the answer to its submission
    await _soon()
    assert story.twin.asked == []
    story.master.clock.advance(NEW_S)
    assert story.shown() is None
    await _soon()
    assert story.twin.asked == ["look"]
    assert story.shown() is not None
    running.cancel()
    story.master.clock.advance(IDLE_S)
    await story.forecasts.rest()
    assert story.twin.left == 0
    story.master.clock.advance(1.0)
    await story.forecasts.rest()
    assert story.twin.left == 1
    assert story.shown() is None
    assert (await story.forecasts.estimate(story.waits, 10.0)).start is not None


def test_what_ended_before_is_read_when_it_is_first_needed(story: Story) -> None:
    reads = []
    before = story.runs._replace(total_executed_s=700.0, state=JobState.COMPLETED)

    async def past() -> list[Job]:
        reads.append(1)
        return [before] * 3

    state, clock = story.master.state, story.master.clock
    story.forecasts = ForecastKeeper(state, TwinConfig(), story.twin, clock, past)
    asyncio.run(story.forecasts.refresh())
    asyncio.run(story.forecasts.refresh())
    assert reads == [1]
    range_ = story.forecasts.start(story.waits)
    assert range_ is not None
    assert range_.likely_s - clock.now_s() == pytest.approx(700.0, rel=COARSE - 1)
