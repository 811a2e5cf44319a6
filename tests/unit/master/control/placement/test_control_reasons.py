"""Why jobs wait, as a list shows it: one word a job, as of the last plan."""

from collections.abc import Callable
from dataclasses import replace

from dlq_common.daemon.config import Seconds
from dlq_master.control.config import NodesConfig
from dlq_master.control.placement.scheduling import MOST_LOOKED_AT
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.why import ReasonCode
from support.master_harness import Master, config_of
from support.sim_agent import SimAgent


def code(master: Master, job_id: JobId) -> ReasonCode | None:
    return master.loop.published.wait_code(master.job(job_id), master.clock.now_s())


def test_the_word_follows_every_plan(master: Master, agent: SimAgent) -> None:
    first, second = master.submit(4).job_id, master.submit(2).job_id
    assert (code(master, first), code(master, second)) == (None, ReasonCode.RESOURCES)
    master.hold(second)
    assert code(master, second) is ReasonCode.HELD_USER
    key = AttemptKey(first, 1)
    agent.obey()
    agent.start(key)
    agent.exit(key)
    agent.report()
    assert (code(master, first), code(master, second)) == (None, ReasonCode.HELD_USER)


def test_a_list_and_an_explanation_agree(master: Master, agent: SimAgent) -> None:
    for gpus in (4, 2, 1, 3):
        job_id = master.submit(gpus).job_id
        reasons = master.why(job_id).reasons
        assert code(master, job_id) is (reasons[0].code if reasons else None)


def test_while_the_master_waits_for_its_nodes_every_job_says_so(
    masters: Callable[..., Master],
) -> None:
    master = masters(replace(config_of(), nodes=NodesConfig(start_grace=Seconds(60.0))))
    agent = SimAgent(master, NodeId("gpu01"))
    agent.hello()
    master.restart()
    job_id = master.submit().job_id
    assert code(master, job_id) is ReasonCode.MASTER_STARTING
    assert master.loop.published.freeze_reason().startswith("the master has just started")
    master.tick(61.0)
    assert code(master, job_id) is not ReasonCode.MASTER_STARTING
    assert master.loop.published.freeze_reason() == ""


def test_a_submit_names_who_is_in_the_way_while_few_run(master: Master) -> None:
    agent = SimAgent(master, NodeId("gpu01"), gpus=MOST_LOOKED_AT + 1)
    agent.hello()
    master.turn(*(master.submission(1) for _ in range(MOST_LOOKED_AT)))
    few = master.ask(master.submission(2))
    assert few.reasons[0].blocking_jobs
    master.submit(1)
    (reason,) = master.ask(master.submission(2)).reasons
    assert (reason.code, reason.need, reason.blocking_jobs) == (ReasonCode.RESOURCES, 2, ())
    assert master.why(few.job.job_id).reasons[0].blocking_jobs, "who asks is told"
