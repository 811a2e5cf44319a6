"""Who leaves: nothing of theirs goes to whoever has the name next."""

from typing import Any

import pytest

from dlq_common.errors import DlqError, IllegalTransition, NotFound, Unauthenticated
from dlq_master.control.attempts.dispatch import launch_command
from dlq_master.control.stimuli import (
    CancelJob,
    CheckpointJob,
    DeleteUser,
    HoldJob,
    PauseJob,
    RefreshUser,
    ReleaseJob,
    RequeueJob,
    ResumeJob,
    SetTeam,
    SetUser,
    SignalJob,
    UpdateJob,
    UserDeleted,
)
from dlq_master.control.stimuli.caller import Caller
from dlq_master.model.jobs.job import JobState
from dlq_master.model.jobs.person import belongs
from dlq_master.store.batch import User
from dlq_master.store.tables.codec import decode, encode
from dlq_master.store.tables.tenants import Member, Team
from support.builders import a_job
from support.master_harness import ROOT, Master
from support.sim_agent import SimAgent

EDITS = (CancelJob, HoldJob, ReleaseJob, PauseJob, ResumeJob, RequeueJob, CheckpointJob, UpdateJob)


def _set(name: str, uid: int, **more: Any) -> SetUser:
    return SetUser(
        caller=ROOT, request_id="", name=name, role="user", uid=uid, gid=7, groups=(), **more
    )


def _delete(name: str, **more: Any) -> DeleteUser:
    return DeleteUser(caller=ROOT, request_id="", name=name, **more)


def _who(master: Master, name: str) -> Caller:
    """As the door lets them in now."""
    user = master.state.people.users[name]
    return Caller(name, user.role, user.key, user.created_time_s)


def _made(master: Master, name: str, uid: int) -> Caller:
    master.ask(_set(name, uid))
    return _who(master, name)


def test_a_user_with_jobs_is_removed_only_once_it_is_said_what_becomes_of_them(
    master: Master, agent: SimAgent
) -> None:
    ada = _made(master, "ada", 2001)
    running, waiting = master.submit(4, caller=ada), master.submit(4, caller=ada)
    with pytest.raises(IllegalTransition, match=r"2 jobs live \(1 run, 1 wait or are held\)"):
        master.ask(_delete("ada"))
    assert "ada" in master.state.people.users

    assert master.ask(_delete("ada", cancel_jobs=True)) == UserDeleted(cancelled=2)
    assert master.job(waiting.job_id).state is JobState.CANCELLED
    key = master.job(running.job_id).live_key
    assert key is None or master.state.cluster.attempts[key].stop_cause is not None


def test_what_waits_is_handed_over_and_what_runs_ends(master: Master, agent: SimAgent) -> None:
    ada, bob = _made(master, "ada", 2001), _made(master, "bob", 2002)
    running, waiting = master.submit(4, caller=ada), master.submit(4, caller=ada)
    with pytest.raises(IllegalTransition, match="1 run"):
        master.ask(_delete("ada", give_to="bob"))
    with pytest.raises(NotFound):
        master.ask(_delete("ada", give_to="nobody-here"))
    assert master.job(waiting.job_id).user == "ada"

    done = master.ask(_delete("ada", give_to="bob", cancel_jobs=True))
    assert done == UserDeleted(cancelled=1, given=1)
    given = master.job(waiting.job_id)
    assert (given.user, bob.owns(given), given.ended) == ("bob", True, False)
    assert not bob.owns(master.job(running.job_id))
    master.restart()
    assert master.job(waiting.job_id).user == "bob"
    assert master.cancel(waiting.job_id, caller=bob).state is JobState.CANCELLED


@pytest.mark.parametrize("restart", [False, True])
def test_the_next_one_of_the_name_finds_nothing_of_the_one_before(
    master: Master, agent: SimAgent, restart: bool
) -> None:
    old = _made(master, "ada", 2001)
    job = master.submit(caller=old, request_id="mine")
    master.ask(_delete("ada", cancel_jobs=True))
    new = _made(master, "ada", 2002)
    if restart:
        master.restart()

    assert not new.may_see(master.job(job.job_id))
    for kind in EDITS:
        with pytest.raises(NotFound):
            master.ask(kind(caller=new, request_id="", job_id=job.job_id))
    with pytest.raises(NotFound):
        master.ask(SignalJob(caller=new, request_id="", job_id=job.job_id, signal="TERM"))
    assert master.submit(caller=new, request_id="mine").job_id != job.job_id
    assert ROOT.may_see(master.job(job.job_id))


def test_who_was_removed_while_a_call_was_on_its_way_is_refused(master: Master) -> None:
    old = _made(master, "ada", 2001)
    submission = master.submission(caller=old)
    outcomes = master.turn(_delete("ada"), _set("ada", 2002), submission)
    assert isinstance(outcomes[2], Unauthenticated)
    assert not master.state.cluster.jobs


def test_a_job_of_somebody_who_left_is_never_sent_with_the_uid_of_the_next(
    master: Master, agent: SimAgent
) -> None:
    old = _made(master, "ada", 2001)
    job = master.submit(caller=old)
    key = master.job(job.job_id).live_key
    assert key is not None
    attempt = master.state.cluster.attempts[key]
    launched = launch_command(master.state, master.store, attempt, 0, master.clock.now_s())
    assert launched.uid == 2001
    master.ask(_delete("ada", cancel_jobs=True))
    master.ask(_set("ada", 2002))
    launched = launch_command(master.state, master.store, attempt, 0, master.clock.now_s())
    assert launched.uid == -1


def test_groups_at_a_launch_are_those_of_the_account_now(master: Master, agent: SimAgent) -> None:
    ada = _made(master, "ada", 2001)
    master.ask(RefreshUser(name="ada", uid=2001, gid=7, groups=(40, 41)))
    job = master.submit(caller=ada)
    key = master.job(job.job_id).live_key
    assert key is not None
    master.ask(RefreshUser(name="ada", uid=2001, gid=7, groups=(41,)))
    master.ask(RefreshUser(name="ada", uid=9999, gid=7, groups=(40,)))  # not hers any more
    attempt = master.state.cluster.attempts[key]
    sent = launch_command(master.state, master.store, attempt, 0, master.clock.now_s())
    assert (sent.uid, sent.groups) == (2001, (41,))


def test_another_uid_is_another_person_unless_it_is_said(master: Master) -> None:
    old = _made(master, "ada", 2001)
    job = master.submit(caller=old, hold=True)
    with pytest.raises(IllegalTransition, match="somebody else"):
        master.ask(_set("ada", 2002))
    master.ask(_set("ada", 2002, same_person=True))
    assert _who(master, "ada").owns(master.job(job.job_id))
    master.cancel(job.job_id, caller=_who(master, "ada"))
    master.clock.advance(5.0)
    master.ask(_set("ada", 2003))
    new = _who(master, "ada")
    assert not new.owns(master.job(job.job_id))
    assert new.since_s > old.since_s, "older certificates are worthless"


def test_the_next_one_of_the_name_is_in_no_team(master: Master) -> None:
    _made(master, "ada", 2001)
    team = Team("vision", 0.0, members=(Member("ada"), Member("alice")), version=0)
    master.ask(SetTeam(caller=ROOT, request_id="", team=team))
    master.ask(_delete("ada"))
    assert [one.user for one in master.state.people.teams["vision"].members] == ["alice"]
    master.restart()
    assert [one.user for one in master.state.people.teams["vision"].members] == ["alice"]


def test_a_job_that_was_stored_without_a_person_is_that_of_the_row_of_its_time() -> None:
    stored = decode(encode(a_job(1)), type(a_job(1)))
    assert stored.person == ""
    at_s = stored.submit_time_s
    assert belongs(stored, stored.user, stored.user, at_s - 1.0)
    assert not belongs(stored, stored.user, f"{stored.user}#9", at_s + 1.0)
    assert not belongs(stored, "somebody", "somebody", at_s - 1.0)
    assert User("ada", "user", 1, 1, (), 0.0).key == "ada", (
        "a row from before is its own first person"
    )


def test_a_removal_that_is_repeated_is_answered_as_the_first(master: Master) -> None:
    ada = _made(master, "ada", 2001)
    master.submit(caller=ada, hold=True)
    ask = DeleteUser(caller=ROOT, request_id="r", name="ada", cancel_jobs=True)
    first = master.ask(ask)
    master.restart()
    assert master.ask(ask) == first == UserDeleted(cancelled=1)


def test_who_has_jobs_given_that_live_may_leave_too(master: Master) -> None:
    _, bob = _made(master, "ada", 2001), _made(master, "bob", 2002)
    given = master.submit(caller=_who(master, "ada"), hold=True)
    master.ask(_delete("ada", give_to="bob"))
    outcome = master.turn(_delete("bob"))[0]
    assert isinstance(outcome, DlqError)
    assert bob.owns(master.job(given.job_id))
