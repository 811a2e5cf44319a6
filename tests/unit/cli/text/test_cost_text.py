"""Costs as tables, as values and as lines."""

from __future__ import annotations

import pytest

from dlq.v1 import usage_service_pb2 as wire
from dlq_cli.facts.usage import costs_facts
from dlq_cli.output.render import OutputLook
from dlq_cli.text.costs import cost_csv, cost_text
from dlq_common.text.wire import to_timestamp

EPOCH_S = 1_800_000_000.0
PIPE = OutputLook(tty=False, color=False, now_s=EPOCH_S)


@pytest.fixture
def answer() -> wire.GetCostsResponse:
    dear = wire.Cost(
        job_id="7",
        name="dear",
        pool="spot",
        running_cost=1.25,
        lateness_cost=3.0,
        foretold_running_cost=1.0,
        foretold_lateness_cost=2.0,
        own_lateness_cost=50.0,
    )
    return wire.GetCostsResponse(
        from_time=to_timestamp(EPOCH_S),
        until_time=to_timestamp(EPOCH_S + 3600),
        costs=[dear, wire.Cost(job_id="12", name="cheap", lateness_cost=0.01)],
        pools=[wire.PoolCost(pool="spot", boot_cost=0.5, job_cost=1.25, idle_cost=0.25, foretold_cost=1.75)],  # noqa: E501
    )  # fmt: skip


def test_costs_are_a_table_of_jobs_and_one_of_machines(answer: wire.GetCostsResponse) -> None:
    lines = cost_text(answer, ("job", "pool"), PIPE).splitlines()
    assert lines[1].split() == [
        "JOB",
        "POOL",
        "NAME",
        "COST",
        "LATE_COST",
        "FORETOLD_COST",
        "FORETOLD_LATE_COST",
        "OWN_LATE_COST",
    ]
    assert lines[2].split() == ["7", "spot", "dear", "1.25", "3.00", "1.00", "2.00", "50.00"]
    assert lines[3].split() == ["12", "own", "cheap", "0.00", "0.01", "0.00", "0.00", "0.00"]
    assert lines[5].split() == ["POOL", "PAID", "JOBS", "BOOT", "IDLE", "FORETOLD"]
    assert lines[6].split() == ["spot", "2.00", "1.25", "0.50", "0.25", "1.75"]


def test_costs_for_programs(answer: wire.GetCostsResponse) -> None:
    facts = costs_facts(answer, ("job",))
    assert facts["costs"][0] == {
        "job": "7",
        "name": "dear",
        "cost": 1.25,
        "late_cost": 3.0,
        "foretold_cost": 1.0,
        "foretold_late_cost": 2.0,
        "own_late_cost": 50.0,
    }
    assert facts["pools"][0]["paid"] == 2.0
    head, dear, _ = cost_csv(answer, ("pool",)).splitlines()
    assert head == "pool,cost,late_cost,foretold_cost,foretold_late_cost,own_late_cost"
    assert dear == "spot,1.25,3.0,1.0,2.0,50.0"
