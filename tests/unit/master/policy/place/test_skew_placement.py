"""Tiresias' placement: who is kept together, who fills leftovers, and what who waits is told."""

from __future__ import annotations

import pytest

from dlq_master.model.estimates.slowdowns import TimedRun
from dlq_master.model.estimates.traffic import Packing, TrafficProfile
from dlq_master.model.nodes.free_gpus import Pool
from dlq_master.model.resources import Shape
from dlq_master.model.view import View
from dlq_master.model.words.sentence import sentence
from dlq_master.policy.place.skew import SKEW, Pack, packing
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.reasons.summary import ReasonSummary
from dlq_master.policy.registry.registry import build
from dlq_master.policy.registry.settings import PolicyError
from dlq_master.policy.sensitivity.packing import DEFAULT
from support.builders import World, a_job, a_node

# Table 6 of the paper: model size and largest tensor, MB, and whether Figure 3 shows it suffer.
TABLE_6 = {
    "VGG19": (548.1, 392.0, True),
    "VGG16": (527.8, 392.0, True),
    "VGG11": (506.8, 392.0, True),
    "AlexNet": (235.9, 144.0, True),
    "ResNet152": (230.2, 9.0, False),
    "ResNet101": (170.4, 9.0, False),
    "ResNet50": (97.7, 9.0, False),
    "Inception4": (162.9, 5.9, False),
    "Inception3": (91.0, 7.8, False),
    "GoogleNet": (26.7, 3.9, False),
}
TOGETHER, ANYWHERE = TrafficProfile(skew=0.7), TrafficProfile(skew=0.1)


def a_pool(*masks: int) -> Pool:
    pool = Pool([8] * len(masks))
    for node, mask in enumerate(masks):
        pool.set(node, mask)
    return pool


def a_world(*nodes: int, **settings: str) -> World:
    sized = [a_node(f"n{number}", gpus) for number, gpus in enumerate(nodes, start=1)]
    return World("best-effort", sized, None, place="skew", **settings)


def held(world: World, job_id: int) -> dict[str, int]:
    slots = world.attempt(job_id).lease.allocation.slots
    return {slot.node_id: slot.mask.bit_count() for slot in slots}


@pytest.mark.parametrize("model", TABLE_6)
def test_the_default_limit_tells_the_ten_models_of_table_6_apart(model: str) -> None:
    size, largest, suffers = TABLE_6[model]
    assert Packing(DEFAULT).together(TrafficProfile(skew=largest / size)) is suffers
    world = a_world(8, 8).submit(a_job(1, 5), a_job(2, 5)).decide()
    world.submit(a_job(3, 4, profile=TrafficProfile(skew=largest / size))).decide()
    assert world.job(3).waiting is suffers
    assert suffers or held(world, 3) == {"n1": 3, "n2": 1}


def test_an_insensitive_job_is_split_only_where_it_would_wait_otherwise() -> None:
    shape = Shape(3, None, None, together=False)
    assert dict(SKEW.find(a_pool(0b1, 0b11, 0xFF, 0b1111), shape) or ()) == {3: 0b111}
    assert dict(SKEW.find(a_pool(0b1, 0b11, 0b10), shape) or ()) == {0: 0b1, 1: 0b1, 2: 0b10}


def test_by_the_papers_words_a_sensitive_job_takes_the_fewest_nodes_of_now_and_never_waits_for_fewer() -> (  # noqa: E501
    None
):
    shape = Shape(8, None, None, together=True)
    pool = a_pool(0b11, 0b1111, 0b111111, 0b1)
    assert dict(packing(SKEW, Pack.TRY).find(pool, shape) or ()) == {0: 0b11, 2: 0b111111}
    assert SKEW.find(pool, shape) is None
    assert packing(SKEW, Pack.TRY).find(a_pool(0b11, 0b1111), shape) is None


def test_a_job_of_which_nothing_is_known_is_kept_together() -> None:
    world = a_world(2, 2, 8).submit(a_job(1, 4)).decide()
    assert held(world, 1) == {"n3": 4}


def test_an_explicit_number_of_nodes_is_honoured() -> None:
    world = a_world(8, 8).submit(a_job(1, 4, nodes=2, profile=TOGETHER)).decide()
    assert held(world, 1) == {"n1": 2, "n2": 2}


def test_insensitive_jobs_pass_a_sensitive_one_of_the_same_width_that_waits() -> None:
    world = a_world(8, 8, pack="wait").submit(a_job(1, 5), a_job(2, 5)).decide()
    world.submit(a_job(3, 4, profile=TOGETHER), a_job(4, 4, profile=ANYWHERE)).decide()
    assert world.job(3).waiting
    assert held(world, 4) == {"n1": 3, "n2": 1}


def test_who_waits_to_be_kept_together_is_told_why() -> None:
    world = a_world(8, 8, pack="wait").submit(a_job(1, 5), a_job(2, 5)).decide()
    world.submit(a_job(3, 4, profile=TOGETHER)).decide()
    view = View(world.cluster, world.now_s)
    (reason,) = explain(view, world.policy, world.job(3).job_id)
    assert reason.code is ReasonSummary(view, world.policy).code(world.job(3))
    assert (reason.code, reason.need, reason.have) == ("consolidation", 4, 3)
    assert sentence(reason, world.job(3)) == (
        "waits to be kept together: needs 4 GPUs on one node; the largest free block is 3 on n1,"
        " 6 are free in all; its largest tensor is 70% of its model (PACKLIMIT 37.8%);"
        " jobs 1, 2 hold GPUs it could use"
    )


def test_a_certain_rho_goes_before_the_skew_and_is_named() -> None:
    rule = build("best-effort", {"place": "skew"}).packing
    assert rule is not None
    packing = rule(World().cluster)
    assert not packing.together(
        TrafficProfile(skew=0.7, rho=0.04)
    )  # even without overlap 4 % slower
    assert packing.together(
        TrafficProfile(skew=0.1, rho=1.2)
    )  # even with perfect overlap 20 % slower
    assert packing.together(TrafficProfile(skew=0.7, rho=0.5))  # in doubt the skew
    assert not packing.together(TrafficProfile(skew=0.1, rho=0.5))
    assert "for 1.2 times as long as it computes" in packing.cause(TrafficProfile(0.1, 1.2))
    paper = build("best-effort", {"place": "skew", "predict": "off"}).packing
    assert paper is not None
    assert paper(World().cluster).together(TrafficProfile(skew=0.7, rho=0.04))


def test_a_measured_slowdown_goes_before_what_was_foretold_unless_nothing_is_predicted() -> None:
    slow = TrafficProfile(skew=0.1, rho=0.01, slowdown=1.2)
    fast = TrafficProfile(skew=0.9, rho=3.0, slowdown=1.02)
    limits = Packing(DEFAULT, 0.05, 1.05, tolerated=1.05)
    assert (limits.together(slow), limits.together(fast)) == (True, False)
    assert limits.cause(slow) == "spread over nodes it took 1.20 times as long (limit 1.05)"
    paper = Packing(DEFAULT)
    assert (paper.together(slow), paper.together(fast)) == (False, True)
    world = a_world(8, 8).submit(a_job(1, 5), a_job(2, 5)).decide()
    world.submit(a_job(3, 4, profile=slow), a_job(4, 4, profile=fast)).decide()
    assert (world.job(3).waiting, world.job(4).waiting) == (True, False)


def test_a_learned_limit_reaches_the_jobs_that_wait_already() -> None:
    world = a_world(8, 8, pack="wait", packlimit="learned").submit(a_job(1, 5), a_job(2, 5))
    world.decide().submit(a_job(3, 4, profile=TrafficProfile(skew=0.5))).decide()
    assert world.job(3).waiting
    for skew, slowdown in ((0.6, 1.05), (0.8, 1.9)) * 12:
        world.cluster.slowdowns.add(
            TimedRun(TrafficProfile(skew=skew), spread=True, slowdown=slowdown)
        )
    world.decide()
    assert world.cluster.packing is not None
    assert world.cluster.packing.skew_limit == pytest.approx(0.7)
    assert held(world, 3) == {"n1": 3, "n2": 1}


def test_jobs_of_one_width_wait_in_two_lines_until_another_policy_makes_them_one() -> None:
    world = a_world(2).submit(a_job(1, 2)).decide()
    world.submit(a_job(2, 2, profile=TOGETHER), a_job(3, 2, profile=ANYWHERE), a_job(4, 1)).decide()
    assert {shape[0::5] for shape in world.cluster.waiting.by_priority[0]} == {
        (2, True),
        (2, False),
        (1, None),
    }
    world.policy = build("best-effort")
    world.decide()
    assert {shape.together for shape in world.cluster.waiting.by_priority[0]} == {None}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"packlimit": "0.3"}, "'packlimit' needs place=skew"),
        ({"place": "spread", "pack": "wait"}, "'pack' needs place=skew"),
        ({"place": "skew", "packlimit": "61"}, "a share of the model from 0 to 1, or learned"),
        ({"place": "skew", "packlimit": "nan"}, "a share of the model from 0 to 1, or learned"),
        ({"place": "skew", "tolerate": "1"}, "expected more than 1"),
        ({"place": "skew", "predict": "yes"}, "expected one of off, on"),
    ],
)
def test_a_slip_in_a_setting_is_named(settings: dict[str, str], says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        build("tiresias-las", settings)
