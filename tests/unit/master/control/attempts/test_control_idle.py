"""Rules of [[idle]] over a master and agents: what is told, what is done, what never is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from dlq_cli.lists.story import use_text
from dlq_common.daemon.config import Seconds
from dlq_common.errors import ConfigError
from dlq_common.text.wire import from_duration
from dlq_master.control.activity_config import IdleConfig, StallConfig
from dlq_master.control.config import MasterConfig, QueueConfig
from dlq_master.control.stimuli import Heartbeat, ToldGpu
from dlq_master.control.stimuli.nodes import ToldLoad, ToldUse
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs.job import HoldKind, RunRules
from dlq_master.model.resources import CORE_TYPE, Request
from dlq_master.rpc.views.job_view import add_figures, job_message
from support.counted_calls import counted_calls
from support.master_harness import Master, config_of
from support.running import running
from support.sim_agent import SimAgent

HALF_HOUR = 1800.0
EVERY_S = 30.0
GIB = 1 << 30


def rule(action: str = "notify", **more: Any) -> IdleConfig:
    return IdleConfig(**{"action": action, "dry_run": False, **more})


def config(*rules: IdleConfig) -> MasterConfig:
    return replace(config_of(), idle=rules)


@dataclass
class Site:
    """A master with one node, or more, that report a use of all their GPUs every 30 s."""

    master: Master
    agents: list[SimAgent]

    def report(
        self, use: float, *, seen: float = 1.0, agents: list[SimAgent] | None = None
    ) -> None:
        """Time passes, and these agents tell of it."""
        self.master.clock.advance(EVERY_S)
        for agent in self.agents if agents is None else agents:
            agent.heartbeat()
            assert agent.session_id is not None
            load = ToldLoad(EVERY_S, EVERY_S * seen, 100.0 * use, round(100 * use), 300, 1700)
            told = tuple(
                ToldGpu(index, used_memory_bytes=GIB, load=load) for index in range(agent.gpus)
            )
            self.master.turn(
                Heartbeat(node_id=agent.node_id, session_id=agent.session_id, health=told)
            )
        self.master.tick()

    def for_s(self, seconds: float, use: float, **more: Any) -> None:
        for _ in range(round(seconds / EVERY_S)):
            self.report(use, **more)

    def told(self, *kinds: str) -> list[str]:
        wanted = kinds or ("job_idle", "job_idle_seen", "job_idle_over")
        return [event.kind for event in self.master.events() if event.kind in wanted]


@pytest.fixture
def site(masters: Callable[..., Master]) -> Callable[..., Site]:
    def make(*rules: IdleConfig, nodes: int = 1) -> Site:
        master = masters(config(*rules))
        agents = [SimAgent(master, NodeId(f"gpu{number:02d}")) for number in range(nodes)]
        for agent in agents:
            agent.hello()
        return Site(master, agents)

    return make


def test_an_idle_job_is_told_once_after_its_window_and_again_after_it_has_worked(
    site: Callable[..., Site],
) -> None:
    cluster = site(rule())
    running(cluster.master, *cluster.agents)
    cluster.for_s(HALF_HOUR - EVERY_S, 0.0)
    assert cluster.told() == []
    cluster.for_s(600.0, 0.0)
    assert cluster.told() == ["job_idle"]
    cluster.for_s(600.0, 0.9)
    assert cluster.told() == ["job_idle", "job_idle_over"]
    cluster.for_s(HALF_HOUR + 120.0, 0.0)
    assert cluster.told() == ["job_idle", "job_idle_over", "job_idle"]


def test_a_rule_with_a_long_window_makes_none_with_a_short_one_late(
    site: Callable[..., Site],
) -> None:
    cluster = site(rule(window=Seconds(600.0)), rule("warn", window=Seconds(7 * 86_400.0)))
    running(cluster.master, *cluster.agents)
    cluster.for_s(3600.0, 0.9)
    cluster.for_s(540.0, 0.0)
    assert cluster.told() == []
    cluster.for_s(60.0, 0.0)
    assert cluster.told() == ["job_idle"]


def test_the_event_says_why_and_by_which_rule(site: Callable[..., Site]) -> None:
    cluster = site(rule(window=Seconds(3600.0)), rule("warn"))
    key = running(cluster.master, *cluster.agents)
    cluster.for_s(HALF_HOUR, 0.001)
    (event,) = [one for one in cluster.master.events(key.job_id) if "idle" in one.kind]
    assert (event.kind, event.data) == ("job_idle_seen", {"action": "warn", "dry_run": False})
    assert event.cause == ("its use was 0.1 % over 30 min, below the 5 % of rule 2 of [[idle]]")


def test_a_dry_run_is_the_default_and_does_nothing(site: Callable[..., Site]) -> None:
    cluster = site(IdleConfig(action="cancel"))
    key = running(cluster.master, *cluster.agents)
    cluster.for_s(2 * HALF_HOUR, 0.0)
    assert cluster.told() == ["job_idle_seen"]
    assert cluster.master.attempt(key.job_id).state == "running"
    cause = next(one.cause for one in cluster.master.events() if one.kind == "job_idle_seen")
    assert "nothing is done (cancel without it)" in cause


def test_a_check_of_a_node_is_never_idle(site: Callable[..., Site]) -> None:
    cluster = site(rule("cancel"))
    key = running(cluster.master, *cluster.agents, check="disk")
    cluster.for_s(2 * HALF_HOUR, 0.0)
    assert cluster.told() == []
    assert cluster.master.attempt(key.job_id).state == "running"


def test_by_default_there_is_no_rule(site: Callable[..., Site]) -> None:
    assert MasterConfig().idle == ()
    cluster = site()
    running(cluster.master, *cluster.agents)
    cluster.for_s(4 * HALF_HOUR, 0.0)
    assert cluster.told() == []


def test_a_job_that_saves_is_paused_and_may_be_resumed(site: Callable[..., Site]) -> None:
    cluster = site(rule("pause"))
    (agent,) = cluster.agents
    key = running(cluster.master, agent)
    agent.save(key, step=7)
    agent.report()
    cluster.for_s(HALF_HOUR, 0.0)
    job = cluster.master.job(key.job_id)
    assert job.hold is HoldKind.PAUSED
    assert "rule 1 of [[idle]]" in job.hold_reason
    assert cluster.master.attempt(key.job_id).stop_cause == "pause"


def test_a_job_that_would_lose_its_work_is_told_and_not_paused(
    site: Callable[..., Site],
) -> None:
    cluster = site(rule("pause"))
    key = running(cluster.master, *cluster.agents, rules=RunRules(saves=False))
    cluster.for_s(HALF_HOUR, 0.0)
    assert cluster.master.job(key.job_id).hold is None
    (cause,) = [one.cause for one in cluster.master.events() if one.kind == "job_idle"]
    assert "not paused" in cause
    assert "never saved" in cause


def test_cancel_ends_it(site: Callable[..., Site]) -> None:
    cluster = site(rule("cancel"))
    key = running(cluster.master, *cluster.agents)
    cluster.for_s(HALF_HOUR, 0.0)
    assert cluster.master.attempt(key.job_id).stop_cause == "cancel"


@pytest.mark.parametrize(("action", "held"), [("pause", HoldKind.USER), ("cancel", None)])
def test_a_hold_of_a_running_job_is_no_way_around_a_rule(
    site: Callable[..., Site], action: str, held: HoldKind | None
) -> None:
    cluster = site(rule(action))
    (agent,) = cluster.agents
    key = running(cluster.master, agent)
    agent.save(key, step=7)
    agent.report()
    cluster.master.hold(key.job_id)
    assert cluster.master.attempt(key.job_id).stop_cause is None
    cluster.for_s(HALF_HOUR, 0.0)
    assert cluster.master.attempt(key.job_id).stop_cause == action
    assert cluster.master.job(key.job_id).hold is held


def test_a_job_that_tells_steps_is_not_idle_whatever_its_gpus_do(
    site: Callable[..., Site],
) -> None:
    cluster = site(rule("cancel"))
    (agent,) = cluster.agents
    key = running(cluster.master, agent)
    for step in range(150):
        agent.ranks[key].said = (step, 1000, cluster.master.clock.now_s())
        cluster.report(0.0)
    assert cluster.told() == []


def test_interactive_jobs_and_exempt_ones_have_other_rules(site: Callable[..., Site]) -> None:
    cluster = site(rule(exempt_jobs=("notebook",)), rule(exempt_users=("alice",)))
    running(cluster.master, *cluster.agents, gpus=2, name="notebook")
    running(cluster.master, *cluster.agents, gpus=2, rules=RunRules(attended=True))
    for _ in range(150):
        for job_id in cluster.master.state.jobs.attended:
            cluster.master.state.jobs.attended[job_id] = cluster.master.clock.now_s() + EVERY_S
        cluster.report(0.0)
    assert cluster.told() == []


def test_a_gang_is_idle_only_if_all_its_nodes_are(site: Callable[..., Site]) -> None:
    cluster = site(rule(), nodes=2)
    running(cluster.master, *cluster.agents)
    for _ in range(80):
        cluster.report(0.0, agents=cluster.agents[:1])
        cluster.report(0.6, agents=cluster.agents[1:])
    assert cluster.told() == []


def test_what_no_sample_has_seen_is_busy(site: Callable[..., Site]) -> None:
    cluster = site(rule())
    running(cluster.master, *cluster.agents)
    cluster.for_s(2 * HALF_HOUR, 0.0, seen=0.9)
    assert cluster.told() == []


def test_an_agent_that_was_away_leaves_a_gap_that_counts_as_busy(
    site: Callable[..., Site],
) -> None:
    cluster = site(rule())
    (agent,) = cluster.agents
    running(cluster.master, agent)
    cluster.for_s(HALF_HOUR - EVERY_S, 0.0)
    agent.restart()
    cluster.master.tick(120.0)
    agent.hello()
    cluster.for_s(600.0, 0.0)
    assert cluster.told() == []
    cluster.for_s(HALF_HOUR, 0.0)
    assert cluster.told() == ["job_idle"]


def test_a_master_that_starts_begins_all_windows_anew(site: Callable[..., Site]) -> None:
    cluster = site(rule("cancel"))
    (agent,) = cluster.agents
    key = running(cluster.master, agent)
    cluster.for_s(HALF_HOUR - EVERY_S, 0.0)
    cluster.master.restart()
    agent.cut(noticed=False)
    agent.hello()
    agent.report()
    cluster.for_s(HALF_HOUR - EVERY_S, 0.0)
    assert cluster.told() == []
    cluster.for_s(120.0, 0.0)
    assert cluster.told() == ["job_idle"]
    assert cluster.master.attempt(key.job_id).stop_cause == "cancel"


def test_a_job_without_gpus_is_judged_by_its_cpu_time(masters: Callable[..., Master]) -> None:
    master = masters(config(rule()))
    agent = SimAgent(master, NodeId("cpu01"), gpus=0, cores=8, cpu_count=8)
    agent.hello()
    job_id = master.submit(request=Request(gpus=4, nodes=None, gpu_type=CORE_TYPE)).job_id
    key = AttemptKey(job_id, 1)
    agent.obey()
    agent.start(key)
    agent.report()
    for cpu_s in (60.0, 0.1):
        for _ in range(70):
            master.clock.advance(EVERY_S)
            agent.heartbeat()
            use = ToldUse(key, 1, 0, EVERY_S, cpu_s)
            assert agent.session_id is not None
            beat = Heartbeat(node_id=agent.node_id, session_id=agent.session_id, rank_uses=(use,))
            master.turn(beat)
        kinds = [one.kind for one in master.events() if "idle" in one.kind]
        assert kinds == ([] if cpu_s > 1.0 else ["job_idle"])


def test_a_job_shows_its_use_and_why_it_is_idle(site: Callable[..., Site]) -> None:
    cluster = site(rule())
    key = running(cluster.master, *cluster.agents)
    cluster.for_s(HALF_HOUR, 0.0)
    read, now_s = cluster.master.loop.published, cluster.master.clock.now_s()
    message = job_message(cluster.master.job(key.job_id), read, now_s)
    assert message.activity.idle_reason.startswith("its use was 0.0 % over 30 min")
    assert not message.activity.HasField("utilization_percent"), "lists leave figures out"
    add_figures(message, cluster.master.attempt(key.job_id), read, now_s)
    assert (message.activity.utilization_percent, message.activity.power_watts) == (0.0, 1200)
    assert (message.activity.gpu_memory_bytes, message.activity.clock_mhz) == (4 * GIB, 1700)
    assert not message.activity.HasField("memory_bytes"), "an agent of before tells none"
    assert from_duration(message.activity.idle_duration) == HALF_HOUR
    assert read.inactive() == (1, 0)
    cluster.report(0.5)
    message = job_message(cluster.master.job(key.job_id), read, now_s)
    add_figures(message, cluster.master.attempt(key.job_id), read, now_s)
    assert message.activity.utilization_percent == 50.0
    assert from_duration(message.activity.idle_duration) == 0.0
    (agent,) = cluster.agents
    assert agent.session_id is not None
    use = ToldUse(key, 1, 0, EVERY_S, 2.5 * EVERY_S, memory_bytes=3 * GIB)
    beat = Heartbeat(node_id=agent.node_id, session_id=agent.session_id, rank_uses=(use,))
    cluster.master.turn(beat)
    add_figures(message, cluster.master.attempt(key.job_id), read, now_s)
    assert message.activity.memory_bytes == 3 * GIB
    assert use_text(message.activity) == (
        "GPUs 50 %, 4GiB of GPU memory, 1200 W, 1700 MHz; 2.5 cores busy, 3GiB of memory"
    )


def test_the_idle_time_of_a_gpu_before_the_job_is_not_the_jobs(site: Callable[..., Site]) -> None:
    cluster = site()
    cluster.for_s(HALF_HOUR, 0.0)
    key = running(cluster.master, *cluster.agents)
    cluster.for_s(60.0, 0.0)
    read, now_s = cluster.master.loop.published, cluster.master.clock.now_s()
    message = job_message(cluster.master.job(key.job_id), read, now_s)
    add_figures(message, cluster.master.attempt(key.job_id), read, now_s)
    assert from_duration(message.activity.idle_duration) == 60.0


def test_idle_gpu_seconds_go_into_the_books_of_their_owner_every_ten_minutes(
    site: Callable[..., Site],
) -> None:
    cluster = site()
    cluster.for_s(300.0, 0.0)
    running(cluster.master, *cluster.agents, gpus=3)
    cluster.for_s(1200.0, 0.0)
    cluster.for_s(1200.0, 0.5)
    now_s = cluster.master.clock.now_s()
    day = int(now_s // 86_400)
    found = cluster.master.store.books_of(day - 1, day, now_s).uses
    idle = {account.user: spent.idle for account, spent in found.items() if spent.idle}
    assert idle == {"alice": 3 * 1200.0}, "not the time before the job, nor the free GPU"
    (held,) = {spent.held for spent in found.values()}
    assert held == 3 * 2400.0


def test_a_node_that_tells_the_same_time_again_and_again_charges_it_once(
    site: Callable[..., Site],
) -> None:
    cluster = site()
    (agent,) = cluster.agents
    running(cluster.master, agent, gpus=3)
    cluster.for_s(600.0, 0.0)
    load = ToldLoad(EVERY_S, EVERY_S, 0.0, 0, 300, 1700)
    assert agent.session_id is not None
    for _ in range(50):
        told = tuple(ToldGpu(index, load=load) for index in range(agent.gpus))
        cluster.master.turn(
            Heartbeat(node_id=agent.node_id, session_id=agent.session_id, health=told)
        )
    cluster.for_s(600.0, 0.0)
    cluster.for_s(1200.0, 0.5)  # the books are written meanwhile
    now_s = cluster.master.clock.now_s()
    day = int(now_s // 86_400)
    found = cluster.master.store.books_of(day - 1, day, now_s).uses
    assert sum(spent.idle for spent in found.values()) == 3 * 1200.0


def test_nothing_is_kept_for_attempts_that_have_ended(site: Callable[..., Site]) -> None:
    cluster = site(rule())
    (agent,) = cluster.agents
    key = running(cluster.master, agent)
    cluster.report(0.0)
    assert key in cluster.master.state.attempts.idleness.windows
    agent.exit(key, 0)
    agent.report()
    cluster.master.tick(10.0)
    assert not cluster.master.state.attempts.idleness.windows


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        (IdleConfig(window=Seconds(9.0)), "idle[1].window"),
        (IdleConfig(interactive_window=Seconds(1e9)), "idle[1].interactive_window"),
        (IdleConfig(below=0.9), "idle[1].below"),
        (IdleConfig(action="pauze"), "idle[1].action"),
        (IdleConfig(queue="nihgt"), "idle[1].queue"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_key(wrong: IdleConfig, key: str) -> None:
    queues = (QueueConfig("default"), QueueConfig("night"))
    made = MasterConfig(idle=(IdleConfig(), wrong), queues=queues)
    with pytest.raises(ConfigError) as refused:
        made.idle_rules()
    assert refused.value.what.startswith(f"{key}: ")


def test_a_wrong_stall_is_refused_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"stall\.factor: 0\.5"):
        StallConfig(factor=0.5).rule()


def test_a_heartbeat_costs_no_more_calls_and_a_report_one_without_rules(
    masters: Callable[..., Master],
) -> None:
    """The path of every heartbeat is free of all this; a report on GPUs comes twice a minute."""
    master = masters(config())
    agent = SimAgent(master, NodeId("gpu01"))
    agent.hello()
    running(master, agent)
    assert agent.session_id is not None
    beat = Heartbeat(node_id=agent.node_id, session_id=agent.session_id)
    with counted_calls() as calls:
        master.turn(beat)
    assert not [name for name in calls if "idleness" in name or "activity" in name]
    told = tuple(ToldGpu(index) for index in range(4))
    with counted_calls() as calls:
        master.turn(Heartbeat(node_id=agent.node_id, session_id=agent.session_id, health=told))
    assert sum(n for name, n in calls.items() if "idleness" in name) == 1
