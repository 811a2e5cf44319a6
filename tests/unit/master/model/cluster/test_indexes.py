"""The indexes one by one: FIFOs, timers, positions, pools, and what the store is told."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs import job_steps
from dlq_master.model.lease import Terms
from dlq_master.model.order.keys import WAITING_BASE
from dlq_master.model.order.order import Discipline, Ordering, Positions
from dlq_master.model.order.waiting import WaitingIndex
from dlq_master.model.resources import Shape
from dlq_master.model.timers import Timers
from support.builders import World, a_job, a_node, a_waiting_job, an_attempt
from support.validate import validate

ONE = Shape(1, None, None)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=60))
def test_a_fifo_is_always_in_the_order_of_positions(acts: list[tuple[bool, int]]) -> None:
    index = WaitingIndex()
    present: dict[int, int] = {}
    for add, number in acts:
        if add and number not in present:
            present[number] = (number * 7) % 31
            index.add(0, ONE, JobId(number), present[number])
        elif not add and number in present:
            del present[number]
            index.remove(0, ONE, JobId(number))
    fifo = index.by_priority[0][ONE] if present else {}
    assert list(fifo.items()) == sorted(present.items(), key=lambda item: item[1])
    assert (index.count, index.gpus) == (len(present), len(present))
    assert index.priorities == ([0] if present else [])


@pytest.mark.parametrize("by_key", [False, True])
@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=60))
def test_the_first_jobs_of_all_lines_stay_in_order(
    by_key: bool, acts: list[tuple[int, bool]]
) -> None:
    index = WaitingIndex(by_key=by_key)
    present: dict[int, int] = {}
    for number, look in acts:
        shape = Shape(1 + number % 4, None, None)
        if number in present:
            del present[number]
            index.remove(0, shape, JobId(number))
        else:
            present[number] = (number * 7) % 31
            index.add(0, shape, JobId(number), present[number])
        if look and present:
            firsts: dict[int, tuple[int, int]] = {}
            for job_id, at in present.items():
                firsts[job_id % 4] = min((at, job_id), firsts.get(job_id % 4, (99, 0)))
            assert [front[:2] for front in index.by_priority[0].fronts()] == sorted(firsts.values())


@given(
    st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.floats(0, 50)))), st.floats(0, 50)
)
def test_timers_tell_who_is_due_the_earliest_first(
    acts: list[tuple[int, float | None]], now_s: float
) -> None:
    timers = Timers()
    expected: dict[int, float] = {}
    for number, at_s in acts:
        if at_s is None:
            timers.clear(JobId(number))
            expected.pop(number, None)
        else:
            timers.set(JobId(number), at_s)
            expected[number] = at_s
    due = sorted((at_s, number) for number, at_s in expected.items() if at_s <= now_s)
    assert timers.due(now_s) == [number for _, number in due]
    assert timers.next_s() == min(expected.values(), default=None)
    assert timers.due(now_s) == [number for _, number in due]  # looking changes nothing


def test_timers_that_are_set_again_and_again_do_not_pile_up() -> None:
    timers = Timers()
    for turn in range(10_000):
        timers.set(JobId(1), float(turn % 2))
    assert len(timers._heap) < 200


def test_positions_lie_where_their_names_say() -> None:
    positions = Positions()
    promoted, started = positions.promoted(), positions.started()
    head, tail = positions.head(), positions.tail()
    assert promoted < started < head < tail
    assert promoted < positions.promoted() < started < positions.started() < positions.head() < head
    assert positions.tail() > tail


def test_positions_are_not_handed_out_twice_after_a_restart() -> None:
    used = Positions()
    stored = [used.promoted(), used.started(), used.head(), used.tail(), used.tail()]
    fresh = Positions()
    for place in stored:
        fresh.seen(place)
    anew = {fresh.promoted(), fresh.started(), fresh.head(), fresh.tail()}
    assert not anew & set(stored)


def test_a_restart_loads_the_same_cluster() -> None:
    world = World("tiresias-las", 2, thresholds="80", starve_limit_s="500")
    world.submit(a_job(1, 8), a_job(2, 4), a_job(3, 16)).at(0.0).at(20.0)
    world.submit(a_job(4, 1)).decide().pause(2)
    old = world.cluster
    fresh = Cluster(old.ordering, old.terms)
    for node in old.nodes.values():
        fresh.put_node(node)
    for job in reversed(list(old.jobs.values())):
        assert fresh.put_job(job) == job
    for attempt in old.attempts.values():
        fresh.put_attempt(attempt)
    validate(fresh)
    assert dict(fresh.jobs) == dict(old.jobs)
    assert fresh.running.places == old.running.places
    assert fresh.levels.crossings.at == old.levels.crossings.at
    assert fresh.levels.promotions.at == old.levels.promotions.at
    assert fresh.capacity.soon == old.capacity.soon


def indexes(cluster: Cluster) -> dict[str, object]:
    """Everything that is derived from the values, as plain values."""
    return {
        "waiting": cluster.waiting.by_priority,
        "running": cluster.running.places,
        "claims": cluster.capacity.claims,
        "soon": cluster.capacity.soon,
        "free": {gpu_type: pool.masks for gpu_type, pool in cluster.capacity.free.items()},
        "terms": cluster.by_term,
        "crossings": cluster.levels.crossings.at,
        "promotions": cluster.levels.promotions.at,
        "slow saves": cluster.saves.needs_s,
        "silent": cluster.claims.silent,
    }


@pytest.mark.parametrize("event", [None, "Succeeded", "Preempted", "NodeSilent"])
def test_a_job_and_its_attempt_may_be_put_in_either_order(event: str | None) -> None:
    def world() -> World:
        made = World("tiresias-las", thresholds="80", starve_limit_s="500")
        made.submit(a_job(1, 4, saves=(90.0,)), a_job(2, 8)).settle_moves()
        return made if event is None else made.decide().pause(1)

    target = world()
    key = AttemptKey(JobId(1), 1)
    if event is None:
        drive.apply(target.cluster, target.plan(), target.now_s, epoch=1)
    else:
        drive.step_attempt(target.cluster, key, getattr(attempt_steps, event)(), target.now_s)
    touched = target.cluster.take_touched()
    job = next(job for job in touched.jobs if job.job_id == 1)
    attempt = next(attempt for attempt in touched.attempts if attempt.key == key)
    puts: list[Callable[[Cluster], object]] = [
        lambda cluster: cluster.put_job(job),
        lambda cluster: cluster.put_attempt(attempt),
    ]
    for order in permutations(puts):
        cluster = world().cluster
        for put in order:
            put(cluster)
        validate(cluster)
        assert indexes(cluster) == indexes(target.cluster)


def test_exactly_what_changed_is_handed_to_the_store_once() -> None:
    world = World().submit(a_job(1), a_job(2, 8)).decide()
    world.cluster.take_touched()
    world.finish(1)
    touched = world.cluster.take_touched()
    assert [job.job_id for job in touched.jobs] == [1]
    assert [(a.key, a.live) for a in touched.attempts] == [(AttemptKey(JobId(1), 1), False)]
    assert touched.nodes == ()
    assert world.cluster.take_touched() == ((), (), ())


def test_a_job_is_forgotten_only_after_its_last_attempt() -> None:
    world = World().submit(a_job(1)).decide()
    drive.step_job(world.cluster, JobId(1), job_steps.Cancelled(), 5.0)
    with pytest.raises(ValueError, match="job 1 is still cancelled"):
        world.cluster.forget(JobId(1))
    key = world.attempt(1).key
    drive.step_attempt(world.cluster, key, attempt_steps.Cancelled(), 6.0)
    world.cluster.forget(JobId(1))
    assert not world.cluster.jobs
    validate(world.cluster)


def test_a_node_is_not_removed_while_it_is_held() -> None:
    world = World(nodes=2).submit(a_job(1, 8)).decide()
    with pytest.raises(ValueError, match="node n1 is still held"):
        world.cluster.remove_node(NodeId("n1"))
    world.cluster.remove_node(NodeId("n2"))
    validate(world.cluster)


def test_a_node_that_comes_back_with_fewer_gpus_keeps_its_claims() -> None:
    world = World(nodes=1).submit(a_job(1, 8)).decide()
    world.cluster.put_node(a_node("n1", 4))
    validate(world.cluster)
    world.finish(1)
    validate(world.cluster)
    assert world.cluster.capacity.free_gpus == 4


def test_attempts_on_a_node_come_in_the_order_of_their_keys() -> None:
    cluster = Cluster(Ordering(), Terms())
    cluster.put_node(a_node("n1"))
    for number in (3, 1, 2):
        cluster.put_job(a_waiting_job(number, live_attempt=1, attempts=1, queued_since_s=None))
        cluster.put_attempt(an_attempt(number, slots=[("n1", 1 << number)]))
    assert [key.job_id for key in cluster.attempts_on(NodeId("n1"))] == [1, 2, 3]
    assert cluster.attempts_on(NodeId("n9")) == ()


def test_the_number_of_a_job_tells_nothing_about_its_place() -> None:
    cluster = Cluster(Ordering(), Terms())
    later, sooner = cluster.put_job(a_job(1)), cluster.put_job(a_job(9))
    assert WAITING_BASE < later.sequence < sooner.sequence


@pytest.mark.parametrize("thresholds", [(0.0,), (5.0, 5.0), (9.0, 3.0), (-1.0,)])
def test_thresholds_must_rise(thresholds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="must be positive and rise"):
        Ordering(discipline=Discipline.REQUEUE, thresholds=thresholds)


def test_the_levels_of_a_queue_come_before_the_next_queue() -> None:
    ordering = Ordering(thresholds=(10.0, 20.0))
    priorities = [ordering.priority(queue, level) for queue in range(2) for level in range(3)]
    assert priorities == sorted(set(priorities))
