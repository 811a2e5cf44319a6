"""Jobs whose run times nobody knows, where earlier jobs needed about as much as each other."""

from __future__ import annotations

import pytest

from dlq_master.model.order.keys import Had, Learned
from dlq_master.model.order.waiting import WaitingIndex
from dlq_master.policy.order.alike import FEW, MOST, alike
from dlq_master.policy.order.expected_left import expected_left
from support.builders import World, a_job

LIKE = tuple(float(service) for service in range(1000, 2000, 100))  # ten


def test_few_services_and_services_that_differ_tell_nothing() -> None:
    assert len(LIKE) == FEW
    assert alike(LIKE) is not None
    assert alike(LIKE[1:]) is None
    assert alike(tuple(4.0**power for power in range(FEW))) is None


def test_the_mean_rest_of_those_that_needed_more() -> None:
    known = alike(LIKE)
    assert known is not None
    assert known.left_gpu_s(0.0) == pytest.approx(1450.0)
    assert known.left_gpu_s(1000.0) == pytest.approx(500.0)  # of 1100 to 1900
    assert known.left_gpu_s(1899.0) == pytest.approx(1.0)
    assert known.left_gpu_s(1900.0) == 0.0  # beyond all of them
    assert known.left_gpu_s(3799.0) == 0.0
    assert known.left_gpu_s(3800.0) is None  # of another kind


def test_of_many_services_some_stand_for_all() -> None:
    many = tuple(float(service) for service in range(10_001, 20_001))
    known = alike(many)
    assert known is not None
    assert known.left_gpu_s(0.0) == pytest.approx(15_000.0, rel=0.01)
    assert known.left_gpu_s(many[-1] - 1.0) == pytest.approx(1.0)
    assert len(many) // (MOST + 1) > 1


def test_levels_of_service_wait_for_what_is_learned() -> None:
    job, had = a_job(1, 4), Had(1000.0, 250.0)
    assert expected_left(None)(Learned())(job, had)[0] == 3200.0
    learned = Learned(services_gpu_s=LIKE)
    assert expected_left(None)(learned)(job, had)[0] == pytest.approx(500.0)
    # The price of a stop brings a running job ahead, as with levels.
    kept = Had(1000.0, 250.0, kept_s=50.0)
    assert expected_left(None)(learned)(job, kept)[0] == pytest.approx(300.0)
    assert expected_left(None)(learned)(job, kept._replace(kept_s=250.0))[0] == 0.0
    assert expected_left(None)(learned)(job, Had(9000.0, 2250.0))[0] == 12_800.0


@pytest.mark.parametrize("alike_before", [True, False])
def test_a_job_is_left_to_its_end_where_earlier_jobs_needed_as_much(alike_before: bool) -> None:
    world = World("dlq", 1, None, know="unknown")
    if alike_before:
        for _ in range(FEW):
            world.cluster.history.add(8 * 3600.0)
        world.cluster.relearn()
    world.submit(a_job(101, 8)).at(0.0)
    world.submit(a_job(102, 8)).at(270.0)
    world.at(570.0)
    assert world.leaving == ([] if alike_before else [101])


def test_a_job_that_cannot_save_does_not_lose_its_work_to_one_that_is_alike() -> None:
    world = World("dlq", 1, None, know="unknown")
    for _ in range(FEW):
        world.cluster.history.add(8 * 3600.0)
    world.cluster.relearn()
    world.submit(a_job(101, 8, keeps_work=False)).at(0.0)
    world.submit(a_job(102, 8, keeps_work=False)).at(270.0)
    assert world.leaving == []
    assert world.at(1170.0).leaving == []


def test_waiting_jobs_are_sorted_anew_only_where_something_is_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A heavy tail tells nothing, and a long queue is not gone through for it."""
    world = World("dlq", 1, None, know="unknown").submit(a_job(101, 8)).settle_moves()
    sorted_anew: list[WaitingIndex] = []
    monkeypatch.setattr(WaitingIndex, "resort", lambda index, _stands: sorted_anew.append(index))
    for power in range(FEW):
        world.cluster.history.add(4.0**power)
    world.cluster.relearn()
    assert len(world.cluster.learned.services_gpu_s) == FEW
    assert sorted_anew == []
    for _ in range(20 * FEW):
        world.cluster.history.add(4.0**FEW)
    world.cluster.relearn()
    assert sorted_anew == [world.cluster.waiting]
