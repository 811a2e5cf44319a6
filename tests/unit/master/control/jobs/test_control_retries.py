"""Attempts that fail by the cluster's fault: later, elsewhere, and not for ever."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_master.control.config import JobsConfig
from dlq_master.control.stimuli import FenceNode, ReleaseJob, SetNodeFlags
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import HoldKind, JobState
from dlq_master.model.nodes.node import NodeFlag
from support.master_harness import ROOT, Master, config_of
from support.running import running
from support.sim_agent import SimAgent
from unit.master.control.nodes.test_control_nodes import silence


@pytest.fixture
def patient(masters: Callable[..., Master]) -> Master:
    """A master that waits 10 s before it tries again, then 20 s, then 40 s."""
    return masters(replace(config_of(), jobs=JobsConfig(retry_backoff=Seconds(10.0))))


def nodes(master: Master, *names: str) -> dict[str, SimAgent]:
    """Agents with four GPUs each that have said hello."""
    agents = {name: SimAgent(master, NodeId(name)) for name in names}
    for agent in agents.values():
        agent.hello()
    return agents


def fail_where_it_is(master: Master, agents: dict[str, SimAgent], job_id: JobId) -> str:
    """The living attempt cannot be started by its node; returns where that was."""
    attempt = master.attempt(job_id)
    (slot,) = attempt.lease.allocation.slots
    agent = agents[slot.node_id]
    agent.obey()
    agent.fail_start(attempt.key, "no space left on device")
    agent.report()
    return str(slot.node_id)


def later(master: Master, agents: dict[str, SimAgent], seconds: float) -> None:
    """Time passes, and all agents are heard."""
    silence(master, seconds, *agents.values())


def codes(master: Master, job_id: JobId) -> list[str]:
    return [reason.code.value for reason in master.why(job_id).reasons]


def test_three_failures_on_three_nodes_hold_the_job_as_poison(master: Master) -> None:
    agents = nodes(master, "gpu01", "gpu02", "gpu03", "gpu04")
    job_id = master.submit().job_id
    tried = [fail_where_it_is(master, agents, job_id) for _ in range(3)]

    assert len(set(tried)) == 3, tried
    job = master.job(job_id)
    assert (job.state, job.hold, job.failed_nodes) == (
        JobState.HELD,
        HoldKind.POISON,
        tuple(tried),
    )
    assert codes(master, job_id) == ["poison"]


def test_with_fewer_nodes_three_failures_are_enough(master: Master) -> None:
    agents = nodes(master, "gpu01", "gpu02")
    job_id = master.submit().job_id
    tried = [fail_where_it_is(master, agents, job_id) for _ in range(3)]
    assert tried[0] != tried[1]
    assert master.job(job_id).hold is HoldKind.POISON


def test_a_release_gives_it_all_its_chances_again(master: Master) -> None:
    agents = nodes(master, "gpu01")
    job_id = master.submit().job_id
    for _ in range(3):
        fail_where_it_is(master, agents, job_id)
    job = master.edit(ReleaseJob, job_id)
    assert (job.infra_failures, job.failed_nodes, job.request.avoid) == (0, (), ())
    assert master.job(job_id).live_attempt == 4


def test_it_waits_before_it_is_tried_again_and_longer_each_time(patient: Master) -> None:
    agents = nodes(patient, "gpu01", "gpu02")
    job_id = patient.submit().job_id
    first = fail_where_it_is(patient, agents, job_id)
    assert patient.job(job_id).live_attempt is None
    (reason,) = patient.why(job_id).reasons
    assert (reason.code, reason.have, reason.detail) == ("backoff", 10.0, first)
    later(patient, agents, 9.0)
    assert patient.job(job_id).live_attempt is None
    later(patient, agents, 1.0)
    assert patient.job(job_id).live_attempt == 2
    assert fail_where_it_is(patient, agents, job_id) != first
    later(patient, agents, 19.0)
    assert patient.job(job_id).live_attempt is None
    later(patient, agents, 1.0)
    assert patient.job(job_id).live_attempt == 3


def test_a_restart_of_the_master_neither_forgets_the_wait_nor_the_node(patient: Master) -> None:
    agents = nodes(patient, "gpu01", "gpu02")
    job_id = patient.submit().job_id
    first = fail_where_it_is(patient, agents, job_id)
    later(patient, agents, 4.0)
    patient.restart()
    for agent in agents.values():
        agent.hello()
    assert patient.job(job_id).live_attempt is None
    later(patient, agents, 6.0)
    assert patient.job(job_id).live_attempt == 2
    assert patient.attempt(job_id).lease.allocation.node_ids != (first,)


def test_a_held_job_stays_held_when_its_time_has_come(patient: Master) -> None:
    agents = nodes(patient, "gpu01")
    job_id = patient.submit().job_id
    fail_where_it_is(patient, agents, job_id)
    patient.hold(job_id)
    later(patient, agents, 15.0)
    assert patient.job(job_id).live_attempt is None
    patient.edit(ReleaseJob, job_id)
    assert patient.job(job_id).live_attempt == 2


def test_while_the_other_nodes_are_full_it_waits_for_them_and_says_so(master: Master) -> None:
    agents = nodes(master, "gpu01", "gpu02")
    other = running(master, agents["gpu01"], gpus=4)
    job_id = master.submit(2).job_id
    assert fail_where_it_is(master, agents, job_id) == "gpu02"

    assert codes(master, job_id)[0] == "failed_nodes"
    assert master.why(job_id).reasons[0].detail == "gpu02"
    assert master.loop.published.wait_code(master.job(job_id), 0.0) == "failed_nodes"
    beside = master.submit(2).job_id
    assert master.attempt(beside).lease.allocation.node_ids == ("gpu02",), "others may go there"
    agents["gpu01"].exit(other)
    agents["gpu01"].report()
    assert master.attempt(job_id).lease.allocation.node_ids == ("gpu01",)


def test_when_no_other_node_is_there_it_may_go_where_it_failed(master: Master) -> None:
    agents = nodes(master, "gpu01", "gpu02")
    running(master, agents["gpu01"], gpus=4)
    job_id = master.submit(2).job_id
    fail_where_it_is(master, agents, job_id)
    flags = SetNodeFlags(
        caller=ROOT,
        request_id="",
        node_id=NodeId("gpu01"),
        set_flags=frozenset({NodeFlag.CORDONED}),
        clear_flags=frozenset(),
        reason="fan",
    )
    master.ask(flags)
    assert master.attempt(job_id).lease.allocation.node_ids == ("gpu02",)
    assert "job_avoids" in master.words(job_id)


def test_a_node_that_is_late_for_a_moment_still_counts_as_there(master: Master) -> None:
    agents = nodes(master, "gpu01", "gpu02")
    running(master, agents["gpu01"], gpus=4)
    job_id = master.submit(2).job_id
    fail_where_it_is(master, agents, job_id)
    silence(master, 21.0, agents["gpu02"])
    assert master.node("gpu01").state == "suspect"
    assert master.job(job_id).live_attempt is None
    silence(master, 6.0, agents["gpu02"])
    assert master.job(job_id).live_attempt == 2


def test_a_gang_avoids_only_the_node_that_failed(master: Master) -> None:
    agents = nodes(master, "gpu01", "gpu02", "gpu03")
    job_id = master.submit(8, nodes=2).job_id
    key = AttemptKey(job_id, 1)
    for name in ("gpu01", "gpu02"):
        agents[name].obey()
    agents["gpu01"].start(key)
    agents["gpu01"].report()
    agents["gpu02"].fail_start(key)
    agents["gpu02"].report()
    agents["gpu01"].obey()
    agents["gpu01"].exit(key, 137)
    agents["gpu01"].report()

    assert master.job(job_id).failed_nodes == ("gpu02",)
    assert master.attempt(job_id).lease.allocation.node_ids == ("gpu01", "gpu03")


def test_a_node_that_was_lost_is_avoided_when_it_is_back(master: Master) -> None:
    agents = nodes(master, "gpu01", "gpu02")
    key = running(master, agents["gpu01"], gpus=4)
    blocker = running(master, agents["gpu02"], gpus=4)
    silence(master, 21.0, agents["gpu02"])
    master.ask(FenceNode(caller=ROOT, request_id="f", node_id=NodeId("gpu01"), reason="off"))
    agents["gpu01"].reboot()
    agents["gpu01"].hello()
    assert master.job(key.job_id).live_attempt is None
    assert codes(master, key.job_id)[0] == "failed_nodes"
    agents["gpu02"].exit(blocker)
    agents["gpu02"].report()
    assert master.attempt(key.job_id).lease.allocation.node_ids == ("gpu02",)


def test_after_it_was_preempted_in_good_order_nothing_is_held_against_a_node(
    master: Master,
) -> None:
    agents = nodes(master, "gpu01", "gpu02")
    job_id = master.submit(4).job_id
    failed = fail_where_it_is(master, agents, job_id)
    other = "gpu02" if failed == "gpu01" else "gpu01"
    key = AttemptKey(job_id, 2)
    agents[other].obey()
    agents[other].start(key)
    agents[other].report()
    drain = SetNodeFlags(
        caller=ROOT,
        request_id="",
        node_id=NodeId(other),
        set_flags=frozenset({NodeFlag.DRAINING}),
        clear_flags=frozenset(),
        reason="fan",
    )
    master.ask(drain)
    agents[other].obey()
    agents[other].exit(key, 99)
    agents[other].report()

    assert master.job(job_id).failed_nodes == ()
    assert master.attempt(job_id).lease.allocation.node_ids == (failed,)


@pytest.mark.parametrize("code", [1, 126, 127])
def test_a_users_own_failure_is_no_fault_of_any_node(master: Master, code: int) -> None:
    agents = nodes(master, "gpu01", "gpu02")
    key = running(master, agents["gpu01"], gpus=1)
    agents["gpu01"].exit(key, code)
    agents["gpu01"].report()
    job = master.job(key.job_id)
    assert (job.state, job.exit_code, job.failed_nodes) == (JobState.FAILED, code, ())


@pytest.mark.parametrize(("ran_s", "saved"), [(3600.0, False), (30.0, True)])
def test_an_attempt_that_got_on_clears_the_failures_before_it(
    masters: Callable[..., Master], ran_s: float, saved: bool
) -> None:
    master = masters(replace(config_of(), jobs=JobsConfig(retry_backoff=Seconds(0.0))))
    agents = nodes(master, "gpu01", "gpu02")
    job_id = master.submit().job_id
    for _ in range(2):
        fail_where_it_is(master, agents, job_id)
    assert master.job(job_id).infra_failures == 2

    key = AttemptKey(job_id, 3)
    agent = agents[master.attempt(job_id).ranks[0].node_id]
    agent.obey()
    agent.start(key)
    agent.report()
    if saved:
        agent.save(key, 7)
        agent.report()
    later(master, agents, ran_s)
    agent.vanish(key)
    agent.report()
    job = master.job(job_id)
    assert (job.infra_failures, job.state, job.live_attempt) == (1, JobState.QUEUED, 4)


def test_what_an_operator_fences_is_no_failure_of_the_job(
    masters: Callable[..., Master],
) -> None:
    master = masters(config_of())
    agents = nodes(master, "gpu01", "gpu02")
    job_id = master.submit().job_id
    node_id = master.attempt(job_id).ranks[0].node_id
    agents[node_id].obey()
    agents[node_id].start(AttemptKey(job_id, 1))
    agents[node_id].report()
    agents[node_id].cut()
    others = {name: agent for name, agent in agents.items() if name != node_id}
    later(master, others, 60.0)
    master.ask(FenceNode(caller=ROOT, request_id="f", node_id=node_id, reason="off"))
    job = master.job(job_id)
    assert (job.infra_failures, job.failed_nodes, job.live_attempt) == (0, (node_id,), 2)
