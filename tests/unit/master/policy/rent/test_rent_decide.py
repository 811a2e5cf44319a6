"""When renting pays, by hand: money is price x time, lateness weight x time."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.plan import Provision, Release
from dlq_master.policy.priced.catalogue import NodeType
from dlq_master.policy.priced.marginal import marginal
from dlq_master.policy.rent.decide import decide
from dlq_master.policy.rent.line import LineEntry, list_schedule_ends_s
from dlq_master.policy.rent.market import Bidder, MachineGrant, MachineOffer, Market, PresentMachine
from support.plain_renting import late_cost

HOUR_S = 3600.0
SPOT = NodeType("spot", "h100", 4, 10.0, boot_s=360.0)


def wanting(
    job: int = 1,
    gpus: int = 4,
    *,
    due_h: float = 2.0,
    weight: float = 50.0,
    lasts_h: float = 1.0,
    own_end_h: float = 10.0,
) -> Bidder:
    left_s = np.full((1, 4), inf)
    left_s[0, gpus - 1] = lasts_h * HOUR_S
    return Bidder(job, due_h * HOUR_S, weight / HOUR_S, left_s, own_end_h * HOUR_S)


def decided(
    *jobs: Bidder, here: tuple[PresentMachine, ...] = (), left: int = 2, **more: float
) -> list[MachineGrant | Provision | Release]:
    market = Market(0.0, (MachineOffer(SPOT, left),), here, jobs, **more)
    grants, others = decide(market, marginal, np.random.default_rng(0))
    return [*grants, *others]


def test_a_machine_is_rented_for_what_it_saves() -> None:
    """8 h late at 50 an hour; the machine is there for boot and run: 1.1 h at 10, and then it is in
    time.
    """
    (made,) = decided(wanting())
    assert isinstance(made, Provision)
    assert (made.jobs, made.gpus) == ((1,), (4,))
    assert [made.costs, made.saves] == pytest.approx([11.0, 400.0 - 11.0])


def test_nothing_is_rented_where_waiting_costs_less() -> None:
    assert decided(wanting(own_end_h=2.0)) == [], "it is in time"
    assert decided(wanting(own_end_h=2.2)) == [], "0.2 h late costs 10, a machine 11"
    assert decided(wanting(own_end_h=2.3)), "0.3 h late costs 15"


def test_those_who_fit_share_one_machine() -> None:
    (made,) = decided(wanting(1, 2), wanting(2, 2))
    assert isinstance(made, Provision)
    assert made.jobs == (1, 2)
    assert made.costs == pytest.approx(11.0)


def test_what_is_there_and_paid_is_used_first() -> None:
    here = PresentMachine("spot-1-1", 0, 0.0, 2 * HOUR_S, 4)
    assert decided(wanting(own_end_h=2.1), here=(here,)) == [MachineGrant(1, "spot-1-1", 4)]
    busy = here._replace(free=0, jobs=(9,))
    (made,) = decided(wanting(), here=(busy,))
    assert isinstance(made, Provision)


def test_one_that_comes_is_kept_for_whom_it_comes() -> None:
    coming = PresentMachine("spot-1-1", 0, 300.0, 0.0, 4)
    assert decided(wanting(), here=(coming,)) == [MachineGrant(1, "spot-1-1", 4)]


def test_an_idle_machine_goes_when_its_minimum_is_over() -> None:
    idle = PresentMachine("spot-1-1", 0, 0.0, HOUR_S, 4)
    assert decided(here=(idle,)) == []
    (made,) = decided(here=(idle._replace(paid_until_s=3.0),))
    assert isinstance(made, Release)
    assert made.machine == "spot-1-1"


def test_budgets_and_numbers_are_kept() -> None:
    jobs = wanting(1), wanting(2), wanting(3)
    assert len(decided(*jobs)) == 2
    assert len(decided(*jobs, left=1)) == 1
    assert decided(*jobs, left=0) == []
    assert len(decided(*jobs, spare_per_hour=15.0)) == 1
    assert len(decided(*jobs, spare=12.0)) == 1


def test_whoever_would_be_late_for_more_is_served_first() -> None:
    (made,) = decided(wanting(1, weight=20.0), wanting(2, weight=90.0), left=1)
    assert isinstance(made, Provision)
    assert made.jobs == (2,)


@given(
    jobs=st.lists(
        st.builds(
            wanting,
            st.integers(1, 9),
            st.integers(1, 4),
            due_h=st.floats(0.0, 5.0),
            weight=st.floats(0.01, 200.0),
            lasts_h=st.floats(0.01, 5.0),
            own_end_h=st.floats(0.0, 20.0),
        ),
        max_size=6,
        unique_by=lambda one: one.job,
    ),
    free=st.integers(0, 4),
    left=st.integers(0, 3),
)
def test_whatever_comes_each_rent_pays_and_nothing_is_given_twice(
    jobs: list[Bidder], free: int, left: int
) -> None:
    here = PresentMachine("spot-1-1", 0, 0.0, 0.0, free, () if free else (99,))
    made = decided(*jobs, here=(here,), left=left)
    known = {one.job: one for one in jobs}
    served = [one.job for one in made if isinstance(one, MachineGrant)]
    put = sum(one.gpus for one in made if isinstance(one, MachineGrant))
    rented = [one for one in made if isinstance(one, Provision)]
    served += [job for one in rented for job in one.jobs]
    assert len(served) == len(set(served))
    assert put <= free
    assert len(rented) <= left
    for one in rented:
        assert sum(one.gpus) <= 4
        own = sum(late_cost(known[job], known[job].own_end_s) for job in one.jobs)
        assert own > one.costs > 0.0


def test_a_list_schedule_by_hand() -> None:
    """4 GPUs, 2 held until 100. The first wants 4, the second 2, the third more than there are."""
    ends = list_schedule_ends_s(
        0.0, 2, [(100.0, 2)], [LineEntry(1, 4, 50.0), LineEntry(2, 2, 10.0), LineEntry(3, 5, 1.0)]
    )
    assert ends == {1: 150.0, 2: 160.0, 3: inf}
