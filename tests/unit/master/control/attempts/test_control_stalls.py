"""Jobs whose steps have stopped: when they are told, which rank is named, and who never is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from dlq_master.control.activity_config import StallConfig
from dlq_master.control.stimuli import Heartbeat
from dlq_master.control.stimuli.nodes import ToldUse
from dlq_master.model.ids import AttemptKey, NodeId
from support.counted_calls import counted_calls
from support.master_harness import Master, config_of
from support.running import running
from support.sim_agent import SimAgent

PACE_S = 40.0
FOUND_S = 2 * PACE_S + 30.0


@dataclass
class Job:
    """A job on some nodes that makes a step every 40 s on each, until it is told to stop."""

    master: Master
    agents: list[SimAgent]
    key: AttemptKey
    step: int = 0

    def beat(self, seconds: float) -> None:
        """Heartbeats every 5 s and ticks every second, without a step."""
        for second in range(round(seconds)):
            self.master.tick(1.0)
            if second % 5 == 4:
                for agent in self.agents:
                    agent.heartbeat()

    def steps(self, count: int, *, slow: int | None = None, total: int = 1000) -> None:
        """Steps of all ranks; rank `slow` makes none."""
        for _ in range(count):
            self.beat(PACE_S)
            self.step += 1
            for rank, agent in enumerate(self.agents):
                if rank != slow:
                    now_s = self.master.clock.now_s()
                    agent.ranks[self.key].said = (self.step, total, now_s)

    def told(self) -> list[str]:
        return [one.kind for one in self.master.events() if "stall" in one.kind]

    def cause(self) -> str:
        (event,) = [one for one in self.master.events() if one.kind == "job_stalled"]
        return event.cause


@pytest.fixture
def job(masters: Callable[..., Master]) -> Callable[..., Job]:
    def make(nodes: int = 1, stall: StallConfig | None = None) -> Job:
        master = masters(replace(config_of(), stall=stall or StallConfig()))
        agents = [SimAgent(master, NodeId(f"gpu{number:02d}")) for number in range(nodes)]
        for agent in agents:
            agent.hello()
        return Job(master, agents, running(master, *agents))

    return make


def test_it_is_told_within_twice_its_pace_and_30_s_and_again_when_it_goes_on(
    job: Callable[..., Job],
) -> None:
    one = job()
    one.steps(5)
    one.beat(2 * PACE_S)
    assert one.told() == []
    one.beat(FOUND_S - 2 * PACE_S)
    assert one.told() == ["job_stalled"]
    assert one.cause().startswith("no step for ")
    assert "after step 5, where one took 40 s" in one.cause()
    one.beat(600.0)
    assert one.told() == ["job_stalled"]
    one.steps(2)
    one.beat(10.0)
    assert one.told() == ["job_stalled", "job_stall_over"]


def test_a_steady_job_is_never_told(job: Callable[..., Job]) -> None:
    one = job()
    one.steps(40)
    assert one.told() == []


def test_the_rank_with_the_lowest_step_is_named(job: Callable[..., Job]) -> None:
    one = job(nodes=4)
    one.steps(5)
    one.steps(1, slow=2)
    one.beat(FOUND_S)
    assert "rank 2 on gpu02 fell behind: it is at step 5, and others are at 6" in one.cause()
    (event,) = [each for each in one.master.events() if each.kind == "job_stalled"]
    assert (event.node_id, event.data["node_rank"]) == ("gpu02", 2)


def test_where_all_stand_at_one_step_the_cpu_tells(job: Callable[..., Job]) -> None:
    one = job(nodes=4)
    one.steps(5)
    for rank, agent in enumerate(one.agents):
        assert agent.session_id is not None
        use = ToldUse(one.key, 1, rank, 30.0, 0.1 if rank == 3 else 29.0)
        one.master.turn(
            Heartbeat(node_id=agent.node_id, session_id=agent.session_id, rank_uses=(use,))
        )
    one.beat(FOUND_S)
    assert "rank 3 on gpu03 fell behind: it uses no CPU, and the others do" in one.cause()


def test_a_rank_that_a_later_report_shows_is_told_once_more(job: Callable[..., Job]) -> None:
    one = job(nodes=4)
    one.steps(5)
    one.beat(FOUND_S)
    assert "no single one of its 4 ranks stands out" in one.cause()
    for _ in range(2):
        for rank, agent in enumerate(one.agents):
            assert agent.session_id is not None
            use = ToldUse(one.key, 1, rank, 30.0, 0.1 if rank == 3 else 29.0)
            one.master.turn(
                Heartbeat(node_id=agent.node_id, session_id=agent.session_id, rank_uses=(use,))
            )
        one.beat(30.0)
    events = [each for each in one.master.events() if each.kind == "job_stalled"]
    assert [each.data["node_rank"] for each in events] == [None, 3]
    one.steps(2)
    assert one.told() == ["job_stalled", "job_stalled", "job_stall_over"]


def test_where_nothing_tells_no_rank_is_named(job: Callable[..., Job]) -> None:
    one = job(nodes=2)
    one.steps(5)
    one.beat(FOUND_S)
    assert "no single one of its 2 ranks stands out" in one.cause()


def test_a_silent_line_and_an_agent_that_is_away_stall_nobody(job: Callable[..., Job]) -> None:
    one = job()
    one.steps(5)
    for _ in range(600):
        one.master.tick(1.0)
    assert one.told() == []


def test_a_master_that_slept_stalls_nobody(job: Callable[..., Job]) -> None:
    one = job()
    one.steps(5)
    one.beat(4.0)
    one.master.clock.advance(3600.0)
    one.master.tick(0.0)
    one.agents[0].ranks[one.key].said = (6, 1000, one.master.clock.now_s())
    one.steps(3)
    assert one.told() == []


def test_a_machine_that_slept_stalls_nobody_and_its_sleep_is_no_pace(
    job: Callable[..., Job],
) -> None:
    one = job()
    one.steps(5)
    one.beat(4.0)
    one.master.clock.advance(900.0)  # the job slept too: the same step goes on
    one.steps(3)
    assert one.told() == []
    one.beat(FOUND_S + 10.0)  # a part of the time before the sleep counts
    assert one.told() == ["job_stalled"]


def test_a_restarted_master_learns_the_pace_anew(job: Callable[..., Job]) -> None:
    one = job()
    one.steps(5)
    one.master.restart()
    one.agents[0].cut(noticed=False)
    one.agents[0].hello()
    one.agents[0].report()
    one.steps(3)
    assert one.told() == []
    one.beat(FOUND_S)
    assert one.told() == ["job_stalled"]


def test_a_job_at_its_last_step_saves_and_leaves(job: Callable[..., Job]) -> None:
    one = job()
    one.steps(5, total=5)
    one.beat(900.0)
    assert one.told() == []


def test_it_can_be_switched_off(job: Callable[..., Job]) -> None:
    one = job(stall=StallConfig(enabled=False))
    one.steps(5)
    one.beat(900.0)
    assert one.told() == []


def test_nothing_is_kept_of_a_job_that_has_ended(job: Callable[..., Job]) -> None:
    one = job(nodes=2)
    one.steps(3)
    one.beat(10.0)
    stalls = one.master.state.attempts.stalls
    assert stalls.paces
    for agent in one.agents:
        agent.exit(one.key, 0)
        agent.report()
    one.master.tick(10.0)
    kept = (stalls.paces, stalls.seen, stalls.steps, stalls.told, stalls.late)
    assert not any(kept)


def test_a_look_calls_nothing_for_jobs_without_a_new_step(job: Callable[..., Job]) -> None:
    one = job()
    one.steps(5)
    one.beat(10.0)
    one.agents[0].heartbeat()
    one.master.clock.advance(5.0)
    with counted_calls() as calls:
        one.master.tick(0.0)
    ours = {name.rpartition(":")[2] for name in calls if "stalls" in name}
    assert ours == {"watch", "<listcomp>"}


def looks(one: Job, sent_ago_s: dict[int, float], quiet_s: float = 2.0) -> None:
    """Half a minute passes, and each agent tells of its look at the traffic of its rank."""
    one.beat(30.0)
    for rank, agent in enumerate(one.agents):
        assert agent.session_id is not None
        use = ToldUse(one.key, 1, rank, 30.0, sent_ago_s=sent_ago_s[rank], quiet_s=quiet_s)
        one.master.turn(
            Heartbeat(node_id=agent.node_id, session_id=agent.session_id, rank_uses=(use,))
        )


def test_a_job_without_beats_is_told_when_its_ranks_send_nothing_any_more(
    job: Callable[..., Job],
) -> None:
    one = job(nodes=3)
    looks(one, {0: 0.1, 1: 0.2, 2: 0.1})
    looks(one, {0: 12.0, 1: 13.5, 2: 12.1})
    assert one.told() == []
    looks(one, {0: 42.0, 1: 43.5, 2: 42.1})
    assert one.told() == ["job_stalled"]
    assert one.cause() == (
        "no rank has sent anything for 42 s, where at most 2 s passed between two sends;"
        " rank 1 on gpu01 fell behind: it stopped to send 1.4 s before any other"
    )
    looks(one, {0: 72.0, 1: 73.5, 2: 72.1})
    assert one.told() == ["job_stalled"]
    looks(one, {0: 0.1, 1: 0.1, 2: 0.1}, quiet_s=80.0)
    assert one.told() == ["job_stalled", "job_stall_over"]
    looks(one, {0: 100.0, 1: 102.0, 2: 100.0}, quiet_s=80.0)
    assert one.told() == ["job_stalled", "job_stall_over"], "it has been as quiet before"


def test_traffic_that_nobody_looks_at_any_more_says_nothing(job: Callable[..., Job]) -> None:
    one = job(nodes=2)
    looks(one, {0: 60.0, 1: 63.0})
    assert one.told() == ["job_stalled"]
    one.beat(100.0)
    assert one.told() == ["job_stalled", "job_stall_over"]
    assert one.master.state.attempts.stalls.sending == {}


def test_the_beats_of_a_job_go_before_its_traffic_and_the_traffic_names_its_rank(
    job: Callable[..., Job],
) -> None:
    one = job(nodes=3)
    one.steps(3)
    looks(one, {0: 40.0, 1: 42.0, 2: 40.0})
    assert one.told() == []
    for ago_s in (30.0, 60.0, 90.0):
        looks(one, {0: ago_s, 1: ago_s + 2.0, 2: ago_s})
    assert one.told() == ["job_stalled"]
    assert "rank 1 on gpu01 fell behind: it stopped to send 2.0 s before any other" in one.cause()
