"""A plan made for an instant that is over: whatever has happened since, what is left of it is
legal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.model.cluster import drive
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import HoldKind
from dlq_master.model.jobs.reward import BEST_EFFORT, strict
from dlq_master.model.plan import Plan, Start
from dlq_master.model.view import View
from dlq_master.planner.plans import Answer, read_answer, write_answer
from dlq_master.policy.legal.check import check_delta
from dlq_master.policy.legal.recheck import basis_of, recheck
from dlq_master.policy.offload import plain
from support.builders import World, a_job, a_node
from support.extent import times
from support.validate import validate

POLICIES: list[tuple[str, dict[str, str]]] = [
    ("fifo", {}),
    ("srtf", {}),
    ("tiresias-las", {"thresholds": "60"}),
    ("chronus", {"be_floor": "0", "guarantee": "fitting"}),
    ("dlq", {"team_quota": "*:4"}),
]
JOBS = st.lists(
    st.tuples(st.sampled_from([1, 2, 4, 6, 8]), st.sampled_from([None, None, 2_000.0, 6_000.0])),
    min_size=1,
    max_size=8,
)
WHO = st.integers(1, 8)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "finish", "hold", "cancel", "lose", "drain", "decide"]), WHO
    ),
    max_size=8,
)


def happen(world: World, what: str, who: int) -> None:
    """One of the things that may happen while a plan is being made, if it can just now."""
    job = world.cluster.jobs.get(JobId(who))
    runs = job is not None and job.live_attempt is not None and who in world.running
    acts: dict[str, Callable[[], Any]] = {
        "submit": lambda: world.submit(a_job(len(world.cluster.jobs) + 1, who)),
        "finish": lambda: world.finish(who) if runs else None,
        "lose": lambda: world.lose(who) if runs else None,
        "hold": lambda: world.hold(who, HoldKind.USER) if job and job.waiting else None,
        "cancel": lambda: world.hold(who, HoldKind.ADMIN) if runs else None,
        "drain": lambda: world.drain(f"n{1 + who % 2}"),
        "decide": lambda: by_itself(world),
    }
    acts[what]()


def by_itself(world: World) -> None:
    """Meanwhile the loop has planned plainly."""
    policy, world.policy = world.policy, plain(world.policy)
    world.decide()
    world.policy = policy


def a_world(policy: tuple[str, dict[str, str]], jobs: list[tuple[int, float | None]]) -> World:
    name, words = policy
    world = World(name, [a_node("n1", 8), a_node("n2", 8)], **words)  # type: ignore[arg-type]  # settings
    for number, (gpus, due_s) in enumerate(jobs, start=1):
        steps = BEST_EFFORT if due_s is None else strict(due_s)
        world.submit(a_job(number, gpus, duration_estimate_s=300.0, steps=steps))
    return world


def apply_what_is_left(world: World, plans: list[Plan], basis: Any) -> None:
    for plan in plans:
        view = View(world.cluster, world.now_s)
        left = recheck(view, plan, world.policy, basis)
        assert len(left.plan.changes) + len(left.dropped) == len(plan.changes)
        check_delta(view, left.plan, world.policy)  # raises
        for happened in drive.apply(world.cluster, left.plan, world.now_s, epoch=1):
            world.run_if_placed(happened)
        validate(world.cluster)
        basis = basis_of(world.cluster)


@given(
    policy=st.sampled_from(POLICIES),
    jobs=JOBS,
    later_s=st.sampled_from([0.0, 0.4, 30.0, 290.0, 1_300.0]),
    events=EVENTS,
)
@settings(max_examples=times(30, 60), deadline=None)
def test_what_is_left_of_an_old_plan_is_legal(
    policy: tuple[str, dict[str, str]],
    jobs: list[tuple[int, float | None]],
    later_s: float,
    events: list[tuple[str, int]],
) -> None:
    world = a_world(policy, jobs)
    plans = []
    basis = basis_of(world.cluster)
    copy = a_world(policy, jobs)  # the planner's own
    while (step := copy.plan()).changes:
        plans.append(step)
        for happened in drive.apply(copy.cluster, step, copy.now_s, epoch=0):
            copy.run_if_placed(happened)
        if not step.again:
            break
    plans = list(read_answer(write_answer(Answer(1, tuple(plans)))).plans)
    world.now_s += later_s
    for what, who in events:
        happen(world, what, who)
    apply_what_is_left(world, plans, basis)
    world.decide()


def test_with_nothing_in_between_nothing_is_dropped() -> None:
    world = a_world(
        ("chronus", {"be_floor": "0", "guarantee": "fitting"}), [(8, 6_000.0), (4, None)]
    )
    basis, plan = basis_of(world.cluster), world.plan()
    assert recheck(View(world.cluster, 1.0), plan, world.policy, basis).dropped == ()


def test_each_that_is_dropped_says_why() -> None:
    world = a_world(("fifo", {}), [(8, None), (8, None), (1, None)]).settle_moves()
    plan, basis = world.plan(), basis_of(world.cluster)
    assert [type(change) for change in plan.changes] == [Start, Start]
    world.hold(1, HoldKind.USER)
    world.drain("n2")
    left = recheck(View(world.cluster, 1.0), plan, world.policy, basis)
    assert [one.why for one in left.dropped] == [
        "job 1 is held, not waiting",
        "node n2 is not open",
    ]
