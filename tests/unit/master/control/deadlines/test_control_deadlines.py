"""Deadlines from the submission to what becomes of them: promised, refused with an offer, kept,
lost, given up.

Slots are 1,200 s and one node has eight GPUs; a promise reserves a fifth more than the estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dlq_common.errors import InvalidRequest
from dlq_common.text.instants import format_instant
from dlq_master.control.read_model.job_blocks import EVERYBODY
from dlq_master.control.stimuli import AskedDeadline, CancelJob, PlanMade
from dlq_master.control.stimuli.nodes import Beat
from dlq_master.model.attempts.deadlines import due_s, slack_s
from dlq_master.model.estimates.estimate import Unmeasured
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job, JobState, Pause, RunRules
from dlq_master.model.lease import LeaseKind
from support.inline_planner import InlinePlanner
from support.master_harness import ALICE, Master, config_of
from support.sim_agent import SimAgent

Masters = Callable[..., Master]
LATE_ENDS = RunRules(cancel_late=True)


class Site:
    """A master that promises deadlines, on one node of eight GPUs."""

    def __init__(
        self, masters: Masters, policy: str = "dlq", nodes: int = 1, **settings: str
    ) -> None:
        free = {"be_floor": "0"} if policy == "dlq" else {}
        self.master = masters(config_of(policy, **free, **settings))
        self.planner = InlinePlanner()
        self.master.state.placement.offloaded.planner = self.planner
        self.agents = [SimAgent(self.master, NodeId(f"n{at + 1}"), gpus=8) for at in range(nodes)]
        for agent in self.agents:
            agent.hello()

    def submit(self, *due_s: float, run_s: float | None = 600.0, gpus: int = 8, **more: Any) -> Job:
        """A job with these deadlines, each worth half of the one before; the planner has
        answered.
        """
        asked = tuple(AskedDeadline(100.0 / 2**step, after_s=at) for step, at in enumerate(due_s))
        job = self.master.submit(gpus, run_estimate_s=run_s, deadlines=asked, **more)
        self.answer()
        return self.master.job(job.job_id)

    def answer(self) -> None:
        while self.planner.asked:
            self.master.turn(PlanMade(self.planner.answer()))

    def passes(self, seconds: float, step_s: float = 10.0) -> None:
        """Time in which the nodes are heard of, and do what they are told."""
        for _ in range(round(seconds / step_s)):
            self.master.clock.advance(step_s)
            for agent in self.agents:
                agent.obey()
                agent.heartbeat()
            self.master.tick()
            self.answer()

    def job(self, job_id: int) -> Job:
        return self.master.job(JobId(job_id))

    def told(self, job_id: int, kind: str) -> list[str]:
        events = self.master.events(JobId(job_id))
        return [event.cause for event in events if event.kind == kind]


@pytest.fixture
def site(masters: Masters) -> Site:
    return Site(masters)


@pytest.mark.parametrize(
    "deadline", [AskedDeadline(100.0, after_s=-1.0), AskedDeadline(9.0, at_s=1.0)]
)
def test_a_deadline_in_the_past_is_refused(site: Site, deadline: AskedDeadline) -> None:
    with pytest.raises(InvalidRequest, match="deadline 1 is in the past: ") as refused:
        site.master.submit(1, deadlines=(deadline,))
    assert refused.value.field == "spec.deadlines"


@pytest.mark.parametrize(
    ("rewards", "words"),
    [((50.0, 80.0), "reward 2 is more than reward 1"), ((100.0, 0.5), "reward 2 is 0.5")],
)
def test_rewards_that_rise_or_are_none_are_refused(
    site: Site, rewards: tuple[float, ...], words: str
) -> None:
    steps = tuple(AskedDeadline(worth, after_s=100.0 * at) for at, worth in enumerate(rewards, 1))
    with pytest.raises(InvalidRequest, match=words):
        site.master.submit(1, deadlines=steps)


def test_who_fits_is_told_that_it_is_guaranteed(site: Site) -> None:
    job = site.submit(7200.0)
    assert (job.promised, job.alternative) == (0, None)
    assert site.told(1, "promise_made") == ["holes"]


def test_who_does_not_fit_is_told_what_would_and_gets_that(site: Site) -> None:
    site.submit(6000.0, run_s=3500.0)
    refused = site.submit(5900.0, run_s=2000.0)
    assert (refused.promised, refused.verdict) == (None, "fluid")
    (cause,) = site.told(2, "promise_refused")
    assert cause == (
        "promises that were made before leave too few GPUs until its deadline (it needs 3 slots "
        "until then, "
        "and 0 have GPUs enough left)"
    )
    offered = refused.alternative
    assert offered is not None
    assert offered.earliest_s is not None
    assert (offered.fix, offered.fix_s) == ("later_deadline", offered.earliest_s)
    assert offered.earliest_s > due_s(refused, 0)
    asked = (AskedDeadline(100.0, at_s=offered.earliest_s),)
    again = site.master.submit(8, run_estimate_s=2000.0, deadlines=asked)
    site.answer()
    assert site.job(again.job_id).promised == 0


def test_of_many_that_are_refused_at_once_each_gets_an_offer_that_is_taken(site: Site) -> None:
    site.submit(6000.0, run_s=3500.0)
    asked = (AskedDeadline(100.0, after_s=5900.0),)
    more = [site.master.submission(8, run_estimate_s=2000.0, deadlines=asked) for _ in range(7)]
    site.master.turn(*more)
    site.answer()
    offers = [site.job(number).alternative for number in range(2, 9)]
    assert all(offer is not None and offer.earliest_s is not None for offer in offers)


def test_what_was_measured_of_its_family_is_told_to_who_plans(site: Site) -> None:
    first = site.submit(run_s=600.0, gpus=1, family="train")
    slow = first._replace(saves=(40.0,) * 5, resumes=(300.0,) * 5)
    site.master.state.cluster.costs.index(first, slow)
    promised = site.submit(20_000.0, gpus=1, family="train")
    assert promised.family == first.family != ""
    assert (promised.promised, promised.pause) == (0, Pause(40.0, 300.0))
    site.master.restart()
    assert site.job(2).pause == Pause(40.0, 300.0)


def test_nothing_is_promised_while_nobody_knows_how_long_it_runs(site: Site) -> None:
    job = site.submit(7200.0, run_s=None)
    assert (job.verdict, job.promised, job.alternative) == ("", None, None)
    assert site.planner.questions == []
    assert job.live_attempt == 1, "it runs by the order"
    assert slack_s(job, site.master.attempt(job.job_id), site.master.clock.now_s()) is None


def test_a_promise_and_a_refusal_survive_the_master(site: Site) -> None:
    site.submit(6000.0, run_s=3500.0)
    site.submit(5900.0, run_s=2000.0)
    before = [site.job(1), site.job(2)]
    site.master.restart()
    site.master.state.placement.offloaded.planner = site.planner
    for agent in site.agents:
        agent.hello()
    site.answer()
    after = [site.job(1), site.job(2)]
    told = [(job.promised, job.verdict, job.alternative) for job in before]
    assert [(job.promised, job.verdict, job.alternative) for job in after] == told
    (slots,) = after[0].slots
    assert (slots.end - slots.begin, slots.end * 1200.0 <= due_s(after[0], 0)) == (4, True)
    assert (len(site.told(1, "promise_made")), len(site.told(2, "promise_refused"))) == (1, 1)


def test_who_runs_for_longer_than_was_reserved_is_told_that_its_promise_is_over(site: Site) -> None:
    site.submit(7200.0, run_s=600.0)
    agent = site.agents[0]
    agent.obey()
    agent.start(AttemptKey(JobId(1), 1))
    agent.report()
    site.passes(2400.0)
    job = site.job(1)
    assert (job.promised, job.verdict, job.live_attempt) == (None, "overrun", 1)
    (cause,) = site.told(1, "promise_overrun")
    reserved = "(it has run for 0:19:30 of 0:12:00 that were reserved, and has not ended)"
    assert cause.startswith("it has run for longer than was reserved for it")
    assert cause.endswith(reserved)
    (warned,) = site.told(1, "promise_at_risk")
    assert warned.startswith(
        "it has run for 0:12:10 of 0:12:00 that were reserved, and has not ended"
    )
    assert site.told(1, "promise_safe") == []


def test_who_was_refused_is_not_told_that_it_lost_a_promise_when_it_runs_for_longer(
    site: Site,
) -> None:
    started(site, site.submit(1000.0, run_s=900.0).job_id)
    refused = site.job(1)
    assert (refused.promised, refused.verdict) == (None, "reach")
    site.passes(3600.0)
    job = site.job(1)
    assert (job.verdict, job.live_attempt, site.told(1, "promise_overrun")) == ("reach", 1, [])
    assert job.alternative == refused.alternative


def test_a_risk_whose_deadline_comes_before_the_next_slot_is_told_with_that_deadline(
    site: Site,
) -> None:
    site.submit(2200.0, run_s=600.0)
    agent = site.agents[0]
    agent.obey()
    site.passes(1300.0)
    agent.start(AttemptKey(JobId(1), 1))
    agent.report()
    site.passes(760.0)
    (warned,) = site.told(1, "promise_at_risk")
    due = format_instant(due_s(site.job(1), 0)).replace(".000Z", "Z")
    assert warned.endswith(f"its deadline comes before other slots are looked for, at {due}")
    site.passes(due_s(site.job(1), 0) - site.master.clock.now_s())
    assert site.told(1, "promise_missed") == []
    site.passes(10.0)
    missed = f"its deadline was {due}, and it has not ended"
    assert site.told(1, "promise_missed") == [missed], "and not when the next slot is planned"
    assert site.master.state.deadlines.risks.told[JobId(1)].cause == missed
    site.passes(30.0)
    assert site.told(1, "promise_missed") == [missed], "once"
    assert site.told(1, "promise_safe") == []


def test_who_wants_no_late_end_is_cancelled_when_it_cannot_be_in_time_any_more(
    masters: Masters,
) -> None:
    site = Site(masters, "fifo")
    site.submit(run_s=1e6)
    site.submit(1000.0, run_s=300.0, rules=LATE_ENDS)
    site.submit(1000.0, run_s=300.0)
    site.passes(700.0)
    assert site.job(2).state is JobState.QUEUED
    site.passes(10.0)
    assert (site.job(2).state, site.job(3).state) == (JobState.CANCELLED, JobState.QUEUED)
    (cause,) = site.told(2, "job_cancelled")
    assert cause.startswith("its last deadline cannot be kept any more: ")


def test_who_runs_has_until_the_deadline_itself(masters: Masters) -> None:
    site = Site(masters, "fifo")
    site.submit(500.0, 1000.0, run_s=5000.0, rules=LATE_ENDS)
    assert site.job(1).live_attempt == 1
    site.passes(1000.0)
    assert site.job(1).state is JobState.QUEUED
    site.passes(10.0)
    assert site.job(1).state is JobState.CANCELLED


def test_after_a_restart_nobody_is_ended_before_its_node_has_told_what_became_of_it(
    masters: Masters,
) -> None:
    site = Site(masters, "fifo")
    site.submit(500.0, rules=LATE_ENDS)
    site.master.clock.advance(600.0)
    site.master.restart()
    site.master.tick(1.0)
    assert site.job(1).state is JobState.QUEUED
    site.agents[0].hello()
    site.master.tick(1.0)
    assert site.job(1).state is JobState.CANCELLED


def test_slack_counts_to_the_deadline_that_is_promised_or_can_still_be_kept(site: Site) -> None:
    job = site.submit(2000.0, 8000.0, run_s=5000.0)
    assert job.promised == 1
    attempt = site.master.attempt(job.job_id)
    assert slack_s(job, attempt, job.submit_time_s) == 3000.0
    alone = job._replace(promised=None)
    assert slack_s(alone, attempt, job.submit_time_s) == 3000.0
    assert slack_s(alone, None, job.submit_time_s + 4000.0) == -1000.0


def test_a_lost_node_is_told_at_once_and_what_it_breaks_is_given_up(masters: Masters) -> None:
    site = Site(masters, nodes=2)
    both = site.submit(7200.0, gpus=16)
    one = site.submit(7200.0, gpus=8)
    assert (both.promised, one.promised) == (0, 0)
    gone = site.agents.pop()
    site.passes(40.0)
    (cause,) = site.told(1, "promise_at_risk")
    told = (
        f"its slots are short of 8 GPUs: {gone.node_id} is suspect; at 2027-01-15T08:19:30Z "
        "other slots"
    )
    assert cause.startswith(told)
    assert site.master.state.deadlines.risks.told.keys() == {1}
    site.passes(1300.0)
    (cause,) = site.told(1, "promise_broken")
    assert cause == (
        "no plan keeps its promise any more: it runs as best effort "
        "(its slots are short of 8 GPUs: n2 is unreachable; kept: job 2)"
    )
    assert site.master.state.deadlines.risks.told == {}
    assert (site.job(1).promised, site.job(1).verdict) == (None, "broken")
    assert (site.job(2).promised, site.told(2, "promise_broken")) == (0, [])
    assert len(site.told(1, "promise_at_risk")) == 1, "it is told once"


def test_who_may_lose_its_work_with_a_silent_node_is_told_so(masters: Masters) -> None:
    site = Site(masters, nodes=2)
    agent = site.agents[0]
    started(site, site.submit(7200.0, run_s=3000.0).job_id)
    site.passes(2500.0)
    site.agents.remove(agent)
    site.passes(40.0)
    (cause,) = site.told(1, "promise_at_risk")
    words = (
        f"{agent.node_id} is unreachable: if what it has not saved is lost, it needs "
        "1:00:00, and its slots have "
    )
    assert cause.startswith(words)
    assert site.job(1).promised == 0


def test_a_promise_is_told_to_be_safe_again_when_its_node_is_back(masters: Masters) -> None:
    site = Site(masters, nodes=2)
    site.submit(7200.0, gpus=16)
    silent = site.agents.pop()
    site.passes(30.0)
    assert len(site.told(1, "promise_at_risk")) == 1
    site.agents.append(silent)
    silent.heartbeat()
    site.passes(20.0)
    assert site.told(1, "promise_safe") == [], "it may go again"
    site.passes(20.0)
    assert site.told(1, "promise_safe") == ["its slots suffice again"]
    assert (site.job(1).promised, site.told(1, "promise_broken")) == (0, [])


def test_a_node_that_comes_and_goes_is_no_news_every_time(masters: Masters) -> None:
    site = Site(masters, nodes=2)
    site.submit(7200.0, gpus=16)
    flapping = site.agents[1]
    for _ in range(5):
        site.agents.remove(flapping)
        site.passes(30.0)
        site.agents.append(flapping)
        flapping.heartbeat()
        site.passes(20.0)
    assert (len(site.told(1, "promise_at_risk")), site.told(1, "promise_safe")) == (1, [])
    site.passes(20.0)
    assert len(site.told(1, "promise_safe")) == 1


def test_a_master_that_starts_again_tells_of_risks_that_are_still_there(masters: Masters) -> None:
    site = Site(masters, nodes=2)
    site.submit(7200.0, gpus=16)
    site.agents.pop()
    site.passes(40.0)
    site.master.restart()
    site.master.state.placement.offloaded.planner = site.planner
    site.agents[0].hello()
    site.passes(60.0)
    first, again = site.told(1, "promise_at_risk")
    assert first.startswith("its slots are short of 8 GPUs: n2 is suspect")
    assert again.startswith("its slots are short of 8 GPUs: n2 is ")


def test_who_is_ended_for_being_late_is_told_that_its_promise_is_broken(masters: Masters) -> None:
    site = Site(masters)
    job = site.submit(7200.0, rules=LATE_ENDS)
    assert job.promised == 0
    site.planner.up = False
    site.agents.clear()
    site.passes(7300.0, 100.0)
    assert site.job(1).state is JobState.CANCELLED
    assert site.told(1, "promise_broken") == site.told(1, "job_cancelled")


def started(site: Site, job_id: int, number: int = 1) -> AttemptKey:
    key = AttemptKey(JobId(job_id), number)
    agent = site.agents[0]
    agent.obey()
    agent.start(key)
    agent.report()
    return key


def test_leases_end_on_their_grids_and_a_save_begins_in_time_for_the_boundary(
    masters: Masters,
) -> None:
    site = Site(masters, "chronus", be_floor="0", guarantee="fitting")
    key = started(site, site.submit(run_s=1e6).job_id)
    assert site.master.attempt(JobId(1)).lease.kind is LeaseKind.BE
    site.agents[0].save(key, 10, save_s=8.0)
    site.agents[0].report()
    promised = site.submit(7200.0, run_s=2000.0)
    (slots,) = promised.slots
    begin_s = slots.begin * 1200.0
    while site.master.attempt(JobId(1)).stop_cause is None:
        assert site.master.attempt(JobId(1)).lease.term_end_s % 300.0 == 0.0
        site.passes(10.0)
    stopped = site.master.attempt(JobId(1))
    assert site.master.clock.now_s() < begin_s
    assert stopped.notice_due_s is not None
    assert begin_s - 30.0 < stopped.notice_due_s < begin_s - 8.0, "as late as its save allows"
    site.agents[0].exit(key, 99)
    site.agents[0].report()
    started(site, 2)
    lease = site.master.attempt(JobId(2)).lease
    assert (lease.kind, lease.term_end_s) == (LeaseKind.SLO, begin_s + 1200.0)
    site.passes(1300.0)
    renewed = site.master.attempt(JobId(2))
    assert (renewed.lease.kind, renewed.lease.term_end_s) == (LeaseKind.SLO, begin_s + 2400.0)


def test_an_agent_that_restarts_and_one_that_is_silent_for_a_while_change_no_promise(
    site: Site,
) -> None:
    started(site, site.submit(20_000.0, run_s=3000.0).job_id)
    before = site.job(1)
    site.agents[0].restart()
    site.agents[0].hello()
    site.agents[0].report()
    silent = site.agents.pop()
    site.passes(15.0, 5.0)
    site.agents.append(silent)
    silent.heartbeat()
    site.passes(10.0)
    after = site.job(1)
    assert (after.promised, after.verdict, after.live_attempt) == (0, before.verdict, 1)
    assert site.told(1, "promise_at_risk") == site.told(1, "promise_broken") == []


def tells(site: Site, step: int, total: int | None = None) -> None:
    """The first job has told of a step just now."""
    beat = Beat(step, total, None, site.master.clock.now_s())
    site.master.state.jobs.beats[JobId(1)] = beat


@pytest.mark.parametrize(("asked", "told"), [(1000, None), (None, 1000)])
def test_who_tells_its_steps_is_judged_by_them(
    site: Site, asked: int | None, told: int | None
) -> None:
    started(site, site.submit(20_000.0, run_s=None, step_count=asked).job_id)
    site.passes(20.0)
    tells(site, 10, told)
    site.passes(50.0)
    tells(site, 110, told)
    site.passes(10.0)
    assert site.job(1).duration_estimate_s is None, "it is too soon"
    tells(site, 130, told)
    site.passes(10.0)
    assert site.job(1).duration_estimate_s == pytest.approx(80.0 + 870 / 2.0, abs=1.0)
    assert (site.job(1).promised, len(site.told(1, "promise_made"))) == (0, 1)
    (cause,) = site.told(1, "job_estimated")
    assert cause == "120 steps took 60 s, and 870 of 1000 are left"


def test_who_says_its_steps_and_tells_none_is_left_unmeasured_also_where_nobody_is_measured(
    masters: Masters,
) -> None:
    site = Site(masters, know="unknown")
    started(site, site.submit(20_000.0, run_s=None, step_count=1000).job_id)
    site.passes(100.0)
    assert site.told(1, "job_left_unmeasured") == []
    site.passes(50.0)
    assert site.job(1).basis.unmeasured is Unmeasured.NO_BEATS


def test_steps_are_counted_anew_in_another_attempt_and_never_of_who_said_its_time(
    site: Site,
) -> None:
    key = started(site, site.submit(20_000.0, run_s=None, step_count=1000).job_id)
    site.passes(10.0)
    tells(site, 10)
    site.passes(50.0)
    site.agents[0].exit(key, 99)
    site.agents[0].report()
    started(site, 1, 2)
    site.passes(20.0)
    tells(site, 130)
    site.passes(10.0)
    assert site.job(1).duration_estimate_s is None
    site.submit(20_000.0, run_s=77.0, step_count=1000)
    assert site.job(2).duration_estimate_s == 77.0


def test_readers_find_promises_without_a_look_at_other_jobs_and_again_after_a_restart(
    site: Site,
) -> None:
    site.submit(run_s=600.0)
    site.submit(7200.0, gpus=1)
    site.submit(900.0, run_s=2000.0)
    read = site.master.loop.published
    assert (read.with_deadlines("alice", 0), read.with_deadlines("bob", 0)) == ([2, 3], [])
    assert (read.promised_count(EVERYBODY), read.kept_target) == (1, 0.99)
    assert read.endangered() == []
    site.master.clock.advance(7300.0)
    site.master.tick()
    assert read.endangered() == [2]
    site.master.ask(CancelJob(caller=ALICE, request_id="c", job_id=JobId(2), kill=True))
    site.passes(60.0)
    assert site.job(2).ended
    assert read.with_deadlines(EVERYBODY, 0) == [3]
    (over,) = [(job.job_id, outcome.value) for job, outcome in read.promises_over()]
    assert over == (2, "missed")
    site.master.crashed()
    read = site.master.loop.published
    assert read.with_deadlines(EVERYBODY, 0) == [3]
    assert [job.job_id for job, _ in read.promises_over()] == [2]
