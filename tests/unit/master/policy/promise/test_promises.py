"""Promises, slot by slot: who is guaranteed what, who runs when, and what becomes of promises.

Slots are 1,200 s, best-effort terms 300 s, and what is to change is decided 30 s before. Nodes have
8 GPUs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.attempts.attempt_steps import Committed
from dlq_master.model.cluster import drive
from dlq_master.model.estimates.estimate import Basis, Source
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.band import Band, Segment
from dlq_master.model.jobs.job import Alternative, Checkpoint, Job, Pause
from dlq_master.model.jobs.job_steps import Estimated, Reserved
from dlq_master.model.jobs.reward import BEST_EFFORT, Steps, soft, strict
from dlq_master.model.lease import LeaseKind
from dlq_master.model.nodes.node import Node, NodeFlag
from dlq_master.model.nodes.node_steps import FlagSet
from dlq_master.model.plan import NextSlot
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.policy.admit.deadlines import offered
from dlq_master.policy.promise.capacity.grids import grid_of
from dlq_master.policy.promise.capacity.rules import Promises
from dlq_master.policy.promise.verdicts.offer import FixKind
from dlq_master.policy.promise.verdicts.proof import at_risk
from dlq_master.policy.promise.verdicts.reading import pause_of, slo_job
from support.builders import H100, World, a_job, a_node, a_request
from support.extent import times

PAUSE_S = 60.0  # a save and a resume


def a_world(nodes: int = 1, **settings: str) -> World:
    return World("chronus-paper", nodes, None, deadlines="exact", **settings)


def an_slo_job(job_id: int, gpus: int, run_s: float, steps: Steps) -> Job:
    return a_job(job_id, gpus, duration_estimate_s=run_s, steps=steps)


def best_effort(job_id: int, gpus: int, run_s: float = 1e6) -> Job:
    return an_slo_job(job_id, gpus, run_s, BEST_EFFORT)


# --- judging ---------------------------------------------------------------------------------


def test_who_fits_is_promised_its_best_deadline_and_gets_slots() -> None:
    world = a_world(selector="prefix")
    world.submit(an_slo_job(1, 8, 2000.0, soft([(6000.0, 100.0), (9000.0, 50.0)])))
    job = world.decide().job(1)
    assert (job.verdict, job.promised, job.slots) == ("holes", 0, (Segment(1, 3),))


def test_who_comes_too_late_gets_the_next_deadline_that_fits() -> None:
    world = a_world().submit(an_slo_job(1, 8, 3500.0, strict(4800.0))).decide()
    job = (
        world.submit(an_slo_job(2, 8, 2000.0, soft([(6000.0, 100.0), (9000.0, 50.0)])))
        .decide()
        .job(2)
    )
    assert (job.promised, job.slots) == (1, (Segment(4, 6),))


@pytest.mark.parametrize(
    ("job", "verdict"),
    [
        (an_slo_job(2, 16, 600.0, strict(9000.0)), "width"),
        (an_slo_job(2, 8, 600.0, strict(700.0)), "reach"),
        (an_slo_job(2, 8, 2000.0, strict(4700.0)), "fluid"),
    ],
)
def test_who_is_not_promised_anything_runs_as_best_effort(job: Job, verdict: str) -> None:
    nodes = 2 if verdict == "width" else 1
    world = a_world(nodes, be_floor="0.5" if verdict == "width" else "0")
    world.submit(an_slo_job(1, 8, 3500.0, strict(4800.0))).decide()
    judged = world.submit(job).decide().job(2)
    assert (judged.verdict, judged.promised, judged.band) == (verdict, None, Band.SPOT)


@pytest.mark.parametrize(("saved_at_s", "verdict"), [(None, "reach"), (1400.0, "holes")])
def test_who_is_judged_while_it_runs_needs_no_time_for_what_it_has_saved(
    saved_at_s: float | None, verdict: str
) -> None:
    # Its best-effort lease ends before the next slot: what it has not saved may have to be done
    # again.
    world = World("dlq", 1, None, be_floor="0").submit(a_job(1, 8, steps=strict(3600.0)))
    world.decide().at(1500.0)
    if saved_at_s is not None:
        saved = Checkpoint("/ckpt/1/1/step-1", 1, saved_at_s, 1)
        drive.step_attempt(world.cluster, world.attempt(1).key, Committed(checkpoint=saved), 1500.0)
    drive.step_job(world.cluster, JobId(1), Estimated(estimate_s=2400.0, basis=Basis()), 1500.0)
    job = world.decide().job(1)
    assert (job.verdict, job.band) == (verdict, Band.SPOT)


def test_a_team_has_no_more_than_its_quota_promised() -> None:
    world = a_world(2, slo_quota="ada:8").submit(an_slo_job(1, 8, 2000.0, strict(6000.0)))
    world.submit(an_slo_job(2, 1, 2000.0, strict(6000.0))).decide()
    assert (world.job(1).promised, world.job(2).verdict) == (0, "quota")


def test_whoever_earns_less_than_others_ask_for_is_promised_nothing() -> None:
    # A day's room of one node is 576 GPU-slots, of which 0.8 are counted on: jobs of 8 x 2 slots
    # have asked for 40 x 16 of them, and one of 8 x 20 slots earns a tenth of what these earn for
    # each.
    world = World("chronus", 1, None, be_floor="0", guarantee="worth", select="guaranteed")
    for number in range(1, 41):
        world.submit(an_slo_job(number, 8, 2000.0, strict(1e7))).decide()
    world.at(1300.0)  # the price is worked out once a slot
    world.submit(an_slo_job(41, 8, 23_000.0, strict(1e7)), an_slo_job(42, 8, 2000.0, strict(1e7)))
    world.decide()
    assert (world.job(41).verdict, world.job(42).promised) == ("worth", 0)


def test_the_floor_of_best_effort_is_nobodys_promise() -> None:
    world = a_world(10, be_floor="0.25")
    assert world.policy.promises is not None
    assert grid_of(world.cluster, H100, world.policy.promises, 0).capacity == (56,)


def test_a_lent_server_is_promised_to_nobody() -> None:
    world = a_world(3)
    drive.step_node(world.cluster, NodeId("n2"), FlagSet(flag=NodeFlag.LOANED), 1.0)
    assert world.policy.promises is not None
    assert grid_of(world.cluster, H100, world.policy.promises, 0).capacity == (16,)


def test_who_is_not_guaranteed_is_told_what_could_be_promised_instead() -> None:
    world = a_world().submit(an_slo_job(1, 8, 3500.0, strict(4800.0))).decide()
    world.submit(an_slo_job(2, 8, 2000.0, strict(4700.0))).at(101.0)
    assert world.policy.promises is not None
    view = View(world.cluster, world.now_s)
    found = offered(view, world.job(2), world.policy.promises)
    assert found.earliest_s is not None
    assert found.fix is not None
    assert found.fix.kind is FixKind.LATER_DEADLINE
    later = an_slo_job(3, 8, 2000.0, strict(found.earliest_s))
    assert world.submit(later).decide().job(3).promised == 0
    sooner = an_slo_job(4, 8, 2000.0, strict(found.earliest_s - 1300.0))
    assert world.submit(sooner).decide().job(4).promised is None


def test_the_paper_counts_deadlines_in_whole_leases() -> None:
    # From 1,200 s on the deadline leaves 2,301 s: two leases for a job of 1,500 s if the last is
    # used in part.
    job = an_slo_job(1, 8, 1500.0, strict(3500.0))
    assert World("chronus-paper", 1).submit(job).decide().job(1).verdict == "reach"
    assert a_world().submit(job).decide().job(1).promised == 0


def test_what_a_plan_could_not_keep_is_not_promised() -> None:
    mixed = [a_node("n1"), *[a_node(f"n{at}", 4) for at in range(2, 6)]]
    wide = World("chronus-paper", mixed, None).submit(an_slo_job(1, 8, 2000.0, strict(9000.0)))
    assert wide.decide().job(1).verdict == "width"
    typed = World("chronus-paper", [a_node("n1"), a_node("n2", gpu_type="A100")], None)
    assert typed.submit(measured(1)).decide().job(1).verdict == "type"
    lost = an_slo_job(1, 8, 2000.0, strict(9000.0))._replace(keeps_work=False)
    assert a_world().submit(lost).decide().job(1).verdict == "keeps"


def measured(number: int) -> Job:
    """On whichever GPUs: nobody knows how long it takes on others."""
    job = an_slo_job(number, 8, 2000.0, strict(9000.0))
    return job._replace(basis=Basis(Source.HISTORY))


def test_of_nodes_with_six_gpus_blocks_of_four_are_promised() -> None:
    world = World("chronus-paper", [a_node("n1", 6), a_node("n2", 6)], None)
    assert world.policy.promises is not None
    assert grid_of(world.cluster, H100, world.policy.promises, 0).capacity == (8,)
    for number in (1, 2, 3):
        world.submit(an_slo_job(number, 4, 2000.0, strict(3700.0)))
    world.decide()
    assert [world.job(number).promised for number in (1, 2, 3)] == [0, 0, None]


# --- refusals with their numbers ---------------------------------------------------------------


def refused(world: World, job: Job) -> Alternative:
    """What it is told with the refusal."""
    told = world.submit(job).decide().job(int(job.job_id))
    assert (told.promised, told.alternative is None) == (None, False)
    assert told.alternative is not None
    return told.alternative


def test_who_is_too_wide_is_told_the_numbers_and_a_width_that_is_then_promised() -> None:
    world = offering(2, be_floor="0.5")
    told = refused(world, an_slo_job(1, 16, 600.0, strict(9000.0)))
    assert (told.need, told.have, told.fix, told.fix_gpus) == (16, 8, "fewer_gpus", 8)
    assert told.earliest_s is None
    assert told.fix_s is not None
    again = an_slo_job(2, 8, 1200.0, strict(told.fix_s - world.now_s))
    assert world.submit(again).decide().job(2).promised == 0


def test_where_nodes_are_of_several_sizes_the_widest_promise_is_one_node() -> None:
    mixed = [a_node("n1"), *[a_node(f"n{at}", 4) for at in range(2, 6)]]
    told = refused(offering(mixed), an_slo_job(1, 8, 600.0, strict(9000.0)))
    assert (told.need, told.have, told.fix_gpus) == (8, 4, 4)


def test_where_everything_is_left_to_best_effort_nothing_is_offered() -> None:
    told = refused(offering(1, be_floor="0.5"), an_slo_job(1, 8, 600.0, strict(9000.0)))
    assert (told.need, told.have, told.fix) == (8, 0, "")


def test_who_comes_too_late_is_told_what_it_needs_and_what_is_left() -> None:
    told = refused(offering(), an_slo_job(1, 8, 600.0, strict(1700.0)))
    # From 1,200 s on, with a resume: it has saved nothing yet.
    assert (told.need, told.have) == (630.0, 501.0)


def test_beside_other_promises_the_slots_that_are_left_are_told() -> None:
    world = offering().submit(an_slo_job(1, 8, 3500.0, strict(6100.0))).decide()
    told = refused(world, an_slo_job(2, 8, 2000.0, strict(6000.0)))
    assert (told.need, told.have) == (2, 1)


def test_a_quota_and_types_are_told() -> None:
    told = refused(offering(2, slo_quota="ada:8"), an_slo_job(1, 16, 600.0, strict(9000.0)))
    assert (told.need, told.have) == (16, 8)
    typed = offering([a_node("n1"), a_node("n2", gpu_type="A100")])
    told = refused(typed, measured(1))
    assert told.detail == "A100, H100-80GB"


def offering(nodes: int | list[Node] = 1, **settings: str) -> World:
    """Who is refused is told what could be promised, as in a master."""
    world = World("chronus-paper", nodes, None, deadlines="exact", **settings)
    rules = promises_of(world)
    world.policy = replace(world.policy, promises=replace(rules, offers=True))
    return world


# --- slots -----------------------------------------------------------------------------------


def test_a_promise_takes_its_gpus_at_its_slot_and_holds_them_for_it() -> None:
    world = a_world().submit(best_effort(1, 8)).at(10.0)
    world.submit(an_slo_job(2, 8, 2000.0, strict(3700.0))).at(20.0)
    assert (world.running, world.job(2).band) == ([1], Band.FILL)
    world.at(1170.0)
    assert (world.leaving, world.job(2).band) == ([1], Band.SLO)
    world.now_s = 1200.0
    world.leave(1).decide()
    lease = world.attempt(2).lease
    assert (lease.kind, lease.term_end_s) == (LeaseKind.SLO, 2400.0)
    world.at(1470.0)  # a best-effort boundary is none of its own
    assert world.running == [2]


def test_until_its_slot_a_promised_job_runs_where_nobody_else_wants_to() -> None:
    world = a_world().submit(an_slo_job(1, 8, 1100.0, strict(9000.0))).at(10.0)
    assert (world.running, world.attempt(1).lease.kind) == ([1], LeaseKind.BE)
    world.submit(best_effort(2, 8)).at(270.0)
    assert world.leaving == [1]
    world.now_s = 300.0
    assert world.leave(1).decide().running == [2]


def test_when_its_slot_is_over_a_promised_job_gives_way_to_anybody() -> None:
    world = a_world().submit(an_slo_job(1, 8, 5000.0, strict(20_000.0))).at(10.0)
    assert world.at(1170.0).attempt(1).lease.kind is LeaseKind.SLO
    world.submit(an_slo_job(2, 8, 1100.0, strict(2700.0))).at(1300.0)
    assert world.job(2).promised == 0
    world.at(2370.0)
    assert (world.leaving, world.job(1).promised) == ([1], 0)


def test_who_will_be_done_at_the_boundary_is_left_alone() -> None:
    world = a_world().submit(an_slo_job(1, 8, 1180.0, strict(2500.0))).at(15.0)
    world.submit(an_slo_job(2, 8, 1100.0, strict(2700.0)), best_effort(3, 8)).at(1170.0)
    assert (world.leaving, world.job(1).band) == ([], Band.SLO)


def test_what_the_plan_of_a_slot_earns_is_told_beside_the_bound() -> None:
    world = a_world().submit(an_slo_job(1, 8, 2000.0, strict(9000.0))).at(10.0)
    world.now_s = 1170.0
    told = world.plan().changes[0]
    assert isinstance(told, NextSlot)
    assert told.reason.detail == f"{H100}: the kept plan earns 100 of at most 100 (gap 0.00%)"


def test_an_early_end_gives_its_gpus_to_best_effort_at_once() -> None:
    world = a_world().submit(an_slo_job(1, 8, 2000.0, strict(3700.0))).at(10.0).at(1170.0)
    world.submit(best_effort(2, 8)).at(1300.0).finish(1).decide()
    assert (world.running, world.attempt(2).lease.term_end_s) == ([2], 1500.0)


def test_a_deadline_that_was_not_promised_may_still_get_slots() -> None:
    world = World("chronus", 1, None, be_floor="0", guarantee="worth", select="all")
    world.submit(an_slo_job(1, 8, 2000.0, strict(9000.0))).decide()
    # As if it had been too little worth when it was judged.
    event = Reserved(band=Band.SPOT, verdict="worth")
    drive.step_job(world.cluster, world.job(1).job_id, event, world.now_s)
    world.at(1170.0)
    assert (world.job(1).promised, world.job(1).band) == (None, Band.SLO)


# --- promises that cannot be kept ------------------------------------------------------------


def test_a_promise_that_no_plan_keeps_any_more_is_given_up_aloud() -> None:
    world = a_world(2).submit(an_slo_job(1, 16, 5000.0, strict(6500.0))).at(10.0)
    assert world.job(1).promised == 0
    world.drain("n2").at(1170.0)
    assert (world.job(1).promised, world.job(1).verdict, world.job(1).band) == (
        None,
        "broken",
        Band.SPOT,
    )


def test_losing_a_node_costs_the_promises_that_earn_least_for_their_gpus() -> None:
    world = a_world(2).submit(
        an_slo_job(1, 8, 5000.0, strict(6600.0)), an_slo_job(2, 8, 5000.0, soft([(6600.0, 50.0)]))
    )
    world.at(10.0).drain("n2").at(1170.0)
    assert (world.job(1).promised, world.job(2).promised) == (0, None)


def short_of_a_node(**settings: str) -> World:
    """Four nodes, of which one is promised to nobody: the three others have been, and one is
    lost.
    """
    world = World("dlq", 4, None, be_floor="0.25", guarantee="fitting", **settings)
    world.submit(*[an_slo_job(number, 8, 4000.0, strict(5400.0)) for number in (1, 2, 3)])
    world.at(10.0).drain("n4")
    return world


@pytest.mark.parametrize("select", ["guaranteed", "all"])
def test_a_lost_node_costs_no_promise_that_the_floor_of_best_effort_would_keep(select: str) -> None:
    world = short_of_a_node(select=select)
    while world.now_s < 3900.0:
        world.at(world.now_s + 300.0)
        assert [world.job(number).promised for number in (1, 2, 3)] == [0, 0, 0]


def test_on_the_floor_of_best_effort_nothing_new_is_promised() -> None:
    world = short_of_a_node()
    assert not at_risk(View(world.cluster, world.now_s), promises_of(world))
    world.at(1170.0).submit(an_slo_job(4, 8, 1000.0, strict(2000.0)))
    assert world.decide().job(4).promised is None


@given(late_s=st.integers(0, 1150), by_s=st.integers(3600, 6000))
@example(late_s=500, by_s=4700)
@settings(max_examples=times(20, 300), deadline=None)
def test_a_promise_in_whole_leases_is_kept_for_as_long_as_its_deadline_can_be_met(
    late_s: int, by_s: int
) -> None:
    """It is promised two leases of its 2,000 s, and who makes way for it saves late. Then two whole
    leases may end after its deadline, but it does not need the second to its end."""
    world = World("chronus-paper", 1).submit(best_effort(2, 8)).at(2.0)
    world.submit(an_slo_job(1, 8, 2000.0, strict(float(by_s)))).at(3.0)
    assert (world.job(1).promised, world.job(1).slots) == (0, (Segment(1, 3),))
    world.at(1170.0).at(1200.0 + late_s)
    assert world.leaving == [2]
    world.leave(2).at(1200.0 + late_s).at(2370.0)
    ends_s = 1200.0 + late_s + 2000.0
    assert (world.job(1).promised == 0) == (ends_s <= 3.0 + by_s)
    assert world.running == [1]


def promises_of(world: World) -> Promises:
    rules = world.policy.promises
    assert rules is not None
    return rules


# --- what a plan reckons with ----------------------------------------------------------------


def test_work_that_goes_on_is_reckoned_from_the_next_slot_on() -> None:
    world = a_world().submit(an_slo_job(1, 8, 3000.0, strict(9000.0))).at(10.0).at(1170.0)
    own = slo_job(world.cluster, world.job(1), 2, 0.0)
    assert own.running
    assert own.work_s == pytest.approx(3000.0 - (2400.0 - 10.0))


def test_a_promise_reckons_with_the_saves_and_resumes_that_were_measured_of_its_family() -> None:
    world = a_world(2)
    for number in (1, 2):  # of another family, and of its own
        slow = best_effort(number, 8)._replace(saves=(50.0,) * 5, resumes=(400.0,) * 5)
        world.submit(slow._replace(family="f" if number == 2 else "g"))
    world.submit(an_slo_job(3, 8, 2000.0, strict(3400.0))._replace(family="other"))
    world.submit(an_slo_job(4, 8, 2000.0, strict(3400.0))._replace(family="f"))
    world.decide()
    assert (world.job(3).pause, world.job(3).promised) == (Pause(30.0, 30.0), 0)
    assert (world.job(4).promised, world.job(4).verdict) == (None, "reach")
    more = an_slo_job(5, 8, 2000.0, strict(9000.0))._replace(family="f")
    told = world.submit(more).decide().job(5)
    assert (told.pause, told.promised) == (Pause(50.0, 400.0), 0)
    own = slo_job(world.cluster, told, 1, 0.0)
    assert (own.resume_s, own.work_s) == (450.0, 2000.0 - 50.0)


def test_a_promise_keeps_the_pauses_of_its_day_until_its_own_take_longer() -> None:
    job = an_slo_job(1, 8, 2000.0, strict(9000.0))._replace(pause=Pause(10.0, 20.0), promised=0)
    cluster = a_world().cluster
    assert pause_of(cluster, job) == (10.0, 20.0)
    assert pause_of(cluster, job._replace(saves=(1.0,) * 9, resumes=(5.0,) * 9)) == (10.0, 20.0)
    assert pause_of(cluster, job._replace(resumes=(90.0,))) == (10.0, 90.0)


def test_who_has_saved_pays_only_for_its_resume() -> None:
    world = a_world().submit(an_slo_job(1, 8, 3000.0, strict(9000.0))).at(10.0)
    world.submit(best_effort(2, 8)).at(270.0)
    assert world.attempt(1).state is AttemptState.PAUSING
    own = slo_job(world.cluster, world.job(1), 1, 0.0)
    assert (own.running, own.resume_s) == (False, PAUSE_S)
    assert own.work_s == pytest.approx(3000.0 - 30.0)


def test_promises_on_gpus_of_another_type_have_a_plan_of_their_own() -> None:
    world = World("chronus-paper", [a_node("n1"), a_node("n2", gpu_type="A100")], None)
    for number, gpu_type in ((1, "A100"), (2, "H100-80GB"), (3, "A100")):
        job = an_slo_job(number, 8, 2000.0, strict(4000.0))
        world.submit(job._replace(request=a_request(8, gpu_type=gpu_type)))
    world.decide()
    assert [world.job(number).promised for number in (1, 2, 3)] == [0, 0, None]


# --- offers ----------------------------------------------------------------------------------


def test_who_runs_on_fewer_gpus_too_is_offered_them_if_they_keep_its_deadline() -> None:
    world = a_world(2, know="known", selector="prefix")
    world.submit(an_slo_job(1, 8, 20_000.0, strict(24_000.0))).decide()
    sizes = Request(gpus=16, sizes=(4, 8, 16))
    speeds = (0.3, 0.55, 1.0)
    asks = a_job(
        2, duration_estimate_s=5000.0, steps=strict(14_000.0), request=sizes, speeds=speeds
    )
    job = world.submit(asks).decide().job(2)
    assert job.promised is None
    rules = world.policy.promises
    assert rules is not None
    fix = offered(View(world.cluster, world.now_s), job, rules).fix
    assert fix is not None
    assert (fix.kind, fix.gpus) == (FixKind.FEWER_GPUS, 8)
    narrower = an_slo_job(3, 8, 5000.0 / 0.55, strict(14_000.0))
    assert world.submit(narrower).decide().job(3).promised == 0


def test_who_says_nothing_of_other_sizes_is_offered_none() -> None:
    world = a_world(2).submit(an_slo_job(1, 8, 20_000.0, strict(24_000.0))).decide()
    job = world.submit(an_slo_job(2, 16, 5000.0, strict(14_000.0))).decide().job(2)
    rules = world.policy.promises
    assert rules is not None
    fix = offered(View(world.cluster, world.now_s), job, rules).fix
    assert fix is not None
    assert fix.kind is FixKind.LATER_DEADLINE
