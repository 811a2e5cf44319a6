"""The queue of interactive jobs: its limits, its floor, and what its owners are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dlq_common.daemon.config import Seconds, load_config
from dlq_common.errors import ConfigError, QuotaExceeded
from dlq_master.app import _checked
from dlq_master.control.config import InteractiveConfig, MasterConfig, QueueConfig
from dlq_master.control.people.queues import in_order
from dlq_master.control.stimuli import Caller, Heartbeat, SetPolicy, Stop, ToldGpu, UpdateJob
from dlq_master.control.stimuli.nodes import ToldLoad
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.resources import Request
from dlq_master.model.why import ReasonCode
from dlq_master.rpc.cluster.facts_service import _queue
from support.master_harness import ALICE, Master, config_of
from support.sim_agent import SimAgent

Masters = Callable[..., Master]
ROOT = Caller("root", "admin")


def config(**limits: Any) -> MasterConfig:
    queues = (QueueConfig("default", priority=9), QueueConfig("desk"))
    interactive = InteractiveConfig(queue="desk", **limits)
    return replace(config_of("dlq", be_floor="0"), queues=queues, interactive=interactive)


def a_site(masters: Masters, **limits: Any) -> tuple[Master, SimAgent]:
    master = masters(config(**limits))
    agent = SimAgent(master, NodeId("n1"), gpus=8)
    agent.hello()
    return master, agent


def running(master: Master, agent: SimAgent, gpus: int = 1, **more: Any) -> AttemptKey:
    key = AttemptKey(master.submit(gpus, queue="desk", **more).job_id, 1)
    agent.obey()
    agent.start(key)
    agent.report()
    return key


def edit(master: Master, job_id: JobId, **wish: Any) -> Job:
    changed: Any = master.edit(UpdateJob, job_id, expected_version=0, **wish)
    return master.job(changed.job.job_id)


def test_it_is_served_first_whatever_the_priorities_say() -> None:
    assert in_order(config()) == ["desk", "default"]


def test_a_job_without_a_time_limit_gets_that_of_the_class(masters: Masters) -> None:
    master, _ = a_site(masters, time_limit=Seconds(3600.0), max_time=Seconds(7200.0))
    assert master.submit(1, queue="desk").time_limit_s == 3600.0
    assert master.submit(1, queue="desk", time_limit_s=7200.0).time_limit_s == 7200.0
    assert master.submit(1).time_limit_s is None
    with pytest.raises(QuotaExceeded, match="may run 02:00:00 at most"):
        master.submit(1, queue="desk", time_limit_s=7201.0)


def test_gpus_per_job_and_per_user_are_limited(masters: Masters) -> None:
    master, _ = a_site(masters, gpus_per_job=2, gpus_per_user=3)
    with pytest.raises(QuotaExceeded, match="2 GPUs at most"):
        master.submit(3, queue="desk")
    first = master.submit(2, queue="desk")
    with pytest.raises(QuotaExceeded, match="in queue desk: jobs there have 2") as told:
        master.submit(2, queue="desk")
    assert told.value.metadata["queue"] == "desk"
    assert master.submit(1, queue="desk").job_id
    assert master.submit(2, queue="desk", caller=Caller("bob", "user")).job_id
    master.cancel(first.job_id)
    assert master.submit(2, queue="desk").job_id


def test_limits_per_user_hold_after_a_restart_of_the_master(masters: Masters) -> None:
    master, agent = a_site(masters, gpus_per_user=2)
    running(master, agent, 2)
    master.restart()
    with pytest.raises(QuotaExceeded, match="have 2 GPUs"):
        master.submit(1, queue="desk")


def test_a_job_that_moves_into_the_queue_meets_its_limits(masters: Masters) -> None:
    master, _ = a_site(masters, gpus_per_job=2, gpus_per_user=2)
    wide, slim = (master.submit(gpus, begin_time_s=1e10) for gpus in (4, 2))
    with pytest.raises(QuotaExceeded, match="2 GPUs at most"):
        edit(master, wide.job_id, queue="desk")
    moved = edit(master, slim.job_id, queue="desk")
    assert moved.time_limit_s == 28_800.0
    with pytest.raises(QuotaExceeded, match="08:00:00 at most"):
        edit(master, slim.job_id, time_limit_s=30_000.0)
    edit(master, slim.job_id, caller=ROOT, time_limit_s=30_000.0)
    edit(master, slim.job_id, queue="default")
    assert master.submit(2, queue="desk").job_id


def test_two_jobs_that_move_into_the_queue_in_one_turn_count_both(masters: Masters) -> None:
    master, _ = a_site(masters, gpus_per_user=2)
    jobs = [master.submit(2, begin_time_s=1e10) for _ in range(2)]
    moves = [
        UpdateJob(
            caller=ALICE, request_id=f"r{job.job_id}", job_id=job.job_id, expected_version=0,
            queue="desk",
        )
        for job in jobs
    ]  # fmt: skip
    _, refused = master.turn(*moves)
    assert isinstance(refused, QuotaExceeded)
    assert [master.job(job.job_id).queue for job in jobs] == ["desk", "default"]


def test_an_elastic_job_counts_with_its_largest_size(masters: Masters) -> None:
    master, _ = a_site(masters, gpus_per_job=4, gpus_per_user=5)
    with pytest.raises(QuotaExceeded, match="4 GPUs at most"):
        master.submit(request=Request(gpus=1, sizes=(1, 2, 8)), queue="desk")
    grows = master.submit(request=Request(gpus=1, sizes=(1, 2, 4)), queue="desk", begin_time_s=1e10)
    with pytest.raises(QuotaExceeded, match="jobs there have 4"):
        master.submit(2, queue="desk")
    with pytest.raises(QuotaExceeded, match="4 GPUs at most"):
        edit(master, grows.job_id, sizes=(1, 8))
    assert master.submit(1, queue="desk").job_id


def test_the_floor_is_kept_by_the_policy_and_survives_another_choice(masters: Masters) -> None:
    master, _ = a_site(masters, floor=4.0)
    assert master.state.policy.settings["queue_floor"] == "desk:4"
    jobs = [master.submit(2, run_estimate_s=1e5) for _ in range(3)]
    codes = {reason.code for reason in master.why(jobs[2].job_id).reasons}
    assert codes == {ReasonCode.KEPT_FOR_QUEUE}
    master.ask(SetPolicy(caller=ROOT, request_id="", policy="dlq", settings=(("be_floor", "0.5"),)))
    assert master.state.policy.queue_floor is not None
    master.ask(SetPolicy(caller=ROOT, request_id="", policy="fifo", settings=()))
    assert master.state.policy.queue_floor is None, "a policy that keeps no floor"


def test_the_owner_is_warned_before_the_wall_limit_and_no_signal_comes(masters: Masters) -> None:
    master, agent = a_site(masters, warning=Seconds(60.0))
    key = running(master, agent, time_limit_s=200.0)
    for _ in range(15):
        master.clock.advance(10.0)
        agent.heartbeat()
        master.tick()
    agent.obey()
    assert "attempt_warned" in master.words(key.job_id)
    assert agent.words == []
    master.clock.advance(60.0)
    agent.heartbeat()
    master.tick()
    (stop,) = [one for _, one in master.wires.sent[agent.node_id] if isinstance(one, Stop)]
    assert stop.cause == "time_limit"
    assert stop.grace_s != 30.0, "its whole grace: nobody has told the job to save"


def test_an_idle_job_is_told_whatever_rules_exempt(masters: Masters) -> None:
    master, agent = a_site(masters, idle_window=Seconds(600.0), idle_action="cancel")
    key = running(master, agent)
    for _ in range(25):
        master.clock.advance(30.0)
        agent.heartbeat()
        load = ToldLoad(30.0, 30.0, 0.0, 0, 300, 1700)
        told = tuple(ToldGpu(index, load=load) for index in range(8))
        assert agent.session_id is not None
        master.turn(Heartbeat(node_id=agent.node_id, session_id=agent.session_id, health=told))
        master.tick()
    (event,) = [one for one in master.events(key.job_id) if one.kind == "job_idle"]
    assert event.cause.endswith("of [interactive]")
    assert any(isinstance(one, Stop) for _, one in master.wires.sent[agent.node_id])


def test_everybody_sees_the_limits(masters: Masters) -> None:
    master, _ = a_site(masters, gpus_per_job=2, floor=0.25)
    first, second = map(_queue, master.loop.published.queues())
    assert (first.name, first.interactive.gpus_per_job_count) == ("desk", 2)
    assert first.interactive.floor_gpus == 0.25
    assert first.interactive.max_time_limit_duration.seconds == 28_800
    assert not first.interactive.HasField("gpus_per_user_count")
    assert not second.HasField("interactive")


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ('queue = "dsk"', "interactive.queue"),
        ("floor = 2", "interactive.floor"),
        ('queue = "default"\nfloor = 1.5', "interactive.floor"),
        ('queue = "default"\ntime_limit = "9h"', "interactive.time_limit"),
        ('queue = "default"\ngpus_per_user = -1', "interactive.gpus_per_user"),
        ('queue = "default"\nidle_action = "kill"', "interactive.idle_action"),
    ],
)
def test_a_wrong_value_stops_the_master_at_its_start(tmp_path: Any, words: str, key: str) -> None:
    path = tmp_path / "master.toml"
    path.write_text(f"[interactive]\n{words}\n")
    with pytest.raises(ConfigError, match=key):
        _checked(load_config(MasterConfig, path, {}))
