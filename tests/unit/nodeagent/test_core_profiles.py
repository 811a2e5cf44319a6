"""The agent's core and the traffic profiles of its ranks: when they are read, and until when they
are told.
"""

from dataclasses import replace

from dlq_nodeagent.model.messages import (
    Fence,
    Heartbeat,
    Phase,
    ProfileAck,
    ProfileEvidence,
    ProfileOrder,
    RankUse,
    ReportAck,
)
from dlq_profiler.records.tail import LongGaps, TrafficLook
from support.agent_bench import EPOCH, AgentBench, a_launch, a_stop

ORDER = ProfileOrder(window_s=60.0)


def told(bench: AgentBench) -> list[ProfileEvidence]:
    """All evidence that this agent has sent."""
    return bench.said(ProfileEvidence)


def test_a_rank_is_read_once_when_its_window_is_over_and_goes_on() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(profile=ORDER)
    bench.order(launch)
    bench.run(59)
    assert told(bench) == []
    bench.run(120)
    assert [order.launch.key for order in bench.profiles] == [launch.key]
    assert bench.profiles[0].main_pid is not None
    [evidence] = told(bench)
    assert (evidence.key, evidence.fence) == (launch.key, launch.fence)
    assert 60 <= evidence.found.window_s < 61
    assert bench.runs(launch)
    assert bench.errands.dropped[0] == launch.key


def test_nothing_is_read_of_a_rank_without_an_order() -> None:
    bench = AgentBench()
    bench.connect()
    bench.order(a_launch(does="run_for=5"))
    bench.run(100)
    assert (bench.profiles, told(bench), bench.errands.dropped) == ([], [], [])


def test_a_rank_that_ends_within_its_window_is_read_for_as_long_as_it_ran() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=20", profile=ORDER)
    bench.order(launch)
    bench.run(30)
    [order] = bench.profiles
    assert order.main_pid is None
    assert 19 < order.window_s < 21
    assert len(told(bench)) == 1


def test_the_end_of_a_rank_waits_for_nobody_who_reads_its_profile() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=20", profile=ORDER)
    bench.reads_profiles = False
    bench.order(launch)
    bench.run(30)
    assert bench.last(launch).phase is Phase.EXITED
    assert len(bench.errands.reads) == 1
    bench.reads_profiles = True
    bench.run(5)
    assert len(told(bench)) == 1


def test_of_a_rank_that_never_ran_nothing_is_told_and_its_place_is_removed() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(profile=ORDER, at_barrier=True)
    bench.order(launch)
    bench.order(a_stop(launch))
    bench.run(10)
    assert (bench.profiles, told(bench)) == ([], [])
    assert bench.errands.dropped == [launch.key]


def test_an_evidence_is_repeated_until_the_master_has_it() -> None:
    bench = AgentBench()
    bench.acks_profiles = False
    bench.connect()
    launch = a_launch(profile=ORDER)
    bench.order(launch)
    bench.run(95)
    assert 3 <= len(told(bench)) <= 5
    assert len({evidence.found for evidence in told(bench)}) == 1
    assert told(bench)[-1].age_s > told(bench)[0].age_s
    # Neither the answer to a report nor the answer for another placement is the master's word on
    # it.
    bench.core.received(ReportAck(2**40))
    bench.core.received(ProfileAck(launch.key, Fence(EPOCH, 9)))
    before = len(told(bench))
    bench.run(15)
    assert len(told(bench)) > before
    before = len(told(bench))
    bench.core.received(ProfileAck(launch.key, launch.fence))
    bench.run(60)
    assert len(told(bench)) == before


def test_an_agent_that_restarts_within_the_window_reads_at_its_end() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(profile=ORDER)
    bench.order(launch)
    bench.run(30)
    bench.restart(down_s=10)
    assert bench.errands.kept_profiles == frozenset({launch.key})
    bench.connect()
    bench.run(10)
    assert bench.profiles == []
    bench.run(15)
    assert 60 <= bench.profiles[0].window_s < 62
    assert len(told(bench)) == 1


def test_an_agent_that_dies_while_rings_are_read_has_them_read_again() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(profile=ORDER)
    bench.reads_profiles = False
    bench.order(launch)
    bench.run(70)
    bench.restart()
    bench.reads_profiles = True
    bench.connect()
    bench.run(5)
    assert len(bench.profiles) == 1
    assert len(told(bench)) == 1


def test_what_was_found_outlives_the_agent_and_the_line_until_it_is_taken() -> None:
    bench = AgentBench()
    bench.acks_profiles = False
    bench.connect()
    launch = a_launch(does="run_for=20", profile=ORDER)
    bench.order(launch)
    bench.run(30)
    found = told(bench)[0].found
    before = len(told(bench))
    bench.cut()
    bench.connect(epoch=EPOCH + 1)
    assert [evidence.found for evidence in told(bench)[before:]] == [found]
    bench.restart(down_s=1000)
    assert bench.errands.kept_profiles == frozenset()
    bench.acks_profiles = True
    bench.connect(epoch=EPOCH + 1)
    bench.run(60)
    [evidence] = told(bench)
    assert evidence.found == found
    assert evidence.age_s > 1000
    assert len(bench.profiles) == 1
    bench.restart()
    bench.connect(epoch=EPOCH + 1)
    bench.run(60)
    assert told(bench) == []


def test_a_silent_master_does_not_lengthen_the_window() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(profile=ORDER, hold_s=3600.0)
    bench.order(launch)
    bench.answers_heartbeats = False
    bench.cut()
    bench.run(70)
    assert len(bench.profiles) == 1
    assert told(bench) == []
    bench.answers_heartbeats = True
    bench.connect()
    bench.run(2)
    assert len(told(bench)) == 1


def test_a_launch_that_comes_again_changes_nothing() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(profile=ORDER)
    bench.order(launch)
    bench.run(70)
    bench.order(launch)
    bench.order(replace(launch, profile=None))
    bench.run(70)
    assert len(bench.profiles) == 1
    assert len(told(bench)) == 1


def test_a_full_disk_costs_no_evidence() -> None:
    bench = AgentBench()
    bench.acks_profiles = False
    bench.connect()
    launch = a_launch(profile=ORDER)
    bench.order(launch)
    bench.run(59)
    bench.journal.fails = True
    bench.run(10)
    assert len(told(bench)) >= 1
    bench.journal.fails = False
    bench.run(10)
    bench.restart()
    bench.connect()
    bench.run(1)
    assert len(bench.profiles) == 1
    assert len(told(bench)) == 1


def uses(bench: AgentBench) -> list[RankUse]:
    """All that this agent has sent on the use of its ranks."""
    return [use for beat in bench.said(Heartbeat) for use in beat.rank_uses]


def test_the_traffic_of_a_recorded_rank_is_looked_at_now_and_then_and_told_once() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(profile=ORDER)
    bench.order(launch)
    bench.run(20)
    assert [key for key, _ in bench.errands.traffic_looks] == [launch.key]
    bench.core.traffic_seen(launch.key, TrafficLook(0.5, 2.0, LongGaps(20, -4.0, 1.0)))
    bench.run(60)
    told_of = [use for use in uses(bench) if use.sent_ago_s is not None]
    assert [(use.sent_ago_s, use.quiet_s) for use in told_of] == [(0.5, 2.0)]
    assert told_of[0].work is not None
    assert (told_of[0].work.step_count, told_of[0].work.from_traffic) == (20, True)
    assert 0.0 <= (told_of[0].looked_ago_s or 0.0) <= 60.0
    bench.run(120)
    assert len(bench.errands.traffic_looks) == 2, "its window is over"


def test_a_rank_without_sends_and_a_rank_that_is_gone_tell_no_traffic() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=20", profile=ORDER)
    bench.order(launch)
    bench.run(5)
    bench.core.traffic_seen(launch.key, None)
    bench.run(60)
    bench.core.traffic_seen(a_launch(job=77).key, TrafficLook(0.5, 2.0, None))
    assert [use.sent_ago_s for use in uses(bench) if use.sent_ago_s is not None] == []
