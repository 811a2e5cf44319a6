"""Profiling live: trials from the launch to the estimate, what goes wrong with them, and what is
said of it.

T_profile is 300 s, nodes have 8 GPUs, and the first of each agent's ranks says how far it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dlq_common.errors import ConfigError, TryAgain
from dlq_master.control.placement.policies import live_policy
from dlq_master.control.stimuli import AskedArray, FenceNode, SetPolicy, SubmitMany
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.estimates.estimate import Basis, Confidence, Source, Unmeasured
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import EndReason, Job, JobState
from dlq_master.model.lease import LeaseKind
from dlq_master.model.resources import Request
from dlq_master.model.transitions import StopCause
from support.master_harness import ALICE, ROOT, Master
from support.sim_agent import SimAgent
from unit.master.control.deadlines.test_control_deadlines import Site

Masters = Callable[..., Master]
Pace = Callable[[int], float]  # seconds of a step on so many nodes
TOTAL = 2000


class Lab(Site):
    """Nodes whose ranks train: a step takes as long as `pace` says, from `loads_s` after the start
    on.
    """

    pace: Pace = staticmethod(lambda _nodes: 1.0)
    loads_s = 0.0
    total: int | None = TOTAL
    speaks = True

    def trains(self, seconds: float, step_s: float = 10.0) -> None:
        """Time passes, and who was launched trains and is stopped as it is told."""
        for _ in range(round(seconds / step_s)):
            self.acts()
            self.master.clock.advance(step_s)
            self.acts()
            for agent in self.agents:
                self.beats(agent)
                agent.heartbeat()
            self.master.tick()
            self.answer()
            self.acts()

    def acts(self) -> None:
        """Commands are obeyed, and what was killed is gone."""
        for _ in range(3):
            for agent in self.agents:
                agent.obey()
                for key, rank in list(agent.ranks.items()):
                    if rank.phase.value == "preparing":
                        agent.ready(key, 20_000) if rank.launch.at_barrier else agent.start(key)
                    if rank.alive and rank.kill:
                        agent.exit(key, 137, "killed")
                agent.report()
            self.answer()

    def beats(self, agent: SimAgent) -> None:
        for key in agent.living():
            attempt = self.master.state.cluster.attempts.get(key)
            if attempt is None or attempt.started_time_s is None or not self.speaks:
                continue
            ran_s = self.master.clock.now_s() - attempt.started_time_s - self.loads_s
            step = int(ran_s / self.pace(len(attempt.ranks)))
            if step >= 0:
                agent.beat(key, step, self.total)

    def attempts(self, job_id: int) -> list[Any]:
        return list(self.master.store.attempts(JobId(job_id)))


@pytest.fixture
def lab(masters: Masters) -> Lab:
    """`chronus` measures on GPUs of their own."""
    return Lab(masters, "chronus", nodes=4)


def test_what_goes_by_run_times_measures_them_live_and_a_simulation_alone_knows_them() -> None:
    assert live_policy("dlq", {}).profile_s == 300.0
    assert live_policy("dlq", {}).profiling is None, "in place"
    partition = live_policy("chronus", {"profile_s": "120", "submit_gpus": "24"})
    assert (partition.profile_s, partition.profiling is not None) == (120.0, True)
    assert live_policy("chronus", {"know": "unknown"}).profile_s is None
    assert live_policy("srtf", {}).profile_s is None
    for name, know in (("dlq", "known"), ("srtf", "profiled")):
        with pytest.raises(ConfigError, match=f"know = '{know}'"):
            live_policy(name, {"know": know})


# --- trials on its own GPUs -----------------------------------------------------------------------


def test_a_job_is_tried_on_a_lease_for_that_and_goes_on_with_an_estimate(lab: Lab) -> None:
    job = lab.submit(run_s=None, step_count=TOTAL)
    lab.trains(290.0)
    assert lab.master.attempt(job.job_id).lease.kind is LeaseKind.PROFILE
    assert lab.job(1).band is Band.PROFILE
    lab.trains(30.0)
    known = lab.job(1)
    assert known.duration_estimate_s == pytest.approx(TOTAL, abs=15.0)
    assert known.basis == Basis(Source.PROFILED, Confidence.HIGH, 1.0)
    assert (known.band, known.live_attempt, known.trials) == (Band.SPOT, 1, ())
    (cause,) = lab.told(1, "job_estimated")
    assert "of 2000 are left" in cause


def test_after_its_trial_a_deadline_is_promised(lab: Lab) -> None:
    lab.submit(7200.0, run_s=None, step_count=TOTAL)
    lab.trains(290.0)
    assert (lab.job(1).promised, lab.told(1, "promise_made")) == (None, [])
    lab.trains(30.0)
    assert lab.job(1).promised == 0


def test_the_clock_of_a_trial_starts_at_the_first_beat(lab: Lab) -> None:
    lab.loads_s = 200.0
    lab.submit(run_s=None, step_count=TOTAL)
    lab.trains(480.0)
    assert lab.job(1).duration_estimate_s is None
    lab.trains(40.0)
    assert lab.job(1).duration_estimate_s == pytest.approx(TOTAL + 200.0, abs=15.0)


def test_who_ends_in_its_trial_on_its_own_gpus_is_done(lab: Lab) -> None:
    lab.submit(run_s=None, step_count=TOTAL)
    lab.trains(100.0)
    lab.agents[0].exit(AttemptKey(JobId(1), 1), 0)
    lab.trains(10.0)
    assert (lab.job(1).state, lab.job(1).end_reason) == (JobState.COMPLETED, EndReason.COMPLETED)


# --- trials on fewer ------------------------------------------------------------------------------


def wide(lab: Lab, *deadlines: float, **more: Any) -> Job:
    """Of 32 GPUs: tried on one node, then on two."""
    return lab.submit(*deadlines, run_s=None, gpus=32, step_count=TOTAL, **more)


def test_a_wide_job_is_tried_on_one_node_and_on_two_and_neither_completes_it(lab: Lab) -> None:
    lab.pace = lambda nodes: {1: 1.0, 2: 1.1, 4: 1.2}[nodes]
    job = wide(lab)
    assert job.trials == (8, 16)
    lab.trains(320.0)
    lab.trains(330.0)
    first, second, *_ = lab.attempts(1)
    for trial, gpus in ((first, 8), (second, 16)):
        assert trial.lease.kind is LeaseKind.PROFILE
        assert trial.lease.allocation.width == gpus
        assert (trial.stop_cause, trial.end_reason) == (StopCause.TRIAL, EndReason.PROFILED)
    assert [trial.measured_s for trial in (first, second)] == [
        pytest.approx(TOTAL * 1.0, rel=0.02),
        pytest.approx(TOTAL * 1.1, rel=0.02),
    ]
    lab.trains(20.0)
    known = lab.job(1)
    # t_n = t_1 + log2(n) (t_2 - t_1), on four nodes
    assert known.duration_estimate_s == pytest.approx(TOTAL * 1.2, rel=0.02)
    assert known.basis.source is Source.PROFILED
    assert known.worked_s == known.total_executed_s == 0.0
    third = lab.master.attempt(job.job_id)
    assert third.lease.allocation.width == 32


def test_the_steps_of_a_trial_are_not_shown_as_those_of_what_begins_after_it(lab: Lab) -> None:
    progress = lab.master.loop.published.progress
    job = wide(lab)
    lab.trains(300.0)
    last = progress(job.job_id)
    assert last is not None
    assert (last.step or 0) > 250
    lab.speaks = False
    lab.trains(30.0)
    assert lab.master.attempt(job.job_id).key.number == 2
    assert progress(job.job_id) is None
    lab.speaks = True
    lab.trains(10.0)
    first = progress(job.job_id)
    assert first is not None
    assert first.step is not None
    assert first.step < 50


def test_a_trial_that_exits_with_zero_is_measured_and_completes_nothing(lab: Lab) -> None:
    wide(lab)
    lab.trains(50.0)
    lab.agents[0].exit(AttemptKey(JobId(1), 1), 0)
    lab.trains(10.0)
    job = lab.job(1)
    assert (job.state, job.end_reason) == (JobState.QUEUED, EndReason.PROFILED)
    assert job.measured_s == pytest.approx((50.0,), abs=10.0)


def test_a_checkpoint_of_a_trial_on_fewer_gpus_is_not_gone_on_with(lab: Lab) -> None:
    wide(lab)
    lab.trains(50.0)
    lab.agents[0].save(AttemptKey(JobId(1), 1), 40)
    lab.trains(10.0)
    assert lab.job(1).checkpoint is None
    lab.trains(700.0)
    assert lab.job(1).live_attempt == 3
    assert lab.master.attempt(JobId(1)).resume_from is None


def test_a_trial_on_fewer_gpus_is_told_so_and_begins_from_nothing(masters: Masters) -> None:
    lab = Lab(masters, "fifo", nodes=4)
    job = lab.submit(run_s=None, gpus=32, step_count=TOTAL)
    lab.trains(20.0)
    (first,) = [agent.ranks[AttemptKey(job.job_id, 1)] for agent in lab.agents[:1]]
    assert first.launch.trial is False
    lab.agents[0].save(AttemptKey(job.job_id, 1), 10)
    for agent in lab.agents:
        agent.exit(AttemptKey(job.job_id, 1), 99)
    lab.acts()
    assert lab.job(1).checkpoint is not None
    asked = SetPolicy(caller=ROOT, request_id="p", policy="chronus", settings=(), force=False)
    for agent in lab.agents:
        agent.exit(AttemptKey(job.job_id, 2), 99)
    lab.master.ask(asked)
    lab.trains(20.0)
    trial = lab.master.attempt(job.job_id)
    assert trial.lease.kind is LeaseKind.PROFILE
    launch = next(agent.ranks[trial.key].launch for agent in lab.agents if trial.key in agent.ranks)
    assert (launch.trial, launch.resume_from, launch.time_left_s) == (True, "", None)
    assert launch.node_ids == trial.lease.allocation.node_ids


def test_a_program_that_cannot_run_on_fewer_gpus_has_not_failed(lab: Lab) -> None:
    wide(lab)
    lab.trains(20.0)
    lab.agents[0].exit(AttemptKey(JobId(1), 1), 1)
    lab.trains(30.0)
    job = lab.job(1)
    assert job.basis == Basis(unmeasured=Unmeasured.TRIAL_FAILED)
    assert (job.restarts, job.band, job.trials, job.live_attempt) == (0, Band.SPOT, (), 2)
    assert lab.master.attempt(JobId(1)).lease.allocation.width == 32
    lab.trains(400.0)
    assert lab.job(1).basis.source is Source.PROFILED, "on its own GPUs it tells its steps"


def test_a_time_limit_counts_no_trial_on_fewer_gpus(lab: Lab) -> None:
    wide(lab, time_limit_s=200.0)
    lab.trains(640.0)
    assert [len(lab.job(1).measured_s), lab.job(1).state] == [2, JobState.QUEUED]


# --- what is not known ----------------------------------------------------------------------------


@pytest.mark.parametrize(("gpus", "attempt"), [(8, 1), (32, 2)])
def test_steps_without_beats_end_the_trial_after_a_while(lab: Lab, gpus: int, attempt: int) -> None:
    lab.speaks = False
    lab.submit(7200.0, run_s=None, gpus=gpus, step_count=TOTAL)
    lab.trains(590.0)
    assert lab.job(1).band is Band.PROFILE
    lab.trains(40.0)
    job = lab.job(1)
    assert (job.duration_estimate_s, job.band) == (None, Band.SPOT)
    assert job.basis == Basis(unmeasured=Unmeasured.NO_BEATS)
    assert job.live_attempt == attempt, "it runs as best effort"
    lab.trains(1000.0)
    assert (lab.job(1).attempts, lab.job(1).promised) == (attempt, None)


def test_steps_of_which_nobody_says_how_many_there_are_tell_a_pace_and_no_run_time(
    lab: Lab,
) -> None:
    lab.total = None
    lab.submit(run_s=None)
    lab.trains(330.0)
    basis = lab.job(1).basis
    assert (basis.unmeasured, basis.step_s) == (Unmeasured.NO_TOTAL, 1.0)
    assert len(lab.told(1, "job_left_unmeasured")) == 1
    lab.trains(300.0)
    assert len(lab.told(1, "job_left_unmeasured")) == 1, "it is said once"


def test_slow_steps_get_more_time_and_a_word_of_doubt(lab: Lab) -> None:
    lab.pace = lambda _nodes: 90.0
    lab.submit(run_s=None, step_count=100)
    lab.trains(580.0)
    assert lab.job(1).duration_estimate_s is None
    lab.trains(60.0)
    assert lab.job(1).duration_estimate_s == pytest.approx(9000.0, rel=0.1)
    assert lab.job(1).basis.confidence is Confidence.LOW


# --- faults ---------------------------------------------------------------------------------------


def test_a_trial_that_is_lost_with_its_node_is_made_again_once(lab: Lab) -> None:
    wide(lab)
    lab.trains(100.0)
    for expected in (Band.PROFILE, Band.SPOT):
        (slot,) = lab.master.attempt(JobId(1)).lease.allocation.slots
        lost = next(agent for agent in lab.agents if agent.node_id == slot.node_id)
        lost.reboot()
        lost.hello()
        lab.trains(20.0)
        assert lab.job(1).band is expected
    job = lab.job(1)
    assert job.basis == Basis(unmeasured=Unmeasured.TRIAL_LOST)
    assert (job.state, job.live_attempt) == (JobState.QUEUED, 3)
    assert lab.master.attempt(JobId(1)).lease.allocation.width == 32


def silenced(lab: Lab) -> SimAgent:
    """The one that runs the trial of job 1, whose line is cut."""
    (slot,) = lab.master.attempt(JobId(1)).lease.allocation.slots
    silent = next(agent for agent in lab.agents if agent.node_id == slot.node_id)
    lab.agents.remove(silent)
    silent.cut()
    return silent


def test_a_silent_node_is_waited_for_no_longer_than_a_term(lab: Lab) -> None:
    wide(lab)
    lab.trains(100.0)
    silent = silenced(lab)
    lab.trains(200.0)
    assert lab.master.attempt(JobId(1)).state is AttemptState.UNKNOWN
    lab.trains(120.0)
    again = lab.master.attempt(JobId(1))
    assert (again.key.number, again.lease.kind) == (2, LeaseKind.PROFILE)
    assert silent.node_id not in again.lease.allocation.node_ids


def test_a_trial_that_ends_in_the_silence_of_its_master_is_no_preemption_and_made_again(
    lab: Lab,
) -> None:
    wide(lab)
    lab.trains(100.0)
    for attempt, expected in ((2, Band.PROFILE), (3, Band.SPOT)):
        lab.master.clock.advance(4000.0)  # longer than its shim waits; nobody is there to see it
        for agent in lab.agents:
            agent.guard()
        lab.master.restart()
        lab.master.state.placement.offloaded.planner = lab.planner
        for agent in lab.agents:
            agent.hello()
        lab.trains(30.0)
        job = lab.job(1)
        assert (job.preemptions, job.end_reason) == (0, EndReason.NODE_LOST)
        assert (job.live_attempt, job.band) == (attempt, expected)
    assert lab.job(1).basis == Basis(unmeasured=Unmeasured.TRIAL_LOST)


def test_a_line_that_was_silent_for_a_while_costs_a_trial_nothing(lab: Lab) -> None:
    wide(lab)
    lab.trains(100.0)
    silent = silenced(lab)
    lab.trains(150.0)
    lab.agents.append(silent)
    silent.hello()
    lab.trains(80.0)
    assert lab.job(1).measured_s == pytest.approx((TOTAL,), rel=0.02)


@pytest.mark.parametrize("after_s", [100.0, 290.0])
def test_a_master_that_restarts_watches_what_runs_anew(lab: Lab, after_s: float) -> None:
    wide(lab)
    lab.trains(after_s)
    lab.master.restart()
    lab.master.state.placement.offloaded.planner = lab.planner
    for agent in lab.agents:
        agent.hello()
    lab.trains(280.0)
    assert (lab.job(1).attempts, lab.job(1).measured_s) == (1, ())
    lab.trains(40.0)
    assert lab.job(1).measured_s == pytest.approx((TOTAL,), rel=0.02)


def test_what_a_trial_told_survives_a_master_that_dies_before_the_trial_is_gone(lab: Lab) -> None:
    wide(lab)
    lab.trains(300.0)
    while lab.master.attempt(JobId(1)).stop_cause is None:
        for agent in lab.agents:
            lab.beats(agent)
            agent.heartbeat()
        lab.master.tick(1.0)
    lab.master.restart()
    lab.master.state.placement.offloaded.planner = lab.planner
    for agent in lab.agents:
        agent.hello()
    lab.trains(10.0)
    assert lab.job(1).measured_s == pytest.approx((TOTAL,), rel=0.02)
    assert lab.job(1).live_attempt == 2


def test_a_node_that_is_fenced_after_the_measurement_loses_nothing(lab: Lab) -> None:
    wide(lab)
    lab.trains(300.0)
    while lab.master.attempt(JobId(1)).stop_cause is None:
        for agent in lab.agents:
            lab.beats(agent)
            agent.heartbeat()
        lab.master.tick(1.0)
    (slot,) = lab.master.attempt(JobId(1)).lease.allocation.slots
    lab.agents = [agent for agent in lab.agents if agent.node_id != slot.node_id]
    lab.master.clock.advance(40.0)
    for agent in lab.agents:
        agent.heartbeat()
    lab.master.tick()
    lab.master.ask(FenceNode(caller=ROOT, request_id="f", node_id=slot.node_id, reason=""))
    assert lab.job(1).measured_s == pytest.approx((TOTAL,), rel=0.02)


# --- in place, and from history -------------------------------------------------------------------


def test_by_the_default_a_job_is_measured_where_it_runs(masters: Masters) -> None:
    lab = Lab(masters, nodes=4)
    job = wide(lab, 9000.0)
    assert lab.master.attempt(job.job_id).lease.allocation.width == 32
    lab.trains(90.0)
    known = lab.job(1)
    assert known.basis == Basis(Source.PROFILED, Confidence.HIGH, 1.0)
    assert known.duration_estimate_s == pytest.approx(TOTAL, abs=15.0)
    assert known.attempts == 1


def test_who_runs_like_its_family_is_not_tried(lab: Lab) -> None:
    for number in range(1, 6):
        lab.submit(run_s=None, family="resnet", gpus=8)
        lab.trains(100.0)
        (agent,) = [agent for agent in lab.agents if agent.living()]
        agent.exit(AttemptKey(JobId(number), 1), 0)
        lab.trains(10.0)
    job = lab.submit(run_s=None, family="resnet", gpus=8)
    assert job.basis == Basis(Source.HISTORY, Confidence.MEDIUM, rests_on="5 runs on H100")
    assert job.duration_estimate_s == pytest.approx(100.0, abs=10.0)
    assert lab.master.attempt(job.job_id).lease.kind is LeaseKind.BE


def test_nobody_passes_a_job_between_its_trials(masters: Masters) -> None:
    lab = Lab(masters, "chronus", nodes=8)
    wide(lab)
    lab.trains(300.0)
    while lab.master.attempt(JobId(1)).stop_cause is None:
        for agent in lab.agents:
            lab.beats(agent)
            agent.heartbeat()
        lab.master.tick(1.0)
    assert wide(lab).live_attempt is None, "there is room, but it came later"
    lab.trains(10.0)
    assert lab.master.attempt(JobId(1)).lease.allocation.width == 16
    assert lab.job(2).live_attempt is None


def test_by_the_default_too_who_runs_like_its_family_is_known_before_it_runs(
    masters: Masters,
) -> None:
    lab = Lab(masters, nodes=1)
    jobs = [lab.submit(run_s=None, family="resnet") for _ in range(6)]
    for _ in range(5):
        assert {lab.job(job.job_id).basis.source for job in jobs} == {None}, "fewer than five"
        lab.trains(50.0)
        (key,) = lab.agents[0].living()
        lab.agents[0].exit(key, 0)
        lab.trains(10.0)
    (last,) = [job for job in map(lab.master.job, (job.job_id for job in jobs)) if not job.ended]
    assert last.basis.source is Source.HISTORY
    assert last.duration_estimate_s == pytest.approx(50.0, abs=10.0)
    other = lab.submit(run_s=None, family="resnet", gpus=4)
    assert other.duration_estimate_s is None, "on other GPUs"


def a_family(lab: Lab, count: int, seconds: float, **more: Any) -> None:
    """So many jobs of it, one after the other."""
    for _ in range(count):
        job = lab.submit(run_s=None, **{"family": "resnet", **more})
        lab.trains(seconds)
        key = AttemptKey(job.job_id, 1)
        next(agent for agent in lab.agents if key in agent.living()).exit(key, 0)
        lab.trains(10.0)


def on(gpu_type: str, gpus: int = 8, **more: Any) -> Request:
    return Request(gpus=gpus, gpu_type=gpu_type, **more)


@pytest.fixture
def mixed(masters: Masters) -> Lab:
    """A fast node and a slow one."""
    lab = Lab(masters, nodes=1)
    slow = SimAgent(lab.master, NodeId("slow"), gpus=8, gpu_type="A100")
    slow.hello()
    lab.agents.append(slow)
    return lab


def test_what_ran_on_one_gpu_type_says_nothing_of_another(mixed: Lab) -> None:
    a_family(mixed, 5, 50.0, request=on("H100"))
    alike = mixed.submit(run_s=None, family="resnet", request=on("H100"))
    assert alike.duration_estimate_s == pytest.approx(50.0, abs=10.0)
    other = mixed.submit(420.0, run_s=None, family="resnet", request=on("A100"))
    anywhere = mixed.submit(420.0, run_s=None, family="resnet")
    for job in (other, anywhere):
        assert (job.duration_estimate_s, job.promised) == (None, None)


def test_who_may_get_either_type_is_taken_to_run_as_long_as_on_the_slower_one(mixed: Lab) -> None:
    a_family(mixed, 5, 50.0, request=on("H100"))
    a_family(mixed, 5, 200.0, request=on("A100"))
    job = mixed.submit(run_s=None, family="resnet")
    assert job.duration_estimate_s == pytest.approx(200.0, abs=10.0)


@pytest.mark.parametrize(
    "more",
    [
        {"step_count": 4 * TOTAL},
        {"request": on("H100", nodes=1)},
        {"request": on("H100", gpu_memory_bytes=10**10, halves_batch=True)},
    ],
    ids=["steps", "nodes", "batch"],
)
def test_what_ran_with_other_steps_nodes_or_batch_says_nothing(
    mixed: Lab, more: dict[str, Any]
) -> None:
    a_family(mixed, 5, 50.0, request=on("H100"))
    job = mixed.submit(run_s=None, family="resnet", **{"request": on("H100"), **more})
    assert job.duration_estimate_s is None


def test_a_type_on_which_it_never_ran_is_guessed_by_a_measured_ratio_and_promised_nothing(
    mixed: Lab,
) -> None:
    """The ratio is that of other jobs. Its own steps tell how long it runs, and then it is judged.
    The master is killed in between."""
    other = {"request": on("H100", gpus=4), "family": "bert"}
    a_family(mixed, 5, 50.0, **other)
    a_family(mixed, 5, 200.0, **{**other, "request": on("A100", gpus=4)})
    a_family(mixed, 5, 100.0, request=on("H100"))
    job = mixed.submit(4000.0, run_s=None, step_count=None, request=on("A100"), family="resnet")
    guess = mixed.job(job.job_id)
    assert guess.duration_estimate_s == pytest.approx(400.0, abs=40.0)
    assert (guess.basis.confidence, guess.timed) == (Confidence.LOW, False)
    assert (guess.promised, guess.verdict) == (None, "")
    mixed.master.restart()
    mixed.master.state.placement.offloaded.planner = mixed.planner
    for agent in mixed.agents:
        agent.hello()
    assert mixed.job(job.job_id).basis == guess.basis
    mixed.trains(120.0)
    known = mixed.job(job.job_id)
    assert (known.basis.source, known.promised) == (Source.PROFILED, 0)
    assert known.duration_estimate_s == pytest.approx(TOTAL, abs=40.0)


def test_other_arguments_under_one_name_are_a_guess_until_its_steps_tell(masters: Masters) -> None:
    lab = Lab(masters, nodes=1)
    for seed in range(5):
        a_family(lab, 1, 50.0, program=f"seed {seed}")
    lab.speaks = False
    job = lab.submit(4000.0, run_s=None, family="resnet", program="batch 64")
    assert job.duration_estimate_s == pytest.approx(50.0, abs=10.0)
    assert job.basis == Basis(
        Source.HISTORY, Confidence.LOW, rests_on="5 runs with other arguments on H100"
    )
    lab.trains(700.0)
    silent = lab.job(job.job_id)
    assert (silent.basis.unmeasured, silent.verdict) == (Unmeasured.NO_BEATS, "")
    assert silent.basis.guess, "nobody measured it, and it stays a guess"


def test_how_a_family_runs_is_known_after_a_restart_long_after_its_jobs_have_left_memory(
    masters: Masters,
) -> None:
    lab = Lab(masters, nodes=1)
    a_family(lab, 5, 50.0)
    lab.trains(2 * 3600.0, step_s=600.0)
    later = lab.submit(run_s=None, gpus=4)
    lab.master.crashed()
    assert lab.master.state.cluster.jobs.keys() == {later.job_id}
    lab.master.state.placement.offloaded.planner = lab.planner
    for agent in lab.agents:
        agent.hello()
    job = lab.submit(run_s=None, family="resnet")
    assert job.basis.source is Source.HISTORY
    assert job.duration_estimate_s == pytest.approx(50.0, abs=10.0)


# --- submission control ---------------------------------------------------------------------------


@pytest.fixture
def limited(masters: Masters) -> Lab:
    return Lab(masters, "chronus", nodes=4, submit_gpus="24")


def sends(lab: Lab, gpus: int = 8, run_s: float | None = None, **more: Any) -> Job:
    return lab.submit(run_s=run_s, gpus=gpus, step_count=TOTAL, **more)


def test_who_sends_too_much_to_be_profiled_is_told_when_to_try_again(limited: Lab) -> None:
    sends(limited)
    limited.trains(100.0)
    sends(limited, 16)
    with pytest.raises(TryAgain) as refused:
        sends(limited)
    assert refused.value.metadata["retry_after_s"] == "200"
    assert "24 GPUs to be profiled in the last 00:05:00, and may send 24" in refused.value.what
    assert limited.master.loop.published.job(JobId(3)) is None
    limited.trains(200.0)
    assert sends(limited).job_id == 3


def test_jobs_of_one_call_are_held_to_it_as_if_they_came_alone(limited: Lab) -> None:
    asks = tuple(limited.master.submission(8, step_count=TOTAL) for _ in range(6))
    answers = limited.master.ask(SubmitMany(caller=ALICE, request_id="many", asks=asks))
    assert answers[:3] == (1, 2, 3)
    assert [type(answer) for answer in answers[3:]] == [TryAgain] * 3


def test_a_wide_job_counts_two_nodes_and_who_says_how_long_it_runs_nothing(limited: Lab) -> None:
    sends(limited, 32)
    sends(limited, 8)
    with pytest.raises(TryAgain):
        sends(limited, 1)
    assert sends(limited, 32, run_s=60.0).basis.source is Source.DECLARED


def test_jobs_of_one_instant_and_tasks_of_an_array_count_together(limited: Lab) -> None:
    asked = [limited.master.submission(8, step_count=TOTAL) for _ in range(4)]
    answers = limited.master.turn(*asked)
    assert [isinstance(answer, TryAgain) for answer in answers] == [False, False, False, True]
    limited.trains(310.0)
    tasks = AskedArray(indexes=tuple(range(4)), step=1, concurrent=4)
    sends(limited, 1)
    with pytest.raises(TryAgain):
        sends(limited, 8, array=tasks)
    limited.trains(310.0)
    sends(limited, 8, array=tasks)
    waiting = [job for job in limited.master.loop.published.jobs() if job.state is JobState.PENDING]
    assert len(waiting) == 1, "what is beyond the limit waits"


def test_what_was_sent_counts_after_a_restart_too(limited: Lab) -> None:
    sends(limited, 16)
    sends(limited, 8)
    limited.master.restart()
    limited.master.state.placement.offloaded.planner = limited.planner
    with pytest.raises(TryAgain):
        sends(limited, 1)


def test_what_is_for_trials_follows_the_arrivals_of_the_hour_before(masters: Masters) -> None:
    lab = Lab(masters, "chronus", nodes=8)
    asked = [lab.master.submission(16, step_count=TOTAL) for _ in range(24)]
    lab.master.turn(*asked)
    now_s = lab.master.clock.now_s()
    lab.master.clock.advance((now_s // 3600.0 + 1.0) * 3600.0 - now_s + 1.0)
    for agent in lab.agents:
        agent.heartbeat()
    lab.master.tick()
    # 24 x 16 GPUs in an hour, 300 s each: 32 GPUs at any time.
    assert lab.master.state.cluster.profiling.gpus == 32, "beyond the floor of two nodes"
    lab.master.restart()
    for agent in lab.agents:
        agent.hello()
    assert lab.master.state.cluster.profiling.gpus == 32
