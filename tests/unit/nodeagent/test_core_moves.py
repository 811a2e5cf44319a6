"""The agent's core when a rank leaves its GPUs without a save, and when it comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlq_nodeagent.model.errands import Look, Move, MoveResult, Purpose
from dlq_nodeagent.model.messages import Fence, Launch, Phase, Resume, Suspend, SuspensionFact
from dlq_nodeagent.model.port import Handle, RuntimeFault, Standstill
from dlq_nodeagent.ranks.moves import MEMORY_NEEDED
from support.agent_bench import AgentBench, a_launch, a_stop, made


def running(bench: AgentBench) -> Launch:
    bench.connect()
    launch = a_launch(does="run_for=100 beat={}")
    bench.order(launch)
    bench.run(2)
    return launch


def out(launch: Launch, number: int = 1) -> Suspend:
    return Suspend(key=launch.key, fence=launch.fence, number=number)


def back(launch: Launch, number: int = 2) -> Resume:
    return Resume(key=launch.key, fence=launch.fence, number=number)


def told(bench: AgentBench, launch: Launch) -> SuspensionFact:
    found = bench.last(launch).suspension
    assert found is not None
    return found


def test_a_rank_goes_out_and_comes_back_and_its_time_stood_still() -> None:
    bench = AgentBench()
    launch = running(bench)
    assert bench.order(out(launch)).refusal == ""
    bench.run(1)
    assert (told(bench, launch).state, told(bench, launch).memory_bytes) == ("suspended", 2 << 30)
    assert bench.last(launch).phase is Phase.STARTED
    assert bench.core.supervisor.gpus_in_use() == frozenset()
    bench.run(300)
    assert bench.runs(launch)
    assert bench.order(back(launch)).refusal == ""
    bench.run(1)
    assert (told(bench, launch).number, told(bench, launch).state) == (2, "running")
    assert bench.core.supervisor.gpus_in_use() == frozenset(launch.gpu_indexes)
    bench.run(110)
    assert bench.last(launch).phase is Phase.EXITED


def test_a_refused_move_is_told_with_its_reason_and_the_rank_runs_on() -> None:
    bench = AgentBench()
    launch = running(bench)
    bench.move = lambda move: MoveResult(refusal="memory: no room")
    bench.order(out(launch))
    bench.run(1)
    assert told(bench, launch) == SuspensionFact(
        number=1, state="running", failure="memory: no room"
    )
    bench.order(out(launch))  # the line broke before the answer
    bench.run(1)
    assert told(bench, launch).state == "running"


def test_who_comes_back_while_somebody_is_on_its_gpus_tries_again() -> None:
    bench = AgentBench()
    launch = running(bench)
    bench.order(out(launch))
    bench.run(1)
    bench.move = lambda move: MoveResult(refusal="not_free: GPU-0")
    bench.order(back(launch))
    bench.run(5)
    assert told(bench, launch).state == "moving"
    bench.move = made
    bench.run(3)
    assert told(bench, launch).state == "running"


def test_an_order_to_come_back_overtakes_the_move_out() -> None:
    bench = AgentBench()
    launch = running(bench)
    bench.move = lambda move: None
    bench.order(out(launch))
    bench.order(back(launch))
    bench.move = made
    bench.run(2)
    assert (told(bench, launch).number, told(bench, launch).state) == (2, "running")


@pytest.mark.parametrize("number", [1, 2])
def test_an_agent_that_dies_during_a_move_is_followed_by_one_that_ends_it(number: int) -> None:
    bench = AgentBench()
    launch = running(bench)
    bench.order(out(launch))
    if number == 2:
        bench.run(1)
    bench.move = lambda move: None
    if number == 2:
        bench.order(back(launch))
    bench.restart(down_s=30)
    bench.connect(launch)
    bench.move = made
    bench.run(2)
    state = "suspended" if number == 1 else "running"
    assert (told(bench, launch).number, told(bench, launch).state) == (number, state)


def test_a_suspended_rank_is_suspended_after_the_agents_restart() -> None:
    bench = AgentBench()
    launch = running(bench)
    bench.order(out(launch))
    bench.run(1)
    bench.restart(down_s=30)
    bench.connect(launch)
    bench.run(2)
    assert told(bench, launch).state == "suspended"
    assert bench.errands.moves == []
    bench.order(back(launch))
    bench.run(1)
    assert told(bench, launch).state == "running"


@pytest.mark.parametrize("at", ["leaving", "out", "coming"])
def test_a_stop_does_not_wait_for_a_move_and_gives_no_grace(at: str) -> None:
    bench = AgentBench()
    launch = running(bench)
    held: list[Move] = []
    if at == "leaving":
        bench.move = lambda move: held.append(move)
    bench.order(out(launch))
    bench.run(1)
    if at == "coming":
        bench.move = lambda move: held.append(move)
        bench.order(back(launch))
    bench.order(a_stop(launch, grace_s=600.0))
    bench.run(3)
    assert not bench.runs(launch)
    assert bench.last(launch).phase is Phase.EXITED
    for move in held:
        bench.core.moved(move.launch.key, MoveResult())
    bench.run(1)
    assert bench.last(launch).phase is Phase.EXITED


def test_a_rank_that_cannot_be_brought_back_is_said_to_be_stranded() -> None:
    bench = AgentBench()
    launch = running(bench)
    bench.order(out(launch))
    bench.run(1)
    bench.move = lambda move: MoveResult(broken="restore of process 11: CUDA error 999")
    bench.order(back(launch))
    bench.acks = False
    bench.run(1)
    assert told(bench, launch).state == "stranded"
    bench.restart(down_s=1)
    bench.connect(launch)
    assert told(bench, launch).state == "stranded", "an agent that follows says it again"


def test_a_move_that_cannot_begin_is_tried_again() -> None:
    bench = AgentBench()
    launch = running(bench)
    runtime = bench.core.supervisor.moves.runtime
    known = runtime.standstill

    def fails(handle: Handle) -> Standstill:
        raise RuntimeFault("does not run")

    runtime.standstill = fails  # type: ignore[method-assign]
    bench.order(out(launch))
    bench.run(3)
    assert told(bench, launch).state != "stranded"
    runtime.standstill = known  # type: ignore[method-assign]
    bench.run(3)
    assert told(bench, launch).state == "suspended"


def test_processes_are_on_record_before_the_first_is_moved_and_outlive_the_agent() -> None:
    bench = AgentBench()
    launch = running(bench)
    seen: list[tuple[int, ...]] = []

    def moves(move: Move) -> MoveResult:
        seen.append(move.pids)
        if not move.pids:
            return MoveResult(found=(11, 12), nbytes=3 << 30)
        (kept,) = bench.journal.load()[1]
        assert kept.suspension is not None
        assert kept.suspension.pids == move.pids
        assert move.nbytes == (3 if move.out else 2) << 30
        return made(move)

    bench.move = moves
    bench.order(out(launch))
    bench.run(1)
    assert told(bench, launch).state == "suspended"
    bench.restart(down_s=30)
    bench.connect(launch)
    bench.run(2)
    bench.order(back(launch))
    bench.run(1)
    assert seen == [(), (11, 12), (11, 12)]
    bench.order(out(launch, 3))
    bench.run(1)
    assert seen[3:] == [(), (11, 12)], "the next move finds them anew"


def test_an_agent_that_dies_before_anything_is_on_record_has_moved_nothing() -> None:
    bench = AgentBench()
    launch = running(bench)
    bench.move = lambda move: None
    bench.order(out(launch))
    bench.restart(down_s=1)
    bench.connect(launch)
    (move,) = bench.errands.moves
    assert (move.out, move.pids) == (True, ())


def elsewhere(bench: AgentBench, *indexes: int) -> Launch:
    """A rank that has left GPU 0, and is told to come back to these."""
    launch = running(bench)
    bench.order(out(launch))
    bench.run(1)
    assert told(bench, launch).remaps
    bench.move = lambda move: None
    assert bench.order(replace(back(launch), gpu_indexes=indexes)).refusal == ""
    bench.run(1)
    return launch


@pytest.mark.parametrize("dies", [False, True])
def test_a_rank_comes_back_to_another_gpu_which_is_its_own_from_then_on(dies: bool) -> None:
    bench = AgentBench()
    launch = elsewhere(bench, 3)
    if dies:
        bench.restart(down_s=5)
        bench.connect(replace(launch, gpu_indexes=(3,)))
    (move,) = bench.errands.moves
    assert (move.came_from, move.launch.gpu_indexes) == ((0,), (3,))
    assert bench.core.supervisor.gpus_in_use() == frozenset({3})
    bench.move = made
    bench.run(1)
    assert (told(bench, launch).state, bench.last(launch).gpu_indexes) == ("running", (3,))
    if dies:
        bench.restart(down_s=5)
        bench.connect(replace(launch, gpu_indexes=(3,)))
    moves: list[Move] = []

    def noted(move: Move) -> MoveResult:
        moves.append(move)
        return made(move)

    bench.move = noted
    bench.order(out(launch, 3))
    bench.run(1)
    bench.order(back(launch, 4))
    bench.run(1)
    assert [(it.came_from, it.launch.gpu_indexes) for it in moves] == [((), (3,))] * 2


def test_a_gpu_that_a_rank_keeps_stays_in_its_place() -> None:
    bench = AgentBench()
    bench.connect()
    launch = a_launch(does="run_for=100", gpu_indexes=(0, 1))
    bench.order(launch)
    bench.run(2)
    bench.move = made
    bench.order(out(launch))
    bench.run(1)
    bench.order(replace(back(launch), gpu_indexes=(1, 3)))
    bench.run(1)
    assert bench.last(launch).gpu_indexes == (3, 1)


def test_a_rank_that_is_not_off_its_gpus_gets_no_others() -> None:
    bench = AgentBench()
    launch = elsewhere(bench, 3)
    assert bench.order(replace(back(launch, 3), gpu_indexes=(2,))).refusal == "other_gpus"
    other = a_launch(job=18, gpu_indexes=(1,))
    bench.order(other)
    bench.run(2)
    assert bench.order(replace(back(other), gpu_indexes=(2,))).refusal == "other_gpus"


def test_a_rank_that_cannot_come_back_to_others_is_not_told_to() -> None:
    bench = AgentBench()
    launch = running(bench)
    bench.move = lambda move: replace(made(move), own_only="the driver is old")
    bench.order(out(launch))
    bench.run(1)
    assert (told(bench, launch).remaps, told(bench, launch).own_only) == (
        False,
        "the driver is old",
    )
    assert bench.order(replace(back(launch), gpu_indexes=(3,))).refusal == "other_gpus"


@pytest.mark.parametrize("dies", [False, True])
def test_the_end_of_a_suspended_rank_does_not_wait_for_the_one_on_its_gpus(dies: bool) -> None:
    bench = AgentBench()
    launch = running(bench)
    bench.order(out(launch))
    bench.run(1)
    guest = a_launch(job=18, gpu_indexes=(0,))
    bench.order(guest)
    bench.run(2)
    given_out: list[frozenset[int]] = []
    bench.answers_looks = False
    bench.order(a_stop(launch, grace_s=0.0))
    if dies:
        bench.restart(down_s=1)
        bench.connect(launch, guest)
    for _ in range(20):
        bench.run(0.25)
        for look in bench.errands.take_looks():
            if look.launch.key != launch.key:
                continue
            given_out += [look.given_out] if look.purpose is Purpose.RELEASE else []
            free = None if look.purpose is not Purpose.RELEASE else 0 in look.given_out
            bench.core.looked(look.launch.key, look.purpose, Look(released=free))
    bench.run(1)
    assert given_out == [frozenset({0})]
    assert bench.last(launch).phase is Phase.EXITED
    assert bench.core.supervisor.gpus_in_use() == frozenset({0})
    assert bench.core.supervisor.jobs_of_gpus() == {0: "18"}


@pytest.mark.parametrize("at", ["leaving", "broken", "coming"])
def test_a_rank_that_may_be_on_its_gpus_is_proven_gone_from_them(at: str) -> None:
    """Another one that is listed there proves nothing then."""
    bench = AgentBench()
    launch = running(bench)
    if at == "leaving":
        bench.move = lambda move: None
    elif at == "broken":
        bench.move = lambda move: MoveResult(broken="checkpoint: CUDA error 999")
    bench.order(out(launch))
    bench.run(1)
    if at == "coming":
        bench.move = lambda move: None
        bench.order(back(launch))
    bench.order(a_launch(job=18, gpu_indexes=(0,)))
    bench.answers_looks = False
    bench.order(a_stop(launch, grace_s=0.0))
    given_out: list[frozenset[int]] = []
    for _ in range(20):
        bench.run(0.25)
        for look in bench.errands.take_looks():
            given_out += [look.given_out] if look.purpose is Purpose.RELEASE else []
            bench.core.looked(look.launch.key, look.purpose, Look())
    assert given_out[0] == frozenset()


def test_a_host_that_needs_its_memory_gives_up_the_last_one() -> None:
    bench = AgentBench()
    launch = running(bench)
    other = a_launch(job=18, gpu_indexes=(1,))
    bench.order(other)
    bench.run(2)
    bench.order(out(launch))
    bench.run(3)
    bench.order(out(other))
    bench.run(3)
    bench.core.supervisor.moves.short = lambda: True
    bench.run(5)
    assert told(bench, other) == SuspensionFact(
        number=1, state="stranded", memory_bytes=2 << 30, took_s=0.5, failure=MEMORY_NEEDED
    )
    assert told(bench, launch).state == "suspended"


def test_who_does_not_run_is_not_moved() -> None:
    bench = AgentBench()
    launch = running(bench)
    stranger = replace(launch, key=launch.key._replace(attempt=9))
    assert bench.order(out(stranger)).refusal == "unknown_rank"
    other = replace(out(launch), fence=Fence(1, 9))
    assert bench.order(other).refusal == "fence_mismatch"
    bench.order(a_stop(launch))
    assert bench.order(out(launch)).refusal == "not_running"


def test_nobody_runs_a_command_in_a_rank_that_stands_still() -> None:
    bench = AgentBench()
    launch = running(bench)
    assert bench.core.supervisor.running(launch.key, launch.fence) is not None
    bench.order(out(launch))
    bench.run(1)
    assert bench.core.supervisor.running(launch.key, launch.fence) is None
