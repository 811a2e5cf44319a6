"""Jobs that hang before their second step: which are told and when, and which never are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import ConfigError
from dlq_master.control.activity_config import FirstStepConfig, StallConfig
from dlq_master.control.config import MasterConfig, QueueConfig
from dlq_master.control.stimuli import Heartbeat
from dlq_master.control.stimuli.nodes import AgentInstance, ToldUse
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.estimates.first_steps import KEPT, NO_STEP, FirstSteps
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.jobs.job import HoldKind, RunRules
from support.master_harness import Master, config_of
from support.running import running
from support.sim_agent import SimAgent

WINDOW_S = 900.0
ACTS = FirstStepConfig(action="notify", dry_run=False)


def config(first_step: FirstStepConfig = ACTS, **more: Any) -> MasterConfig:
    return replace(config_of(), first_step=first_step, stall=StallConfig(**more))


@dataclass
class Site:
    """A master and some nodes."""

    master: Master
    agents: list[SimAgent]

    def pass_s(self, seconds: float, *, heard: bool = True) -> None:
        """Heartbeats every 5 s and ticks every second."""
        for second in range(round(seconds)):
            self.master.tick(1.0)
            if heard and second % 5 == 4:
                for agent in self.agents:
                    agent.heartbeat()

    def begin(self, **more: Any) -> AttemptKey:
        """A job on all nodes, whose user has said how many steps it has."""
        return running(self.master, *self.agents, **{"step_count": 100, "family": "f", **more})

    def step(self, key: AttemptKey, step: int | None, total: int | None = 100) -> None:
        """Its first rank has told a step just now."""
        self.agents[0].beat(key, step, total)

    def end(self, key: AttemptKey) -> None:
        """All its ranks end well."""
        for agent in self.agents:
            agent.exit(key, 0)
            agent.report()
        self.pass_s(10.0)

    def taught(self, took_s: float, count: int = 5) -> None:
        """So many jobs of the family made their first step in that time."""
        for _ in range(count):
            self.master.state.cluster.first_steps.learn("alice/f", took_s)

    def stalls(self) -> list[JournalEvent]:
        return [one for one in self.master.events() if "stall" in one.kind]

    def told(self) -> list[str]:
        return [one.kind for one in self.stalls()]


@pytest.fixture
def site(masters: Callable[..., Master]) -> Callable[..., Site]:
    def make(settings: MasterConfig | None = None, nodes: int = 1) -> Site:
        master = masters(settings or config())
        agents = [SimAgent(master, NodeId(f"gpu{number:02d}")) for number in range(nodes)]
        for agent in agents:
            agent.hello()
        return Site(master, agents)

    return make


def test_a_job_that_hangs_at_its_start_is_told_after_the_window_and_goes_on(
    site: Callable[..., Site],
) -> None:
    one = site()
    key = one.begin()
    one.pass_s(WINDOW_S)
    assert one.told() == []
    one.pass_s(30.0)
    assert one.told() == ["job_stalled"]
    words = one.stalls()[0].cause
    assert words.startswith("no step for 15 min ")
    assert words.endswith(" after its start, where [first_step] allows 15 min")
    assert one.master.state.attempts.stalls.told[key.job_id] == words
    one.pass_s(WINDOW_S)
    assert one.told() == ["job_stalled"]
    one.step(key, 1)
    one.pass_s(10.0)
    assert one.told() == ["job_stalled", "job_stall_over"]
    one.pass_s(100.0)
    one.step(key, 2)
    one.pass_s(10.0)
    assert one.told() == ["job_stalled", "job_stall_over"]


def test_by_default_it_is_shown_and_nothing_is_done(site: Callable[..., Site]) -> None:
    one = site(config(FirstStepConfig(action="cancel")))
    key = one.begin()
    one.pass_s(WINDOW_S + 30.0)
    (event,) = one.stalls()
    assert (event.kind, event.data["action"], event.data["dry_run"]) == (
        "job_stall_seen", "cancel", True
    )  # fmt: skip
    assert event.cause.endswith("; a dry run, so nothing is done (cancel without it)")
    assert "dry run" not in one.master.state.attempts.stalls.told[key.job_id]
    assert one.master.attempt(key.job_id).stop_cause is None
    one.step(key, 1)
    one.pass_s(10.0)
    assert one.told() == ["job_stall_seen", "job_stall_seen_over"], "no notification tells it"


@pytest.mark.parametrize("first", [0, 1])
def test_one_that_told_a_single_step_is_told_too(first: int, site: Callable[..., Site]) -> None:
    one = site()
    key = one.begin(step_count=None, family="")
    one.pass_s(60.0)
    one.step(key, first)
    one.pass_s(WINDOW_S - 10.0)
    assert one.told() == []
    one.pass_s(40.0)
    assert one.told() == ["job_stalled"]
    assert f"after step {first}, the first that it told" in one.stalls()[0].cause


def test_a_job_that_is_not_known_to_tell_steps_is_never_told(site: Callable[..., Site]) -> None:
    one = site()
    one.begin(step_count=None)
    one.pass_s(4 * WINDOW_S)
    assert one.told() == []


def test_a_family_that_told_steps_is_known_and_one_that_told_none_is_too(
    site: Callable[..., Site],
) -> None:
    one = site()
    one.master.state.cluster.first_steps.learn("alice/f", 20.0)
    key = one.begin(step_count=None)
    one.pass_s(WINDOW_S + 30.0)
    assert one.told() == ["job_stalled"]
    one.end(key)
    assert one.master.state.cluster.first_steps.families["alice/f"][-1] == NO_STEP
    one.begin()
    one.pass_s(2 * WINDOW_S)
    assert one.told() == ["job_stalled"], "its user says how many steps, and its family tells none"


def test_a_family_shows_how_long_it_needs(site: Callable[..., Site]) -> None:
    one = site()
    one.taught(30.0)
    one.begin()
    one.pass_s(2 * 30.0 + 15.0 + WINDOW_S / 3.0)
    assert one.told() == []
    one.pass_s(25.0)
    assert one.told() == ["job_stalled"]
    assert "where first steps of its family took at most 30 s" in one.stalls()[0].cause


@pytest.mark.parametrize("known", [1, 5])
def test_a_slow_family_has_twice_its_longest_and_no_window_cuts_that(
    known: int, site: Callable[..., Site]
) -> None:
    one = site()
    one.taught(2400.0, known)
    one.begin()
    one.pass_s(2 * 2400.0 + 10.0)
    assert one.told() == []
    one.pass_s(40.0)
    assert one.told() == ["job_stalled"]


def test_first_steps_teach_a_family_and_a_restart_of_the_master_keeps_them(
    site: Callable[..., Site],
) -> None:
    one = site()
    one.pass_s(5.0)
    for _ in range(2):
        key = one.begin()
        one.pass_s(42.0)
        one.step(key, 1)
        one.pass_s(20.0)
        one.step(key, 2)
        one.pass_s(20.0)
        one.end(key)
    known = one.master.state.cluster.first_steps.families["alice/f"]
    assert [round(took_s) for took_s in known] == [42, 42]
    one.master.restart()
    assert one.master.state.cluster.first_steps.families["alice/f"] == known


def test_an_attempt_whose_start_was_not_heard_teaches_nothing(site: Callable[..., Site]) -> None:
    one = site()
    key = one.begin()
    one.pass_s(30.0)
    one.agents[0].cut(noticed=False)
    one.agents[0].hello()
    one.pass_s(30.0)
    one.step(key, 1)
    one.pass_s(20.0)
    assert one.master.state.cluster.first_steps.families == {}


@pytest.mark.parametrize("restarts", ["agent", "master"])
def test_a_restart_begins_the_window_anew(restarts: str, site: Callable[..., Site]) -> None:
    one = site()
    one.begin()
    one.pass_s(WINDOW_S - 20.0)
    if restarts == "master":
        one.master.restart()
    one.agents[0].cut(noticed=False)
    one.agents[0].hello()
    one.agents[0].report()
    one.pass_s(WINDOW_S - 5.0)
    assert one.told() == []
    one.pass_s(45.0)
    assert one.told() == ["job_stalled"]


def test_a_silent_line_tells_nothing_and_its_time_does_not_count(
    site: Callable[..., Site],
) -> None:
    one = site()
    one.agents[0].agent = AgentInstance("p1", "here", "m1", "memory")
    one.agents[0].hello()
    one.begin()
    one.pass_s(WINDOW_S - 60.0)
    one.pass_s(300.0, heard=False)
    one.agents[0].cut(noticed=False)
    one.agents[0].hello()
    one.pass_s(55.0)
    assert one.told() == []
    one.pass_s(40.0)
    assert one.told() == ["job_stalled"]


def test_a_master_that_slept_and_a_clock_that_is_set_stall_nobody(
    site: Callable[..., Site],
) -> None:
    one = site()
    one.begin()
    one.pass_s(60.0)
    one.master.clock.advance(1800.0)
    one.pass_s(WINDOW_S - 80.0)
    assert one.told() == []
    one.pass_s(60.0)
    assert one.told() == ["job_stalled"]


def test_a_beat_without_a_step_is_a_sign_of_life(site: Callable[..., Site]) -> None:
    one = site()
    key = one.begin()
    for _ in range(4):
        one.pass_s(WINDOW_S / 2)
        one.step(key, None, None)
    one.pass_s(WINDOW_S - 5.0)
    assert one.told() == []
    one.pass_s(45.0)
    assert one.told() == ["job_stalled"]


def test_a_job_of_one_step_has_no_further_one(site: Callable[..., Site]) -> None:
    one = site()
    key = one.begin(step_count=1)
    one.step(key, 1, 1)
    one.pass_s(2 * WINDOW_S)
    assert one.told() == []


def test_a_job_with_a_pace_is_judged_by_that(site: Callable[..., Site]) -> None:
    one = site()
    key = one.begin()
    for step in range(1, 4):
        one.pass_s(40.0)
        one.step(key, step)
    one.pass_s(120.0)
    assert "where one took 40 s" in one.stalls()[0].cause
    assert one.told() == ["job_stalled"]


@pytest.mark.parametrize(
    ("exempt", "told"),
    [
        ({"exempt_users": ("alice",)}, False),
        ({"exempt_users": ("bob",)}, True),
        ({"exempt_jobs": ("demo",)}, False),
        ({"team": "vision"}, False),
        ({"enabled": False}, False),
    ],
)
def test_a_rule_covers_what_it_says(
    exempt: dict[str, Any], told: bool, site: Callable[..., Site]
) -> None:
    one = site(config(replace(ACTS, window=Seconds(60.0), **exempt)))
    one.begin(name="demo")
    one.pass_s(100.0)
    assert bool(one.told()) is told


def test_interactive_jobs_have_a_window_of_their_own(site: Callable[..., Site]) -> None:
    settings = replace(config(), queues=(QueueConfig("default"), QueueConfig("people")))
    settings = replace(settings, interactive=replace(settings.interactive, queue="default"))
    one = site(settings)
    one.begin()
    one.pass_s(WINDOW_S + 60.0)
    assert one.told() == []


def test_pause_and_cancel_do_as_with_idle_jobs(site: Callable[..., Site]) -> None:
    pauses = replace(ACTS, window=Seconds(60.0), action="pause")
    one = site(config(pauses))
    key = one.begin()
    one.agents[0].save(key, step=7)
    one.agents[0].report()
    one.pass_s(100.0)
    job = one.master.job(key.job_id)
    assert (job.hold, one.told()) == (HoldKind.PAUSED, ["job_stalled"])
    assert job.hold_reason.startswith("no step for 1 min")
    assert one.master.attempt(key.job_id).stop_cause == "pause"


def test_a_pause_that_would_lose_work_only_tells(site: Callable[..., Site]) -> None:
    one = site(config(replace(ACTS, window=Seconds(60.0), action="pause")))
    key = one.begin(rules=RunRules(saves=False))
    one.pass_s(100.0)
    assert one.master.job(key.job_id).hold is None
    assert "; not paused: " in one.stalls()[0].cause


def test_cancel_ends_it(site: Callable[..., Site]) -> None:
    one = site(config(replace(ACTS, window=Seconds(60.0), action="cancel")))
    key = one.begin()
    one.pass_s(100.0)
    assert one.master.attempt(key.job_id).stop_cause == "cancel"
    assert one.master.attempt(key.job_id).state is not AttemptState.RUNNING


def use(one: Site, key: AttemptKey, **cores: float) -> None:
    """A report on the CPU time of each rank over half a minute."""
    for rank, agent in enumerate(one.agents):
        assert agent.session_id is not None
        told = ToldUse(key, 1, rank, 30.0, 30.0 * cores.get(f"r{rank}", 1.0))
        one.master.turn(
            Heartbeat(node_id=agent.node_id, session_id=agent.session_id, rank_uses=(told,))
        )


def test_the_rank_that_hangs_is_named_by_its_cpu(site: Callable[..., Site]) -> None:
    one = site(nodes=3)
    key = one.begin()
    one.pass_s(WINDOW_S)
    use(one, key, r1=0.0)
    one.pass_s(40.0)
    (event,) = one.stalls()
    assert "; rank 1 on gpu01 fell behind: it uses no CPU, and the others do" in event.cause
    assert (event.node_id, event.data["node_rank"]) == ("gpu01", 1)


def test_the_rank_is_named_once_a_report_shows_it(site: Callable[..., Site]) -> None:
    one = site(nodes=3)
    key = one.begin()
    one.pass_s(WINDOW_S + 40.0)
    assert one.stalls()[0].cause.endswith("; no single one of its 3 ranks stands out")
    use(one, key, r2=0.0)
    one.pass_s(20.0)
    assert [event.data["node_rank"] for event in one.stalls()] == [None, 2]


@pytest.mark.parametrize(
    ("steps", "rank"),
    [({1: 1, 2: 1}, 0), ({0: 1, 2: 1}, 1), ({0: 1}, None), ({2: 1}, None)],
)
def test_a_rank_that_alone_told_no_step_is_named(
    steps: dict[int, int], rank: int | None, site: Callable[..., Site]
) -> None:
    """A job of which only one rank tells steps has no rank that is behind."""
    one = site(nodes=3)
    key = one.begin()
    for at, step in steps.items():
        one.agents[at].beat(key, step, 100)
    one.pass_s(WINDOW_S + 40.0)
    (event,) = one.stalls()
    assert event.data["node_rank"] == rank


def test_nothing_is_kept_of_a_job_that_has_ended(site: Callable[..., Site]) -> None:
    one = site()
    key = one.begin()
    one.pass_s(WINDOW_S + 40.0)
    one.end(key)
    kept = one.master.state.attempts.stalls
    assert not any((kept.starts, kept.told, kept.only_seen, kept.paces))


def test_a_family_keeps_a_bounded_number_and_says_nothing_before_a_few() -> None:
    known = FirstSteps()
    for took_s in range(4):
        known.learn("f", float(took_s))
    known.learn("", 5.0)
    told = known.longest_s("f"), known.tells_steps("f"), known.tells_steps("g")
    assert told == ((3.0, False), True, None)
    for _ in range(KEPT):
        known.learn("f", 2.0)
    assert (known.longest_s("f"), len(known.families["f"])) == ((2.0, True), KEPT)


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        (FirstStepConfig(window=Seconds(1.0)), "first_step.window"),
        (FirstStepConfig(interactive_window=Seconds(1e9)), "first_step.interactive_window"),
        (FirstStepConfig(action="pauze"), "first_step.action"),
        (FirstStepConfig(queue="nope"), "first_step.queue"),
        (FirstStepConfig(action="", enabled=False), "first_step.action"),
    ],
)
def test_a_value_that_cannot_be_is_named(wrong: FirstStepConfig, key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        wrong.rule(StallConfig().rule(), ["default"])
    assert str(raised.value).startswith(f"{key}: ")
