"""The agent's side of the barrier: ready, let go, and what restarts and silence do in between."""

from dataclasses import replace

from dlq_nodeagent.model.messages import Launch, Phase
from support.agent_bench import AgentBench, a_launch, a_stop


def waiting() -> Launch:
    """A rank of a gang that is to wait."""
    return replace(
        a_launch(), at_barrier=True, node_ids=("a", "b"), node_addresses=("1.1.1.1", "2.2.2.2")
    )


def ready() -> tuple[AgentBench, Launch]:
    bench, launch = AgentBench(), waiting()
    bench.connect()
    bench.order(launch)
    bench.run(5)
    return bench, launch


def let_go(launch: Launch) -> Launch:
    return replace(launch, at_barrier=False, node_ports=((7000,), ()), master_port=7000)


def test_a_rank_at_the_barrier_says_that_it_is_ready_and_does_not_start() -> None:
    bench, launch = ready()
    assert bench.phases(launch) == [Phase.READY]
    assert not bench.runs(launch)


def test_the_same_launch_without_the_barrier_starts_it_once() -> None:
    bench, launch = ready()
    for _ in range(2):
        assert bench.order(let_go(launch)).refusal == ""
        bench.run(1)
    assert bench.runs(launch)
    assert bench.phases(launch) == [Phase.READY, Phase.PREPARING, Phase.STARTED]
    known = bench.core.supervisor.rank(launch.key)
    assert known is not None
    assert known.launch.master_port == 7000


def test_an_agent_that_restarts_at_the_barrier_waits_on() -> None:
    bench, launch = ready()
    bench.restart(down_s=5)
    bench.connect(launch)
    bench.run(2)
    assert bench.last(launch).phase is Phase.READY
    assert not bench.runs(launch)
    bench.order(let_go(launch))
    bench.run(1)
    assert bench.runs(launch)


def test_an_agent_that_was_away_when_the_gang_was_let_go_starts_it_by_the_welcome() -> None:
    bench, launch = ready()
    bench.restart(down_s=5)
    bench.connect(let_go(launch))
    bench.run(2)
    assert bench.runs(launch)


def test_one_that_restarts_after_it_was_let_go_does_not_forget_it() -> None:
    bench, launch = ready()
    bench.prepare = lambda launch: None
    bench.order(let_go(launch))
    bench.restart(down_s=5)
    hello = bench.connect()
    assert [report.phase for report in hello.ranks] == [Phase.PREPARING]
    known = bench.core.supervisor.rank(launch.key)
    # It was not wanted by this welcome: it has ended, and never ran.
    assert known is not None
    assert known.launch.at_barrier is False
    assert not bench.runs(launch)


def test_a_gang_that_is_not_wanted_any_more_does_not_start_after_a_silence() -> None:
    bench, launch = ready()
    bench.cut()
    bench.run(60)
    bench.connect()
    bench.run(2)
    assert bench.last(launch).phase is Phase.START_FAILED
    assert not bench.runs(launch)


def test_a_stop_at_the_barrier_ends_it_as_what_never_ran() -> None:
    bench, launch = ready()
    bench.order(a_stop(launch, cause="gang_failure", grace_s=0))
    bench.run(1)
    report = bench.last(launch)
    assert (report.phase, report.ended_by, report.exit_code) == (
        Phase.EXITED, "never_started", None,
    )  # fmt: skip


def test_what_was_let_go_waits_for_contact_like_any_launch() -> None:
    bench, launch = ready()
    bench.answers_heartbeats = False
    bench.run(30)
    bench.core.supervisor.launch(let_go(launch))
    bench.settle()
    assert not bench.runs(launch)
