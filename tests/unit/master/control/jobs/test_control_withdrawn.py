"""A submission whose answer is lost: its job is named, or nothing will ever come of it."""

from collections.abc import Callable

import pytest

from dlq_common.errors import AlreadyExists, DlqError
from dlq_master.control.stimuli import Caller, CancelJob, SubmitMany, WithdrawSubmission
from support.master_harness import ALICE, Master

Masters = Callable[..., Master]
BOB = Caller("bob", "user")


def withdrawn(master: Master, request_id: str = "r", caller: Caller = ALICE) -> object:
    return master.ask(WithdrawSubmission(caller=caller, request_id=request_id))


def test_an_accepted_submission_is_told_and_stays(masters: Masters) -> None:
    master = masters()
    job_id = master.ask(master.submission(request_id="r")).job.job_id
    assert withdrawn(master) == job_id
    assert not master.state.cluster.jobs[job_id].ended
    assert master.ask(master.submission(request_id="r")).job.job_id == job_id


def test_a_submission_that_comes_after_its_withdrawal_is_refused_also_after_a_restart(
    masters: Masters,
) -> None:
    master = masters()
    assert withdrawn(master) is None
    master.restart()
    with pytest.raises(AlreadyExists, match="withdrawn before its job came"):
        master.ask(master.submission(request_id="r"))
    late = SubmitMany(
        caller=ALICE, request_id="many", asks=(master.submission(request_id="r"),) * 2
    )
    assert all(isinstance(answer, DlqError) for answer in master.ask(late))
    assert withdrawn(master) is None
    assert not master.state.cluster.jobs


def test_what_comes_first_in_a_turn_holds(masters: Masters) -> None:
    master = masters()
    ask, withdrawal = master.submission(request_id="r"), WithdrawSubmission
    first, second = master.turn(ask, withdrawal(caller=ALICE, request_id="r"))
    assert second == first.job.job_id
    answers = master.turn(
        withdrawal(caller=ALICE, request_id="s"), master.submission(request_id="s")
    )
    assert answers[0] is None
    assert isinstance(answers[1], AlreadyExists)


def test_a_cancel_is_proven_likewise(masters: Masters) -> None:
    master = masters()
    job_id = master.ask(master.submission(request_id="r")).job.job_id
    assert withdrawn(master, "late") is None
    with pytest.raises(AlreadyExists):
        master.ask(CancelJob(caller=ALICE, request_id="late", job_id=job_id, kill=False))
    assert not master.state.cluster.jobs[job_id].ended
    master.ask(CancelJob(caller=ALICE, request_id="c", job_id=job_id, kill=False))
    assert withdrawn(master, "c") == job_id


def test_ids_of_others_are_let_alone(masters: Masters) -> None:
    master = masters()
    job_id = master.ask(master.submission(request_id="r")).job.job_id
    assert withdrawn(master, caller=BOB) is None
    assert withdrawn(master) == job_id
