"""A gang waits at its barrier until every rank is ready; what is too late, or silent, releases
it.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_master.control.config import JobsConfig, MasterConfig
from dlq_master.control.stimuli import Launch
from dlq_master.model.ids import AttemptKey, NodeId
from support.master_harness import Master, config_of
from support.sim_agent import SimAgent

TIMEOUT_S = 60.0


@pytest.fixture
def config() -> MasterConfig:
    jobs = JobsConfig(retry_backoff=Seconds(0.0), barrier_timeout=Seconds(TIMEOUT_S))
    return replace(config_of(), jobs=jobs)


@pytest.fixture
def master(masters: Callable[..., Master], config: MasterConfig) -> Master:
    return masters(config)


def placed(master: Master, *agents: SimAgent) -> AttemptKey:
    """A gang over all GPUs of these agents, which have heard of it."""
    job = master.submit(4 * len(agents), nodes=len(agents))
    for agent in agents:
        agent.obey()
    return AttemptKey(job.job_id, 1)


def wait(master: Master, seconds: float, *speaking: SimAgent) -> None:
    """Time passes; only these are heard."""
    for _ in range(round(seconds / 5.0)):
        master.clock.advance(5.0)
        for agent in speaking:
            agent.heartbeat()
            agent.obey()
            agent.report()
        master.tick()


def launch_of(agent: SimAgent, key: AttemptKey) -> Launch:
    return agent.ranks[key].launch


def test_no_rank_starts_before_the_last_is_ready_and_then_all_do(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = placed(master, agent, other)
    assert launch_of(agent, key).at_barrier
    agent.ready(key, 20_007)
    agent.report()
    agent.obey()
    assert (agent.living(), master.attempt(key.job_id).state) == ([], "preparing")

    other.ready(key)
    other.report()
    for each in (agent, other):
        each.obey()
        each.report()
    assert (agent.living(), other.living()) == ([key], [key])
    assert master.attempt(key.job_id).state == "running"


def test_everybody_hears_the_port_that_was_free_on_the_first_node(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = placed(master, agent, other)
    for each, ports in ((agent, (20_007, 20_008)), (other, (20_100,))):
        each.ready(key, *ports)
        each.report()
    for each in (agent, other):
        each.obey()
        assert launch_of(each, key).master_port == 20_007
        assert launch_of(each, key).node_ports == ((20_007, 20_008), (20_100,))


def test_a_job_on_one_node_knows_no_barrier(master: Master, agent: SimAgent) -> None:
    job = master.submit(4)
    agent.obey()
    assert not launch_of(agent, AttemptKey(job.job_id, 1)).at_barrier


def test_a_node_that_is_late_is_named_and_the_whole_gang_released(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = placed(master, agent, other)
    agent.ready(key)
    agent.report()
    wait(master, TIMEOUT_S - 5, agent, other)
    assert master.attempt(key.job_id).stop_cause is None
    wait(master, 10, agent, other)
    ended = master.ended(key.job_id, 1)
    assert ended.state == "start_failed"
    assert ended.stop_detail == "gpu02: not ready 00:01:00 after the first node of the gang"
    assert ended.first_failed_rank == 1
    assert (agent.living(), other.living()) == ([], [])
    assert "barrier_timeout" in master.words(key.job_id)


def test_a_gang_that_is_being_prepared_everywhere_has_all_the_time_it_needs(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = placed(master, agent, other)
    wait(master, 10 * TIMEOUT_S, agent, other)
    assert master.attempt(key.job_id).stop_cause is None


def test_a_silent_node_does_not_keep_the_others_of_a_gang_that_was_not_let_go(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = placed(master, agent, other)
    agent.ready(key)
    agent.report()
    other.cut()
    wait(master, TIMEOUT_S + 10, agent)
    ended = master.ended(key.job_id, 1)
    assert (ended.state, ended.stop_detail.split(":")[0]) == ("start_failed", "gpu02")
    # It comes back, and must not start what it had prepared.
    other.ready(key)
    other.hello()
    other.report()
    assert other.living() == []
    third = master.submit(8, nodes=2)
    for each in (agent, other):
        each.obey()
    assert AttemptKey(third.job_id, 1) in other.ranks or key.job_id in {
        known.job_id for known in other.ranks if known.number == 2
    }


def test_nobody_is_let_go_while_a_node_of_the_gang_is_silent(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = placed(master, agent, other)
    other.ready(key)
    other.report()
    other.cut()
    wait(master, 30, agent)
    agent.ready(key)
    agent.report()
    agent.obey()
    assert (agent.living(), master.attempt(key.job_id).state) == ([], "unknown")
    other.hello()
    for each in (agent, other):
        each.obey()
        each.report()
    assert master.attempt(key.job_id).state == "running"


def test_a_master_that_restarts_knows_who_is_ready_and_how_long_they_wait(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = placed(master, agent, other)
    agent.ready(key, 20_007)
    agent.report()
    wait(master, TIMEOUT_S / 2, agent, other)
    master.restart()
    agent.hello()
    other.hello()
    wait(master, TIMEOUT_S / 2 + 5, agent, other)
    assert master.ended(key.job_id, 1).state == "start_failed"


def test_a_master_that_dies_just_after_it_let_them_go_says_so_again(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = placed(master, agent, other)
    for each in (agent, other):
        each.ready(key, 20_009)
        each.report()
    master.restart()  # before anybody has read the command
    for each in (agent, other):
        each.hello()
        each.report()
    assert (agent.living(), other.living()) == ([key], [key])
    assert launch_of(other, key).master_port == 20_009


def test_a_rank_that_does_not_start_though_it_was_let_go_ends_the_others(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = placed(master, agent, other)
    for each in (agent, other):
        each.ready(key)
        each.report()
    agent.obey()
    agent.report()
    other.ranks[key].phase = other.ranks[key].phase  # it has not heard
    for _ in range(round(TIMEOUT_S / 5) + 1):
        master.clock.advance(5.0)
        agent.heartbeat()
        other.heartbeat()
        master.tick()
    agent.obey()
    for rank in agent.living():
        agent.exit(rank, 137, "killed")
    agent.report()
    assert agent.living() == []
    attempt = master.attempt(key.job_id)
    assert attempt.stop_cause == "gang_failure"
    assert "not started" in attempt.ranks[1].start_error


def test_what_is_stopped_before_it_was_let_go_is_neither_lost_nor_a_failure(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = placed(master, agent, other)
    agent.ready(key)
    agent.report()
    master.cancel(key.job_id)
    for each in (agent, other):
        each.obey()
        each.report()
    assert master.ended(key.job_id, 1).state == "cancelled"
    assert master.job(key.job_id).infra_failures == 0


def test_nothing_of_a_gang_that_never_was_ready_is_watched_for_ever(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = placed(master, agent, other)
    master.cancel(key.job_id)
    for each in (agent, other):
        each.obey()
        each.report()
    master.tick(1.0)
    assert master.state.attempts.starting == set()
    assert NodeId("gpu01") in master.state.cluster.nodes


def test_a_node_that_says_what_it_is_about_is_waited_for_as_long_as_it_answers(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = placed(master, agent, other)
    agent.ready(key)
    agent.report()
    (plain,) = other.waiting_reports()
    other.send([replace(plain, detail="pulling image: 3 of 7 layers")])
    wait(master, 5 * TIMEOUT_S, agent, other)
    assert master.attempt(key.job_id).stop_cause is None
    other.cut()
    wait(master, 60, agent)
    assert master.ended(key.job_id, 1).stop_detail.startswith("gpu02: not ready")
