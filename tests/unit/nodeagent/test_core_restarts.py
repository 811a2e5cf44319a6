"""The agent's core through its own restart, the master's restart, and silence."""

import signal
from dataclasses import replace

from dlq_nodeagent.core import ENDS_S
from dlq_nodeagent.line.uplink import LinkState
from dlq_nodeagent.model.messages import Heartbeat, HeartbeatReply, Hello, Launch, Phase, Welcome
from support.agent_bench import EPOCH, AgentBench, a_launch, a_stop


def test_all_that_runs_is_taken_over_by_the_next_agent() -> None:
    bench = AgentBench()
    bench.connect()
    launches = [a_launch(job) for job in range(1, 9)]
    for launch in launches:
        bench.order(launch)
    bench.run(1)
    bench.restart(down_s=30)
    hello = bench.connect()
    assert sorted(r.key.job_id for r in hello.ranks) == sorted(it.key.job_id for it in launches)
    assert {report.phase for report in hello.ranks} == {Phase.STARTED}
    assert all(bench.runs(launch) for launch in launches)


def test_an_end_while_no_agent_was_there_is_reported_with_its_code() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=5 exit_code=42")
    bench.order(launch)
    bench.run(1)
    bench.restart(down_s=60)
    bench.connect()
    bench.run(1)
    report = bench.last(launch)
    assert (report.phase, report.exit_code) == (Phase.EXITED, 42)
    assert 55 < report.age_s < 62


def ended_before_a_boot() -> tuple[AgentBench, Launch]:
    """The power went after the end was recorded, and before anybody looked at it."""
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=5 exit_code=42")
    bench.order(launch)
    bench.run(1)
    bench.clock.advance(60)
    bench.host.settle()
    attempt = bench.host.attempts[launch.key]
    assert attempt.record is not None
    attempt.record = replace(attempt.record, boot_id="the one before")
    bench.restart()
    bench.core.tick()
    return bench, launch


def test_the_first_hello_after_a_boot_tells_the_ends_of_before() -> None:
    bench, launch = ended_before_a_boot()
    assert bench.transport.opens == 0
    bench.run(2)
    assert bench.transport.opens == 1
    bench.core.opened()
    (report,) = bench.said(Hello)[-1].ranks
    assert (report.key, report.phase, report.exit_code) == (launch.key, Phase.EXITED, 42)


def test_a_look_that_hangs_after_a_boot_does_not_keep_the_hello_back_for_ever() -> None:
    bench, _ = ended_before_a_boot()
    bench.clock.advance(ENDS_S)
    bench.core.tick()
    assert bench.transport.opens == 1


def test_a_stop_in_progress_goes_on_under_the_next_agent_without_a_second_signal() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=1000 beat={} saves_for=30")
    bench.order(launch)
    bench.run(2)
    bench.order(a_stop(launch, grace_s=100))
    bench.run(1)
    bench.restart(down_s=5)
    bench.connect(stops=(a_stop(launch, grace_s=100),))
    assert bench.last(launch).phase is Phase.STOPPING
    bench.run(20)
    bench.commit(9)
    bench.run(8)
    report = bench.last(launch)
    assert (report.phase, report.exit_code) == (Phase.EXITED, 99)
    assert report.checkpoint is not None
    assert report.checkpoint.after_notice
    assert bench.signals == [signal.SIGTERM]


def test_a_stop_that_the_shim_had_not_heard_is_given_by_the_next_agent() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=1000 beat={} saves_for=5")
    bench.order(launch)
    bench.run(2)
    bench.deaf = True
    bench.order(a_stop(launch, grace_s=100))
    bench.run(1)
    assert bench.signals == []
    bench.deaf = False
    bench.restart()
    bench.connect()
    bench.run(7)
    assert bench.signals == [signal.SIGTERM]
    assert bench.last(launch).exit_code == 99


def test_a_rank_that_was_taken_but_not_started_waits_for_the_master_to_want_it_again() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch()
    bench.prepare = lambda _launch: None
    bench.order(launch)
    bench.restart(down_s=2 * 3600)
    bench.run(1)
    assert bench.errands.take_prepares() == []
    from support.agent_bench import a_preparation

    bench.prepare = a_preparation
    bench.connect(launch)
    bench.run(1)
    assert bench.runs(launch)


def test_a_rank_that_was_taken_but_not_started_and_is_not_wanted_never_starts() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch()
    bench.prepare = lambda _launch: None
    bench.order(launch)
    bench.restart()
    bench.connect()
    bench.run(5)
    assert bench.last(launch).phase is Phase.START_FAILED
    assert bench.host.attempts == {}


def test_what_runs_and_is_not_wanted_is_left_alone_and_reported() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch()
    bench.order(launch)
    bench.run(1)
    bench.cut()
    bench.connect(epoch=EPOCH + 1)
    bench.run(60)
    assert bench.runs(launch)
    assert bench.last(launch).phase is Phase.STARTED


def test_what_the_welcome_names_as_unwanted_is_stopped() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch()
    bench.order(launch)
    bench.run(1)
    bench.cut()
    bench.connect(epoch=EPOCH + 1, stops=(a_stop(launch, "superseded", 0.0),))
    bench.run(1)
    assert not bench.runs(launch)
    assert bench.last(launch).phase is Phase.EXITED


def test_a_restarted_master_with_a_higher_epoch_is_obeyed_and_its_elder_is_not() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch()
    bench.order(launch)
    bench.cut()
    bench.connect(launch, epoch=EPOCH + 1)
    assert bench.core.highest_epoch == EPOCH + 1
    assert bench.order(a_stop(launch), epoch=EPOCH).refusal == "stale_epoch"
    bench.run(30)
    assert bench.runs(launch)


def test_a_welcome_of_an_elder_master_is_left_at_once() -> None:
    bench = AgentBench()
    bench.connect(epoch=EPOCH + 1)
    bench.cut()
    bench.greet()
    bench.core.received(
        Welcome(epoch=EPOCH, heartbeat_s=5, ttl_s=20, reconnect_jitter_s=15, wanted=(a_launch(),))
    )
    assert bench.transport.closes == 1
    assert bench.core.uplink.state is LinkState.DOWN
    assert bench.journal.load()[1] == ()


def test_silence_leaves_jobs_running_until_the_hold_ends() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(hold_s=600, grace_s=60, does="run_for=100000 saves_for=5")
    bench.order(launch)
    bench.run(1)
    bench.answers_heartbeats = False
    bench.cut()
    bench.run(500)
    assert bench.runs(launch)
    bench.run(100)
    assert not bench.runs(launch)
    bench.answers_heartbeats = True
    bench.connect()
    bench.run(1)
    assert bench.last(launch).phase is Phase.EXITED
    assert bench.last(launch).exit_code == 99


def test_contact_is_the_instant_at_which_the_answered_heartbeat_was_sent() -> None:
    bench = AgentBench()
    bench.answers_heartbeats = False
    bench.connect()
    sent_s = bench.clock.boottime_s()
    assert bench.contact.boottime_s() is None
    bench.clock.advance(3)
    bench.core.received(HeartbeatReply(bench.said(Heartbeat)[-1].sequence))
    assert bench.contact.boottime_s() == sent_s


def test_nothing_starts_before_the_first_answered_heartbeat() -> None:
    bench = AgentBench()
    bench.answers_heartbeats = False
    launch = a_launch()
    bench.connect(launch)
    bench.run(3)
    assert bench.host.attempts == {}
    bench.core.received(HeartbeatReply(bench.said(Heartbeat)[-1].sequence))
    assert bench.runs(launch)


def test_a_line_that_does_not_answer_is_given_up_after_the_ttl_and_dialled_again() -> None:
    bench = AgentBench()
    bench.connect()
    bench.answers_heartbeats = False
    bench.run(30)
    assert bench.transport.closes == 1
    bench.run(20)
    assert bench.transport.opens >= 2


def test_a_late_answer_of_an_older_session_is_no_contact() -> None:
    bench = AgentBench()
    bench.connect()
    contact_s = bench.contact.boottime_s()
    bench.answers_heartbeats = False
    bench.run(6)
    late = bench.said(Heartbeat)[-1].sequence
    bench.cut()
    bench.core.received(HeartbeatReply(late))
    assert bench.contact.boottime_s() == contact_s


def test_an_orphan_without_a_journal_is_adopted_reported_and_left_running() -> None:
    from support.agent_fakes import MemoryJournal

    bench = AgentBench()
    bench.connect()
    launch = a_launch()
    bench.order(launch)
    bench.run(1)
    bench.journal = MemoryJournal()
    bench.restart()
    hello = bench.connect()
    assert [(r.key, r.fence, r.phase) for r in hello.ranks] == [
        (launch.key, launch.fence, Phase.STARTED)
    ]
    bench.run(10)
    assert bench.runs(launch)


def test_a_stopping_rank_that_its_runtime_has_lost_is_ended_and_not_started_again() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=1000 beat={} ignores_signals=yes")
    bench.order(launch)
    bench.run(2)
    bench.order(a_stop(launch, grace_s=500))
    bench.host.attempts.clear()
    bench.restart()
    bench.connect(launch)
    bench.run(2)
    assert bench.host.attempts == {}
    assert bench.last(launch).phase is Phase.START_FAILED


def test_a_wanted_launch_that_cannot_be_taken_is_reported_until_it_is_heard() -> None:
    """The master's database is older than this node's journal: another rank has that name here."""
    bench = AgentBench()
    bench.connect()
    bench.order(a_launch())
    bench.run(1)
    bench.acks = False
    bench.cut()
    wanted = a_launch(epoch=EPOCH + 1)
    bench.connect(wanted, epoch=EPOCH + 1)

    def refusals() -> list[tuple[Phase, str]]:
        found = [report for report in bench.reports(wanted) if report.fence == wanted.fence]
        return [(report.phase, report.error) for report in found]

    assert refusals() == [(Phase.START_FAILED, "fence_mismatch")]
    assert bench.runs(a_launch()), "what runs by that name is left alone"
    bench.run(11)
    assert len(refusals()) == 2, "nobody has confirmed it"
    bench.acks = True
    bench.run(11)
    told = len(refusals())
    bench.run(30)
    assert len(refusals()) == told
