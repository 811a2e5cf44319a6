"""Ranks make an attempt: when it runs, when it must stop, how it ended."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from dlq_master.model.attempts import attempt_steps as on
from dlq_master.model.attempts import exit_zero, gang
from dlq_master.model.attempts.attempt import Attempt, AttemptState, RankPhase, RankStatus
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.job import (
    Checkpoint,
    EndReason,
    ExitZeroInGrace,
    Job,
    JobState,
    RunRules,
)
from dlq_master.model.transitions import StopCause
from support.builders import a_waiting_job, an_attempt

GONE = RankPhase.EXITED


def rank(number: int, phase: RankPhase = GONE, **fields: object) -> RankStatus:
    base = RankStatus(NodeId(f"n{number + 1}"), phase)
    return base._replace(**fields)  # type: ignore[arg-type]  # a builder takes any field


def a_gang(state: AttemptState = AttemptState.RUNNING, **fields: object) -> Attempt:
    started = None if state is AttemptState.ASSIGNED else 10.0
    known = {"started_time_s": started, **fields}
    return an_attempt(slots=[("n1", 0b11), ("n2", 0b11)], state=state)._replace(**known)  # type: ignore[arg-type]


def told(attempt: Attempt, *reports: tuple[int, RankStatus]) -> Attempt:
    for number, status in reports:
        attempt = gang.heard(attempt, number, status)
    return attempt


class Judged(NamedTuple):
    """How an attempt ends at second 100, and what that is for its job."""

    attempt: on.AttemptEvent
    usage: job_steps.Usage
    job: job_steps.JobEvent | None


def judged(attempt: Attempt, job: Job | None = None, **rules: object) -> Judged:
    if job is None:
        job = a_waiting_job(1, 4, rules=RunRules()._replace(**rules))  # type: ignore[arg-type]
    end = gang.verdict(attempt, job.rules)
    used = gang.usage(attempt, end, job, 100.0)
    return Judged(end, used, gang.consequence(attempt, end, job, used))


def test_a_gang_runs_when_all_its_ranks_run() -> None:
    attempt = told(a_gang(AttemptState.ASSIGNED), (0, rank(0, RankPhase.RUNNING)))
    assert gang.progress(attempt) == on.Starting()
    attempt = told(attempt, (1, rank(1, RankPhase.RUNNING)))
    assert gang.progress(attempt) == on.Running()


def test_a_report_from_the_past_changes_nothing() -> None:
    attempt = told(a_gang(), (0, rank(0, RankPhase.RUNNING)))
    assert told(attempt, (0, rank(0, RankPhase.PREPARING))) is attempt
    over = told(attempt, (0, rank(0, exit_code=0)))
    assert told(over, (0, rank(0, exit_code=3))) is over


def test_when_one_rank_fails_the_others_must_stop_and_the_first_is_named() -> None:
    attempt = told(a_gang(), (1, rank(1, exit_code=7)))
    assert gang.must_stop(attempt)
    assert not gang.over(attempt)
    attempt = told(attempt, (0, rank(0, signal=9)))
    assert gang.over(attempt)
    assert attempt.first_failed_rank == 1
    verdict = judged(attempt)
    assert verdict.attempt == on.Failed(reason=EndReason.USER_ERROR, exit_code=7)
    assert isinstance(verdict.job, job_steps.Failed)


def test_all_zero_is_success() -> None:
    attempt = told(a_gang(), (0, rank(0, exit_code=0)), (1, rank(1, exit_code=0)))
    verdict = judged(attempt)
    assert verdict.attempt == on.Succeeded()
    assert verdict.usage == job_steps.Usage(360.0, 90.0, lost_gpu_s=0.0, worked_s=90.0)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"exit_code": 99}, EndReason.REQUEUE_EXIT),
        ({"exit_code": 137, "oom_killed": True}, EndReason.OOM_HOST),
        ({"exit_code": 1, "gpu_oom": True}, EndReason.OOM_GPU),
        ({"signal": 11}, EndReason.SIGNAL),
        ({"exit_code": 2}, EndReason.USER_ERROR),
    ],
)
def test_a_failure_has_its_reason(status: dict[str, object], expected: EndReason) -> None:
    failed = rank(0)._replace(**status)  # type: ignore[arg-type]  # of the table above
    attempt = told(a_gang(), (0, failed), (1, rank(1, exit_code=0)))
    end = judged(attempt).attempt
    assert isinstance(end, on.Failed)
    assert end.reason is expected


def leaving(*statuses: RankStatus, cause: StopCause = StopCause.PREEMPT) -> Attempt:
    attempt = a_gang(AttemptState.PAUSING, stop_cause=cause, notice_time_s=50.0)
    return told(attempt, *enumerate(statuses))


def test_only_a_save_after_the_notice_or_an_agreed_code_proves_that_work_is_kept() -> None:
    nothing = judged(leaving(rank(0, exit_code=1), rank(1, exit_code=1)))
    assert nothing.attempt == on.PreemptedLost(exit_code=1)
    assert nothing.usage.lost_gpu_s == 360.0
    saved = judged(leaving(rank(0, exit_code=1, saved=True), rank(1, exit_code=1)))
    assert saved.attempt == on.Preempted(exit_code=1)
    agreed = judged(leaving(rank(0, exit_code=99), rank(1, exit_code=1)))
    assert isinstance(agreed.attempt, on.Preempted)


@pytest.mark.parametrize("first", [rank(0, signal=9), rank(0, exit_code=1)])
def test_a_code_of_those_that_only_left_proves_no_save_of_rank_0(first: RankStatus) -> None:
    killed = judged(leaving(first, rank(1, exit_code=99), cause=StopCause.RECLAIM))
    assert isinstance(killed.attempt, on.PreemptedLost)
    assert (killed.usage.lost_gpu_s, killed.usage.worked_s) == (360.0, 0.0)
    by_rank_1 = judged(leaving(rank(0, exit_code=0), rank(1, exit_code=99)))
    assert isinstance(by_rank_1.attempt, on.Preempted)


@pytest.mark.parametrize("end", [on.Cancelled(), on.TimedOut()])
def test_nothing_is_lost_of_what_nobody_does_again(end: on.AttemptEvent) -> None:
    """As in the books of GPU-hours (model/usage/accounting.py), so that a report of preemptions
    adds up to them.
    """
    attempt = leaving(rank(0, signal=15), rank(1, signal=15))
    used = gang.usage(attempt, end, a_waiting_job(1, 4), 100.0)
    assert (used.gpu_s, used.lost_gpu_s, used.worked_s) == (360.0, 0.0, 0.0)


def test_what_an_earlier_checkpoint_holds_is_not_lost() -> None:
    attempt = leaving(rank(0, exit_code=1), rank(1, exit_code=1))
    attempt = attempt._replace(checkpoint=Checkpoint("/c", 3, 40.0, 1))
    assert judged(attempt).usage.lost_gpu_s == 240.0


def test_exit_zero_in_the_grace_is_another_run_unless_the_job_says_otherwise() -> None:
    attempt = leaving(rank(0, exit_code=0), rank(1, exit_code=0))
    assert isinstance(judged(attempt).job, job_steps.Requeued)
    done = judged(attempt, exit0_in_grace=ExitZeroInGrace.COMPLETED)
    assert isinstance(done.job, job_steps.Completed)
    marked = leaving(rank(0, exit_code=0, done_file=True), rank(1, exit_code=0))
    assert isinstance(judged(marked).job, job_steps.Completed)
    again = judged(marked, exit0_in_grace=ExitZeroInGrace.REQUEUE)
    assert isinstance(again.job, job_steps.Completed), "the program knows best"


@pytest.mark.parametrize(
    ("seen", "done"),
    [
        ((False, False), True),
        ((True, False), False),
        ((None, False), False),
        ((None, None), False),
    ],
)
def test_who_would_have_died_of_the_signal_has_finished(
    seen: tuple[bool | None, bool | None], done: bool
) -> None:
    ranks = [rank(number, exit_code=0, catches=it) for number, it in enumerate(seen)]
    kind = job_steps.Completed if done else job_steps.Requeued
    assert isinstance(judged(leaving(*ranks)).job, kind)
    declared = judged(leaving(*ranks), exit0_in_grace=ExitZeroInGrace.REQUEUE)
    assert isinstance(declared.job, job_steps.Requeued)


@pytest.mark.parametrize("stopped", [True, False])
def test_a_declared_exit_code_means_finished_at_any_time(stopped: bool) -> None:
    ranks = (rank(0, exit_code=85), rank(1, signal=9))
    attempt = leaving(*ranks) if stopped else told(a_gang(), (0, ranks[0]), (1, ranks[1]))
    done = judged(attempt, done_exit_codes=frozenset({85}))
    assert isinstance(done.job, job_steps.Completed)
    assert not isinstance(judged(attempt).job, job_steps.Completed)


def test_the_user_is_told_what_exit_zero_was_taken_for_and_why() -> None:
    plain = leaving(rank(0, exit_code=0), rank(1, exit_code=0))
    words = exit_zero.words(plain, RunRules())
    assert words.startswith("exit 0 while it was told to leave (")
    assert words.endswith("it runs again; nothing says that it had finished")
    marked = leaving(rank(0, exit_code=0, done_file=True), rank(1, exit_code=0))
    assert "counted as finished; it said" in exit_zero.words(marked, RunRules())
    assert exit_zero.words(leaving(rank(0, exit_code=1), rank(1, exit_code=0)), RunRules()) == ""
    assert exit_zero.words(a_gang(), RunRules()) == ""


def test_a_cancel_and_a_time_limit_decide_how_it_ended() -> None:
    limit = leaving(rank(0, signal=15), rank(1, signal=15), cause=StopCause.TIME_LIMIT)
    assert judged(limit).attempt == on.TimedOut()
    cancel = leaving(rank(0, signal=15), rank(1, signal=15), cause=StopCause.CANCEL)
    ended = a_waiting_job(end_time_s=60.0, state=JobState.CANCELLED)
    verdict = judged(cancel, ended)
    assert (verdict.attempt, verdict.job) == (on.Cancelled(), None)


def test_a_lost_rank_is_not_the_jobs_fault_until_it_happens_again_and_again() -> None:
    attempt = told(a_gang(), (0, rank(0, lost=True)), (1, rank(1, signal=9)))
    assert judged(attempt).attempt == on.NodeLost()
    fresh = judged(attempt, a_waiting_job()).job
    assert fresh == job_steps.Requeued(
        reason=EndReason.NODE_LOST,
        usage=job_steps.Usage(360.0, 90.0, 360.0),
        failed_nodes=(NodeId("n1"),),
    )
    third = judged(attempt, a_waiting_job(infra_failures=2)).job
    assert isinstance(third, job_steps.Poisoned)


@pytest.mark.parametrize(
    ("code", "counters", "runs_again"),
    [
        (99, {"requeues": 9}, True),
        (99, {"requeues": 10}, False),
        (1, {}, False),
        (1, {"rules": RunRules(max_restarts=1)}, True),
        (1, {"rules": RunRules(max_restarts=1), "restarts": 1}, False),
    ],
)
def test_retries_are_counted_by_kind(
    code: int, counters: dict[str, object], runs_again: bool
) -> None:
    attempt = told(a_gang(), (0, rank(0, exit_code=code)), (1, rank(1, exit_code=0)))
    event = judged(attempt, a_waiting_job()._replace(**counters)).job  # type: ignore[arg-type]
    assert isinstance(event, job_steps.Requeued) is runs_again
    assert isinstance(event, job_steps.Failed) is not runs_again
