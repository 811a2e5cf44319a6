"""A turn that takes long says what was in it: its phases, its stimuli, the rows that it wrote."""

import pytest
from structlog.testing import capture_logs

from dlq_master.control.config import LogConfig
from dlq_master.control.loop.inbox import Envelope
from dlq_master.control.loop.slow_turns import KEPT, LINE_EVERY_S, Laps, SlowTurns
from dlq_master.control.stimuli import Tick
from dlq_master.store.batch import Batch
from support.fake_clock import FakeClock
from support.master_harness import Master
from support.memory_store import MemoryStore


class SlowDisk(MemoryStore):
    """A commit takes 0.3 s of the master's clock."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    async def commit(self, batch: Batch) -> None:
        self._clock.advance(0.3)
        await super().commit(batch)


def _turned(turns: SlowTurns, took_s: float, at_s: float) -> None:
    clock = FakeClock()
    laps = Laps(clock.boottime_s)
    clock.advance(took_s)
    laps.ended("plan")
    turns.turned(laps, at_s, [Envelope(Tick("leases"), None)], Batch())


def test_phases_are_the_times_between_their_ends() -> None:
    clock = FakeClock()
    laps = Laps(clock.boottime_s)
    for phase, seconds in (("decide", 1.0), ("plan", 2.0), ("decide", 4.0), ("publish", 8.0)):
        clock.advance(seconds)
        laps.ended(phase)
    assert laps.spent_s == {"decide": 5.0, "plan": 2.0, "persist": 0.0, "publish": 8.0}
    assert laps.total_s == 15.0


def test_a_slow_disk_and_a_slow_plan_are_told_apart(master: Master) -> None:
    slow, clock = master.loop._meter.slow, master.clock
    slow.bound_s = 0.05
    plan = master.loop._wiring.plan
    master.loop._wiring = master.loop._wiring._replace(
        plan=lambda turn: (clock.advance(0.2), plan(turn))[1]  # type: ignore[func-returns-value]
    )
    disk = SlowDisk(clock)
    disk._rows = master.store._rows
    master.loop._store = disk
    with capture_logs() as logs:
        master.turn(master.submission(), master.submission(), Tick("leases"))
    (line,) = [line for line in logs if line["event"] == "slow_turn"]
    told = {key: line[f"{key}_ms"] for key in ("turn", "decide", "plan", "persist", "publish")}
    assert told == {"turn": 500.0, "decide": 0.0, "plan": 200.0, "persist": 300.0, "publish": 0.0}
    assert line["stimuli"] == {"SubmitJob": 2, "Tick.leases": 1}
    assert (line["jobs"], line["nodes"], line["left_out"]) == (2, 0, 0)
    (kept,) = slow.kept
    assert (slow.count, kept.jobs) == (1, 2)
    assert kept.took_s == pytest.approx(0.5)
    assert kept.events >= 2


def test_a_turn_at_the_bound_is_none() -> None:
    turns = SlowTurns(0.5)
    with capture_logs() as logs:
        _turned(turns, 0.5, at_s=0.0)
        _turned(SlowTurns(0.0), 100.0, at_s=0.0)  # there is no bound
    assert (logs, list(turns.kept), turns.count) == ([], [], 0)


def test_a_loaded_master_writes_one_line_at_a_time_and_counts_the_others() -> None:
    turns = SlowTurns(0.05)
    with capture_logs() as logs:
        for number in range(25):
            _turned(turns, 0.1 + number, at_s=1_000.0 + number * LINE_EVERY_S / 10)
    assert [(line["turn_ms"], line["left_out"]) for line in logs] == [
        (100.0, 0),
        (10_100.0, 9),
        (20_100.0, 9),
    ]
    assert (turns.count, len(turns.kept)) == (25, KEPT)
    assert turns.kept[-1].took_s == pytest.approx(24.1)  # the last ones are kept


def test_the_bound_is_a_setting_and_a_start_begins_anew(master: Master) -> None:
    assert LogConfig().slow_turn == 0.05
    master.loop._meter.slow.bound_s = 0.05
    _turned(master.loop._meter.slow, 1.0, at_s=0.0)
    master.restart()
    assert master.loop._meter.slow.count == 0


def test_a_line_names_no_job_and_no_person(master: Master) -> None:
    master.loop._meter.slow.bound_s = 1e-9
    with capture_logs() as logs:
        master.turn(master.submission())
        laps = Laps(master.clock.boottime_s)
        master.clock.advance(1.0)
        laps.ended("plan")
        letters = [Envelope(master.submission(), None)]
        master.loop._meter.slow.turned(laps, 0.0, letters, Batch())
    (line,) = [line for line in logs if line["event"] == "slow_turn"]
    assert line["stimuli"] == {"SubmitJob": 1}
    assert "alice" not in str(line)
