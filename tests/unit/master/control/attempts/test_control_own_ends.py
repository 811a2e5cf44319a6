"""Stops that are decided and not told yet when their job ends: by every way in which a master stops
jobs.
"""

from collections.abc import Callable

import pytest

from dlq_master.control.stimuli import (
    AskedDependency,
    AskedTerm,
    PauseJob,
    RequeueJob,
    SetNodeFlags,
)
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.eligible import Relation
from dlq_master.model.jobs.job import JobState
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.resources import Request
from support.lent_servers import asked, lend, server
from support.master_harness import ROOT, Master, config_of
from support.sim_agent import SimAgent
from unit.master.control.attempts.test_control_late_notice import lapsed
from unit.master.control.jobs.test_control_elastic import live, width

Stop = Callable[[Master, JobId], object]


def ends_untold(master: Master, agents: list[SimAgent], key: AttemptKey, code: int) -> None:
    """Nobody hears of the stop; a new master does not know more; then all agents say how it
    ended.
    """
    assert master.attempt(key.job_id).stop_cause is not None
    here = [agent for agent in agents if key in agent.ranks]
    for agent in here:
        assert not agent.ranks[key].noticed
        agent.cut()
        agent.exit(key, code)
    master.clock.advance(3.0)
    master.restart()
    for agent in agents:
        agent.hello()
        agent.report()


def judged(master: Master, key: AttemptKey) -> tuple[JobState, str, str]:
    """The job, its first attempt, and what the story says of that."""
    end = master.ended(key.job_id, 1)
    (told,) = [
        event for event in master.events(key.job_id) if event.kind == f"attempt_{end.state.value}"
    ]
    return master.job(key.job_id).state, end.state.value, told.cause


def running(master: Master, agents: list[SimAgent], nodes: int = 1) -> AttemptKey:
    key = AttemptKey(master.submit(nodes, nodes=nodes).job_id, 1)
    for phase in (SimAgent.ready, SimAgent.start):
        for agent in agents:
            agent.obey()
            if key in agent.ranks and (phase is SimAgent.start or nodes > 1):
                phase(agent, key)
                agent.report()
    assert master.attempt(key.job_id).state == "running"
    return key


@pytest.fixture
def agents(masters: Callable[..., Master]) -> tuple[Master, list[SimAgent]]:
    master = masters(config_of())
    found = [SimAgent(master, NodeId(f"gpu0{number}")) for number in (1, 2)]
    for agent in found:
        agent.hello()
    return master, found


def drained(master: Master, _: JobId) -> None:
    for number in (1, 2):
        master.turn(
            SetNodeFlags(
                caller=ROOT,
                request_id=f"drain{number}",
                node_id=NodeId(f"gpu0{number}"),
                set_flags=frozenset([NodeFlag.DRAINING]),
                clear_flags=frozenset(),
                reason="a test",
            )
        )


STOPS: dict[str, Stop] = {
    "pause": lambda master, job_id: master.edit(PauseJob, job_id),
    "requeue": lambda master, job_id: master.edit(RequeueJob, job_id),
    "drain": drained,
}


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("how", STOPS)
def test_what_was_done_before_people_stopped_it_is_done(
    agents: tuple[Master, list[SimAgent]], how: str, nodes: int
) -> None:
    master, hosts = agents
    key = running(master, hosts, nodes)
    STOPS[how](master, key.job_id)
    ends_untold(master, hosts, key, 0)
    words = f"it ended before it was told to stop ({how})"
    assert judged(master, key) == (JobState.COMPLETED, "succeeded", words)
    assert master.job(key.job_id).exit_code == 0


@pytest.mark.parametrize("how", ["pause", "requeue", "drain"])
def test_what_failed_before_people_stopped_it_has_failed(
    agents: tuple[Master, list[SimAgent]], how: str
) -> None:
    master, hosts = agents
    key = running(master, hosts)
    STOPS[how](master, key.job_id)
    ends_untold(master, hosts, key, 1)
    assert judged(master, key)[:2] == (JobState.FAILED, "failed")


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_cancel_that_was_answered_stands_whatever_the_job_had_done(
    agents: tuple[Master, list[SimAgent]], nodes: int
) -> None:
    master, hosts = agents
    key = running(master, hosts, nodes)
    terms = (AskedTerm(Relation.AFTEROK, key.job_id),)
    after = master.submit(depends=AskedDependency(terms, False, True)).job_id
    master.cancel(key.job_id)
    master.tick(1.0)
    ends_untold(master, hosts, key, 0)
    master.tick(1.0)
    assert judged(master, key)[0] is JobState.CANCELLED
    assert master.job(after).state is JobState.CANCELLED, "what waited for its success never starts"


@pytest.mark.parametrize("tells", [True, False])
def test_an_agent_of_before_does_not_say_what_was_told(
    agents: tuple[Master, list[SimAgent]], tells: bool
) -> None:
    master, hosts = agents
    key = running(master, hosts)
    for agent in hosts:
        agent.tells_unnoticed = tells
    master.edit(PauseJob, key.job_id)
    ends_untold(master, hosts, key, 0)
    state = JobState.COMPLETED if tells else JobState.HELD
    assert master.job(key.job_id).state is state


@pytest.mark.parametrize(("code", "state"), [(0, JobState.COMPLETED), (1, JobState.FAILED)])
def test_a_lapse_that_waits_for_its_boundary(
    masters: Callable[..., Master], code: int, state: JobState
) -> None:
    las = masters(config_of("tiresias-las", thresholds="400"))
    agent = SimAgent(las, NodeId("gpu01"))
    key, _ = lapsed(las, agent)
    ends_untold(las, [agent], key, code)
    assert las.job(key.job_id).state is state
    assert las.job(key.job_id).preemptions == 0


def test_a_resize_that_waits_for_its_boundary(masters: Callable[..., Master]) -> None:
    master = masters(config_of("dlq", cooldown_s="off"))
    hosts = [SimAgent(master, NodeId(name)) for name in ("gpu01", "gpu02")]
    for agent in hosts:
        agent.hello()
    elastic = master.submit(request=Request(gpus=2, sizes=(2, 4, 6, 8))).job_id
    live(master, hosts, until=lambda: width(master, elastic) == 8)
    key = master.attempt(elastic).key
    other = master.submit(4).job_id
    while master.attempt(elastic).stop_cause is None:
        for agent in hosts:
            agent.heartbeat()
        master.tick(1.0)
    ends_untold(master, hosts, key, 0)
    assert master.job(elastic).state is JobState.COMPLETED
    live(master, hosts, until=lambda: width(master, other) == 4)


@pytest.mark.parametrize("force", [False, True])
def test_a_server_that_is_asked_back(masters: Callable[..., Master], force: bool) -> None:
    master = masters(config_of())
    agent = server(master, "inf01")
    lend(master, "inf01")
    agent.answer()
    key = running(master, [agent])
    master.ask(asked("inf01", **({"force": True} if force else {})))
    ends_untold(master, [agent], key, 0)
    assert judged(master, key)[0] is JobState.COMPLETED
