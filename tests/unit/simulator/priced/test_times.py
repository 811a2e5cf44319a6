"""Replays in which run times are learned."""

from __future__ import annotations

import numpy as np
import pytest

from dlq_master.policy.priced.catalogue import Catalogue, NodeType
from dlq_master.policy.priced.learning import JobFeatures, LearnedTimes
from dlq_master.policy.priced.situation import EMPTY, Grant, Schedule, Situation
from dlq_simulator.priced.instance import RentingInstance, RentingJob
from dlq_simulator.priced.times import Fitted, learn
from dlq_simulator.priced.world import World
from dlq_simulator.traces import parse_trace

HOUR = 3600.0
CATALOGUE = Catalogue((NodeType("A2", "A", 2, 2.0),))


def instance(count: int) -> RentingInstance:
    """One after the other, three hours each on one GPU; a second helps little."""
    time_s = np.array([[3 * HOUR, 2 * HOUR]])
    return RentingInstance(
        [
            RentingJob(
                f"j{n}", n * 10 * HOUR, n * 10 * HOUR + HOUR, 0.01, time_s, JobFeatures("vgg")
            )
            for n in range(count)
        ],
        CATALOGUE,
        1,
    )


class OneGpu:
    """What it was told of the first job of each decision, and when."""

    def __init__(self) -> None:
        self.told: list[tuple[float, list[float]]] = []

    def __call__(self, situation: Situation, draw: np.random.Generator) -> Schedule:
        if not situation.jobs:
            return EMPTY
        self.told.append((situation.now_s, situation.jobs[0].whole_s[0].tolist()))
        return Schedule({0: 0}, {situation.jobs[0].key: Grant(0, 1)})


def fitted(one: RentingInstance, *, refine: bool = True) -> Fitted:
    learned = LearnedTimes((1.0,), 2)
    return Fitted(one, learned, 300.0, refine=refine)


def test_a_job_is_decided_on_again_when_its_own_speed_is_known() -> None:
    one, sees = instance(1), OneGpu()
    bill = World(one, sees, interval_s=10 * HOUR, times=fitted(one)).run()
    assert bill.finish_s == {0: 3 * HOUR}, "the truth runs"
    assert [at_s for at_s, _ in sees.told] == [0.0, 300.0]
    assert sees.told[0][1][0] == HOUR, "nothing is known"
    assert sees.told[1][1] == pytest.approx([3 * HOUR, 3 * HOUR / 2**0.85])


def test_without_refinement_only_later_jobs_learn_of_it() -> None:
    one, sees = instance(2), OneGpu()
    World(one, sees, interval_s=10 * HOUR, times=fitted(one, refine=False)).run()
    assert [(at_s, row[0]) for at_s, row in sees.told] == [
        (0.0, HOUR),
        (10 * HOUR, pytest.approx(3 * HOUR)),
    ]


def test_errors_are_those_at_the_submit() -> None:
    one = instance(2)
    times = fitted(one)
    World(one, OneGpu(), times=times).run()
    first = (2 / 3 + (2 - 2**-0.85) / 2) / 2
    assert times.errors[0] == pytest.approx(first)
    assert times.errors[1] < first / 2


def test_a_history_teaches_before_the_first_job() -> None:
    rows = "job_id,submit_time_s,num_gpus,duration_s,model,gpu_type\n"
    rows += "a,0,2,600,vgg,A\nb,0,2,600,vgg,\nc,0,1,1,vgg,of-another-world\n"
    learned = LearnedTimes((2.0,), 2)
    learn(learned, parse_trace("h.csv", rows), {"A": 2.0})
    # a: 1200 / 2 ** 0.15 s on one GPU of speed 2; b the same at speed 1; the median of both levels.
    on_one = 600 * 2**0.85
    assert learned.times(JobFeatures("vgg"))[0, 0] == pytest.approx((on_one * 2 + on_one) / 2 / 2)
