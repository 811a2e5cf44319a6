"""Jobs whose own steps tell another run time than was said of them.

Slots are 1,200 s; who says 600 s has 720 s reserved. Steps are heard of every 10 s.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlq_common.text.instants import format_instant
from dlq_common.text.wire import from_duration
from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.rpc.specs.deadlines import promise_message
from support.master_harness import Master
from unit.master.control.deadlines.test_control_deadlines import Site, started

Masters = Callable[..., Master]
TOTAL = 1440
JOB = JobId(1)


@pytest.fixture
def site(masters: Masters) -> Site:
    return Site(masters)


def trains(site: Site, key: AttemptKey, seconds: float, step_s: float, done: int = 0) -> int:
    """Time in which it tells a step for every `step_s`; the last one."""
    for n in range(1, round(seconds / 10.0) + 1):
        site.agents[0].beat(key, done + int((n - 1) * 10.0 / step_s), TOTAL)
        site.passes(10.0)
    return done + int(seconds / step_s)


def slack(site: Site) -> float:
    """As `dlq status` shows it."""
    now_s, told_s = site.master.clock.now_s(), site.master.loop.published.told_s(JOB)
    message = promise_message(
        site.job(1), site.master.attempt(JOB), now_s, offered=True, told_s=told_s
    )
    return from_duration(message.slack_duration)


def test_steps_slower_than_was_said_are_told_at_the_next_look_and_move_the_slack(
    site: Site,
) -> None:
    key = started(site, site.submit(7200.0, run_s=600.0).job_id)
    assert slack(site) == pytest.approx(6600.0, abs=1.0)
    trains(site, key, 60.0, 2.5)
    (warned,) = site.told(1, "promise_at_risk")
    assert warned.startswith(
        "at the pace of its own steps it takes 1:00:00, not the 0:10:00 that it was promised for"
    )
    assert warned.endswith("; it loses its promise once it has run for longer than was reserved")
    assert site.job(1).promised == 0
    assert slack(site) == pytest.approx(7200.0 - 3600.0, abs=15.0)
    trains(site, key, 60.0, 2.5, 24)
    assert len(site.told(1, "promise_at_risk")) == 1, "it is told once"


def test_who_becomes_faster_is_told_to_be_safe(site: Site) -> None:
    key = started(site, site.submit(7200.0, run_s=600.0).job_id)
    done = trains(site, key, 60.0, 0.6)
    assert len(site.told(1, "promise_at_risk")) == 1
    trains(site, key, 240.0, 0.4, done)
    assert len(site.told(1, "promise_at_risk")) == len(site.told(1, "promise_safe")) == 1
    assert site.job(1).promised == 0


def test_who_is_slower_but_in_time_before_anybody_decides_again_is_not_at_risk(site: Site) -> None:
    key = started(site, site.submit(7200.0, run_s=100.0).job_id)
    trains(site, key, 60.0, 0.1)
    assert site.master.state.trials.work_by_steps_s[JOB] == pytest.approx(TOTAL * 0.1, abs=1.0)
    assert site.told(1, "promise_at_risk") == []


def test_who_will_miss_its_deadline_before_anybody_decides_again_is_told_that_deadline(
    site: Site,
) -> None:
    site.submit(2200.0, run_s=600.0)
    site.agents[0].obey()
    site.passes(1300.0)
    trains(site, started(site, 1), 60.0, 1000.0 / TOTAL)
    (warned,) = site.told(1, "promise_at_risk")
    assert warned.startswith("at the pace of its own steps it takes 0:17:")
    due = format_instant(due_s(site.job(1), 0)).replace(".000Z", "Z")
    assert warned.endswith(f"its deadline comes before other slots are looked for, at {due}")


def test_steps_faster_than_was_said_change_nothing(site: Site) -> None:
    key = started(site, site.submit(7200.0, run_s=600.0).job_id)
    trains(site, key, 120.0, 0.25)
    assert site.master.state.trials.work_by_steps_s[JOB] == pytest.approx(360.0, abs=1.0)
    assert site.told(1, "promise_at_risk") == []
    assert slack(site) == pytest.approx(6600.0, abs=1.0)


def test_a_slow_beginning_is_no_pace(site: Site) -> None:
    key = started(site, site.submit(7200.0, run_s=600.0).job_id)
    done = trains(site, key, 20.0, 2.5)
    trains(site, key, 30.0, 0.4, done)
    assert JOB not in site.master.state.trials.work_by_steps_s
    assert site.told(1, "promise_at_risk") == []


def test_a_master_that_starts_again_learns_it_again(site: Site) -> None:
    key = started(site, site.submit(7200.0, run_s=600.0).job_id)
    done = trains(site, key, 60.0, 2.5)
    site.master.restart()
    site.master.state.placement.offloaded.planner = site.planner
    site.agents[0].hello()
    assert slack(site) == pytest.approx(6600.0, abs=1.0)
    trains(site, key, 60.0, 2.5, done)
    assert len(site.told(1, "promise_at_risk")) == 2
    assert slack(site) == pytest.approx(7200.0 - 3600.0, abs=15.0)
