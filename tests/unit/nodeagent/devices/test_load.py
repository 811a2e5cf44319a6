"""Sums of samples: means, what nobody saw, and what goes into a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlq_nodeagent.devices.fake import FakeDevices, parse_virtual
from dlq_nodeagent.devices.load import LoadMeter
from dlq_nodeagent.devices.port import DeviceSample
from dlq_nodeagent.devices.watch import GpusConfig, GpuWatch
from support.fake_clock import FakeClock


def sample(percent: int | None, watts: float | None = None) -> DeviceSample:
    return DeviceSample("a", percent, watts, 1700)


def test_a_sample_stands_for_the_time_since_the_one_before_it() -> None:
    meter = LoadMeter(0.0)
    meter.take([sample(100, 400.0)], 1.0)
    meter.take([sample(0, 100.0)], 4.0)
    load = meter.drawn()["a"]
    assert (load.span_s, load.seen_s) == (4.0, 4.0)
    assert (load.mean_utilization_percent, load.peak_utilization_percent) == (25.0, 100)
    assert (load.power_watts, load.clock_mhz) == (175, 1700)


def test_after_a_pause_nobody_knows_what_happened() -> None:
    meter = LoadMeter(0.0)
    meter.take([sample(50)], 1.0)
    meter.take([sample(0)], 60.0)
    meter.take([sample(0)], 61.0)
    load = meter.drawn()["a"]
    assert (load.span_s, load.seen_s, load.mean_utilization_percent) == (61.0, 2.0, 25.0)


def test_a_device_that_does_not_tell_is_not_seen() -> None:
    meter = LoadMeter(0.0)
    meter.take([sample(None)], 1.0)
    assert not meter.drawn()


def test_a_new_span_begins_at_the_last_sample_so_that_nothing_is_left_out() -> None:
    meter = LoadMeter(0.0)
    meter.take([sample(80)], 2.0)
    meter.drawn()
    meter.take([sample(10)], 4.0)
    load = meter.drawn()["a"]
    assert (load.span_s, load.seen_s, load.mean_utilization_percent) == (2.0, 2.0, 10.0)
    assert not meter.drawn()


@pytest.fixture
def watch(tmp_path: Path) -> GpuWatch:
    script = tmp_path / "state"
    script.write_text("0|utilization|40\n0|power|300\n1|utilization|0\n")
    return GpuWatch(
        clock=FakeClock(),
        devices=FakeDevices(parse_virtual(f"3xH100-80GB@{script}"), "n1"),
        in_use=frozenset,
        settings=GpusConfig(),
    )


def test_a_report_has_the_loads_since_the_last_one(watch: GpuWatch) -> None:
    clock = watch.clock
    assert isinstance(clock, FakeClock)
    watch.look()
    for _ in range(30):
        clock.advance(1.0)
        watch.sample()
    told = watch.told(True)
    assert told is not None
    first, second, third = (one.load for one in told)
    assert first is not None
    assert second is not None
    assert (first.mean_utilization_percent, first.power_watts) == (40.0, 300)
    assert (second.span_s, second.peak_utilization_percent) == (30.0, 0)
    assert third is None, "a virtual GPU without words tells nothing"
    clock.advance(1.0)
    again = watch.told(True)
    assert again is not None
    assert [one.load for one in again] == [None, None, None]
