"""Plans that are made elsewhere: turns do not wait, what is stale is not done, and nobody is
missed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlq_master.control.placement.offloaded import HURRIED
from dlq_master.control.stimuli import AskedDeadline, PlanMade
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.plan import NextSlot, Reserve
from dlq_master.planner.plans import Answer
from dlq_master.policy.promise.solver import printed
from dlq_master.policy.promise.solver.printed import Solved
from support.inline_planner import InlinePlanner
from support.master_harness import Master, config_of
from support.sim_agent import SimAgent

Masters = Callable[..., Master]


class Site:
    """A master under Chronus with eight GPUs, and its planner."""

    def __init__(self, masters: Masters, policy: str = "chronus") -> None:
        self.master = masters(config_of(policy, be_floor="0", guarantee="fitting"))
        self.planner = InlinePlanner()
        self.master.state.placement.offloaded.planner = self.planner
        self.agent = SimAgent(self.master, NodeId("n1"), gpus=8)
        self.agent.hello()

    def submit(self, gpus: int, deadline_s: float | None = None, run_s: float = 600.0) -> Job:
        """A job, perhaps with a strict deadline."""
        asked = () if deadline_s is None else (AskedDeadline(100.0, after_s=deadline_s),)
        return self.master.submit(gpus, run_estimate_s=run_s, deadlines=asked)

    def is_asked(self) -> bool:
        """A question waits for its answer."""
        return self.planner.asked

    def tell(self, answer: Answer) -> None:
        self.master.turn(PlanMade(answer))

    def job(self, job_id: int) -> Job:
        return self.master.job(JobId(job_id))


@pytest.fixture
def site(masters: Masters) -> Site:
    return Site(masters)


def test_nobody_is_asked_while_nobody_has_a_deadline(site: Site) -> None:
    for gpus in (4, 4, 2):
        site.submit(gpus)
    site.master.tick(300.0)
    assert site.planner.questions == []
    assert [job_id for job_id in (1, 2, 3) if site.job(job_id).live_attempt] == [1, 2]


def test_a_promise_comes_with_the_answer_and_others_do_not_wait_for_it(site: Site) -> None:
    site.submit(4, deadline_s=7200.0)
    assert (site.planner.questions, site.job(1).verdict) == (["promises"], "")
    site.submit(2)
    assert site.job(2).live_attempt == 1, "it is not held up"
    site.tell(site.planner.answer())
    assert (site.job(1).promised, site.job(1).band) == (0, Band.FILL)


def test_an_answer_that_is_none_to_the_last_question_is_not_heard(site: Site) -> None:
    site.submit(4, deadline_s=7200.0)
    site.tell(Answer(77, fault="what?"))
    assert site.is_asked()
    site.tell(site.planner.answer())
    assert site.job(1).promised == 0


def test_who_waits_for_a_planner_of_another_version_is_told_so_once(site: Site) -> None:
    site.submit(4, deadline_s=7200.0)
    site.tell(site.planner.answer())
    site.planner.outdated = "it is of another version: restart the master"
    site.submit(2, deadline_s=7200.0)
    site.submit(2)
    site.master.tick(5.0)
    told = [event for event in site.master.events() if event.kind == "promise_delayed"]
    assert [(event.job_id, event.cause) for event in told] == [(2, site.planner.outdated)]
    published = site.master.loop.published
    assert published.delay() == site.planner.outdated
    site.planner.outdated = ""  # as after a restart
    site.master.tick(5.0)
    site.tell(site.planner.answer())
    assert (site.job(2).promised, published.delay()) == (0, "")


def test_without_a_planner_the_kept_plan_is_followed_and_nothing_is_promised(site: Site) -> None:
    site.submit(8, deadline_s=4000.0)
    site.tell(site.planner.answer())
    promised = site.job(1)
    site.planner.up = False
    site.submit(4, deadline_s=7200.0)
    for _ in range(3):
        site.master.tick(300.0)
        site.agent.heartbeat()
    assert (site.job(1).promised, site.job(1).slots[-1:]) == (0, promised.slots[-1:])
    assert site.job(2).verdict == ""
    site.planner.up = True
    site.master.tick(1.0)
    assert site.is_asked(), "it is asked again once it is there again"
    site.tell(site.planner.answer())
    assert site.job(2).verdict


def test_who_fails_is_not_asked_again_at_once_and_people_can_see_it(site: Site) -> None:
    site.submit(4, deadline_s=7200.0)
    site.tell(site.planner.fail("it ended"))
    assert not site.is_asked()
    away = site.master.state.placement.offloaded
    assert (away.faults, away.last_fault) == (1, "it ended")
    site.master.tick(6.0)
    assert site.is_asked()
    site.tell(site.planner.answer())
    assert (site.job(1).promised, away.useless) == (0, 0)


def test_one_that_has_died_is_asked_again_as_soon_as_another_one_is_there(site: Site) -> None:
    site.submit(4, deadline_s=7200.0)
    site.planner.up, site.planner.rest_s = False, 1.0
    site.tell(site.planner.fail("it took longer than 2 s"))
    away = site.master.state.placement.offloaded
    assert (away.faults, away.last_fault) == (1, "it took longer than 2 s")
    site.planner.up, site.planner.rest_s = True, 0.0
    site.master.tick(1.0)
    assert site.is_asked(), "it is not distrusted for what the one before it did"


def test_after_two_plans_without_an_end_the_batch_is_judged_by_the_cached_solution(
    masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second job would need the program, which here never answers: each job is judged all the
    same."""

    def asked(*_: object, **__: object) -> Solved:
        raise AssertionError("the program was asked")

    monkeypatch.setattr(printed, "time_indexed", asked)
    site = Site(masters, "chronus-paper")
    site.submit(8, deadline_s=6000.0, run_s=2200.0)
    site.tell(site.planner.answer())
    site.submit(8, deadline_s=2500.0, run_s=600.0)
    for _ in range(HURRIED):
        site.planner.up, site.planner.rest_s = False, 1.0
        site.tell(site.planner.fail("it took longer than 20 s"))
        assert site.job(2).verdict == ""
        site.planner.up, site.planner.rest_s = True, 0.0
        site.master.tick(1.0)
    site.tell(site.planner.answer())
    assert (site.job(2).verdict, site.master.state.placement.offloaded.health.failures) == (
        "limit",
        0,
    )


def test_a_job_that_was_cancelled_meanwhile_gets_no_promise_and_the_others_theirs(
    site: Site,
) -> None:
    asked = (AskedDeadline(100.0, after_s=7200.0),)
    both = [site.master.submission(2, run_estimate_s=600.0, deadlines=asked) for _ in range(2)]
    site.master.turn(*both)
    first = site.planner.answer()
    site.master.cancel(JobId(1))
    site.tell(first)
    if site.is_asked():
        site.tell(site.planner.answer())
    assert site.job(1).promised is None
    assert site.job(2).promised == 0


def test_a_planner_that_lies_breaks_no_promise(site: Site) -> None:
    site.submit(8, deadline_s=4000.0)
    site.tell(site.planner.answer())
    assert site.job(1).promised == 0
    site.submit(8, deadline_s=4000.0)
    honest = site.planner.answer()
    (plan,) = honest.plans
    (verdict,) = [change for change in plan.changes if isinstance(change, Reserve)]
    slots = site.job(1).slots
    lies: list[Reserve | NextSlot] = [
        verdict._replace(promised=0, band=Band.FILL, slots=slots),  # the slots are the first one's
        verdict._replace(job_id=JobId(1), promised=None, slots=()),  # whose promise is good
        verdict._replace(job_id=JobId(1), promised=0, slots=()),
        NextSlot(site.master.state.cluster.slot, verdict.reason),
        verdict._replace(job_id=JobId(99)),
    ]
    for lie in lies:
        site.tell(honest._replace(plans=(plan._replace(changes=(lie,)),)))
        assert (site.job(1).promised, site.job(1).slots) == (0, slots)
        assert site.job(2).promised is None
        site.master.tick(400.0)  # until it is trusted again
        site.agent.heartbeat()
        honest = site.planner.answer()


def test_nothing_is_decided_before_who_holds_the_next_slot_is_known(site: Site) -> None:
    site.submit(8, deadline_s=4000.0)
    site.tell(site.planner.answer())
    site.submit(8, run_s=3000.0)
    site.agent.obey()
    for _ in range(140):  # until a lead before the slot begins
        site.master.tick(10.0)
        site.agent.heartbeat()
        if site.is_asked():
            break
    assert site.planner.questions[-1] == "slot"
    before = site.master.words()
    site.master.tick(1.0)
    assert site.master.words() == before, "leases that end then are decided by the answer"
    site.tell(site.planner.answer())
    assert site.master.state.cluster.slot == 1_500_001
    assert not site.is_asked()


def test_a_slot_that_nobody_decides_in_time_is_decided_by_the_kept_plan(site: Site) -> None:
    site.submit(8, deadline_s=4000.0)
    site.tell(site.planner.answer())
    while not site.is_asked():
        site.master.tick(10.0)
        site.agent.heartbeat()
    site.master.tick(6.0)
    site.agent.heartbeat()
    assert site.master.state.cluster.slot == 1_500_001
    late = site.planner.answer()
    site.tell(late)
    assert site.job(1).promised == 0
    assert site.master.state.placement.offloaded.dropped == len(late.plans[0].changes)


def test_a_promise_given_up_for_a_node_that_was_only_late_is_kept(site: Site) -> None:
    site.submit(8, deadline_s=4000.0)
    site.tell(site.planner.answer())
    while not site.is_asked():
        site.agent.heartbeat()
        site.master.tick(20.0)  # the TTL: for a moment nothing can be kept on that node
    given_up = site.planner.answer()
    assert any(
        one.promised is None for one in given_up.plans[0].changes if isinstance(one, Reserve)
    )
    site.agent.heartbeat()
    site.tell(given_up)
    assert site.job(1).promised == 0
