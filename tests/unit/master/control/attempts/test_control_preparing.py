"""What a node tells of a rank that it is still preparing becomes an event, once for each new
word.
"""

from dataclasses import replace

from dlq_master.model.ids import AttemptKey
from support.master_harness import Master
from support.sim_agent import SimAgent


def test_a_pull_is_told_as_it_goes_on_and_each_word_once(master: Master, agent: SimAgent) -> None:
    job = master.submit(2)
    agent.obey()
    (plain,) = agent.waiting_reports()
    for number, words in enumerate(
        ("pulling i: 1 of 2 layers", "pulling i: 1 of 2 layers", "pulled i")
    ):
        said = replace(plain, sequence=plain.sequence + number, detail=words)
        agent.send([said], acknowledged=False)
    told = [event.cause for event in master.events(job.job_id) if event.kind == "rank_preparing"]
    assert told == ["pulling i: 1 of 2 layers", "pulled i"]
    assert master.attempt(job.job_id).state == "preparing"


def test_nothing_is_told_of_a_rank_that_runs_or_is_not_wanted(
    master: Master, agent: SimAgent
) -> None:
    job = master.submit(2)
    agent.obey()
    (plain,) = agent.waiting_reports()
    stale = replace(plain, epoch=plain.epoch + 1, detail="pulling something else")
    agent.send([stale], acknowledged=False)
    assert "rank_preparing" not in master.words(job.job_id)
    agent.start(AttemptKey(job.job_id, 1))
    agent.report()
    assert master.state.attempts.preparing == {}
