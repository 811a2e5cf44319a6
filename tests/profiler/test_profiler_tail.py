"""Looks at the newest sends of real processes on loopback: a slow rank, and one that hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dlq_master.policy.activity import GangSends, StallRule
from dlq_master.policy.stragglers import WorkTimes, excesses
from dlq_profiler.records.control import switch, write_control
from dlq_profiler.records.tail import TrafficLook, look
from support.waiting import wait_until
from support.watched_programs import ROOT, Profiling

RANKS, STEPS, COMPUTE_S, SLOW_S = 4, 30, 0.06, 0.084
RING = ROOT / "tests" / "support" / "ring_of_ranks.py"


@pytest.fixture
def gang(library: Path, tmp_path: Path) -> Iterator[Gang]:
    made = Gang(library, tmp_path)
    yield made
    made.kill()


class Gang:
    """Four ranks, each recorded in a directory of its own, as on four nodes."""

    def __init__(self, library: Path, home: Path) -> None:
        self.library, self.home = library, home
        self.ranks: list[subprocess.Popen[bytes]] = []

    def run(self, compute_s: Sequence[float], last: Sequence[str] = ()) -> None:
        """Until each rank has done its steps. `last`: of each rank, empty for one that hangs."""
        for rank, each_s in enumerate(compute_s):
            profiling = Profiling(self.library, self.home / f"rings-{rank}")
            words = [str(self.home), str(RANKS), str(STEPS), str(each_s)]
            command = [sys.executable, str(RING), *words, *filter(None, last[rank : rank + 1])]
            environment = {**os.environ, **profiling.variables(), "RANK": str(rank)}
            self.ranks.append(subprocess.Popen(command, env=environment))
        done = [self.home / f"{rank}.done" for rank in range(RANKS)]
        wait_until(lambda: all(map(Path.exists, done)), what="the steps", timeout_s=60.0)

    def looks(self) -> list[TrafficLook]:
        found = [look(self.home / f"rings-{rank}", time.monotonic_ns()) for rank in range(RANKS)]
        return [one for one in found if one is not None]

    def one_is_behind(self) -> bool:
        """Whether one rank has not sent what the others have sent since."""
        *_, second_s, first_s = sorted(one.sent_ago_s for one in self.looks())
        return first_s - second_s > 0.3

    def kill(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait()


def test_the_slow_rank_is_the_one_that_works_longest_between_its_sends(gang: Gang) -> None:
    gang.run([SLOW_S if rank == 2 else COMPUTE_S for rank in range(RANKS)])
    works = {rank: one.work for rank, one in enumerate(gang.looks())}
    times = {rank: WorkTimes(*work) for rank, work in works.items() if work is not None}
    assert set(times) == set(range(RANKS))
    found = excesses(times, dict.fromkeys(times, "h100"))
    assert max(found, key=lambda rank: found[rank].ratio_log) == 2
    assert found[2].ratio_log > 0.1


def test_the_rank_that_hangs_is_the_first_that_stopped_to_send(gang: Gang) -> None:
    gang.run([COMPUTE_S] * RANKS, ["0.8", "", "0.8", "0.8"])
    wait_until(
        gang.one_is_behind,
        what="the others send their part of the next step",
        timeout_s=30.0,
    )
    sending = GangSends()
    for rank, one in enumerate(gang.looks()):
        sending.hear(rank, 1000.0, one.sent_ago_s, one.quiet_s)
    told = sending.behind()
    assert told is not None
    assert told[0] == 1
    assert sending.silent_s(StallRule(2.0, 3600.0), RANKS, 1000.0) is None


def test_a_look_costs_nothing_that_grows_and_a_job_cannot_spoil_it(tmp_path: Path) -> None:
    write_control(tmp_path)
    switch(tmp_path, on=True)
    assert look(tmp_path, 0) is None
    (tmp_path / "1-1.dlqprof").write_bytes(b"DLQPROF\0" + b"\xff" * 5000)
    (tmp_path / "2-2.dlqprof").write_bytes(b"short")
    os.mkfifo(tmp_path / "3-3.dlqprof")
    (tmp_path / "4-4.dlqprof").symlink_to("/dev/zero")
    assert look(tmp_path, 0) is None
