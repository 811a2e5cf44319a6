"""CPU time and use of disks of ranks: told as differences, now and then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from dlq_nodeagent.cgroups.port import RankUsage
from dlq_nodeagent.jobtree.beats import Beat
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Fence, Launch, StepWork
from dlq_nodeagent.model.port import Handle, Runtime
from dlq_nodeagent.model.rank import accept
from dlq_nodeagent.ranks.using import RankUses
from dlq_nodeagent.ranks.watched import Watched
from support.fake_clock import FakeClock

KEY = RankKey("7", 1, 0)


@dataclass
class Counters:
    """A runtime of which only counters are asked."""

    cpu_s: float | None = 10.0
    memory_bytes: int | None = None
    disk_bytes: tuple[int, int] | None = (1000, 500)
    asked: list[Handle] = field(default_factory=list)

    def usage(self, handle: Handle) -> RankUsage:
        self.asked.append(handle)
        return RankUsage(self.memory_bytes, None, self.cpu_s, None, None)

    def disk(self, handle: Handle) -> tuple[int, int] | None:
        return self.disk_bytes


def rank() -> Watched:
    launch = Launch(key=KEY, fence=Fence(1, 1), command=("true",))
    return Watched(accept(launch, now_s=0.0).rank, Handle(KEY, 1))


def test_a_span_is_told_after_two_readings_and_not_sooner() -> None:
    clock, counters, watched = FakeClock(), Counters(), rank()
    uses = RankUses(clock, cast("Runtime", counters))
    assert uses.told([watched]) == ()
    counters.cpu_s, counters.disk_bytes = 25.0, (4000, 700)
    clock.advance(29.0)
    assert uses.told([watched]) == ()
    assert len(counters.asked) == 1, "in between nothing is read"
    clock.advance(1.0)
    (use,) = uses.told([watched])
    assert (use.span_s, use.cpu_s, use.read_bytes, use.written_bytes) == (30.0, 15.0, 3000, 200)


def test_memory_is_told_as_it_is_now() -> None:
    clock, counters, watched = FakeClock(), Counters(memory_bytes=700), rank()
    uses = RankUses(clock, cast("Runtime", counters))
    uses.told([watched])
    found = []
    for counters.memory_bytes in (500, None):
        clock.advance(30.0)
        found += [use.memory_bytes for use in uses.told([watched])]
    assert found == [500, None]


def test_counters_that_fall_or_are_missing_are_unknown() -> None:
    clock, counters, watched = FakeClock(), Counters(), rank()
    uses = RankUses(clock, cast("Runtime", counters))
    uses.told([watched])
    counters.cpu_s, counters.disk_bytes = None, (900, 600)
    clock.advance(30.0)
    (use,) = uses.told([watched])
    assert (use.cpu_s, use.read_bytes, use.written_bytes) == (None, None, 100)


def test_a_rank_that_has_gone_is_forgotten() -> None:
    clock, counters, watched = FakeClock(), Counters(), rank()
    uses = RankUses(clock, cast("Runtime", counters))
    uses.told([watched])
    clock.advance(30.0)
    assert uses.told([]) == ()
    clock.advance(30.0)
    assert uses.told([watched]) == ()


def work(steps: int, logs: float, squares: float) -> StepWork:
    return StepWork(step_count=steps, log_sum=logs, log_square_sum=squares)


def beaten(watched: Watched, told: StepWork | None) -> Watched:
    watched.beat = Beat(step=1, total=None, loss=None, work=told)
    return watched


def test_work_times_are_told_as_differences() -> None:
    clock, watched = FakeClock(), rank()
    uses = RankUses(clock, cast("Runtime", Counters()))
    uses.told([beaten(watched, work(10, 1.0, 5.0))])
    clock.advance(30.0)
    (use,) = uses.told([beaten(watched, work(40, 4.0, 9.0))])
    assert use.work == work(30, 3.0, 4.0)


@pytest.mark.parametrize("now", [None, work(10, 1.0, 5.0), work(4, 0.5, 2.0)])
def test_no_new_steps_and_another_process_tell_no_work_times(now: StepWork | None) -> None:
    clock, watched = FakeClock(), rank()
    uses = RankUses(clock, cast("Runtime", Counters()))
    uses.told([beaten(watched, work(10, 1.0, 5.0))])
    clock.advance(30.0)
    (use,) = uses.told([beaten(watched, now)])
    assert use.work is None
