"""Grants: the limits of guests at admission and at every start, and what is left when they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dlq_common.errors import (
    AlreadyExists,
    DlqError,
    IllegalTransition,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    Unauthenticated,
    Unsatisfiable,
)
from dlq_master.control.config import QueueConfig
from dlq_master.control.people.grants import held_of
from dlq_master.control.stimuli import (
    AdmitGuest,
    Caller,
    DeleteTeam,
    DeleteUser,
    GrantRevoked,
    GrantsUsed,
    KeepGrant,
    MakeGrant,
    RevokeGrant,
    SetPolicy,
    SetTeam,
    SetUser,
    UpdateJob,
    User,
)
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import JobState
from dlq_master.store.tables.tenants import (
    GivenGrant,
    GrantLimits,
    GrantState,
    GuestAccount,
    HeldGrant,
    Team,
)
from support.master_harness import ROOT, Master, config_of
from support.sim_agent import SimAgent

Masters = Callable[..., Master]
HOUR_S, DAY_S = 3_600.0, 86_400.0
ACCOUNTS = (GuestAccount("guest1", 2001, 2001), GuestAccount("guest2", 2002, 2002))


def make(master: Master, **told: Any) -> GivenGrant:
    limits = {"gpus": 4, "queues": ("default",), **told.pop("limits", {})}
    asked = {
        "caller": ROOT, "request_id": "", "new_serial": told.pop("serial", "aa01"),
        "organisation": "orga", "ca": "PEM of orga", "team": "orga", "accounts": ACCOUNTS,
        "limits": GrantLimits(**limits), "lifetime_s": 90 * DAY_S, **told,
    }  # fmt: skip
    grant = master.ask(MakeGrant(**asked))
    assert isinstance(grant, GivenGrant)
    return grant


def admit(master: Master, user: str = "ann", number: str = "1", **told: Any) -> User:
    asked = {"serial": "aa01", "user": user, "home": f"{user}#7", **told}
    caller = Caller(f"grant-{asked['serial']}", "guest")
    found = master.ask(AdmitGuest(caller=caller, request_id=number, **asked))
    assert isinstance(found, User)
    return found


def guest(master: Master, user: str = "ann", number: str = "1", **told: Any) -> Caller:
    """As the door knows them after they have entered."""
    found = admit(master, user, number, **told)
    team = master.state.people.grants[found.grant].team
    given = ((team, f"grant {found.grant}"),)
    return Caller(found.name, found.role, found.person, found.created_time_s, given)


def a_master(masters: Masters, policy: str = "dlq") -> Master:
    master = masters(config_of(policy))
    SimAgent(master, NodeId("n1"), gpus=8).hello()
    return master


def used(master: Master, gpu_s: float, serial: str = "aa01") -> bool:
    return bool(master.ask(GrantsUsed(periods=((serial, gpu_s),))))


def state(master: Master, serial: str = "aa01") -> GrantState:
    return master.state.people.grants[serial].state


def test_a_guest_runs_in_an_account_of_their_own_and_is_counted_to_the_grant(
    masters: Masters,
) -> None:
    master = a_master(masters)
    make(master)
    ann, bob = admit(master), admit(master, "bob", "2")
    assert (ann.name, ann.role, ann.uid, ann.account) == ("ann@orga", "guest", 2001, "guest1")
    assert bob.uid == 2002
    again = admit(master, number="3")
    assert again == ann, "who comes again is the same"
    job = master.submit(2, caller=guest(master, number="4"))
    assert (job.user, job.team) == ("ann@orga", "orga")
    master.restart()
    assert admit(master, number="5") == ann


def test_the_limit_of_gpus_holds_at_admission_and_at_every_start(masters: Masters) -> None:
    master = a_master(masters)
    make(master)
    ann, bob = guest(master), guest(master, "bob", "2")
    with pytest.raises(Unsatisfiable, match="may hold 4 at most"):
        master.submit(5, caller=ann)
    first, second = master.submit(3, caller=ann), master.submit(2, caller=bob)
    master.tick(10.0)
    assert master.job(first.job_id).live_key is not None
    assert master.job(second.job_id).live_key is None, "one limit for all of the organisation"
    master.restart()
    master.tick(10.0)
    assert master.job(second.job_id).live_key is None
    assert master.submit(3).team == "", "the users of the cluster have nothing to do with it"


def test_an_introduction_is_good_once_also_after_a_restart(masters: Masters) -> None:
    master = a_master(masters)
    make(master)
    admit(master, number="n1")
    master.restart()
    with pytest.raises(Unauthenticated, match="used already"):
        admit(master, number="n1")
    with pytest.raises(Unauthenticated, match="used already"):
        admit(master, "bob", number="n1")


def test_another_person_of_the_name_gets_nothing_of_the_former_one(masters: Masters) -> None:
    master = a_master(masters)
    make(master)
    former = admit(master)
    with pytest.raises(PermissionDenied, match="another person"):
        admit(master, number="2", home="ann#9")
    master.ask(DeleteUser(caller=ROOT, request_id="d", name="ann@orga"))
    assert admit(master, number="3", home="ann#9").person != former.person


def test_guests_beyond_the_accounts_are_refused_and_a_removed_one_makes_room(
    masters: Masters,
) -> None:
    master = a_master(masters)
    make(master)
    admit(master), admit(master, "bob", "2")
    with pytest.raises(QuotaExceeded, match="2 accounts"):
        admit(master, "eve", "3")
    master.ask(DeleteUser(caller=ROOT, request_id="d", name="bob@orga"))
    assert admit(master, "eve", "4").account == "guest2"


def test_nobody_makes_a_guest_an_operator(masters: Masters) -> None:
    master = a_master(masters)
    make(master)
    ann = guest(master)
    ask = SetUser(
        caller=ROOT, request_id="s", name="ann@orga", role="operator", uid=2001, gid=2001, groups=()
    )
    with pytest.raises(IllegalTransition, match="is a guest"):
        master.ask(ask)
    assert not ann.sees_all
    with pytest.raises(PermissionDenied):
        master.submit(1, caller=ann, nice=-1)


def test_a_guest_stays_in_the_team_and_in_the_queues_of_the_grant(masters: Masters) -> None:
    config = config_of("dlq")
    queues = (*config.queues, QueueConfig("high", priority=100))
    master = masters(
        config.__class__(scheduler=config.scheduler, nodes=config.nodes, queues=queues)
    )
    SimAgent(master, NodeId("n1"), gpus=8).hello()
    make(master)
    master.ask(SetTeam(caller=ROOT, request_id="", team=Team("vision", 0.0, version=0)))
    ann = guest(master)
    with pytest.raises(PermissionDenied, match="not for queue high"):
        master.submit(1, caller=ann, queue="high")
    with pytest.raises(InvalidRequest, match="in no team 'vision'"):
        master.submit(1, caller=ann, team="vision")
    job = master.submit(1, caller=ann, hold=True)
    with pytest.raises(PermissionDenied, match="not for queue high"):
        master.ask(UpdateJob(caller=ann, request_id="u", job_id=job.job_id, queue="high"))


def test_a_spent_grant_starts_nothing_and_its_jobs_go_on_in_the_next_period(
    masters: Masters,
) -> None:
    master = a_master(masters)
    make(master, limits={"gpu_hours": 10.0, "period_days": 1})
    ann = guest(master)
    job = master.submit(2, caller=ann)
    master.tick(10.0)
    assert not used(master, 9 * HOUR_S)
    assert used(master, 10 * HOUR_S)
    assert state(master) is GrantState.SPENT
    assert master.attempt(job.job_id).state is AttemptState.PAUSING, "it saves and waits"
    with pytest.raises(QuotaExceeded, match="10 GPU-hours of this period"):
        master.submit(1, caller=ann)
    admit(master, number="2")  # to look at their jobs
    master.restart()
    assert state(master) is GrantState.SPENT
    assert master.state.people.teams["orga"].rules.gpu_limit == 0
    master.clock.advance(DAY_S)
    assert used(master, 0.0)
    assert state(master) is GrantState.GOOD
    assert master.state.people.teams["orga"].rules.gpu_limit == 4
    master.submit(1, caller=ann)


def test_a_spent_grant_keeps_waiting_jobs_from_every_start(masters: Masters) -> None:
    master = a_master(masters)
    make(master, limits={"gpu_hours": 1.0})
    ann = guest(master)
    local = master.submit(8)
    master.tick(1.0)
    waiting = master.submit(2, caller=ann)
    used(master, 2 * HOUR_S)
    master.cancel(local.job_id)
    master.tick(60.0)
    assert master.job(waiting.job_id).live_key is None


def test_a_grant_ends_by_itself_and_a_guest_is_refused_from_that_moment(masters: Masters) -> None:
    master = a_master(masters)
    make(master, lifetime_s=HOUR_S)
    ann = guest(master)
    job = master.submit(2, caller=ann)
    master.tick(HOUR_S + 1.0)
    with pytest.raises(Unauthenticated, match="has ended"):
        admit(master, number="2")
    with pytest.raises(Unauthenticated, match="has ended"):
        master.submit(1, caller=ann)
    used(master, 0.0)
    assert state(master) is GrantState.ENDED
    assert master.job(job.job_id).state is not JobState.CANCELLED


def test_a_revoked_grant_ends_its_jobs_and_no_others(masters: Masters) -> None:
    master = a_master(masters)
    make(master)
    ann = guest(master)
    runs = master.submit(2, caller=ann)
    master.tick(1.0)
    waits, own = master.submit(4, caller=ann), master.submit(1)
    ask = RevokeGrant(caller=ROOT, request_id="r1", serial="aa01", reason="over")
    done = master.ask(ask)
    assert isinstance(done, GrantRevoked)
    assert done.cancelled == 2
    assert master.ask(ask).cancelled == 2, "a repeat is answered alike"
    assert master.job(waits.job_id).state is JobState.CANCELLED
    assert master.attempt(runs.job_id).state is AttemptState.PAUSING
    assert not master.job(own.job_id).ended
    with pytest.raises(Unauthenticated, match="revoked"):
        admit(master, number="2")
    with pytest.raises(NotFound):
        master.ask(RevokeGrant(caller=ROOT, request_id="r2", serial="bb", reason=""))


def test_a_job_that_makes_way_just_now_is_ended_with_its_grant(masters: Masters) -> None:
    """It would wait for ever, and start under the next grant."""
    master = a_master(masters)
    make(master, limits={"gpu_hours": 10.0, "period_days": 1})
    ann = guest(master)
    job = master.submit(2, caller=ann)
    master.tick(1.0)
    assert used(master, 10 * HOUR_S)
    assert master.attempt(job.job_id).state is AttemptState.PAUSING
    done = master.ask(RevokeGrant(caller=ROOT, request_id="r1", serial="aa01", reason="over"))
    assert done.cancelled == 1
    assert master.job(job.job_id).state is JobState.CANCELLED


def test_a_grant_is_replaced_under_running_jobs(masters: Masters) -> None:
    master = a_master(masters)
    make(master)
    ann = guest(master)
    job = master.submit(2, caller=ann)
    master.tick(1.0)
    with pytest.raises(AlreadyExists, match="has the grant aa01"):
        make(master, serial="aa02")
    with pytest.raises(InvalidRequest, match="have the accounts guest1"):
        make(master, serial="aa02", replace=True, accounts=ACCOUNTS[1:])
    make(master, serial="aa02", replace=True, limits={"gpus": 6})
    assert state(master) is GrantState.REPLACED
    assert master.job(job.job_id).live_key is not None
    with pytest.raises(Unauthenticated, match="replaced"):
        admit(master, number="2")
    assert admit(master, number="3", serial="aa02").grant == "aa02"
    master.submit(6, caller=ann)


@pytest.mark.parametrize(
    ("told", "refusal"),
    [
        ({"organisation": "orgb", "team": "orgb"}, "the account guest1 is of guests of orga"),
        ({"organisation": "orgb", "accounts": (GuestAccount("a", 1001, 1),)}, "is of alice"),
        ({"organisation": "orgb", "team": "alice", "accounts": ()}, "alice is a user"),
        ({"organisation": "orgb", "team": "orga", "accounts": ()}, "of its guests alone"),
        ({"replace": True, "ca": "PEM of another one"}, "had another CA"),
        ({"replace": True, "limits": {"queues": ("fast",)}}, "no queue 'fast'"),
    ],
)
def test_grants_that_would_mix_people_are_refused(
    masters: Masters, told: dict[str, Any], refusal: str
) -> None:
    master = a_master(masters)
    make(master)
    admit(master)
    with pytest.raises(DlqError, match=refusal):
        make(master, serial="bb01", **told)


def test_the_limits_of_a_grant_are_changed_by_a_grant_alone(masters: Masters) -> None:
    master = a_master(masters)
    make(master)
    with pytest.raises(IllegalTransition, match="guests of orga"):
        master.ask(SetTeam(caller=ROOT, request_id="", team=Team("orga", 0.0, version=0)))
    with pytest.raises(IllegalTransition, match="guests of orga"):
        master.ask(DeleteTeam(caller=ROOT, request_id="", name="orga"))
    with pytest.raises(IllegalTransition, match="knows no limits"):
        master.ask(SetPolicy(caller=ROOT, request_id="", policy="fifo", settings=()))


def test_under_a_policy_without_limits_there_is_no_grant(masters: Masters) -> None:
    master = a_master(masters, "fifo")
    with pytest.raises(InvalidRequest, match="knows no quotas"):
        make(master)


def test_a_newer_statement_replaces_an_older_one_and_never_the_other_way(
    masters: Masters,
) -> None:
    master = a_master(masters)
    held = HeldGrant("cc01", "roof", "PEM", "roof:7321", "orga", GrantLimits(4, ("low",)), 0.0, 9e9)

    def kept(**told: Any) -> HeldGrant:
        ask = KeepGrant(caller=ROOT, request_id="", held=held._replace(**told))
        found = master.ask(ask)
        assert isinstance(found, HeldGrant)
        return found

    assert kept().owed_until_s is None
    assert kept(owed_gpu_s=7.0, owed_until_s=20.0).owed_gpu_s == 7.0
    assert kept(owed_gpu_s=3.0, owed_until_s=10.0).owed_gpu_s == 7.0
    master.restart()
    assert master.state.people.held_grants["cc01"].owed_gpu_s == 7.0
    with pytest.raises(AlreadyExists, match="another organisation"):
        kept(serial="cc02", ca="PEM of another one")
    done = master.ask(RevokeGrant(caller=ROOT, request_id="", serial="roof", reason=""))
    assert done.grant.serial == "cc01"
    assert not master.state.people.held_grants


def test_no_lender_takes_the_place_of_another_one(masters: Masters) -> None:
    """A lender chooses the serial of a grant, and may choose that of another one, or its word."""
    master = a_master(masters)
    roof = HeldGrant("cc01", "roof", "PEM", "roof:7321", "orga", GrantLimits(4, ("low",)), 0.0, 9e9)
    evil = roof._replace(organisation="evil", ca="PEM of evil", join_address="evil:7321")
    master.ask(KeepGrant(caller=ROOT, request_id="", held=roof))
    with pytest.raises(AlreadyExists, match="a grant of roof"):
        master.ask(KeepGrant(caller=ROOT, request_id="", held=evil))
    master.ask(KeepGrant(caller=ROOT, request_id="", held=evil._replace(serial="roof")))
    for rows in ([roof, evil._replace(serial="roof")], [evil._replace(serial="roof"), roof]):
        assert held_of(rows, "roof") == roof


def test_another_organisation_under_an_old_word_does_not_inherit_its_hours(
    masters: Masters,
) -> None:
    master = a_master(masters)
    first = make(master)
    master.ask(RevokeGrant(caller=ROOT, request_id="r1", serial="aa01", reason="over"))
    master.clock.advance(9 * DAY_S)
    assert make(master, serial="aa02").since_day == first.since_day
    master.ask(RevokeGrant(caller=ROOT, request_id="r2", serial="aa02", reason="over"))
    assert make(master, serial="aa03", ca="PEM of another").since_day == first.since_day + 9
