"""The agent's core: which message answers a launch, and when it is on the disk."""

from dataclasses import replace

from dlq_nodeagent.model.errands import Preparation
from dlq_nodeagent.model.messages import (
    CommandResult,
    FromAgent,
    Heartbeat,
    Launch,
    Phase,
    RankReport,
)
from dlq_nodeagent.supervisor import TELL_PREPARING_S
from support.agent_bench import EPOCH, AgentBench, a_launch, a_preparation, a_stop


def a_bench() -> AgentBench:
    """One whose master takes a report for the answer to a launch."""
    bench = AgentBench()
    bench.reports_answer = True
    return bench


def connected() -> AgentBench:
    bench = a_bench()
    bench.connect()
    return bench


def spoken(bench: AgentBench) -> list[type[FromAgent]]:
    """The kinds of messages after the hello, but for heartbeats."""
    return [type(it) for it in bench.transport.sent[1:] if not isinstance(it, Heartbeat)]


def slowly(launch: Launch) -> Preparation | None:
    return None


def test_a_job_costs_two_messages_and_two_waits_for_the_disk() -> None:
    bench = connected()
    before = bench.journal.waits
    bench.command(a_launch(does="run_for=1"))
    bench.run(3)
    assert spoken(bench) == [RankReport, RankReport]
    assert [it.phase for it in bench.said(RankReport)] == [Phase.STARTED, Phase.EXITED]
    assert bench.journal.waits - before == 2


def test_a_master_of_before_gets_an_answer_to_each_launch() -> None:
    bench = AgentBench()
    bench.connect()
    before = bench.journal.waits
    bench.order(a_launch(does="run_for=1"))
    bench.run(3)
    assert spoken(bench) == [CommandResult, RankReport, RankReport]
    assert bench.journal.waits - before == 2


def test_no_report_leaves_before_its_launch_is_on_the_disk() -> None:
    bench = connected()
    bench.journal.fails = True
    sequence = bench.command(a_launch())
    assert CommandResult(sequence, "journal_failed") in bench.said(CommandResult)
    assert bench.starts == []


def test_a_rank_that_prepares_for_long_has_its_launch_answered_meanwhile() -> None:
    bench = connected()
    bench.prepare = slowly
    sequence = bench.command(a_launch())
    assert spoken(bench) == []
    bench.run(2 * TELL_PREPARING_S, step_s=TELL_PREPARING_S / 2)
    assert spoken(bench) == [CommandResult, RankReport]
    assert bench.said(CommandResult) == [CommandResult(sequence, "")]
    assert bench.said(RankReport)[-1].phase is Phase.PREPARING


def test_a_launch_that_comes_again_is_answered_by_the_report_of_its_rank() -> None:
    bench = connected()
    for _ in range(2):
        bench.command(a_launch())
        bench.run(1)
    assert spoken(bench) == [RankReport, RankReport]
    assert bench.starts == [a_launch().key]


def test_refusals_and_other_commands_are_answered_at_once() -> None:
    bench = connected()
    bench.command(a_launch())
    bench.run(1)
    stale = bench.command(a_launch(18), epoch=EPOCH - 1)
    other = bench.command(a_launch(epoch=EPOCH + 1), epoch=EPOCH + 1)
    stop = bench.command(a_stop(a_launch(19)), epoch=EPOCH + 1)
    assert bench.said(CommandResult) == [
        CommandResult(stale, "stale_epoch"),
        CommandResult(other, "fence_mismatch"),
        CommandResult(stop, ""),
    ]


def test_the_launch_of_a_rank_at_the_barrier_is_answered_at_once() -> None:
    bench = connected()
    waits = a_launch(at_barrier=True)
    first = bench.command(waits)
    assert bench.said(CommandResult) == [CommandResult(first, "")]
    bench.command(replace(waits, at_barrier=False))
    bench.run(1)
    assert bench.said(CommandResult) == [CommandResult(first, "")]
    assert bench.last(waits).phase is Phase.STARTED


def test_an_answer_that_waits_is_not_given_on_another_line() -> None:
    bench = connected()
    bench.prepare = slowly
    launch = a_launch()
    bench.command(launch)
    bench.cut()
    hello = bench.connect(launch)
    assert [it.phase for it in hello.ranks] == [Phase.PREPARING]
    bench.run(1)
    assert bench.said(CommandResult) == []


def test_an_agent_that_dies_before_it_has_answered_takes_the_launch_again() -> None:
    bench = connected()
    bench.prepare = slowly
    launch = a_launch()
    bench.command(launch)
    bench.restart()
    bench.prepare = a_preparation
    bench.connect(launch)
    bench.command(launch)  # an open command is sent again after a hello
    bench.run(1)
    assert bench.starts == [launch.key]
    assert bench.last(launch).phase is Phase.STARTED
    assert bench.said(CommandResult) == []
