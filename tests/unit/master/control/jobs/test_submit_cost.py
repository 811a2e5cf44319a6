"""What a submit to a full cluster makes the master do, in calls of functions: it decides once, and
does not grow with the queue."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from dlq_common.daemon.config import Seconds
from dlq_master.control.config import JobsConfig, MasterConfig, NodesConfig, SchedulerConfig
from dlq_master.control.loop.inbox import Envelope
from dlq_master.control.placement import scheduling
from dlq_master.control.stimuli import ExplainJob, Stimulus
from dlq_master.model.ids import NodeId
from dlq_master.model.why import ReasonCode
from support.counted_calls import counted_calls
from support.extent import spread
from support.master_harness import Master
from support.sim_agent import SimAgent

NODES, GPUS = 40, 8
WIDTHS = (1, 2, 4, 8)
SHORT, LONG = 100, 500
# Calls may differ by what a line that is balanced now and then costs, not by its length.
MOST_GROWTH = 1.1


def of_policy(name: str) -> MasterConfig:
    return MasterConfig(
        scheduler=SchedulerConfig(name, {}),
        nodes=NodesConfig(start_grace=Seconds(0.0)),
        jobs=JobsConfig(queued_per_user=100_000, submit_burst=100_000, retry_backoff=Seconds(0.0)),
    )


def full(master: Master) -> None:
    """Every GPU is held, and jobs of all widths wait."""
    for number in range(NODES):
        SimAgent(master, NodeId(f"gpu{number:02d}"), gpus=GPUS).hello()
    master.turn(*(master.submission(GPUS) for _ in range(NODES)))
    assert len(master.state.cluster.attempts) == NODES


def fill(master: Master, length: int) -> None:
    """Until so many wait."""
    missing = length - master.state.cluster.waiting.count
    asks = [master.submission(WIDTHS[each % len(WIDTHS)]) for each in range(missing)]
    master.turn(*asks)
    assert master.state.cluster.waiting.count == length


def calls_of(master: Master, *stimuli: Stimulus) -> Counter[str]:
    """What one turn calls, as it is when nothing is new to it: without the invariants of the
    harness.
    """
    tasks = asyncio.new_event_loop()
    letters = [Envelope(each, tasks.create_future()) for each in stimuli]
    with counted_calls(of_c=True) as calls:
        tasks.run_until_complete(master.loop.turn(letters))
    assert all(letter.answer is not None and not letter.answer.exception() for letter in letters)
    tasks.close()
    return calls


def decisions(calls: Counter[str]) -> int:
    """Walks over the jobs, whoever asked for them."""
    return calls["policy/pipeline.py:_decide"] + calls["policy/pipeline.py:at_boundary"]


@pytest.mark.parametrize("policy", spread(["dlq", "best-effort", "tiresias-las", "fifo"], 2))
def test_a_submit_to_a_full_cluster_costs_the_same_however_many_wait(
    masters: Callable[..., Master], policy: str
) -> None:
    master = masters(of_policy(policy))
    full(master)
    found = []
    for length in (SHORT, LONG):
        fill(master, length)
        calls_of(master, master.submission(2))
        found.append(calls_of(master, master.submission(2)))
    few, many = found
    grown = {name: (few[name], many[name]) for name in many if many[name] > few[name] + 5}
    assert many.total() <= MOST_GROWTH * few.total(), grown
    assert decisions(many) <= 1, "its answer is as of the plan of its turn"


def test_many_submits_of_one_turn_make_one_plan(masters: Callable[..., Master]) -> None:
    master = masters(of_policy("dlq"))
    full(master)
    fill(master, SHORT)
    calls = calls_of(master, *(master.submission(2) for _ in range(20)))
    assert decisions(calls) <= 1


def test_who_asks_why_many_times_makes_one_plan(masters: Callable[..., Master]) -> None:
    master = masters(of_policy("dlq"))
    full(master)
    fill(master, SHORT)
    waiting = [job.job_id for job in master.loop.published.jobs() if job.live_attempt is None]
    many = calls_of(master, *(ExplainJob(job_id=each) for each in waiting[:20]))
    assert 0 < decisions(many) <= 3, (
        "as things are, at the next boundary, and were nobody protected"
    )
    again = calls_of(master, *(ExplainJob(job_id=each) for each in waiting[20:40]))
    assert decisions(again) == 0, "nothing has changed since"


def test_why_makes_no_plan_where_jobs_are_not_stopped_at_boundaries(
    masters: Callable[..., Master],
) -> None:
    master = masters(of_policy("best-effort"))
    full(master)
    fill(master, SHORT)
    newest = max(master.state.cluster.jobs)
    assert decisions(calls_of(master, ExplainJob(job_id=newest))) == 0, "it has the last one's"


def test_in_a_large_cluster_why_looks_at_the_next_boundary_once_in_some_seconds(
    masters: Callable[..., Master], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "MANY", SHORT)
    master = masters(of_policy("dlq"))
    full(master)
    fill(master, SHORT)
    oldest = min(job.job_id for job in master.loop.published.jobs() if job.live_attempt is None)
    asked = ExplainJob(job_id=oldest)
    assert decisions(calls_of(master, asked)) > 0

    def after(seconds: float) -> int:
        master.clock.advance(seconds)
        master.turn(master.submission(2))
        return decisions(calls_of(master, asked))

    assert after(1.0) == 0, "a change does not ask for it anew"
    assert after(scheduling.BOUNDARIES_KEPT_S) > 0
    monkeypatch.setattr(scheduling, "MANY", 10 * SHORT)
    assert after(0.1) > 0, "in a small one it is of this instant"


def test_a_submit_says_what_is_missing_and_how_many_are_before_it(
    masters: Callable[..., Master],
) -> None:
    master = masters(of_policy("best-effort"))
    full(master)
    fill(master, SHORT)
    told = master.ask(master.submission(4))
    first = told.reasons[0]
    assert (first.code, first.need, first.have) == (ReasonCode.RESOURCES, 4, 0)
    assert told.jobs_ahead == SHORT
    assert master.why(told.job.job_id).jobs_ahead == SHORT
