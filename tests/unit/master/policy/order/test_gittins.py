"""tiresias-gittins: what it learns, when, and whom it then prefers."""

from __future__ import annotations

import pytest

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.cluster.learned import LearnedRows
from dlq_master.model.estimates.history import KEPT, History
from dlq_master.model.lease import Terms
from dlq_master.policy.registry.registry import build
from dlq_master.policy.registry.settings import PolicyError
from support.builders import World, a_job


def a_world(**settings: str) -> World:
    return World("tiresias-gittins", nodes=1, preempt="free", **settings)  # type: ignore[arg-type]  # eight GPUs


def complete(world: World, job_id: int, seconds: float) -> World:
    """A job of eight GPUs that nobody disturbs runs for so long."""
    world.submit(a_job(job_id, 8)).decide()
    assert world.running == [job_id]
    return world.at(world.now_s + seconds).finish(job_id).decide()


def learned(world: World) -> tuple[float, ...]:
    return world.cluster.history.learned


def test_who_is_close_to_what_others_needed_goes_first() -> None:
    world = complete(a_world(thresholds="5000", refresh="1"), 90, 100.0)  # 800 GPU-seconds
    world.submit(a_job(1, 8)).decide().at(world.now_s + 60.0)  # job 1 has had 480 of them
    world.submit(a_job(2, 8)).decide()
    assert world.running == [1]
    world.at(world.now_s + 41.0)
    world.submit(a_job(3, 1)).decide()
    assert world.running == [2]  # job 1 has outlived all history; and nothing is left for job 3


def test_before_anything_is_learned_it_is_las() -> None:
    las = World("tiresias-las", nodes=1, preempt="free", thresholds="800,4000")
    gittins = a_world(thresholds="800,4000", refresh="100")
    for world in (las, gittins):
        world.submit(a_job(1, 8), a_job(2, 4), a_job(3, 8)).at(10.0).at(150.0)
        world.submit(a_job(4, 2)).at(200.0).finish(*world.running).at(300.0)
    assert gittins.running == las.running
    assert [gittins.job(n).level for n in (1, 2, 3, 4)] == [las.job(n).level for n in (1, 2, 3, 4)]


def test_learned_anew_after_so_many_completions() -> None:
    world = a_world(refresh="2")
    assert learned(complete(world, 1, 10.0)) == ()
    assert learned(complete(world, 2, 5.0)) == (40.0, 80.0)


def test_only_what_completed_is_learned_from_and_each_job_once() -> None:
    world = a_world(refresh="1").submit(a_job(1, 8)).at(1.0).at(11.0)
    world.lose(1).decide()
    assert learned(world) == ()
    world.at(21.0).finish(1)
    assert len(learned(world)) == 1
    world.cluster.put_job(world.job(1)._replace(version=99))
    assert len(learned(world)) == 1


def test_a_master_that_starts_again_knows_what_its_rows_say_and_each_job_once() -> None:
    world = complete(complete(a_world(refresh="1"), 1, 10.0), 2, 20.0)
    rows, _ = LearnedRows().changed(world.cluster)
    again = Cluster(world.policy.ordering, Terms())
    LearnedRows().restore(again, rows)
    for job in world.cluster.jobs.values():
        again.put_job(job)
    assert again.history.learned == learned(world) == (80.0, 160.0)


def test_quantiles_become_the_thresholds_of_jobs_that_run_too() -> None:
    world = World("tiresias-las", nodes=2, preempt="free", thresholds="q0.5", refresh="3")
    world.submit(a_job(9, 8)).decide()
    for job_id, seconds in ((1, 10.0), (2, 20.0), (3, 30.0)):
        world.submit(a_job(job_id, 8)).decide().at(world.now_s + seconds).finish(job_id).decide()
    assert world.cluster.ordering.thresholds == (160.0,)  # the median, no longer 3,200
    assert world.job(9).level == 1


def test_quantiles_that_do_not_rise_change_nothing() -> None:
    world = World("tiresias-las", nodes=1, preempt="free", thresholds="q0.5,q0.9", refresh="1")
    before = world.cluster.ordering.thresholds
    complete(world, 1, 10.0)
    assert world.cluster.ordering.thresholds == before


def test_a_history_that_is_given_is_not_learned_again() -> None:
    policy = build("tiresias-gittins", {"thresholds": "q0.5,q0.75"}, [10.0, 20.0, 30.0, 40.0])
    assert policy.ordering.thresholds == (20.0, 30.0)
    assert (policy.ordering.refresh, policy.ordering.quantiles) == (None, ())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"thresholds": "q0.9,q0.5"}, "must rise between 0 and 1"),
        ({"thresholds": "q1"}, "must rise between 0 and 1"),
        ({"thresholds": "q0.5,many"}, "'many' is not a number"),
        ({"index": "best"}, "expected one of fixed, sup"),
        ({"last": "lifo"}, "expected one of fifo, index"),
        ({"quantum": "0"}, "expected a positive number"),
        ({"refresh": "0"}, "expected a whole number from 1 on"),
        ({"refresh": "2.5"}, "expected a whole number from 1 on"),
    ],
)
def test_a_slip_is_named(settings: dict[str, str], says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        build("tiresias-gittins", settings)


def test_the_history_forgets_the_oldest() -> None:
    history = History(every=KEPT + 2)
    for service in range(1, KEPT + 3):
        history.add(float(service))
    assert (history.learned[0], len(history.learned)) == (3.0, KEPT)


@pytest.mark.parametrize(("share", "service"), [(0.25, 1.0), (0.26, 2.0), (0.5, 2.0), (0.99, 4.0)])
def test_a_quantile_is_the_smallest_service_that_the_share_stays_within(
    share: float, service: float
) -> None:
    history = History(every=4)
    for sample in (3.0, 1.0, 4.0, 2.0):
        history.add(sample)
    assert history.quantile(share) == service
