"""What is heard late of how a rank ended puts the record right and decides nothing anew."""

from dlq_master.control.stimuli import FenceNode
from dlq_master.model.ids import AttemptKey
from support.master_harness import ROOT, Master
from support.sim_agent import SimAgent


def a_running_pair(master: Master, agent: SimAgent, other: SimAgent) -> AttemptKey:
    key = AttemptKey(master.submit(8, nodes=2).job_id, 1)
    for one in (agent, other):
        one.obey()
        one.start(key)
        one.report()
    return key


def pass_time(master: Master, agent: SimAgent, seconds: int) -> None:
    """One agent is heard, the other is silent."""
    for _ in range(seconds):
        master.tick(1.0)
        agent.heartbeat()


def test_a_rank_that_failed_unheard_is_named_when_its_node_returns(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = a_running_pair(master, agent, other)
    other.cut()
    other.exit(key, 9)
    pass_time(master, agent, 2)
    agent.exit(key, 1)
    agent.report()
    assert master.attempt(key.job_id).first_failed_rank == 0, "nobody else is known to have failed"
    pass_time(master, agent, 40)
    other.hello()

    ended, job = master.ended(key.job_id, 1), master.job(key.job_id)
    assert (ended.first_failed_rank, ended.exit_code) == (1, 9)
    assert (job.state, job.exit_code) == ("failed", 9)
    told = [it for it in master.events(key.job_id) if it.kind == "first_failure_corrected"]
    assert [(it.node_id, it.data["node_rank"], it.data["exit_code"]) for it in told] == [
        ("gpu02", 1, 9)
    ]


def test_how_a_lost_rank_ended_is_written_down_once_and_changes_no_verdict(
    master: Master, agent: SimAgent, other: SimAgent
) -> None:
    key = a_running_pair(master, agent, other)
    other.cut()
    other.exit(key, 9)
    pass_time(master, agent, 25)
    master.ask(FenceNode(caller=ROOT, request_id="f", node_id=other.node_id, reason="off"))
    agent.obey()
    agent.exit(key, 137, "killed")
    agent.report()
    before = master.ended(key.job_id, 1)
    assert (before.state, before.ranks[1].lost) == ("node_lost", True)
    job = master.job(key.job_id)
    other.hello()

    after = master.ended(key.job_id, 1)
    assert (after.ranks[1].exit_code, after.ranks[1].lost) == (9, False)
    assert after.first_failed_rank == 1
    assert (after.state, after.end_reason) == (before.state, before.end_reason)
    assert (master.job(key.job_id).restarts, master.job(key.job_id).end_time_s) == (
        job.restarts,
        job.end_time_s,
    )
    other.cut()
    other.ranks[key].confirmed = False  # the acknowledgement was lost
    other.hello()
    assert master.words(key.job_id).count("rank_told_late") == 1
