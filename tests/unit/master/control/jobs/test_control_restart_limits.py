"""Limits of restarts by cause, in a master that restarts between two of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import ConfigError
from dlq_master.control.config import JobsConfig
from dlq_master.control.stimuli import ReleaseJob
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import (
    EndReason,
    HoldKind,
    JobState,
    RestartCounts,
    RestartLimits,
    RunRules,
)
from support.master_harness import Master, config_of
from support.sim_agent import SimAgent
from unit.master.control.nodes.test_control_gpu_health import tell


def submitted(master: Master, **limits: int) -> JobId:
    return master.submit(rules=RunRules(limits=RestartLimits(**limits))).job_id


def fails_to_start(master: Master, agent: SimAgent, job_id: JobId) -> None:
    agent.obey()
    agent.fail_start(AttemptKey(job_id, master.job(job_id).live_attempt or 0))
    agent.report()


def exits(master: Master, agent: SimAgent, job_id: JobId, code: int) -> None:
    key = AttemptKey(job_id, master.job(job_id).live_attempt or 0)
    agent.obey()
    agent.start(key)
    agent.report()
    agent.exit(key, code)
    agent.report()


def test_starts_are_counted_across_a_restart_of_the_master(master: Master, agent: SimAgent) -> None:
    job_id = submitted(master, start=4)
    for number in range(4):
        fails_to_start(master, agent, job_id)
        assert master.job(job_id).state is JobState.QUEUED, number
        if number == 1:
            master.restart()
            agent.cut()
            agent.hello()
    assert master.job(job_id).restart_counts == RestartCounts(start=4)

    fails_to_start(master, agent, job_id)
    job = master.job(job_id)
    assert (job.state, job.hold) == (JobState.HELD, HoldKind.POISON)
    assert job.hold_reason == "cause start: 4 of 4 restarts are used up"
    released = master.edit(ReleaseJob, job_id)
    assert released.restart_counts == RestartCounts()


def test_a_failure_on_an_ailing_gpu_counts_against_no_limit_of_errors(
    master: Master, agent: SimAgent
) -> None:
    """The node stays open: one GPU ails, and the job gets another one of it."""
    other = SimAgent(master, NodeId("gpu02"))
    job_id = master.submit(4, rules=RunRules(limits=RestartLimits(gpu=1))).job_id
    key = AttemptKey(job_id, 1)
    agent.obey()
    agent.start(key)
    agent.report()
    tell(agent, "xid_48")
    other.hello()
    agent.exit(key, 3)
    agent.report()

    job = master.job(job_id)
    assert (job.state, job.end_reason) == (JobState.QUEUED, EndReason.USER_ERROR)
    assert (job.restarts, job.restart_counts) == (0, RestartCounts(gpu=1))
    assert job.failed_nodes == (NodeId("gpu01"),)
    exits(master, other, job_id, 3)
    assert master.job(job_id).state is JobState.FAILED, "on GPUs that are well it is an error"


def test_why_says_which_limit_holds_a_job(master: Master, agent: SimAgent) -> None:
    job_id = submitted(master, start=0)
    fails_to_start(master, agent, job_id)
    (reason,) = master.why(job_id).reasons
    assert (reason.code, reason.detail) == ("poison", "cause start: 0 of 0 restarts are used up")


def test_a_site_limits_causes_for_jobs_that_do_not(masters: Callable[..., Master]) -> None:
    jobs = JobsConfig(retry_backoff=Seconds(0.0), restart_limits={"start": 0, "node": 7})
    master = masters(replace(config_of(), jobs=jobs))
    agent = SimAgent(master, NodeId("gpu01"))
    agent.hello()
    held, own = submitted(master), submitted(master, start=1)
    for job_id in (held, own):
        fails_to_start(master, agent, job_id)
    assert master.job(held).state is JobState.HELD
    assert master.job(own).state is JobState.QUEUED
    assert master.job(own).rules.limits == RestartLimits(node=7, start=1)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"disk": 1}, "jobs.restart_limits.disk: a cause is one of node, gpu, preemption, start"),
        ({"error": 1}, "jobs.restart_limits.error: a cause is one of"),
        ({"node": -1}, "jobs.restart_limits.node: -1 is not between 0 and 100"),
    ],
)
def test_a_setting_that_no_job_may_have_is_refused(limits: dict[str, int], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        JobsConfig(restart_limits=limits).limited(RestartLimits())
    assert told in str(caught.value)
