"""`dlq why`: a typed reason for every job that does not run."""

from unittest.mock import patch

import pytest

from dlq_master.model.cluster import drive
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.eligible import Block, Dependency, Relation, Term
from dlq_master.model.jobs.job import HoldKind
from dlq_master.model.jobs.reward import strict
from dlq_master.model.resources import Request
from dlq_master.model.transitions import StopCause
from dlq_master.model.view import View
from dlq_master.model.why import Kind, Reason, ReasonCode
from dlq_master.model.words.sentence import sentence
from dlq_master.policy import pipeline
from dlq_master.policy.admit.any_that_fits import never
from dlq_master.policy.reasons.decisions import Decisions
from dlq_master.policy.reasons.explain import explain, explain_briefly, jobs_ahead
from dlq_master.policy.reasons.summary import ReasonSummary
from support.builders import World, a_job, a_node, a_request, a_waiting_job


def assert_kinds(kinds: tuple[Kind, ...], reasons: tuple[Reason, ...]) -> None:
    """A glance tells the same reasons in the same order, but for two that stand behind others."""
    told = list(dict.fromkeys(reason.kind for reason in reasons))
    behind = {ReasonCode.WAITING_FOR_BOUNDARY, ReasonCode.BEHIND_HIGHER_RANK}
    assert list(kinds) == [kind for kind in told if kind in kinds or kind.code not in behind]


def why(world: World, job_id: int, pause: ReasonCode | None = None) -> dict[ReasonCode, Reason]:
    """The reasons by code; a list, which shows only the main one, must show the first of them."""
    job, view = world.job(job_id), View(world.cluster, world.now_s, pause)
    reasons = explain(view, world.policy, job.job_id)
    glance = ReasonSummary(view, world.policy)
    assert glance.code(job) is (reasons[0].code if reasons else None)
    if not job.ended:
        assert_kinds(glance.kinds(job), reasons)
    return {reason.code: reason for reason in reasons}


def test_a_running_job_has_no_reason() -> None:
    world = World().submit(a_job(1, 8)).decide()
    assert why(world, 1) == {}


def test_too_few_gpus_names_need_have_and_who_ends_first() -> None:
    world = World().submit(
        a_job(1, 3, duration_estimate_s=900.0), a_job(2, 3, time_limit_s=60.0), a_job(3, 1)
    )
    world.decide().submit(a_job(4, 8)).decide()
    reason = why(world, 4)[ReasonCode.RESOURCES]
    assert (reason.resource, reason.need, reason.have) == ("gpus", 8, 1)
    assert reason.blocking_jobs == (2, 1, 3)


def test_fragmentation_is_told_apart_from_shortage() -> None:
    world = World(nodes=2).submit(a_job(1, 5), a_job(2, 5)).decide()
    world.submit(a_job(3, 4)).decide()
    reason = why(world, 3)[ReasonCode.FRAGMENTATION]
    assert (reason.need, reason.have) == (4, 3)


@pytest.mark.parametrize(
    ("taken", "told"),
    [
        ([1, 2, 3], ["disk=fast", "rack=r2"]),
        ([1, 3], ["rack=r2"]),
        ([1], ["disk=fast and rack=r2"]),
    ],
)
def test_each_constraint_that_alone_keeps_it_out_is_a_reason_of_its_own(
    taken: list[int], told: list[str]
) -> None:
    """n1 has both, n2 is fast, n3 is in r2, and n4 is neither, and free."""
    has = [{"disk=fast", "rack=r2"}, {"disk=fast"}, {"rack=r2"}, set()]
    nodes = [a_node(f"n{n}", labels=frozenset(labels)) for n, labels in enumerate(has, 1)]
    world = World(nodes=nodes)
    for number in taken:
        only = Request(gpus=8, among=(NodeId(f"n{number}"),))
        world.submit(a_job(number, request=only))
    both = Request(gpus=8, constraint=("disk=fast", "rack=r2"))
    world.decide().submit(a_job(9, request=both)).decide()
    assert world.running == taken
    why(world, 9)
    reasons = explain(View(world.cluster, world.now_s), world.policy, JobId(9))
    kinds = [reason.kind for reason in reasons if reason.code is ReasonCode.CONSTRAINT]
    assert [kind.subject for kind in kinds] == told
    assert kinds[0].word == f"constraint {told[0]}"


def test_behind_the_head_of_the_line() -> None:
    world = World("fifo").submit(a_job(1, 6), a_job(2, 4), a_job(3, 1)).decide()
    assert why(world, 3)[ReasonCode.HEAD_OF_LINE].blocking_jobs == (2,)
    assert ReasonCode.RESOURCES in why(world, 2)
    assert ReasonCode.HEAD_OF_LINE not in why(world, 2)


def test_holds_are_told_by_kind() -> None:
    world = World().submit(a_job(1, 8), a_job(2)).decide()
    world.hold(2, HoldKind.ADMIN, "maintenance")
    assert why(world, 2)[ReasonCode.HELD_ADMIN].detail == "maintenance"


def test_a_held_job_is_also_told_what_it_would_wait_for_after_its_release() -> None:
    other = Dependency((Term(Relation.AFTEROK, JobId(1)),))
    world = World().submit(a_job(1, 8)).decide()
    world.submit(a_job(2, depends=other, begin_time_s=world.now_s + 60.0, blocked=Block.DEPENDENCY))
    world.hold(2, HoldKind.USER, "later")
    reasons = explain(View(world.cluster, world.now_s), world.policy, JobId(2))
    codes = [reason.code for reason in reasons]
    assert codes == [ReasonCode.HELD_USER, ReasonCode.DEPENDENCY, ReasonCode.BEGIN_TIME]
    told = [sentence(reason, world.job(2)) for reason in reasons]
    assert told[1] == "it waits for other jobs: afterok:1"


def test_while_the_master_starts_that_is_all_there_is_to_say() -> None:
    world = World().submit(a_job(1, 8), a_job(2, 8))
    world.decide()
    assert set(why(world, 2, ReasonCode.MASTER_STARTING)) == {ReasonCode.MASTER_STARTING}
    frozen = why(world, 2, ReasonCode.FREEZE)
    assert set(frozen) == {ReasonCode.FREEZE, ReasonCode.RESOURCES}


def test_before_nodes_register_every_job_says_so() -> None:
    world = World(nodes=0).submit(a_job(1)).decide()
    assert set(why(world, 1)) == {ReasonCode.NO_NODES}


def test_a_job_that_waits_for_a_release_names_who_leaves() -> None:
    world = World().submit(a_job(1, 5), a_job(2, 7), a_job(3, 1)).decide()
    world.pause(1)
    assert why(world, 2)[ReasonCode.WAITING_FOR_RELEASE].blocking_jobs == (1,)


def test_a_narrow_job_that_may_not_pass_names_who_stands_before_it() -> None:
    world = World().submit(a_job(1, 5)).decide().submit(a_job(2, 8)).decide()
    world.pause(1).submit(a_job(3, 1)).decide()
    assert why(world, 3)[ReasonCode.BEHIND_HIGHER_RANK].blocking_jobs == (2,)


def test_gpus_kept_for_a_promoted_job_are_named() -> None:
    world = World("tiresias-las", starve_limit_s="60", thresholds="100000")
    world.submit(a_job(1, 4)).at(0.0)
    world.submit(a_job(2, 8)).at(30.0)
    world.at(90.0)
    world.submit(a_job(3, 1)).decide()
    assert why(world, 3)[ReasonCode.RESERVED_FOR].blocking_jobs == (2,)


def test_who_will_take_gpus_at_the_boundary_is_told_when() -> None:
    world = World("tiresias-las", thresholds="800").submit(a_job(1, 8)).decide().at(101.0)
    world.submit(a_job(2, 8)).decide()
    assert why(world, 2)[ReasonCode.WAITING_FOR_BOUNDARY].have == 199.0


def test_who_stands_behind_more_than_there_is_costs_no_walk_of_a_boundary() -> None:
    world = World("tiresias-las", thresholds="800").submit(a_job(1, 8)).decide().at(101.0)
    world.submit(a_job(2, 8), a_job(3, 8)).decide()
    view = View(world.cluster, world.now_s)
    whole = Decisions(view, world.policy)
    told = explain(view, world.policy, JobId(2), decisions=whole)
    assert ReasonCode.WAITING_FOR_BOUNDARY in [reason.code for reason in told]
    assert JobId(3) not in whole.boundaries.guarded.claims, "it is not served"
    with patch.object(pipeline, "at_boundary", side_effect=AssertionError):
        explain(view, world.policy, JobId(3))


def test_another_gpu_type_is_free() -> None:
    nodes = [a_node("a", 4, "A100"), a_node("h", 4, "H100")]
    world = World(nodes=nodes)
    world.submit(a_job(1, request=a_request(4, gpu_type="H100"))).decide()
    world.submit(a_job(2, request=a_request(2, gpu_type="H100"))).decide()
    assert {ReasonCode.RESOURCES, ReasonCode.GPU_TYPE} <= set(why(world, 2))


def test_closed_nodes_are_named() -> None:
    world = World(nodes=2).drain("n1").submit(a_job(1, 16)).decide()
    assert why(world, 1)[ReasonCode.NODES_CLOSED].detail == "n1 (draining)"


def test_a_frozen_master_says_so_first() -> None:
    world = World().submit(a_job(1)).decide().finish(1).submit(a_job(2)).settle_moves()
    assert next(iter(why(world, 2, ReasonCode.FREEZE))) is ReasonCode.FREEZE


def test_what_no_node_set_could_hold_is_refused_with_the_reason() -> None:
    world = World(nodes=2)

    def told(request: Request) -> Reason | None:
        return never(world.cluster, world.policy.placement, request.shape)

    assert told(a_request(16)) is None
    reason = told(a_request(17))
    assert reason is not None
    assert (reason.code, reason.need, reason.have) == (ReasonCode.NO_SUCH_SHAPE, 17, 16)
    for request, code in (
        (a_request(6, nodes=3), ReasonCode.NO_SUCH_SHAPE),
        (a_request(1, gpu_type="B200"), ReasonCode.GPU_TYPE),
    ):
        reason = told(request)
        assert reason is not None
        assert reason.code is code
    world.submit(a_job(1, 17)).decide()
    assert world.job(1).state.value == "failed"


def test_jobs_ahead_counts_by_rank_and_position() -> None:
    world = World().submit(a_job(1, 8)).decide()
    world.submit(a_job(2, 8), a_job(3, 2), a_job(4, 8, priority_base=-1), a_job(5, 8)).decide()
    ahead = {
        n: jobs_ahead(View(world.cluster, 0.0), world.policy, world.job(n).job_id)
        for n in range(1, 6)
    }
    assert ahead == {1: None, 4: 0, 2: 1, 3: 2, 5: 3}


def test_a_brief_explanation_leaves_out_what_has_to_look_at_everybody_who_runs() -> None:
    world = World("tiresias-las", thresholds="800").submit(a_job(1, 8)).decide().at(101.0)
    world.submit(a_job(2, 8)).decide()
    view = View(world.cluster, world.now_s)
    whole = explain(view, world.policy, JobId(2))
    codes = [reason.code for reason in whole]
    assert codes == [ReasonCode.RESOURCES, ReasonCode.WAITING_FOR_BOUNDARY]
    assert whole[0].blocking_jobs == (1,)
    last = pipeline.decide(view, world.policy)
    brief = explain_briefly(view, world.policy, JobId(2), last)
    assert brief == (whole[0]._replace(blocking_jobs=()),)


def test_who_stands_behind_one_that_is_still_saving_is_told_so() -> None:
    world = World("chronus", nodes=2, guarantee="fitting", be_floor="0")
    due = strict(9_000.0)
    world.submit(a_waiting_job(3, 4), a_waiting_job(4, 4)).decide()
    world.submit(a_waiting_job(1, 4, duration_estimate_s=5_000.0, steps=due), a_waiting_job(5, 4))
    world.decide().finish(3).at(1_180.0)
    assert world.job(1).band is Band.SLO, "the next slot is its own"
    drive.stop_attempt(world.cluster, AttemptKey(JobId(1), 1), StopCause.DRAIN, world.now_s)
    world.submit(a_waiting_job(2, 4), a_waiting_job(6, 4))
    assert why(world, 6)[ReasonCode.BEHIND_HIGHER_RANK].blocking_jobs == (1, 2)
