"""Reads of the notifier are made in slices, however many rules and waiting jobs there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dlq.v1 import notify_service_pb2 as wire
from dlq_master.control.read_model.job_blocks import JobBlocks
from dlq_master.control.stimuli import Caller, User
from dlq_master.model.ids import JobId
from dlq_master.planner.forecasts import Range
from dlq_master.rpc.calls.reads import ENCODED
from dlq_master.rpc.cluster.notify_service import list_notify_rules, list_start_estimates
from dlq_master.store.tables.notify_rules import NotifyRule
from support.fake_clock import FakeClock
from support.fake_control import FakeControl, FakeRead
from support.stored_values import a_job

NINA = Caller("nina", "notifier", "", 0.0)


class Reading:
    """A call of the notifier, and the costs that it has told."""

    def __init__(self) -> None:
        self.read: FakeRead = FakeControl(FakeClock()).published
        self.read.all_users["alice"] = User("alice", "user", 1, 1, (), 0.0)
        self.costs: list[int] = []
        self.call: Any = SimpleNamespace(
            read=self.read, caller=NINA, breathe=lambda: self._breathe, identity=None
        )

    async def _breathe(self, cost: int) -> None:
        self.costs.append(cost)

    def wants(self, number: int) -> None:
        rule = NotifyRule(f"n{number}", "alice", "mail", "a@example.org", ("start_moved",), 5.0)
        self.read.all_notify_rules[rule.rule_id] = rule


@pytest.fixture
def reading() -> Reading:
    return Reading()


async def test_each_rule_counts_in_a_slice(reading: Reading) -> None:
    for number in range(1, 101):
        reading.wants(number)
    answer = await list_notify_rules(reading.call, wire.ListNotifyRulesRequest())
    assert len(answer.rules) == 100
    assert sum(reading.costs) >= 100 * ENCODED


async def test_each_job_that_is_looked_at_for_an_estimate_counts_in_a_slice(
    reading: Reading,
) -> None:
    """The others are looked at as well: few jobs of a long queue have an estimate."""
    for number in range(1, 501):
        reading.read.all_jobs[JobId(number)] = a_job(number)
    blocks = JobBlocks(reading.read.all_jobs)
    reading.read.block, reading.read.block_numbers = blocks.block, blocks.numbers  # type: ignore[method-assign] # made once
    reading.read.start_ranges[JobId(400)] = Range(1.0, 2.0, 3.0)
    reading.wants(1)
    answer = await list_start_estimates(reading.call, wire.ListStartEstimatesRequest())
    assert [one.job_id for one in answer.jobs] == ["400"]
    assert sum(reading.costs) >= 500
