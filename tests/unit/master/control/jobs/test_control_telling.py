"""What users ask of a job that runs: go back to the queue, take a signal, save and go on."""

from typing import Any

import pytest

from dlq_common.errors import Conflict, IllegalTransition, NotFound, TryAgain
from dlq_master.control.jobs.jobs import MOST_ON_THEIR_WAY
from dlq_master.control.stimuli import (
    Caller,
    CheckpointJob,
    HoldJob,
    RequeueJob,
    Save,
    Signal,
    SignalJob,
    Stop,
)
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import HoldKind, JobState
from support.master_harness import Master
from support.sim_agent import SimAgent

BOB = Caller("bob", "user")


def running(
    master: Master, agents: list[SimAgent], gpus: int = 2, nodes: int | None = None
) -> AttemptKey:
    key = AttemptKey(master.submit(gpus, nodes=nodes).job_id, 1)
    for agent in agents:
        agent.obey()
        if key in agent.ranks:
            agent.start(key)
            agent.report()
    assert master.attempt(key.job_id).state == "running", master.story()
    return key


def test_a_requeued_job_saves_leaves_and_starts_again(master: Master, agent: SimAgent) -> None:
    key = running(master, [agent])
    master.edit(RequeueJob, key.job_id)
    (stop,) = [c for _, c in master.wires.sent[agent.node_id] if isinstance(c, Stop)]
    assert stop.cause == "requeue"
    agent.obey()
    master.clock.advance(1.0)
    agent.save(key, 7)
    agent.exit(key, 99)
    agent.report()
    job = master.job(key.job_id)
    assert (job.attempts, job.preemptions, job.requeues) == (2, 1, 0)
    agent.obey()
    assert agent.ranks[AttemptKey(key.job_id, 2)].launch.resume_from == f"/ckpt/{key}/7"


def test_a_requeued_job_may_stay_away_until_it_is_released(master: Master, agent: SimAgent) -> None:
    key = running(master, [agent])
    job = master.edit(RequeueJob, key.job_id, hold=True)
    assert (job.state, job.hold) == (JobState.HELD, HoldKind.USER)
    agent.obey()
    agent.exit(key, 99)
    agent.report()
    assert master.job(key.job_id).live_attempt is None
    assert master.job(key.job_id).state is JobState.HELD


def test_requeueing_what_waits_changes_nothing_or_holds_it(master: Master) -> None:
    job = master.submit(2)
    assert master.edit(RequeueJob, job.job_id).state is JobState.PENDING
    assert master.edit(RequeueJob, job.job_id, hold=True).hold is HoldKind.USER
    with pytest.raises(IllegalTransition, match="on hold and not running"):
        master.edit(RequeueJob, job.job_id)
    master.cancel(job.job_id)
    with pytest.raises(IllegalTransition, match="has ended"):
        master.edit(RequeueJob, job.job_id)


def test_a_repeated_requeue_does_not_stop_the_next_attempt(master: Master, agent: SimAgent) -> None:
    key = running(master, [agent])
    master.edit(RequeueJob, key.job_id, request_id="r")
    agent.obey()
    agent.exit(key, 99)
    agent.report()
    agent.obey()
    master.edit(RequeueJob, key.job_id, request_id="r")
    assert master.attempt(key.job_id).stop_cause is None


def test_a_signal_goes_to_rank_0_or_to_all_and_is_journaled(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, [agent, other, agent], 8, nodes=2)
    master.edit(SignalJob, key.job_id, signal="USR1")
    for each in (agent, other):
        each.obey()
    said = agent.words + other.words
    assert [(type(word), word.node_rank) for word in said] == [(Signal, 0)]
    master.edit(SignalJob, key.job_id, signal="HUP", all_ranks=True)
    for each in (agent, other):
        each.obey()
    said = agent.words + other.words
    assert sorted(word.node_rank for word in said) == [0, 0, 1]
    kinds = [event.kind for event in master.events(key.job_id)]
    assert kinds.count("attempt_signal_asked") == 2
    assert kinds.count("rank_signalled") == 3
    assert master.attempt(key.job_id).state == "running"
    assert master.state.attempts.outbox == {}


def test_a_signal_waits_for_a_silent_node_and_ends_with_its_attempt(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, [agent])
    agent.cut()
    master.edit(SignalJob, key.job_id, signal="USR1")
    master.restart()
    agent.hello()
    agent.obey()
    assert len(agent.words) == 1
    agent.cut()
    master.edit(SignalJob, key.job_id, signal="USR2")
    agent.exit(key, 0)
    agent.hello()
    agent.obey()
    assert len(agent.words) == 1
    assert master.state.attempts.outbox == {}


@pytest.mark.parametrize("stimulus", [SignalJob, CheckpointJob])
def test_only_what_runs_is_told(
    master: Master, agent: SimAgent, stimulus: type[SignalJob | CheckpointJob]
) -> None:
    more: dict[str, Any] = {"signal": "USR1"} if stimulus is SignalJob else {}
    queued = master.submit()
    with pytest.raises(IllegalTransition, match="must be running"):
        master.edit(stimulus, queued.job_id, **more)
    key = AttemptKey(queued.job_id, 1)
    agent.obey()
    agent.start(key)
    agent.report()
    master.edit(stimulus, queued.job_id, **more)
    with pytest.raises(NotFound):
        master.edit(stimulus, queued.job_id, caller=BOB, **more)
    with pytest.raises(Conflict):
        master.edit(stimulus, queued.job_id, expected_version=1, **more)
    master.cancel(queued.job_id)
    with pytest.raises(IllegalTransition, match="must be running"):
        master.edit(stimulus, queued.job_id, **more)


def test_a_repeated_signal_is_one(master: Master, agent: SimAgent) -> None:
    key = running(master, [agent])
    for _ in range(2):
        master.edit(SignalJob, key.job_id, signal="USR1", request_id="s")
    agent.obey()
    assert len(agent.words) == 1


def test_all_ranks_are_asked_to_save_under_one_rising_number(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = running(master, [agent, other, agent], 8, nodes=2)
    for _ in range(2):
        master.edit(CheckpointJob, key.job_id)
        master.clock.advance(1.0)
    for each in (agent, other):
        each.obey()
    numbers = [
        [word.number for word in each.words if isinstance(word, Save)] for each in (agent, other)
    ]
    assert numbers[0] == numbers[1]
    assert numbers[0][0] < numbers[0][1]
    agent.save(key, 5)
    agent.report()
    checkpoint = master.job(key.job_id).checkpoint
    assert checkpoint is not None
    assert checkpoint.step == 5
    assert master.attempt(key.job_id).stop_cause is None


def test_a_hold_of_an_operator_is_not_weakened_by_a_requeue(
    master: Master, agent: SimAgent
) -> None:
    key = running(master, [agent])
    root = Caller("root", "admin")
    master.edit(HoldJob, key.job_id, caller=root, kind=HoldKind.ADMIN)
    master.edit(RequeueJob, key.job_id, hold=True)
    agent.obey()
    agent.exit(key, 99)
    agent.report()
    assert master.job(key.job_id).hold is HoldKind.ADMIN


@pytest.mark.parametrize(
    ("stimulus", "words"), [(SignalJob, {"signal": "USR1"}), (CheckpointJob, {})]
)
def test_commands_that_no_agent_takes_do_not_pile_up(
    master: Master,
    agent: SimAgent,
    stimulus: type[SignalJob | CheckpointJob],
    words: dict[str, Any],
) -> None:
    key = running(master, [agent])
    agent.cut()
    for _ in range(MOST_ON_THEIR_WAY):
        master.edit(stimulus, key.job_id, **words)
    before = len(master.events())
    with pytest.raises(TryAgain, match="on their way"):
        master.edit(stimulus, key.job_id, **words)
    assert len(master.events()) == before
    assert len(master.state.attempts.outbox) == MOST_ON_THEIR_WAY
    agent.hello()
    agent.obey()
    master.edit(stimulus, key.job_id, **words)
