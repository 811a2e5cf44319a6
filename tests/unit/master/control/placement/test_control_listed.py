"""The reasons in lists: those of the last plan, or where many jobs wait of the last second."""

from __future__ import annotations

import pytest

from dlq_master.control.placement import scheduling
from dlq_master.model.ids import JobId
from dlq_master.model.why import ReasonCode
from dlq_master.policy.reasons import summary
from support.master_harness import Master
from support.sim_agent import SimAgent


def _submit(master: Master, count: int) -> JobId:
    """So many jobs that do not fit beside one another; the last of them."""
    return [master.submit(gpus=4).job_id for _ in range(count)][-1]


def _token(master: Master) -> object:
    return scheduling.listed_summary(master.state, master.clock.now_s())


def test_reasons_of_few_jobs_are_those_of_the_last_plan(master: Master, agent: SimAgent) -> None:
    _submit(master, 2)
    before = _token(master)
    _submit(master, 1)
    assert _token(master) is not before


def test_where_many_jobs_wait_no_list_makes_a_summary(
    master: Master, agent: SimAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "MANY", 3)
    _submit(master, 5)
    master.tick(2.0)
    before = _token(master)
    new = _submit(master, 1)
    assert _token(master) is before
    code = scheduling.main_reason(
        master.state, master.state.cluster.jobs[new], master.clock.now_s()
    )
    assert code is ReasonCode.RESOURCES, "the new job has its reason all the same"
    master.tick(2.0)
    assert _token(master) is not before


def test_the_look_at_waiting_jobs_makes_no_plan(
    master: Master, agent: SimAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = _submit(master, 3)
    master.tick(2.0)

    def plans(*_: object) -> None:
        raise AssertionError("it plans")

    monkeypatch.setattr(summary, "decide", plans)
    master.state.placement.forget_decisions()
    now_s = master.clock.now_s()
    code = scheduling.main_reason(master.state, master.state.cluster.jobs[last], now_s)
    assert code is ReasonCode.RESOURCES
