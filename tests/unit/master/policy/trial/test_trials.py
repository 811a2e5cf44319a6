"""chronus with know=profiled: who is tried, on what, and what is kept for it. Nodes have 8 GPUs."""

from __future__ import annotations

import pytest

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.estimate import DECLARED
from dlq_master.model.ids import JobId
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import EndReason, Job
from dlq_master.model.jobs.reward import strict
from dlq_master.model.lease import LeaseKind
from dlq_master.model.plan import Estimate
from dlq_master.model.resources import Request
from dlq_master.model.transitions import IllegalStep
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.model.words.sentence import sentence
from dlq_master.policy.admit import estimates
from dlq_master.policy.admit.estimates import from_history
from dlq_master.policy.partition.profiling import room
from dlq_master.policy.reasons.explain import explain
from support.builders import World, a_job

# Every promise that can be made, on all nodes.
ALL_THAT_FIT = {"guarantee": "fitting", "be_floor": "0"}


def a_world(nodes: int = 12, **settings: str) -> World:
    return World("chronus", nodes, None, **{"know": "profiled", **ALL_THAT_FIT, **settings})


def estimated(world: World, job_id: int, estimate_s: float) -> World:
    """Whoever measures it says how long it runs."""
    event = job_steps.Estimated(estimate_s=estimate_s)
    drive.step_job(world.cluster, JobId(job_id), event, world.now_s)
    return world


def measured(world: World, job_id: int, work_s: float) -> World:
    """A trial on fewer GPUs than it asks for is over."""
    key = world.attempt(job_id).key
    drive.step_attempt(world.cluster, key, attempt_steps.Measured(work_s=work_s), world.now_s)
    return world


def codes(world: World, job_id: int) -> set[ReasonCode]:
    view = View(world.cluster, world.now_s)
    return {reason.code for reason in explain(view, world.policy, JobId(job_id))}


def told(world: World, job_id: int) -> str:
    """The first reason why it does not run, in words."""
    view = View(world.cluster, world.now_s)
    return sentence(explain(view, world.policy, JobId(job_id))[0], world.job(job_id))


def holds(world: World, job_id: int) -> list[int]:
    """GPUs by node."""
    return [slot.mask.bit_count() for slot in world.attempt(job_id).lease.allocation.slots]


# --- trials at their own size ------------------------------------------------------------------


def test_a_job_of_two_nodes_is_tried_on_all_of_its_gpus() -> None:
    world = a_world().submit(a_job(1, 16)).decide()
    assert (world.job(1).trials, world.job(1).band) == ((16,), Band.PROFILE)
    assert world.attempt(1).lease.kind is LeaseKind.PROFILE
    assert holds(world, 1) == [8, 8]


def test_who_ends_in_its_trial_is_done() -> None:
    world = a_world().submit(a_job(1, 8)).at(10.0).finish(1).at(60.0)
    assert world.job(1).end_reason is EndReason.COMPLETED
    assert world.job(1).duration_estimate_s is None


def test_after_the_trial_it_keeps_its_gpus_and_goes_on_in_another_lane() -> None:
    world = a_world().submit(a_job(1, 8)).at(10.0)
    held = world.attempt(1)
    world = estimated(world.at(310.0), 1, 5000.0).decide()
    assert (world.job(1).trials, world.job(1).band) == ((), Band.SPOT)
    assert world.attempt(1).lease.allocation == held.lease.allocation
    assert world.attempt(1).key == held.key
    world.at(570.0)  # its term ends at 600
    assert world.attempt(1).lease.kind is LeaseKind.BE


def test_a_deadline_is_judged_when_the_trial_is_over() -> None:
    world = a_world().submit(a_job(1, 8, steps=strict(9000.0))).at(10.0)
    assert world.job(1).verdict == ""
    estimated(world.at(310.0), 1, 4000.0).decide()
    assert world.job(1).promised == 0


def test_who_says_how_long_it_runs_is_not_tried() -> None:
    world = a_world().submit(a_job(1, 8, duration_estimate_s=100.0)).decide()
    assert (world.job(1).trials, world.job(1).band) == ((), Band.SPOT)


def test_a_trial_that_is_lost_with_its_node_is_made_again() -> None:
    world = a_world().submit(a_job(1, 8)).at(10.0).lose(1).at(20.0)
    assert (world.job(1).trials, world.job(1).attempts) == ((8,), 2)
    assert world.attempt(1).lease.kind is LeaseKind.PROFILE


# --- trials at a reduced size ------------------------------------------------------------------


def test_a_wider_job_is_tried_on_one_node_and_then_on_two() -> None:
    world = a_world().submit(a_job(1, 32)).at(10.0)
    assert (world.job(1).trials, holds(world, 1)) == ((8, 16), [8])
    measured(world.at(310.0), 1, 1000.0).decide()
    assert (world.job(1).trials, holds(world, 1)) == ((16,), [8, 8])
    measured(world.at(610.0), 1, 1200.0).decide()
    # t_4 = 1000 + log2(4) 200, by the plan itself; then it runs on what it asks for.
    assert world.job(1).duration_estimate_s == pytest.approx(1400.0)
    assert (world.job(1).trials, sum(holds(world, 1))) == ((), 32)
    assert world.attempt(1).lease.kind is LeaseKind.BE


def test_a_trial_that_ends_in_the_instant_in_which_it_began_still_gives_an_estimate() -> None:
    world = a_world().submit(a_job(1, 32)).decide()
    measured(world.at(310.0), 1, 200.0).decide()
    succeeded = attempt_steps.Succeeded()
    drive.step_attempt(world.cluster, world.attempt(1).key, succeeded, world.now_s)
    world.decide()
    # Never less than on one node, however short the trial on two was.
    assert world.job(1).duration_estimate_s == pytest.approx(200.0)
    assert (world.job(1).trials, sum(holds(world, 1))) == ((), 32)


def test_equal_parts_of_nodes_stay_what_they_are_in_a_trial() -> None:
    job = a_job(1, request=Request(gpus=16, nodes=4))
    world = a_world().submit(job).at(10.0)
    assert (world.job(1).trials, holds(world, 1)) == ((4, 8), [4])
    measured(world.at(310.0), 1, 1000.0).decide()
    assert holds(world, 1) == [4, 4]


def test_a_reduced_trial_does_no_work_and_is_no_preemption() -> None:
    world = a_world().submit(a_job(1, 32, time_limit_s=400.0)).at(10.0)
    measured(world.at(310.0), 1, 1000.0)
    job = world.job(1)
    assert (job.worked_s, job.lost_gpu_s, job.preemptions, job.requeues) == (0.0, 0.0, 0, 0)
    assert (job.end_reason, job.total_executed_s) == (EndReason.PROFILED, 0.0)
    assert job.total_gpu_s == 300.0 * 8
    assert not job.goes_on(job.attempts + 1)  # nothing to resume


def test_a_reduced_trial_never_completes_its_job() -> None:
    world = a_world().submit(a_job(1, 32)).at(10.0)
    world.now_s = 130.0
    world.finish(1)
    assert not world.job(1).ended
    assert (world.job(1).measured_s, world.job(1).trials) == ((120.0,), (16,))


def test_a_reduced_trial_that_is_taken_off_is_made_again() -> None:
    world = a_world().submit(a_job(1, 32)).at(10.0)
    world.pause(1).leave(1)
    drive.step_job(world.cluster, JobId(1), job_steps.Released(), world.now_s)
    world.at(50.0)
    assert (world.job(1).trials, world.job(1).measured_s) == ((8, 16), ())
    assert world.job(1).worked_s == 0.0


def test_nobody_estimates_a_job_in_its_reduced_trial() -> None:
    world = a_world().submit(a_job(1, 32)).at(10.0)
    with pytest.raises(IllegalStep):
        estimated(world, 1, 100.0)


def test_another_size_takes_other_trials() -> None:
    world = a_world().submit(a_job(1, 32)).at(10.0)
    measured(world.at(310.0), 1, 1000.0)
    event = job_steps.Updated(values=(("request", Request(gpus=64)),), changes="gpus")
    drive.step_job(world.cluster, JobId(1), event, world.now_s)
    world.decide()
    assert (world.job(1).trials, world.job(1).measured_s) == ((8, 16), ())


# --- room --------------------------------------------------------------------------------------


def held(world: World) -> tuple[int, int]:
    assert world.policy.profiling is not None
    return room(world.cluster, world.policy.profiling)


def test_the_floor_is_two_nodes_and_the_first_that_came_goes_first() -> None:
    world = a_world().submit(a_job(1, 8), a_job(2, 16), a_job(3, 1)).decide()
    assert held(world) == (16, 8)
    # Job 3 would fit, but nobody passes job 2.
    assert (world.running, codes(world, 2), codes(world, 3)) == (
        [1],
        {ReasonCode.PROFILER_FULL},
        {ReasonCode.HEAD_OF_LINE},
    )
    assert told(world, 2) == ("it is to be profiled first: of the 16 GPUs for that, 8 are taken")
    estimated(world.at(310.0), 1, 5000.0).decide()
    assert world.running == [1, 2]


def test_a_trial_wider_than_the_room_is_made_when_no_other_is() -> None:
    world = a_world(4).submit(a_job(1, 1), a_job(2, 16)).decide()
    assert (held(world), world.running) == ((8, 1), [1])
    world.finish(1).decide()
    assert (held(world), world.running) == ((8, 16), [2])


def test_free_gpus_are_kept_for_trials_in_whole_nodes() -> None:
    world = a_world(12).submit(*[a_job(n, 8, duration_estimate_s=900.0) for n in range(1, 13)])
    world.decide()
    assert world.running == list(range(1, 11))
    assert codes(world, 12) == {ReasonCode.KEPT_FOR_TRIALS}
    assert told(world, 12) == "16 free GPUs are kept for jobs that have to be profiled"
    world.submit(a_job(13, 16)).decide()
    assert 13 in world.running


def test_a_node_that_is_kept_stays_kept_while_another_is_left_for_a_promise() -> None:
    world = a_world(3, profile_floor="1")
    world.submit(*[a_job(n, 8, duration_estimate_s=90_000.0) for n in (1, 2)]).decide()
    promised = a_job(9, 8, duration_estimate_s=900.0, steps=strict(2500.0))
    world.at(100.0).submit(promised).decide()
    world.at(1170.0)
    assert world.leaving == [2]
    assert not world.plan().changes, "or somebody leaves for one who has GPUs now"
    assert codes(world, 9) == {ReasonCode.WAITING_FOR_RELEASE}
    assert world.leave(2).decide().running == [1, 9]


def test_whole_nodes_are_left_to_others_where_less_is_kept() -> None:
    world = a_world(3, profile_floor="1").submit(a_job(1, 4)).decide()
    narrow = [a_job(n, 4, duration_estimate_s=90_000.0) for n in (2, 3, 4, 5)]
    world.submit(*narrow).decide()
    beside = {
        slot.node_id for n in (2, 3, 4, 5) for slot in world.attempt(n).lease.allocation.slots
    }
    assert beside == {"n2", "n3"}
    world.at(10.0).submit(a_job(9, 16, duration_estimate_s=900.0)).at(270.0)
    for job_id in (2, 3, 4, 5):
        assert ReasonCode.WAITING_FOR_RELEASE in codes(world, 9), "what was left for it is its own"
        world.leave(job_id).decide()
    assert world.running == [1, 9]


def test_nobody_leaves_for_what_is_only_kept() -> None:
    world = a_world(12, profile_floor="0").submit(
        *[a_job(n, 8, duration_estimate_s=90000.0) for n in range(1, 13)]
    )
    world.at(10.0)
    assert len(world.running) == 12
    # An hour of trials has come: in the next one there is room for some, and nobody leaves for it.
    world.cluster.profiling.gpus = 16
    world.at(270.0)
    assert (len(world.running), world.leaving) == (12, [])


def test_who_needs_all_gpus_gets_also_those_that_are_kept() -> None:
    world = a_world(4).submit(a_job(1, 32, duration_estimate_s=900.0)).decide()
    assert world.running == [1]


def test_room_follows_the_arrivals_of_the_hour_before() -> None:
    # 40 jobs of 32 GPUs, charged 16 each: 640 GPUs / 3600 s x 300 s = 53.3 GPUs, 7 nodes.
    world = a_world(12).submit(*[a_job(n, 32) for n in range(1, 41)]).at(10.0)
    assert held(world)[0] == 16
    world.at(3599.0)
    assert held(world)[0] == 16
    world.at(3600.0)
    assert held(world)[0] == 7 * 8
    assert world.wake_at_s is not None
    assert world.wake_at_s <= 7200.0
    world.at(7200.0)
    assert held(world)[0] == 16


def test_nodes_for_trials_are_promised_to_nobody() -> None:
    """Twelve jobs want a node each in the one slot that is left until their deadline."""
    jobs = [a_job(n, 8, duration_estimate_s=1000.0, steps=strict(2420.0)) for n in range(1, 13)]
    known = World("chronus", 12, None, **ALL_THAT_FIT).submit(*jobs).at(1100.0)
    assert sum(known.job(n).promised is not None for n in range(1, 13)) == 12
    tried = a_world(12, margin="0").submit(*jobs).at(1100.0)
    assert sum(tried.job(n).promised is not None for n in range(1, 13)) == 10


# --- history -----------------------------------------------------------------------------------


def ran(world: World, job_id: int, run_s: float, family: str = "ada/resnet") -> None:
    world.submit(a_job(job_id, 1, family=family, duration_estimate_s=run_s)).decide()
    world.now_s += run_s
    world.finish(job_id).decide()


def test_jobs_of_a_family_that_ran_alike_are_not_tried() -> None:
    world = a_world()
    for number in range(1, 6):
        ran(world, number, 100.0 + number)
    world.submit(a_job(10, 1, family="ada/resnet")).decide()
    assert (world.job(10).duration_estimate_s, world.job(10).trials) == (103.0, ())
    world.submit(a_job(11, 2, family="ada/resnet"), a_job(12, 1, family="ada/bert")).decide()
    assert (world.job(11).trials, world.job(12).trials) == ((2,), (1,))


def test_of_jobs_alike_that_wait_together_history_is_a_guess_for_a_far_deadline() -> None:
    """Those with close deadlines run first, so that the ended ones are no fair draw of all."""

    def promised(*deadlines_s: float) -> list[bool]:
        world = World("dlq", 1, None, know="profiled")
        for number in range(1, 6):
            ran(world, number, 100.0)
        jobs = [
            a_job(10 + at, 1, family="ada/resnet", steps=strict(due_s))
            for at, due_s in enumerate(deadlines_s)
        ]
        world.submit(*jobs).decide()
        known = [world.job(job.job_id) for job in jobs]
        assert {job.duration_estimate_s for job in known} == {100.0}
        return [not job.basis.guess for job in known]

    assert promised(300.0, 400.0, 401.0) == [True, True, False]
    assert promised(401.0) == [True], "nobody was served before it"


def test_of_thousands_of_jobs_alike_history_is_worked_out_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guesses stay unknown jobs, and each that comes makes all of them be looked at."""
    world = World("dlq", 1, None, know="profiled")
    for number in range(1, 6):
        ran(world, number, 100.0)
    far = strict(100_000.0)
    jobs = [a_job(10 + at, 1, family="ada/resnet", steps=far) for at in range(21)]
    world.submit(*jobs[:20]).settle_moves()
    asked: list[JobId] = []

    def counted(cluster: Cluster, job: Job) -> Estimate | None:
        asked.append(job.job_id)
        return from_history(cluster, job)

    monkeypatch.setattr(estimates, "from_history", counted)
    world.submit(jobs[20]).settle_moves()
    known = [world.job(job.job_id) for job in jobs]
    assert {(job.duration_estimate_s, job.basis.guess) for job in known} == {(100.0, True)}
    assert 0 < len(asked) < 5


def test_jobs_of_a_family_that_differ_are_tried() -> None:
    world = a_world()
    for number, run_s in enumerate((100.0, 100.0, 100.0, 100.0, 300.0), start=1):
        ran(world, number, run_s)
    world.submit(a_job(10, 1, family="ada/resnet")).decide()
    assert world.job(10).trials == (1,)


# --- submission control ------------------------------------------------------------------------


def test_a_user_sends_so_many_gpus_within_the_time_of_a_trial() -> None:
    world = a_world(submit_gpus="24")
    jobs = [a_job(1, 16), a_job(2, 8), a_job(3, 1), a_job(4, 1, user="bob")]
    world.submit(*jobs).at(10.0)
    states = [world.job(n).state.value for n in range(1, 5)]
    assert states == ["queued", "queued", "pending", "queued"]
    assert codes(world, 3) == {ReasonCode.SUBMIT_LIMIT}
    assert told(world, 3) == (
        "its user has 24 GPUs in jobs that were just sent to be profiled, of 24 at a time: it is "
        "let in "
        "in 300 s or later"
    )
    assert world.wake_at_s is not None
    assert world.wake_at_s <= 310.0
    world.at(309.0)
    assert world.job(3).state.value == "pending"
    world.at(310.0)
    assert world.job(3).state.value == "queued"


def test_a_wide_job_is_charged_two_nodes_and_nobody_of_its_user_passes_it() -> None:
    world = a_world(submit_gpus="24")
    world.submit(a_job(1, 64), a_job(2, 64), a_job(3, 8)).at(10.0)
    assert [world.job(n).state.value for n in (1, 2, 3)] == ["queued", "pending", "pending"]


def test_who_is_wider_than_the_limit_enters_alone() -> None:
    world = a_world(submit_gpus="4").submit(a_job(1, 8), a_job(2, 1)).at(10.0)
    assert [world.job(n).state.value for n in (1, 2)] == ["queued", "pending"]


def test_who_needs_no_trial_is_not_limited() -> None:
    world = a_world(submit_gpus="4").submit(a_job(1, 4))
    world.submit(a_job(2, 4, duration_estimate_s=60.0)).at(10.0)
    assert world.job(2).state.value == "queued"


# --- promises and what is learned --------------------------------------------------------------


def test_who_overruns_what_was_reserved_is_promised_nothing_any_more() -> None:
    job = a_job(1, 8, duration_estimate_s=1300.0, steps=strict(9000.0))
    world = a_world(margin="0").submit(job).at(10.0)
    assert world.job(1).promised == 0
    for at_s in (1170.0, 2370.0):
        world.at(at_s)
    assert (world.job(1).promised, world.job(1).verdict) == (None, "overrun")
    assert world.job(1).band is Band.SPOT


def ratios(world: World, real_s: float, estimate_s: float, jobs: int) -> None:
    for number in range(1, jobs + 1):
        world.submit(a_job(number, 1, duration_estimate_s=estimate_s)).decide()
        world.now_s += real_s
        world.finish(number).decide()


def test_what_a_promise_adds_is_learned_from_the_jobs_that_have_ended() -> None:
    from dlq_master.policy.promise.verdicts.reading import margin

    world = a_world()
    assert world.policy.promises is not None
    assert margin(world.cluster, world.policy.promises) == 0.2
    measured = a_job(1, 1, duration_estimate_s=100.0)
    assert margin(world.cluster, world.policy.promises, measured) == 0.5
    declared = measured._replace(basis=DECLARED)  # what users say is rather too long
    assert margin(world.cluster, world.policy.promises, declared) == 0.2
    ratios(world, 130.0, 100.0, 20)
    assert margin(world.cluster, world.policy.promises) == pytest.approx(0.3)
    assert World("chronus", 1).policy.promises.margin == 0.0  # type: ignore[union-attr]  # it knows


def test_what_is_learned_later_takes_nothing_from_who_has_a_promise() -> None:
    """A promise that fits by the margin of its day goes on to need no more than that."""
    jobs = [a_job(n, 8, duration_estimate_s=1560.0, steps=strict(4900.0)) for n in range(1, 11)]
    world = a_world(12).submit(*jobs).at(1100.0)
    before = {n: world.job(n) for n in range(1, 11)}
    promised = [n for n in before if before[n].promised is not None]
    assert len(promised) == 10
    assert {before[n].margin for n in promised} == {0.5}
    world.cluster.profiling.ratios.extend([5.0] * 40)
    world.at(1170.0)
    assert [n for n in before if world.job(n).promised is not None] == promised
