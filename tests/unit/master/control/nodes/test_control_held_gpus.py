"""A job has ended when it has ended; its GPUs are nobody's until they are proven free."""

from dlq_master.model.ids import AttemptKey
from dlq_master.model.nodes.node import NodeFlag
from support.master_harness import Master
from support.sim_agent import SimAgent

EARLY = "gpu_releasing"
LATE = "gpu_not_released: GPU-0: 900 MB used, processes: 17"


def started(
    master: Master, agent: SimAgent, gpus: int = 4, limit_s: float | None = None
) -> AttemptKey:
    key = AttemptKey(master.submit(gpus, time_limit_s=limit_s).job_id, 1)
    agent.obey()
    agent.start(key)
    agent.report()
    return key


def end_with_held_gpus(agent: SimAgent, key: AttemptKey, code: int, why: str = EARLY) -> None:
    agent.exit(key, code)
    agent.hold_gpus(key, why)
    agent.report()


def test_the_job_ends_at_once_and_its_gpus_are_given_to_nobody(
    master: Master, agent: SimAgent
) -> None:
    key = started(master, agent)
    end_with_held_gpus(agent, key, 6)
    job = master.job(key.job_id)
    assert (job.state, job.exit_code, job.live_attempt) == ("failed", 6, None)
    node = master.node("gpu01")
    assert node.strayed == {0, 1, 2, 3}
    assert node.stray_reason == f"{key} has ended, its GPUs are not free: {EARLY}"
    waiting = master.submit(1).job_id
    assert master.job(waiting).live_attempt is None

    agent.hold_gpus(key, "")
    agent.report()
    assert master.node("gpu01").strayed == frozenset()
    assert master.job(waiting).live_attempt == 1
    assert master.words(key.job_id).count("rank_exited") == 1


def test_the_other_gpus_of_the_node_go_on_working_until_it_takes_too_long(
    master: Master, agent: SimAgent
) -> None:
    key = started(master, agent, gpus=2)
    end_with_held_gpus(agent, key, 0)
    assert master.node("gpu01").flags == frozenset()
    other = master.submit(2).job_id
    assert master.attempt(other).lease.allocation.slots[0].mask == 0b1100

    agent.hold_gpus(key, LATE)
    agent.report()
    assert master.node("gpu01").flags == {NodeFlag.CLEANING}
    assert master.node("gpu01").flag_reason == f"{key}: {LATE}"
    agent.hold_gpus(key, "")
    agent.report()
    assert master.node("gpu01").flags == frozenset()


def test_no_time_limit_and_no_cancel_changes_an_end_that_has_been_told(
    master: Master, agent: SimAgent
) -> None:
    key = started(master, agent, limit_s=100.0)
    end_with_held_gpus(agent, key, 0)
    for _ in range(30):
        master.tick(10.0)
        agent.heartbeat()
    ended = master.job(key.job_id)
    assert (ended.state, ended.exit_code) == ("completed", 0)
    assert master.cancel(key.job_id) == ended
    agent.hold_gpus(key, "")
    agent.report()
    assert master.job(key.job_id) == ended
    assert "attempt_stop_requested" not in master.words(key.job_id)


def test_what_a_restart_of_the_master_finds_is_held_until_the_agent_has_spoken(
    master: Master, agent: SimAgent
) -> None:
    key = started(master, agent)
    end_with_held_gpus(agent, key, 0)
    master.restart()
    waiting = master.submit(1).job_id
    assert master.node("gpu01").strayed == {0, 1, 2, 3}
    agent.cut()
    agent.hello()
    assert master.node("gpu01").strayed == {0, 1, 2, 3}
    assert master.job(waiting).live_attempt is None
    agent.hold_gpus(key, "")
    agent.report()
    assert master.job(waiting).live_attempt == 1


def test_gpus_of_an_ended_rank_stay_held_when_its_gang_ends_later(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = AttemptKey(master.submit(8, nodes=2).job_id, 1)
    for one in (agent, other):
        one.obey()
        one.start(key)
        one.report()
    end_with_held_gpus(agent, key, 0)
    assert master.attempt(key.job_id).state == "running"
    other.exit(key, 0)
    other.report()
    assert master.job(key.job_id).state == "completed"
    waiting = [master.submit(4).job_id for _ in range(2)]
    assert [master.job(it).live_attempt for it in waiting] == [1, None]
    assert master.node("gpu02").strayed == frozenset()


def test_an_agent_that_has_not_looked_again_after_its_restart_gives_nothing_back(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = AttemptKey(master.submit(8, nodes=2).job_id, 1)
    for one in (agent, other):
        one.obey()
        one.start(key)
        one.report()
    end_with_held_gpus(agent, key, 0)
    agent.cut()
    said = agent.ranks[key].phase
    agent.cling(key, "")  # it has found the end again, and knows no more
    agent.hello()
    other.exit(key, 0)
    other.report()
    assert master.job(key.job_id).state == "completed"
    assert master.node("gpu01").strayed == {0, 1, 2, 3}
    agent.ranks[key].phase = said
    agent.hold_gpus(key, "")
    agent.report()
    assert master.node("gpu01").strayed == frozenset()


def test_gpus_that_are_not_named_close_the_whole_node(master: Master, agent: SimAgent) -> None:
    agent.tells_gpus = False
    key = started(master, agent)
    end_with_held_gpus(agent, key, 0)
    assert master.job(key.job_id).state == "completed"
    assert master.node("gpu01").flags == {NodeFlag.CLEANING}
