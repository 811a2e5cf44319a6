"""The agent's core and the steps that its jobs write down: when they are read and told."""

from dataclasses import replace
from typing import Any

from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Fence, Launch, RankReport, StepsAck, StepsReport
from support.agent_bench import EPOCH, AgentBench, a_launch, a_stop

HEAD = r"dlq-steps\t1\t0\t0\n"


def a_step(number: int, *, code: int | None = None, name: str = "s") -> str:
    """The line of a step of the host's year 2023."""
    state, end = ("running", 0) if code is None else ("ended", 1_700_000_009_000)
    words = (number, name, 1, 2, state, code or 0, 1_700_000_000_000, end, 4096, 1500, "n1")
    return r"\t".join(map(str, words)) + r"\n"


def slurm(steps: str, **changes: Any) -> Launch:
    """A job with compat slurm whose first rank has written these steps."""
    launch = a_launch(compat="slurm", **changes)
    return replace(launch, command=(*launch.command, f"steps={steps}"))


def writes(bench: AgentBench, launch: Launch, steps: str) -> None:
    attempt = bench.host.attempts[launch.key]
    attempt.job = replace(attempt.job, steps=steps)


def told(bench: AgentBench) -> list[StepsReport]:
    """All lists that this agent has sent."""
    return bench.said(StepsReport)


def numbers(report: StepsReport) -> list[int]:
    return [step.number for step in report.steps]


def test_steps_are_told_once_and_again_when_they_change() -> None:
    bench = AgentBench()
    bench.connect()
    launch = slurm(HEAD + a_step(0))
    bench.order(launch)
    bench.run(30)
    [first] = told(bench)
    assert (first.key, first.fence) == (launch.key, launch.fence)
    [step] = first.steps
    assert (step.name, step.task_count, step.running, step.run_s) == ("s", 2, True, None)
    writes(bench, launch, HEAD + a_step(0, code=3) + a_step(1))
    bench.run(30)
    first, second = told(bench)
    assert second.number > first.number
    assert [(step.exit_code, step.run_s) for step in second.steps] == [(3, 9.0), (0, None)]


def test_an_older_master_is_told_nothing_that_it_would_not_understand() -> None:
    bench = AgentBench()
    bench.takes_steps = False
    bench.connect()
    bench.order(slurm(HEAD + a_step(0)))
    bench.run(30)
    assert told(bench) == []
    bench.cut()
    bench.takes_steps = True
    bench.connect()
    bench.run(1)
    assert [numbers(report) for report in told(bench)] == [[0]]


def test_only_the_first_rank_of_a_job_of_slurm_is_asked() -> None:
    bench = AgentBench()
    bench.connect()
    other = replace(slurm(HEAD + a_step(0)), compat="")
    second = slurm(HEAD + a_step(0), rank=1)
    bench.order(other)
    bench.order(replace(second, key=RankKey("99", *second.key[1:])))
    bench.run(30)
    assert told(bench) == []


def test_the_longer_a_list_the_rarer_it_is_read() -> None:
    bench = AgentBench()
    bench.connect()
    launch = slurm(HEAD + a_step(0))
    bench.order(launch)
    bench.run(5)
    long = "".join(a_step(at, code=0, name="n" * 200) for at in range(500))
    writes(bench, launch, HEAD + long)
    bench.run(5)
    assert len(told(bench)) == 2
    for at in range(20):
        writes(bench, launch, HEAD + long + a_step(1000 + at))
        bench.run(1)
    assert 3 <= len(told(bench)) <= 5


def test_a_change_after_a_quiet_time_is_told_at_once_however_long_the_list() -> None:
    bench = AgentBench()
    bench.connect()
    long = HEAD + "".join(a_step(at, code=0, name="n" * 200) for at in range(500))
    launch = slurm(long)
    bench.order(launch)
    bench.run(20)
    writes(bench, launch, long + a_step(1000))
    bench.run(0.6)
    assert numbers(told(bench)[-1])[-1] == 1000


def test_a_list_is_repeated_until_the_master_has_it() -> None:
    bench = AgentBench()
    bench.acks_steps = False
    bench.connect()
    launch = slurm(HEAD + a_step(0))
    bench.order(launch)
    bench.run(45)
    assert 4 <= len(told(bench)) <= 6
    number = told(bench)[-1].number
    for ack in (
        StepsAck(launch.key, Fence(EPOCH, 9), number),
        StepsAck(launch.key, launch.fence, number - 1),
    ):
        bench.core.received(ack)
    before = len(told(bench))
    bench.run(15)
    assert len(told(bench)) > before
    bench.core.received(StepsAck(launch.key, launch.fence, number))
    before = len(told(bench))
    bench.run(60)
    assert len(told(bench)) == before


def test_a_new_line_tells_what_the_old_one_may_have_lost() -> None:
    bench = AgentBench()
    bench.acks_steps = False
    bench.connect()
    bench.order(slurm(HEAD + a_step(0)))
    bench.run(5)
    bench.cut()
    bench.acks_steps = True
    bench.connect()
    bench.run(1)
    assert len(told(bench)) == 2
    bench.run(60)
    assert len(told(bench)) == 2


def test_the_last_list_is_told_at_the_end_of_its_rank_at_once() -> None:
    bench = AgentBench()
    bench.connect()
    launch = slurm(HEAD + a_step(0))
    bench.order(launch)
    bench.run(5)
    writes(bench, launch, HEAD + a_step(0, code=0) + a_step(1, code=9))
    bench.order(a_stop(launch, cause="cancel"))
    bench.run(1)
    assert numbers(told(bench)[-1]) == [0, 1]
    before = len(told(bench))
    bench.run(60)
    assert len(told(bench)) == before


def test_an_agent_that_restarts_reads_and_tells_again() -> None:
    bench = AgentBench()
    bench.connect()
    launch = slurm(HEAD + a_step(0))
    bench.order(launch)
    bench.run(10)
    bench.restart(down_s=5)
    writes(bench, launch, HEAD + a_step(0, code=0) + a_step(1))
    bench.connect()
    bench.run(5)
    assert [numbers(report) for report in told(bench)][-1] == [0, 1]


def test_what_ends_while_no_agent_lives_is_told_and_only_until_it_is_known() -> None:
    bench = AgentBench()
    bench.connect()
    launch = slurm(HEAD + a_step(0), does="run_for=30")
    bench.order(launch)
    bench.run(10)
    bench.restart(down_s=60)
    writes(bench, launch, HEAD + a_step(0, code=0) + a_step(1, code=1))
    bench.connect()
    bench.run(5)
    assert numbers(told(bench)[-1]) == [0, 1]
    bench.restart()
    bench.connect()
    bench.run(30)
    assert told(bench) == []


def test_a_list_that_makes_no_sense_is_left_out_and_the_next_good_one_counts() -> None:
    bench = AgentBench()
    bench.connect()
    launch = slurm(HEAD + a_step(0))
    bench.order(launch)
    bench.run(5)
    huge = "x" * 3_000_000
    for garbage in (r"dlq-steps\t1\t0\t0", HEAD + a_step(0, name="x" * 999), huge):
        writes(bench, launch, garbage)
        bench.run(5)
    assert len(told(bench)) == 1
    writes(bench, launch, HEAD + a_step(4))
    bench.run(20)
    assert numbers(told(bench)[-1]) == [4]


def test_a_node_that_only_serves_steps_says_so_to_the_master() -> None:
    bench = AgentBench()
    bench.connect()
    launch = replace(slurm("", rank=1), step_key="ab" * 32)
    bench.order(launch)
    bench.run(10)
    attempt = bench.host.attempts[launch.key]
    attempt.job = replace(attempt.job, workers_done=True)
    bench.run(30)
    assert any(report.workers_done for report in bench.said(RankReport))
