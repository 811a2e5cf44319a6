"""The curves of `benchmarks.growth` in calls of functions instead of time: each fails when it
bends.

A turn of a larger cluster may not call more than one of a smaller cluster does, where the curve is
flat. Where it is a straight line, it may call at most as many times more as the cluster is larger.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from functools import cache

import pytest
import structlog
from benchmarks.growth.__main__ import FLAT, MEASURED, OVER, measured, most_slope
from benchmarks.growth.curves import Curve, Point, markdown_tables, slope, text_table
from benchmarks.growth.page import page_text
from benchmarks.support.conditions import conditions

from dlq_common.daemon.logs import configure_logging
from support.counted_calls import counted_calls
from support.fake_clock import FakeClock
from support.grown_master import GrownMaster

# The presets that differ on the way of these operations: a head of the line that blocks, lines in
# the order of arrival, by a key, in levels, by an index; all jobs ordered anew, and sizes.
DIFFER = ("dlq", "fifo", "best-effort", "srtf", "tiresias-las", "tiresias-gittins", "themis", "afs")
MOST_GROWTH = 1.15  # lines that are balanced now and then, and their lengths in bits
BASE = {"nodes": 8, "waiting": 200, "shapes": 1}
APART = 48  # nodes that tell all shapes apart
# The smaller and the larger size of the quick tests, and of the long ones.
QUICK = {"nodes": (8, 64), "waiting": (150, 900), "shapes": (20, 200), "agents": (8, 64)}
LONG = {
    "nodes": (64, 1_000),
    "waiting": (1_000, 10_000),
    "shapes": (100, 1_000),
    "agents": (64, 1_000),
}


@pytest.fixture(autouse=True)
def _logs_as_in_a_master() -> Iterator[None]:
    """Whatever logs another test has set up: the calls of a line are counted too."""
    handlers, level = logging.root.handlers[:], logging.root.level
    configure_logging(FakeClock(), stream=io.StringIO(), as_json=True)
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@cache
def calls(policy: str, over: str, size: int) -> dict[str, int]:
    """The calls of each operation at this size, when nothing is new to it."""
    sizes = {**BASE, "nodes" if over == "agents" else over: size}
    if over == "agents":
        sizes["waiting"] = 0
    elif over == "shapes":
        sizes |= {"nodes": APART, "waiting": max(size, BASE["waiting"])}
    master = GrownMaster(policy, **sizes)
    found = {}
    for operation in OVER[over].most:
        if operation != "restart":
            getattr(master, operation)()()
            master.obey()
        act = getattr(master, operation)()
        with counted_calls(of_c=True) as counted:
            act()
        found[operation] = counted.total()
        if operation != "restart":
            master.obey()
    master.close()
    return found


def hold(policy: str, over: str, few: int, many: int) -> None:
    """Every curve of this measure of size holds from `few` to `many`."""
    small, large = calls(policy, over, few), calls(policy, over, many)
    bent = {}
    for operation in OVER[over].most:
        flat = most_slope(policy, over, operation) == FLAT
        larger = 1.0 if flat else many / few
        if large[operation] > MOST_GROWTH * larger * small[operation]:
            bent[operation] = (small[operation], large[operation])
    assert bent == {}, f"calls at {few:,} and at {many:,} {over}"


@pytest.mark.parametrize("over", QUICK)
@pytest.mark.parametrize("policy", [name for name in MEASURED if name in DIFFER])
def test_a_curve_does_not_bend(policy: str, over: str) -> None:
    if over != "agents" or policy == "dlq":  # no policy is asked by a heartbeat
        hold(policy, over, *QUICK[over])


@pytest.mark.long("unit/benchmarks/test_growth_counted.py::test_a_curve_does_not_bend")
@pytest.mark.parametrize("over", QUICK)
@pytest.mark.parametrize("policy", [name for name in MEASURED if name not in DIFFER])
def test_the_curves_of_the_other_presets_do_not_bend(policy: str, over: str) -> None:
    hold(policy, over, *QUICK[over])


@pytest.mark.parametrize("policy", ["dlq", "fifo", "best-effort", "srtf"])
def test_a_measured_completion_starts_a_waiting_job(policy: str) -> None:
    master = GrownMaster(policy, nodes=APART, waiting=60, shapes=60)
    before = len(master.master.state.cluster.attempts)
    for _ in range(5):
        master.completion()()
        assert len(master.master.state.cluster.attempts) == before
        master.obey()
    master.close()


@pytest.mark.long("unit/benchmarks/test_growth_counted.py::test_a_curve_does_not_bend")
@pytest.mark.parametrize("over", LONG)
@pytest.mark.parametrize("policy", ["dlq", "fifo"])
def test_a_long_curve_does_not_bend(policy: str, over: str) -> None:
    hold(policy, over, *LONG[over])


def test_the_slope_of_a_curve() -> None:
    assert slope([Point(10, 5.0), Point(100, 5.0)]) == pytest.approx(0.0)
    assert slope([Point(1, 3.0), Point(10, 30.0), Point(100, 300.0)]) == pytest.approx(1.0)
    assert slope([Point(10, 5.0)]) is None


def test_a_small_measurement_gives_a_curve_for_each_operation_and_a_page() -> None:
    curves = measured("fifo", "waiting", [5, 10], ["submit", "restart"])
    assert [(each.operation, each.over, each.policy) for each in curves] == [
        ("submit", "waiting", "fifo"),
        ("restart", "waiting", "fifo"),
    ]
    assert all(point.cost_us > 0 for each in curves for point in each.points)
    assert curves[0].name in text_table(curves)
    assert "| restart, fifo |" in markdown_tables(curves)
    page = page_text(conditions(), [Curve("a", "b", "c", 0.1, [Point(1, 2.0)])], "abc", "today")
    assert "commit abc on today" in page
