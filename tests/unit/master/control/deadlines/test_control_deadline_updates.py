"""Other deadlines for a job that is there: promised instead, refused with the old promise standing,
or judged anew.

Slots are 1,200 s and one node has eight GPUs; a promise reserves a fifth more than the estimate.
"""

from __future__ import annotations

from typing import Any

import pytest

from dlq_common.errors import IllegalTransition, InvalidRequest
from dlq_master.control.stimuli import AskedDeadline, SetPolicy, UpdatedJob, UpdateJob
from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.lease import LeaseKind
from support.master_harness import ROOT
from unit.master.control.deadlines.test_control_deadlines import Masters, Site


@pytest.fixture
def site(masters: Masters) -> Site:
    return Site(masters)


def update(site: Site, job_id: int, *after_s: float, **more: Any) -> UpdatedJob:
    """These deadlines from now on, each worth half of the one before."""
    if after_s:
        steps = [AskedDeadline(100.0 / 2**step, after_s=at) for step, at in enumerate(after_s)]
        more["deadlines"] = tuple(steps)
    answer: object = site.master.edit(UpdateJob, JobId(job_id), **more)
    assert isinstance(answer, UpdatedJob)
    site.answer()
    return answer


def test_a_later_deadline_is_promised_by_the_slots_that_are_there(site: Site) -> None:
    before = site.submit(7200.0)
    site.passes(100.0)
    slots = site.job(1).slots
    changed = update(site, 1, 9000.0)
    job = site.job(1)
    assert (job.promised, job.slots) == (0, slots)
    assert due_s(job, 0) == site.master.clock.now_s() + 9000.0
    assert [each.field for each in changed.changes] == ["deadline"]
    assert len(site.told(1, "promise_made")) == 2
    assert "deadline: " in str(site.master.events(JobId(1))[-2].data)
    assert before.promised == 0


def test_an_earlier_one_that_can_be_promised_moves_its_slots_and_those_of_others(
    site: Site,
) -> None:
    site.submit(20_000.0, run_s=600.0)
    site.submit(9000.0, run_s=3000.0)
    update(site, 1, 3600.0)
    first, second = site.job(1), site.job(2)
    assert (first.promised, second.promised) == (0, 0)
    site.passes(1200.0)
    assert site.job(1).promised == 0


def test_one_that_cannot_be_promised_is_refused_and_the_old_promise_stands(site: Site) -> None:
    site.submit(6000.0, run_s=3500.0)
    site.submit(14_400.0, run_s=2000.0)
    before = site.job(2)
    assert before.promised == 0
    with pytest.raises(IllegalTransition, match="keeps the promise that it has: ") as refused:
        update(site, 2, 4000.0)
    assert "could be promised" in refused.value.hint
    after = site.job(2)
    assert (after.steps, after.promised, after.slots, after.version) == (
        before.steps,
        before.promised,
        before.slots,
        before.version,
    )
    assert site.told(2, "promise_made") == ["holes"]


def test_of_several_the_best_that_can_be_promised_is(site: Site) -> None:
    site.submit(6000.0, run_s=3500.0)
    site.submit(14_400.0, run_s=2000.0)
    update(site, 2, 4000.0, 14_000.0)
    assert site.job(2).promised == 1


def test_before_its_run_time_is_known_a_new_deadline_is_the_one_that_is_judged(site: Site) -> None:
    job = site.submit(600.0, run_s=None)
    assert job.verdict == ""
    update(site, 1, 7200.0)
    assert (len(site.job(1).steps), site.job(1).verdict) == (1, "")
    assert site.told(1, "promise_made") == []


def test_who_was_refused_is_judged_anew(site: Site) -> None:
    site.submit(6000.0, run_s=3500.0)
    refused = site.submit(5900.0, run_s=2000.0)
    assert (refused.promised, refused.alternative is not None) == (None, True)
    update(site, 2, 14_400.0)
    job = site.job(2)
    assert (job.promised, job.alternative) == (0, None)
    assert site.told(2, "promise_made") != []


def test_who_has_none_may_get_one_and_give_it_back(site: Site) -> None:
    site.submit(run_s=600.0)
    update(site, 1, 7200.0, on_miss="cancel")
    job = site.job(1)
    assert (job.promised, job.rules.cancel_late) == (0, True)
    changed = update(site, 1, deadlines=())
    job = site.job(1)
    assert (job.steps, job.promised, job.slots, job.verdict, job.band) == (
        (),
        None,
        (),
        "",
        Band.SPOT,
    )
    assert not job.rules.cancel_late
    assert {each.field: each.after for each in changed.changes} == {
        "deadline": "none",
        "on_miss": "continue",
    }
    site.passes(1300.0)
    assert site.job(1).promised is None


def test_a_repeat_changes_nothing_more(site: Site) -> None:
    site.submit(7200.0)
    asked = (AskedDeadline(100.0, after_s=9000.0),)
    first = update(site, 1, deadlines=asked, request_id="same")
    site.passes(60.0)
    again = update(site, 1, deadlines=asked, request_id="same")
    assert again.changes == first.changes
    assert again.job.steps == site.job(1).steps == first.job.steps


def test_it_holds_after_a_restart(site: Site) -> None:
    site.submit(7200.0)
    update(site, 1, 9000.0, on_miss="cancel")
    before = site.job(1)
    site.master.restart()
    assert site.job(1) == before
    assert list(site.master.state.deadlines.cancel_late) == [1]


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        (
            {"deadlines": (AskedDeadline(100.0, after_s=-5.0),)},
            "deadlines",
            "deadline 1 is in the past",
        ),
        (
            {"deadlines": (AskedDeadline(50.0, after_s=60.0), AskedDeadline(80.0, after_s=90.0))},
            "deadlines",
            "reward 2 is more than reward 1",
        ),
        (
            {"deadlines": (AskedDeadline(50.0, after_s=90.0), AskedDeadline(40.0, after_s=60.0))},
            "deadlines",
            "deadline 2 is not after deadline 1",
        ),
        ({"on_miss": "cancel"}, "on_miss", "only with a deadline"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_the_name_of_its_field(
    site: Site, asked: dict[str, Any], field: str, words: str
) -> None:
    site.submit(run_s=600.0)
    with pytest.raises(InvalidRequest, match=words) as refused:
        update(site, 1, **asked)
    assert refused.value.field == field


def test_where_nothing_is_promised_a_deadline_is_only_a_number(masters: Masters) -> None:
    site = Site(masters, "best-effort")
    site.submit(7200.0)
    update(site, 1, 60.0)
    job = site.job(1)
    assert (job.verdict, due_s(job, 0)) == ("", site.master.clock.now_s() + 60.0)


@pytest.mark.parametrize("policy", ["srtf", "best-effort", "dlq"])
def test_a_long_lease_goes_on_by_the_terms_of_the_policy_that_has_taken_over(
    masters: Masters, policy: str
) -> None:
    """Nothing stops for that: the term that was given is kept, and the next one is the new
    policy's.
    """
    site = Site(masters, "dlq", slots="early")
    site.submit(14_400.0, run_s=6000.0)
    site.passes(1300.0)
    before = site.master.attempt(JobId(1))
    assert before.lease.kind is LeaseKind.SLO
    settings = (("be_floor", "0"), ("margin", "0.5"), ("slots", "early")) if policy == "dlq" else ()
    site.master.ask(
        SetPolicy(caller=ROOT, request_id="p", policy=policy, settings=settings, force=True)
    )
    assert site.master.attempt(JobId(1)).lease == before.lease
    site.passes(before.lease.term_end_s - site.master.clock.now_s() + 10.0)
    after = site.master.attempt(JobId(1))
    assert after.key == before.key
    promised = policy == "dlq"
    assert after.lease.kind is (LeaseKind.SLO if promised else LeaseKind.BE)
    term_s = 1200.0 if promised else 300.0
    assert after.lease.term_end_s == before.lease.term_end_s + term_s
