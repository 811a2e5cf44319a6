"""A planner that is told only what has changed knows what it would know if it were told
everything.
"""

from __future__ import annotations

import pytest

from dlq_master.model.cluster.frozen import freeze
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import strict
from dlq_master.model.view import View
from dlq_master.planner.plans import Answer
from dlq_master.planner.snapshot import Unreadable, dumps, take_promises
from dlq_master.planner.told import KeptState, StateTold
from dlq_master.planner.worker import PlannerDesk
from dlq_master.policy.elsewhere import Stage
from support.builders import World, a_node, a_waiting_job

PROMISES = Stage.PROMISES.value


def due(number: int, gpus: int = 1, deadline_s: float = 9_000.0) -> Job:
    steps = strict(deadline_s)
    return a_waiting_job(number, gpus, duration_estimate_s=1_000.0, steps=steps)


@pytest.fixture
def world() -> World:
    """Three jobs with deadlines run on two nodes."""
    return World("dlq", nodes=2).submit(due(1), due(2), due(3, 8)).decide()


def tell(world: World, told: StateTold) -> bytes:
    return told.difference(take_promises(View(world.cluster, world.now_s), world.policy))


def test_only_what_has_changed_is_told_again(world: World) -> None:
    told = StateTold()
    whole = len(tell(world, told))
    nothing = len(tell(world, told))
    assert nothing < whole / 2
    world.submit(due(4))
    assert nothing < len(tell(world, told)) < whole / 2


def test_what_is_known_then_is_what_a_whole_snapshot_tells(world: World) -> None:
    told, kept = StateTold(), KeptState()
    kept.look(tell(world, told))
    world.finish(2)
    world.cluster.put_node(a_node("n3", 4))
    world.submit(due(5)).at(700.0)
    world.lose(3)
    view, _ = kept.look(tell(world, told))
    fresh, _ = KeptState().look(tell(world, StateTold()))
    mine, theirs = freeze(view.cluster), freeze(fresh.cluster)
    assert JobId(2) not in view.cluster.jobs
    assert {job.job_id: job for job in mine.jobs} == {job.job_id: job for job in theirs.jobs}
    assert {it.key: it for it in mine.attempts} == {it.key: it for it in theirs.attempts}
    assert {it.node_id: it for it in mine.nodes} == {it.node_id: it for it in theirs.nodes}
    assert mine.slot == theirs.slot


def test_an_answer_is_not_taken_for_what_the_master_did(world: World) -> None:
    told, desk = StateTold(), PlannerDesk()
    world.submit(due(4))
    first, again = (desk.answer(n, PROMISES, [tell(world, told)]) for n in (1, 2))
    assert first.plans == again.plans != ()


def test_another_policy_is_told_everything(world: World) -> None:
    told, kept = StateTold(), KeptState()
    kept.look(tell(world, told))
    other = World("chronus", nodes=1).submit(due(9))
    view, policy = kept.look(tell(other, told))
    assert (policy.name, [*view.cluster.jobs]) == ("chronus", [9])


def test_who_has_forgotten_says_so_and_is_told_everything(world: World) -> None:
    told, desk = StateTold(), PlannerDesk()
    tell(world, told)
    lost = desk.answer(1, PROMISES, [tell(world, told)])
    assert lost.plans == ()
    assert "a change of what is not known" in lost.fault
    told.forget()
    world.submit(due(4))
    assert desk.answer(2, PROMISES, [tell(world, told)]).fault == ""


def test_what_is_no_difference_is_not_read() -> None:
    with pytest.raises(Unreadable, match="does not say what has changed"):
        KeptState().look(dumps((True, 1)))
    assert "Unreadable" in _answer(dumps(3)).fault


def _answer(data: bytes) -> Answer:
    return PlannerDesk().answer(1, PROMISES, [data])
