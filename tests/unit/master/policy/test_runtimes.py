"""Jobs with an image run on nodes that run containers, and say what they wait for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.lease import LeaseKind
from dlq_master.model.nodes.free_gpus import Pool
from dlq_master.model.nodes.node import Node
from dlq_master.model.plan import Plan, Reject, Start
from dlq_master.model.resources import PODMAN, Request, Shape
from dlq_master.model.traits import Traits
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.model.words.sentence import sentence
from dlq_master.policy.legal.check import IllegalPlan, check_delta
from dlq_master.policy.place.consolidate import CONSOLIDATE
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.place.spread import COUNT, SPREAD
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.reasons.summary import ReasonSummary
from dlq_master.policy.registry.presets import PRESETS
from support.builders import World, a_job, a_node, an_allocation

IMAGE = frozenset({PODMAN})


def image_job(job_id: int, gpus: int = 1, nodes: int | None = None) -> Job:
    return a_job(job_id, request=Request(gpus=gpus, nodes=nodes, runtime=PODMAN))


def mixed(count: int = 3, able: tuple[int, ...] = (2,)) -> list[Node]:
    """n1, n2, ...: those with these numbers run containers."""
    return [
        a_node(f"n{i}", runtimes=IMAGE if i in able else frozenset()) for i in range(1, count + 1)
    ]


def places(world: World, job_id: int) -> tuple[str, ...]:
    attempt = world.cluster.live_attempt(world.job(job_id))
    return () if attempt is None else attempt.lease.allocation.node_ids


def why(world: World, job_id: int) -> dict[ReasonCode, Reason]:
    view = View(world.cluster, world.now_s)
    reasons = explain(view, world.policy, world.job(job_id).job_id)
    assert ReasonSummary(view, world.policy).code(world.job(job_id)) is reasons[0].code
    return {reason.code: reason for reason in reasons}


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_under_every_policy_a_job_with_an_image_goes_where_containers_run(policy: str) -> None:
    world = World(policy, mixed()).submit(image_job(1, 4), a_job(2, 8), image_job(3, 4)).decide()
    assert (places(world, 1), places(world, 3)) == (("n2",), ("n2",))
    assert "n2" not in places(world, 2)


def test_where_no_node_runs_containers_a_job_with_an_image_is_refused_when_it_comes() -> None:
    world = World("fifo", mixed(able=())).submit(image_job(1))
    (refused,) = world.plan().changes
    assert isinstance(refused, Reject)
    assert refused.reason.code is ReasonCode.RUNTIME
    assert sentence(refused.reason, world.job(1)).startswith(
        "it has an image, and no node runs containers"
    )
    assert world.decide().job(1).state is JobState.FAILED


def test_a_gang_wider_than_all_nodes_with_containers_is_refused() -> None:
    world = World("fifo", mixed(able=(1, 2))).submit(image_job(1, 24, 3)).decide()
    assert world.job(1).state is JobState.FAILED
    world.submit(image_job(2, 16, 2)).decide()
    assert places(world, 2) == ("n1", "n2")


def test_who_waits_for_a_node_with_containers_is_told_so_and_by_whom_it_is_held() -> None:
    world = World("fifo", mixed()).submit(image_job(1, 6), a_job(2, 4)).decide()
    world.submit(image_job(3, 4)).decide()
    told = why(world, 3)
    assert next(iter(told)) is ReasonCode.RUNTIME
    assert told[ReasonCode.RUNTIME].have == 1
    assert sentence(told[ReasonCode.RUNTIME], world.job(3)) == (
        "it has an image, and of 3 nodes 1 run containers; GPUs are free on others"
    )
    short = told[ReasonCode.RESOURCES]
    assert (short.need, short.have, short.blocking_jobs) == (4, 2, (1,))


def test_a_node_that_begins_to_run_containers_takes_the_job_that_waits() -> None:
    world = World("fifo", mixed()).submit(image_job(1, 8)).decide().submit(image_job(2, 8)).decide()
    assert places(world, 2) == ()
    world.cluster.put_node(world.cluster.nodes[a_node("n3").node_id]._replace(runtimes=IMAGE))
    world.decide()
    assert places(world, 2) == ("n3",)


def test_only_who_holds_a_node_with_containers_has_to_leave_for_an_image() -> None:
    world = World("tiresias-las", mixed(), thresholds="100")
    world.submit(a_job(1, 8), a_job(2, 8), a_job(3, 8)).decide()
    (holder,) = (number for number in (1, 2, 3) if places(world, number) == ("n2",))
    world.at(200.0).submit(image_job(4, 8)).at(301.0)
    assert world.leaving == [holder]
    world.leave(holder).decide()
    assert places(world, 4) == ("n2",)


def test_a_plan_that_puts_an_image_where_none_runs_is_illegal() -> None:
    world = World("fifo", mixed())
    world.submit(a_job(1, 8), a_job(2, 8), a_job(3, 8)).decide().submit(image_job(4)).decide()
    world.finish(1)
    change = Start(JobId(4), an_allocation(("n1", 1)), LeaseKind.BE, 300.0, Reason(ReasonCode.FITS))
    with pytest.raises(IllegalPlan, match="has not what it asks for: podman"):
        check_delta(View(world.cluster, world.now_s), Plan((change,)), world.policy)


@pytest.mark.parametrize("placement", [CONSOLIDATE, SPREAD, COUNT])
@given(
    masks=st.lists(st.integers(0, 255), min_size=1, max_size=6),
    able=st.integers(0, 63),
    gpus=st.integers(1, 24),
)
def test_a_place_for_an_image_is_one_as_if_the_other_nodes_were_full(
    placement: Placement, masks: list[int], able: int, gpus: int
) -> None:
    pool = Pool([8] * len(masks), traits=Traits({PODMAN: able}))
    rest = Pool([8] * len(masks))
    for node, mask in enumerate(masks):
        pool.set(node, mask)
        rest.set(node, mask if able >> node & 1 else 0)
    before = list(pool.masks)
    found = placement.find(pool, Shape(gpus, None, None, (), PODMAN))
    assert found == placement.find(rest, Shape(gpus, None, None))
    assert pool.masks == before
    everywhere = Pool([8] * len(masks), traits=Traits({PODMAN: (1 << len(masks)) - 1}))
    assert everywhere.allowed(Shape(gpus, None, None, (), PODMAN)) is everywhere
