"""The prefix-capacity model: equal to the time-indexed one, and a bound on every integral plan."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from dlq_master.policy.promise.capacity.fluid import SlotDemand, demand
from dlq_master.policy.promise.capacity.leases import Grid, within
from dlq_master.policy.promise.slots.plan import faults
from dlq_master.policy.promise.solver.core import improve
from dlq_master.policy.promise.solver.printed import time_indexed
from dlq_master.policy.promise.solver.relax import ModelOptions, options, relax
from dlq_master.policy.promise.solver.rounding import choose
from dlq_master.policy.promise.solver.selector import never, select
from support.extent import some
from unit.master.policy.promise.drawing import drawn, grid_of

LIMIT_S = 60.0


def compact(made: ModelOptions) -> float:
    """The optimum of the prefix-capacity model."""
    count = len(made.gain)
    one = np.zeros((len(made.jobs), count))
    one[made.job, np.arange(count)] = 1
    found = milp(
        -made.gain,
        integrality=np.ones(count),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(one, -np.inf, 1),
            LinearConstraint(made.row.T, -np.inf, made.room),
        ],
        options={"mip_rel_gap": 0.0},
    )
    assert found.status == 0
    return len(made.jobs) - float(found.fun)


@pytest.mark.parametrize("seed", some(range(50), 8))
def test_it_equals_the_time_indexed_program_with_fractions_of_slots(seed: int) -> None:
    jobs = drawn(seed, 5 + seed % 6)
    rising = Grid(term_s=10, capacity=(3, 4, 4, 6), whole_leases=True)
    grid = rising if seed % 5 == 0 else grid_of(4, whole=bool(seed % 2))
    exact = time_indexed(jobs, grid, LIMIT_S, fractional=True)
    assert exact.optimal
    assert compact(options(jobs, grid)) == pytest.approx(exact.objective, abs=1e-5)


def test_bound_and_plan_enclose_the_printed_optimum_and_are_near_it() -> None:
    """Plans are legal; plan, printed optimum and bound are in order. With 7 jobs on 6 GPUs one job
    is a seventh of the reward, so the mean distance is no small part of a percent."""
    shares = []
    for seed in range(100, 110):
        jobs, grid = drawn(seed, 7), grid_of(6)
        made = select(jobs, grid)
        assert faults(made.plan, jobs, grid) == []
        best = time_indexed(jobs, grid, LIMIT_S)
        assert best.optimal
        assert made.objective <= best.objective + 1e-6
        assert best.objective <= made.bound + 1e-6
        shares.append(1 - made.objective / best.objective)
    assert sum(shares) / len(shares) < 0.03


@pytest.mark.parametrize("limit_s", [LIMIT_S, 0.0])
@pytest.mark.parametrize("seed", some(range(8), 3))
def test_rounding_and_the_core_stay_within_every_prefix(seed: int, limit_s: float) -> None:
    """A core as small as this is solved to its end with or without a limit on time."""
    jobs = drawn(seed, 25, most_slots=12)
    made = options(jobs, grid_of(8))
    relaxed = relax(made, never)
    assert relaxed is not None
    choice = choose(made, relaxed, never)
    assert (made.taken(choice.picks) <= made.room).all()
    optimum = compact(made)
    assert len(made.jobs) + choice.gain <= optimum + 1e-6
    bound = improve(choice, relaxed, limit_s)
    assert (made.taken(choice.picks) <= made.room).all()
    assert len(made.jobs) + choice.gain == pytest.approx(optimum)
    assert bound == pytest.approx(optimum)


def test_the_core_keeps_the_promised_in() -> None:
    """The job that earns least for its GPUs has a promise: it stays, whatever others would earn."""
    jobs = drawn(3, 25, most_slots=12)
    free = select(jobs, grid_of(8)).steps
    out = next(job for job in jobs if job.key not in free and within(job, grid_of(8)))
    held = [job._replace(promised=len(job.steps) - 1) if job is out else job for job in jobs]
    made = options(held, grid_of(8))
    relaxed = relax(made, never)
    assert relaxed is not None
    choice = choose(made, relaxed, never)
    bound = improve(choice, relaxed, 0.0)
    assert choice.picks[jobs.index(out)] >= 0
    assert len(jobs) + choice.gain <= bound + 1e-6 < compact(options(jobs, grid_of(8)))


def test_demand_of_many_is_the_sum_of_each() -> None:
    rows = [(2, 3, 5), (1, 1, 1), (4, 2, 9)]
    each = SlotDemand(grid_of(100), 10)
    for row in rows:
        each.add(*row)
    assert (each.of(2, 3, 5) == [0, 0, 0, 2, 4, 6, 6, 6, 6, 6, 6]).all()
    left = np.arange(11) * 100 - each.left
    assert (left == demand(rows, 10)).all()
    each.remove(*rows[0])
    assert (np.arange(11) * 100 - each.left == demand(rows[1:], 10)).all()


@pytest.mark.parametrize("needed", [1, 2, 7, 40])
@pytest.mark.parametrize("last", [0, 1, 6, 25])
def test_what_a_job_asks_that_is_too_late_is_counted_alike(needed: int, last: int) -> None:
    each = SlotDemand(grid_of(4), 10)
    assert (demand([(2, needed, last)], 10) == each.of(2, needed, last)).all()


@pytest.mark.parametrize("seed", range(20))
def test_the_earliest_window_is_the_least_that_fits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = SlotDemand(grid_of(6), 30)
    for _ in range(12):
        slots = int(rng.integers(1, 8))
        row = (int(rng.integers(1, 4)), slots, slots + int(rng.integers(0, 10)))
        if made.fits(*row):
            made.add(*row)
    for wide, slots in ((1, 2), (3, 5), (6, 1), (6, 6)):
        fits = [last for last in range(slots, 31) if made.fits(wide, slots, last)]
        assert made.earliest(wide, slots) == (fits[0] if fits else None)
