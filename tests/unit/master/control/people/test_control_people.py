"""What users do, in every state, once and again."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import (
    AlreadyExists,
    Conflict,
    DlqError,
    IllegalTransition,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    TryAgain,
    Unsatisfiable,
)
from dlq_master.control.config import JobsConfig
from dlq_master.control.stimuli import (
    Caller,
    CancelJob,
    DeleteUser,
    HoldJob,
    PauseJob,
    ReleaseJob,
    ResumeJob,
    RevokeCertificates,
    SetUser,
    SubmitJob,
)
from dlq_master.model.attempts.grace import grace_s
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import HoldKind, JobState
from dlq_master.store.tables.revocations import USER, subject_of
from support.extent import spread
from support.master_harness import ALICE, ROOT, Master, config_of
from support.sim_agent import SimAgent

BOB = Caller("bob", "user")
Edit = type[CancelJob | HoldJob | ReleaseJob | PauseJob | ResumeJob]
EDITS: tuple[Edit, ...] = (CancelJob, HoldJob, ReleaseJob, PauseJob, ResumeJob)


def test_the_same_request_again_is_the_same_job_also_after_a_restart(master: Master) -> None:
    first = master.submit(request_id="r1")
    again = master.submit(request_id="r1")
    master.restart()
    after = master.submit(request_id="r1")

    assert first.job_id == again.job_id == after.job_id
    assert len(master.state.cluster.jobs) == 1


def test_the_same_request_twice_in_one_turn_is_one_job(master: Master) -> None:
    one, two = master.turn(master.submission(request_id="r1"), master.submission(request_id="r1"))

    assert one.job.job_id == two.job.job_id
    assert len(master.state.cluster.jobs) == 1


@pytest.mark.parametrize(
    ("asked_s", "saves", "expected_s"),
    [(None, (), 200.0), (None, (1.0,), 30.0), (None, (900.0,), 400.0), (500.0, (), 500.0)],
)
def test_the_graces_of_the_configuration_hold_for_every_job_that_asks_for_none(
    masters: Callable[..., Master],
    asked_s: float | None,
    saves: tuple[float, ...],
    expected_s: float,
) -> None:
    limits = JobsConfig(
        first_grace=Seconds(200.0), grace_floor=Seconds(30.0), grace_cap=Seconds(400.0)
    )
    master = masters(replace(config_of(), jobs=limits))
    job = master.submit(grace_s=asked_s)
    assert grace_s(saves, job.rules) == expected_s


def test_a_request_id_of_another_user_is_another_request(master: Master) -> None:
    mine = master.submit(request_id="r1")
    theirs = master.submit(request_id="r1", caller=BOB)

    assert mine.job_id != theirs.job_id


@pytest.mark.parametrize("restart", [False, True])
def test_a_request_id_used_for_something_else_is_refused(master: Master, restart: bool) -> None:
    master.submit(request_id="r1", digest="d1")
    if restart:
        master.restart()

    with pytest.raises(AlreadyExists):
        master.submit(request_id="r1", digest="d2")
    job_id = master.submit().job_id
    with pytest.raises(AlreadyExists):
        master.cancel(job_id, request_id="r1")
    assert master.job(job_id).state is not JobState.CANCELLED


def test_a_repeated_edit_changes_nothing_even_if_the_world_has_moved_on(master: Master) -> None:
    job_id = master.submit().job_id
    master.hold(job_id, request_id="h1")
    master.edit(ReleaseJob, job_id)
    held_again = master.hold(job_id, request_id="h1")

    assert held_again.hold is None


def test_an_edit_of_an_old_version_is_refused_but_its_repeat_is_not(master: Master) -> None:
    job = master.submit()
    version = master.job(job.job_id).version
    master.hold(job.job_id, expected_version=version, request_id="h1")
    master.hold(job.job_id, expected_version=version, request_id="h1")

    with pytest.raises(Conflict):
        master.edit(ReleaseJob, job.job_id, expected_version=version)


def _in_state(master: Master, agent: SimAgent, state: str) -> JobId:
    """A job of alice in any state that users can meet."""
    if state == "waiting":
        master.submit(4)
    job_id = master.submit(4, hold=state == "held").job_id
    key = AttemptKey(job_id, 1)
    if state in ("waiting", "held", "assigned"):
        return job_id
    agent.obey()
    agent.report()
    if state == "preparing":
        return job_id
    agent.start(key)
    agent.report()
    if state == "running":
        return job_id
    if state in ("pausing", "paused", "resumed while pausing"):
        master.edit(PauseJob, job_id)
        agent.obey()
        if state == "resumed while pausing":
            master.edit(ResumeJob, job_id)
        if state == "paused":
            agent.exit(key, 99)
            agent.report()
    elif state == "held while running":
        master.hold(job_id)
    elif state == "unknown":
        master.tick(21.0)
        master.tick(5.0)
        assert master.attempt(job_id).state == "unknown"
    elif state == "cancelled while running":
        master.cancel(job_id)
    else:
        agent.exit(key, 0 if state == "completed" else 1)
        agent.report()
        assert master.job(job_id).state == state
    return job_id


LIVING = (
    "waiting",
    "held",
    "assigned",
    "preparing",
    "running",
    "pausing",
    "paused",
    "resumed while pausing",
    "held while running",
    "unknown",
)
ENDED = ("cancelled while running", "completed", "failed")


@pytest.mark.parametrize(
    ("state", "first", "then"), spread(list(product(LIVING + ENDED, EDITS, EDITS)), 66)
)
def test_any_two_edits_in_any_state_answer_and_leave_a_sound_cluster(
    master: Master, agent: SimAgent, state: str, first: Edit, then: Edit
) -> None:
    job_id = _in_state(master, agent, state)
    for kind in (first, then):
        with suppress(DlqError):  # anything else would have ended the master
            master.edit(kind, job_id)
    master.tick(1.0)
    agent.hello()
    agent.obey()
    for key in agent.living():
        agent.exit(key, 99)
    agent.report()
    agent.obey()

    job = master.job(job_id)
    if CancelJob in (first, then) and state not in ("completed", "failed"):
        assert job.state is JobState.CANCELLED
        assert job.live_attempt is None, "its GPUs are free"


@pytest.mark.parametrize("state", LIVING)
def test_a_cancelled_job_never_starts_again(master: Master, agent: SimAgent, state: str) -> None:
    job_id = _in_state(master, agent, state)
    assert master.cancel(job_id).state is JobState.CANCELLED
    before = master.job(job_id).attempts
    agent.hello()
    agent.obey()
    for key in agent.living():
        agent.exit(key, 99)
    agent.report()
    master.tick(400.0)

    assert master.job(job_id).attempts == before
    assert AttemptKey(job_id, before + 1) not in agent.ranks
    with pytest.raises(IllegalTransition):
        master.edit(ResumeJob, job_id)


def test_cancelling_twice_is_cancelling_once_and_a_kill_reaches_what_still_runs(
    master: Master, agent: SimAgent
) -> None:
    job_id = _in_state(master, agent, "running")
    master.cancel(job_id)
    master.cancel(job_id)
    assert master.attempt(job_id).grace_s != 0.0
    master.cancel(job_id, kill=True)
    agent.obey()

    assert agent.ranks[AttemptKey(job_id, 1)].kill
    assert master.words(job_id).count("job_cancelled") == 1


@pytest.mark.parametrize("state", LIVING)
def test_a_user_hold_never_touches_what_runs_and_keeps_it_from_starting_again(
    master: Master, agent: SimAgent, state: str
) -> None:
    job_id = _in_state(master, agent, state)
    before = master.job(job_id)
    master.hold(job_id)
    after = master.job(job_id)

    assert after.live_attempt == before.live_attempt
    assert after.state is JobState.HELD


def test_an_operators_hold_is_not_the_users_to_release(master: Master, agent: SimAgent) -> None:
    job_id = master.submit(hold=True).job_id
    master.edit(HoldJob, job_id, caller=ROOT, kind=HoldKind.ADMIN)

    with pytest.raises(PermissionDenied):
        master.edit(ReleaseJob, job_id)
    with pytest.raises(PermissionDenied):
        master.edit(HoldJob, job_id, kind=HoldKind.ADMIN)
    assert master.edit(ReleaseJob, job_id, caller=ROOT).live_attempt == 1


@pytest.mark.parametrize("kind", EDITS)
def test_another_users_job_is_as_good_as_none(master: Master, kind: Edit) -> None:
    job_id = master.submit().job_id

    with pytest.raises(NotFound):
        master.edit(kind, job_id, caller=BOB)
    assert master.edit(CancelJob, job_id, caller=ROOT).state is JobState.CANCELLED


def test_a_job_that_no_node_set_could_hold_is_refused_at_once(
    master: Master, agent: SimAgent
) -> None:
    with pytest.raises(Unsatisfiable):
        master.submit(5)
    assert len(master.state.cluster.jobs) == 0


def test_checking_only_leaves_nothing(master: Master, agent: SimAgent) -> None:
    commits = master.store.commits
    master.submit(1, validate_only=True)

    assert master.store.commits == commits
    assert master.submit(1).job_id == 1


def test_a_user_cannot_have_more_jobs_than_allowed(masters: Callable[..., Master]) -> None:
    master = masters(replace(config_of(), jobs=JobsConfig(queued_per_user=2)))
    first, _ = master.submit(), master.submit()
    with pytest.raises(QuotaExceeded):
        master.submit()
    master.submit(caller=BOB)
    master.cancel(first.job_id)
    master.submit()


def test_a_nearly_full_disk_refuses_submissions_but_not_cancels(master: Master) -> None:
    job_id = master.submit().job_id
    master.state.disk_full = True

    with pytest.raises(TryAgain):
        master.submit()
    assert master.cancel(job_id).state is JobState.CANCELLED


def _set_user(name: str, role: str = "user", uid: int = 7) -> SetUser:
    return SetUser(caller=ROOT, request_id="", name=name, role=role, uid=uid, gid=7, groups=())


def _delete_user(name: str) -> DeleteUser:
    return DeleteUser(caller=ROOT, request_id="", name=name)


def test_a_user_who_is_deleted_and_made_again_in_one_turn_exists(master: Master) -> None:
    master.turn(_set_user("carol"))
    master.turn(_delete_user("carol"), _set_user("carol", uid=8))

    assert master.state.people.users["carol"].uid == 8
    master.restart()
    assert master.state.people.users["carol"].uid == 8


def test_a_user_who_is_made_and_deleted_in_one_turn_does_not(master: Master) -> None:
    master.turn(_set_user("carol"), _delete_user("carol"))
    master.restart()

    assert "carol" not in master.state.people.users


def test_the_last_admin_stays(master: Master) -> None:
    with pytest.raises(IllegalTransition):
        master.ask(_delete_user("root"))
    with pytest.raises(IllegalTransition):
        master.ask(_set_user("root", "user", uid=0))


def test_a_refused_stimulus_has_changed_nothing(master: Master, agent: SimAgent) -> None:
    """Every refusal there is: the store is exactly as it was."""
    job_id = master.submit(hold=True).job_id
    master.edit(HoldJob, job_id, caller=ROOT, kind=HoldKind.ADMIN)
    done = master.submit().job_id
    master.cancel(done)
    refused: list[Any] = [
        _submission_to(master, "nowhere"),
        master.submission(99),
        *(kind(caller=BOB, request_id="x", job_id=job_id) for kind in EDITS),
        ReleaseJob(caller=ALICE, request_id="x", job_id=job_id),
        PauseJob(caller=ALICE, request_id="x", job_id=job_id),
        HoldJob(caller=ALICE, request_id="x", job_id=done),
        CancelJob(caller=ALICE, request_id="x", job_id=job_id, expected_version=999),
        _delete_user("root"),
    ]
    commits = master.store.commits
    outcomes = master.turn(*refused)

    assert [type(outcome) for outcome in outcomes if not isinstance(outcome, DlqError)] == []
    assert master.store.commits == commits


def _submission_to(master: Master, queue: str) -> SubmitJob:
    return replace(master.submission(), queue=queue)


def test_who_left_or_changed_roles_changes_the_number_of_the_people(master: Master) -> None:
    def version() -> int:
        return master.loop.published.people_version

    master.turn(_set_user("carol", uid=8), _set_user("dan", uid=9))
    known = version()
    assert known > 0
    master.turn(_set_user("eve", uid=10), _set_user("carol", uid=8))
    assert version() == known, "a new user, and one who stays as before"
    master.turn(_set_user("carol", role="operator", uid=8))
    promoted = version()
    master.turn(_delete_user("dan"))
    removed = version()
    subject = subject_of(USER, "carol")
    master.turn(RevokeCertificates(caller=ROOT, request_id="r", subject=subject, reason="lost"))
    revoked = version()
    master.restart()
    assert len({known, promoted, removed, revoked, version()}) == 5
