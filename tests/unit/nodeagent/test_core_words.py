"""The agent's core when a rank that goes on is told something: a signal, or to save."""

import signal
from dataclasses import replace
from typing import Any

import pytest

from dlq_nodeagent.model.messages import Fence, Launch, Phase, Save, Signal
from support.agent_bench import AgentBench, a_launch, a_stop


def running(bench: AgentBench, **more: Any) -> Launch:
    bench.connect()
    launch = replace(a_launch(does="run_for=1000 beat={}"), **more)
    bench.order(launch)
    bench.run(2)
    return launch


def a_signal(launch: Launch, name: str = "WINCH") -> Signal:
    return Signal(key=launch.key, fence=launch.fence, signal=name)


def a_save(launch: Launch, number: int = 7) -> Save:
    return Save(key=launch.key, fence=launch.fence, number=number)


def test_a_signal_reaches_the_main_process_and_changes_no_state() -> None:
    bench = AgentBench()
    launch = running(bench)
    assert bench.order(a_signal(launch)).refusal == ""
    assert bench.sent == [signal.SIGWINCH]
    bench.run(2)
    assert bench.last(launch).phase is Phase.STARTED
    assert bench.notice(launch) is None


def test_an_unnamed_signal_is_that_of_the_notice() -> None:
    bench = AgentBench()
    launch = running(bench, preempt_signal="USR2")
    assert bench.order(a_signal(launch, "")).refusal == ""
    assert bench.sent == [signal.SIGUSR2]


@pytest.mark.parametrize("name", ["KILL", "STOP", "NOSUCH", "usr1"])
def test_a_signal_that_nobody_may_send_is_refused(name: str) -> None:
    bench = AgentBench()
    launch = running(bench)
    assert bench.order(a_signal(launch, name)).refusal == "no_such_signal"
    assert bench.sent == []
    assert bench.runs(launch)


def test_a_request_to_save_is_a_file_and_a_signal_only_if_the_job_has_one() -> None:
    bench = AgentBench()
    launch = running(bench)
    assert bench.order(a_save(launch)).refusal == ""
    assert (bench.save_number(launch), bench.sent) == (7, [])

    other = AgentBench()
    launch = running(other, save_signal="USR1", preempt_signal="TERM")
    assert other.order(a_save(launch, 8)).refusal == ""
    assert (other.save_number(launch), other.sent) == (8, [signal.SIGUSR1])
    assert other.notice(launch) is None


def test_who_does_not_run_is_told_nothing() -> None:
    bench = AgentBench()
    launch = running(bench)
    stranger = replace(launch, key=launch.key._replace(attempt=9))
    for order in (a_signal(stranger), a_save(stranger)):
        assert bench.order(order).refusal == "unknown_rank"
    other = Signal(key=launch.key, fence=Fence(1, 9), signal="USR1")
    assert bench.order(other).refusal == "fence_mismatch"
    bench.order(a_stop(launch))
    for order in (a_signal(launch), a_save(launch)):
        assert bench.order(order).refusal == "not_running"
    assert bench.sent == []


def test_a_shim_that_takes_nothing_is_told_as_such() -> None:
    bench = AgentBench()
    launch = running(bench)
    bench.deaf = True
    assert bench.order(a_signal(launch)).refusal == "not_delivered"


def test_a_master_of_an_older_epoch_sends_nothing() -> None:
    bench = AgentBench()
    launch = running(bench)
    assert bench.order(a_signal(launch), epoch=1).refusal == "stale_epoch"
    assert bench.sent == []


def test_after_a_restart_the_agent_still_knows_whom_to_tell() -> None:
    bench = AgentBench()
    launch = running(bench, save_signal="USR1")
    bench.restart()
    bench.connect(launch)
    bench.run(2)
    assert bench.order(a_save(launch, 9)).refusal == ""
    assert (bench.save_number(launch), bench.sent) == (9, [signal.SIGUSR1])
