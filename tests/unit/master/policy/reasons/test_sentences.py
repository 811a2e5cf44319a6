"""What people read: every reason that a waiting job can have, from the decision to the sentence."""

from __future__ import annotations

import pytest

from dlq_master.model.jobs.job import EndReason, HoldKind, JobState
from dlq_master.model.view import View
from dlq_master.model.why import BLOCKERS_NAMED, Reason, ReasonCode
from dlq_master.model.words.sentence import PLAIN, sentence
from dlq_master.policy.admit.any_that_fits import never
from dlq_master.policy.reasons.explain import explain
from support.builders import World, a_job, a_node, a_request


def said(world: World, job_id: int, reader: str = "ada") -> dict[str, str]:
    """The sentences of all reasons, by code."""
    job = world.job(job_id)
    reasons = explain(View(world.cluster, world.now_s), world.policy, job.job_id)
    return {reason.code.value: sentence(reason, job, reader) for reason in reasons}


@pytest.mark.parametrize("code", ReasonCode)
def test_every_code_has_a_sentence_of_its_own(code: ReasonCode) -> None:
    reason = Reason(code, "gpus", 4, 3, (a_job(7).job_id,), "on one node")
    others = {sentence(reason._replace(code=c), a_job(1)) for c in ReasonCode if c is not code}
    assert len(others) == len(ReasonCode) - 1
    assert sentence(reason, a_job(1)) not in others


def test_a_pause_of_the_master_is_a_sentence_by_itself() -> None:
    assert {ReasonCode.FREEZE, ReasonCode.MASTER_STARTING} <= set(PLAIN)


def test_too_few_free_gpus() -> None:
    world = World(nodes=2).submit(a_job(1, 7), a_job(2, 7)).decide()
    world.submit(a_job(3, 4)).decide()
    assert said(world, 3) == {
        "resources": "needs 4 GPUs, 2 are free; the largest free block is 1 on n1;"
        " jobs 1, 2 hold GPUs it could use"
    }


def test_no_free_gpu_at_all() -> None:
    world = World(nodes=[a_node("n1", 1, "H100")]).submit(a_job(1)).decide()
    world.submit(a_job(2, request=a_request(1, gpu_type="H100"))).decide()
    assert said(world, 2) == {
        "resources": "needs 1 GPU of type H100, none is free; job 1 holds GPUs it could use"
    }


def test_enough_gpus_in_pieces_that_are_too_small() -> None:
    world = World(nodes=2).submit(a_job(1, 5), a_job(2, 5)).decide()
    world.submit(a_job(3, 4)).decide()
    assert said(world, 3) == {
        "fragmentation": "needs 4 GPUs on one node; the largest free block is 3 on n1,"
        " 6 are free in all; jobs 1, 2 hold GPUs it could use"
    }


def test_a_gang_whose_parts_do_not_fit() -> None:
    world = World(nodes=2).submit(a_job(1, 6)).decide()
    world.submit(a_job(2, 8, nodes=2)).decide()
    assert said(world, 2)["fragmentation"].startswith(
        "needs 8 GPUs in 2 equal parts; 4 or more are free on 1 of the nodes"
    )


def test_a_wide_job_whose_gpus_are_on_too_many_nodes() -> None:
    world = World(nodes=3).submit(a_job(1, 7), a_job(2, 7), a_job(3, 7)).decide()
    world.submit(a_job(4), a_job(5), a_job(6)).decide().finish(1, 2, 3)
    world.submit(a_job(7, 16)).decide()
    assert said(world, 7) == {
        "fragmentation": "needs 16 GPUs on 2 nodes; the emptiest 2 have 14 free,"
        " 21 are free in all; jobs 4, 5, 6 hold GPUs it could use"
    }


def test_holds_name_the_holder_as_the_reader_knows_them() -> None:
    world = World().submit(a_job(1), a_job(2), a_job(3))
    world.hold(1, HoldKind.USER, "later", by="ada").hold(2, HoldKind.ADMIN, "disk", by="root")
    world.hold(3, HoldKind.PAUSED, by="ada")
    assert said(world, 1) == {"held_user": "held by you: later (dlq release 1)"}
    assert said(world, 1, "root") == {"held_user": "held by ada: later (dlq release 1)"}
    assert said(world, 2) == {"held_admin": "held by root: disk (only operators release it)"}
    assert said(world, 3) == {"paused": "paused by you (dlq resume 3)"}


def test_a_hold_of_nobody_known_is_only_a_hold() -> None:
    world = World().submit(a_job(1)).hold(1, HoldKind.USER)
    assert said(world, 1, "") == {"held_user": "held (dlq release 1)"}


def test_a_poison_hold_says_how_often_and_why() -> None:
    job = a_job(
        1, state=JobState.HELD, hold=HoldKind.POISON, infra_failures=3,
        hold_reason=EndReason.START_FAILED.value,
    )  # fmt: skip
    assert said(World().submit(job), 1) == {
        "poison": "held by the master: 3 attempts were lost to the cluster (start_failed)"
        " (dlq release 1 when that is mended)"
    }


def test_who_is_before_it_is_counted_and_named() -> None:
    reason = Reason(ReasonCode.BEHIND_HIGHER_RANK)
    jobs = tuple(a_job(n).job_id for n in range(12, 12 + BLOCKERS_NAMED))
    assert sentence(reason, a_job(1)) == "jobs that rank before it come first"
    assert sentence(reason._replace(blocking_jobs=jobs[:1]), a_job(1)) == "job 12 ranks before it"
    assert (
        sentence(reason._replace(blocking_jobs=jobs[:3]), a_job(1))
        == "3 jobs rank before it: 12, 13, 14"
    )
    assert sentence(reason._replace(blocking_jobs=jobs), a_job(1)) == (
        "at least 10 jobs rank before it: 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, ..."
    )


def test_the_first_in_line_is_named() -> None:
    world = World("fifo").submit(a_job(1, 6), a_job(2, 4), a_job(3, 1)).decide()
    assert said(world, 3) == {"head_of_line": "job 2 is first in line, and nobody passes it"}


def test_gpus_that_are_being_released_are_named_with_who_leaves() -> None:
    world = World().submit(a_job(1, 5), a_job(2, 7), a_job(3, 1)).decide()
    world.pause(1)
    assert said(world, 2)["waiting_for_release"] == (
        "its 7 GPUs are being saved or released by job 1"
    )


def test_the_boundary_is_told_in_time_to_come() -> None:
    world = World("tiresias-las", thresholds="800").submit(a_job(1, 8)).decide().at(101.0)
    world.submit(a_job(2, 8)).decide()
    assert said(world, 2)["waiting_for_boundary"] == (
        "it takes 8 GPUs over at the next boundary, in 3 min"
    )


def test_only_so_many_closed_nodes_are_named() -> None:
    world = World(nodes=13).submit(a_job(1, 13 * 8)).settle_moves()
    for number in range(1, 13):
        world.drain(f"n{number}")
    first = ("n1", "n10", "n11", "n12", "n2", "n3", "n4", "n5", "n6", "n7")
    assert said(world, 1)["nodes_closed"] == (
        "it fits only when these nodes take new work again:"
        f" {', '.join(f'{name} (draining)' for name in first)} and 2 more"
    )


def test_a_type_that_is_taken_while_another_is_free() -> None:
    world = World(nodes=[a_node("a", 4, "A100"), a_node("h", 4, "H100")])
    world.submit(a_job(1, request=a_request(4, gpu_type="H100"))).decide()
    world.submit(a_job(2, request=a_request(2, gpu_type="H100"))).decide()
    assert said(world, 2) == {
        "resources": "needs 2 GPUs of type H100, none is free; job 1 holds GPUs it could use",
        "gpu_type": "GPUs of another type are free, but it asks for H100",
    }


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (
            a_request(17),
            "no set of the registered nodes has 17 GPUs; of one type there are 16 in all",
        ),
        (
            a_request(6, nodes=3),
            "no set of the registered nodes has 6 GPUs over 3 nodes; of one type there are 16 in "
            "all",
        ),
        (a_request(1, gpu_type="B200"), "no node has B200 GPUs (there are: H100-80GB)"),
    ],
)
def test_what_can_never_run(request_: object, words: str) -> None:
    world = World(nodes=2)
    job = a_job(1, request=request_)
    reason = never(world.cluster, world.policy.placement, job.request.shape)
    assert reason is not None
    assert sentence(reason, job) == words
