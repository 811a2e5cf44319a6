"""What a machine has cost, and whose part that was: to the second, whatever the order of things."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Foretold, Lateness
from dlq_master.model.machines.rented import Machine, MachineState
from dlq_master.model.usage.accounting import DAY_S
from dlq_master.model.usage.cost import Cost, CostAccount, Paid, Stay, costs
from support.stored_values import a_job, a_machine

HOUR_S = 3600.0
ALL = range(100)


def machine(asked_s: float, up_s: float | None, end_s: float | None, **more: Any) -> Machine:
    """For 36 an hour: a hundredth for each second."""
    state = MachineState.UP if end_s is None else MachineState.AWAY
    return a_machine(
        state=state, asked_s=asked_s, up_s=up_s, end_s=end_s, price_per_hour=36.0, **more
    )


def stay(part: float, from_s: float, until_s: float | None, job: int = 1) -> Stay:
    return Stay("spot-3-1", AttemptKey(JobId(job), 1), part, from_s, until_s)


def test_a_machine_boots_is_held_in_parts_and_idles() -> None:
    told = costs(
        [machine(0.0, 100.0, 1000.0, foretold=9.0)],
        [stay(0.5, 200.0, 600.0), stay(0.25, 400.0, 800.0, job=2)],
        [],
        ALL,
        5000.0,
    )
    assert told.pools == {(0, "spot"): pytest.approx(Paid(1.0, 3.0, 6.0, 9.0))}
    running = {account.job_id: cost.running for account, cost in told.jobs.items()}
    assert running == pytest.approx({1: 2.0, 2: 1.0})


@pytest.mark.parametrize(
    ("one", "stays", "expected"),
    [
        # It never came.
        (machine(0.0, None, 300.0), [], Paid(boot=3.0)),
        # An hour is billed at least, and it was there for 100 s.
        (machine(0.0, 40.0, 100.0, minimum_s=HOUR_S), [], Paid(boot=0.4, idle=35.6)),
        # Its provider took it; the line to the agent was silent, and its job was given up later.
        (machine(0.0, 100.0, 300.0), [stay(1.0, 100.0, 900.0)], Paid(boot=1.0, jobs=2.0)),
        # They still are.
        (machine(0.0, 100.0, None), [stay(0.5, 200.0, None)], Paid(boot=1.0, jobs=1.5, idle=2.5)),
        # Of a machine that is not told of.
        (machine(0.0, 100.0, None), [stay(1.0, 1.0, None)._replace(request_id="x")], Paid(boot=1.0, idle=4.0)),  # noqa: E501
    ],
)  # fmt: skip
def test_what_comes_of_its_price(one: Machine, stays: list[Stay], expected: Paid) -> None:
    (paid,) = costs([one], stays, [], ALL, 500.0).pools.values()
    assert paid == pytest.approx(expected)


def test_being_late_costs_by_the_day_and_what_was_foretold_counts_when_it_was() -> None:
    lateness = Lateness(DAY_S - 10.0, 0.5)
    foretold = Foretold(DAY_S - 100.0, 40.0, "spot", 7.0, 3.0)
    job = a_job(lateness=lateness, foretold=foretold, end_time_s=DAY_S + 20.0)
    told = costs([], [], [job], ALL, 9e9).jobs
    assert told == {
        CostAccount(0, JobId(1), "spot"): Cost(0.0, 5.0, 7.0, 3.0, 40.0),
        CostAccount(1, JobId(1), "spot"): Cost(late=10.0),
    }
    assert costs([], [], [job], range(1, 2), 9e9).jobs.keys() == {CostAccount(1, JobId(1), "spot")}
    own = job._replace(foretold=foretold._replace(pool="", running=0.0), end_time_s=None)
    told = costs([], [], [own], range(1), DAY_S - 6.0).jobs
    assert told == {CostAccount(0, JobId(1), ""): Cost(0.0, 2.0, 0.0, 40.0, 40.0)}, "late by now"
    unknown = own._replace(foretold=Foretold(1.0), lateness=None)
    assert not any(next(iter(costs([], [], [unknown], ALL, 9.0).jobs.values())))


SPAN = st.floats(0.0, 2e5)


@given(
    boot_s=SPAN,
    up_s=SPAN,
    minimum_s=SPAN,
    there=st.booleans(),
    spans=st.lists(st.tuples(SPAN, SPAN), max_size=4),
    now_s=st.floats(4e5, 8e5),
)
def test_no_second_that_is_paid_is_lost_or_counted_twice(
    boot_s: float,
    up_s: float,
    minimum_s: float,
    there: bool,
    spans: list[tuple[float, float]],
    now_s: float,
) -> None:
    end_s = None if there else boot_s + up_s
    one = machine(0.0, boot_s, end_s, minimum_s=minimum_s)
    stays = [
        stay(0.25, begin_s, begin_s + span_s, job) for job, (begin_s, span_s) in enumerate(spans)
    ]
    told = costs([one], stays, [], ALL, now_s)
    assert sum(paid.whole for paid in told.pools.values()) == pytest.approx(one.cost(now_s))
    assert all(min(paid) > -1e-9 for paid in told.pools.values())
    held = sum(paid.jobs for paid in told.pools.values())
    assert held == pytest.approx(sum(cost.running for cost in told.jobs.values()))
