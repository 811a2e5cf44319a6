"""How long jobs run of which nobody said it: from their own steps, or what their traffic shows.

Every job that runs without an estimate is watched: once a second with up to 500 attempts,
and in turns beyond that. `policy.trial.judge` says what is known of it, and when. A trial on fewer
GPUs than its job asks for is then ended, and never completes the job. The result of a trial is on
disk with its stop, and an estimate with its job. The steps that lead to it are not. Faults:

- an agent restarts, or the line is silent: the steps go on being counted when it is back; a trial
whose
  hold ends is lost;
- the master restarts: running jobs are watched anew, from their next report on;
- a node is lost: the trial is made again, once; after that its job goes on without an estimate.
"""

from __future__ import annotations

from typing import Final

from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli.nodes import Beat
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.attempts.attempt_steps import StopRequested
from dlq_master.model.attempts.gang import is_reduced
from dlq_master.model.estimates.estimate import Source
from dlq_master.model.jobs import job_steps as on_job
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.likeness import likeness
from dlq_master.model.transitions import StopCause
from dlq_master.policy.trial.judge import STEADY_S, TrialTold, WatchedTrial, judged, steady
from dlq_master.policy.trial.rules import PROFILE_S
from dlq_master.policy.trial.steps import MANY, NO_STEPS, Track, followed, pace

AT_ONCE: Final = 500  # attempts that are looked at in one turn


def watch(turn: Turn) -> None:
    """Once a second: all attempts, or a bounded number of them, in turn."""
    attempts, trials = list(turn.state.cluster.attempts.values()), turn.state.trials
    if len(attempts) > AT_ONCE:
        first = trials.next_look % len(attempts)
        trials.next_look = first + AT_ONCE
        attempts = (attempts[first : first + AT_ONCE] + attempts[:first])[:AT_ONCE]
    for attempt in attempts:
        _watch(turn, attempt)


# --- helpers, in order of use ---------------------------------------------------------------------


def _watch(turn: Turn, attempt: Attempt) -> None:
    state = turn.state
    job = state.cluster.jobs[attempt.key.job_id]
    if state.cluster.speeds.declared and job.family:
        _learn_pace(turn, job, attempt)
    known = job.duration_estimate_s is not None
    if known and (job.basis.source is not Source.HISTORY or job.timed):  # a call less, mostly
        return
    if job.ended:
        return
    if attempt.state is not AttemptState.RUNNING or attempt.stop_cause is not None:
        return
    beat, reduced = state.jobs.beats.get(job.job_id), is_reduced(attempt, job)
    awaited = reduced or _may_tell(job, beat, state.policy.profile_s)
    if beat is None and not awaited:
        return
    if not reduced and attempt.lease.allocation.width != job.request.gpus:
        return
    if awaited:
        _look(turn, job, attempt, reduced=reduced)
    else:
        _track(turn, attempt)


def _learn_pace(turn: Turn, job: Job, attempt: Attempt) -> None:
    """The seconds of its steps on the type of its GPUs, once it has told enough of them. They say
    how types differ for its program, so all jobs with a family tell them."""
    cluster, key = turn.state.cluster, attempt.key
    if attempt.state is not AttemptState.RUNNING or attempt.stop_cause is not None or job.ended:
        return
    types = [*cluster.capacity.parts(attempt.lease.allocation)]
    if len(types) != 1 or attempt.lease.allocation.width != job.request.gpus:
        return
    paced = turn.state.trials.paced
    if paced.get(key.job_id) == types[0]:
        return
    if cluster.profiling.paces.knows(likeness(job), types[0], key.job_id):
        paced[key.job_id] = types[0]
        return
    track = None if key.job_id not in turn.state.jobs.beats else _track(turn, attempt)
    if track is None or track.attempt != key.number:
        return
    found = pace(track._replace(before=NO_STEPS))  # its earlier attempts may have had another type
    if found is not None and found.steps >= MANY and steady(found):
        cluster.profiling.learn_pace(job, types[0], found.step_s)
        paced[key.job_id] = types[0]


def _may_tell(job: Job, beat: Beat | None, profile_s: float | None) -> bool:
    """Whether a run can tell something about its job: somebody measures it, or it says how many
    steps there are.
    """
    if profile_s is not None or job.trials or job.step_count is not None:
        return True
    return bool(job.steps) and beat is not None and beat.total is not None


def _look(turn: Turn, job: Job, attempt: Attempt, *, reduced: bool) -> None:
    profile_s = turn.state.policy.profile_s
    told = judged(_watched(turn, job, attempt, profile_s))
    if told is None:
        return
    if reduced:
        _end(turn, attempt, told)
    elif told.work_s is not None:
        turn.state.trials.tracks.pop(job.job_id, None)
        event = on_job.Estimated(estimate_s=told.work_s, basis=told.basis)
        turn.step_job(job.job_id, event, actor="master", cause=told.words)
    elif _is_news(job, told, profile_s):
        left = on_job.LeftUnmeasured(basis=told.basis)
        turn.step_job(job.job_id, left, actor="master")


def _is_news(job: Job, told: TrialTold, profile_s: float | None) -> bool:
    """Where nobody is measured, nobody has to hear that."""
    awaited = profile_s is not None or bool(job.trials) or job.step_count is not None
    return awaited and job.basis.unmeasured is not told.basis.unmeasured


def _watched(turn: Turn, job: Job, attempt: Attempt, profile_s: float | None) -> WatchedTrial:
    """Where nobody is measured a job may still say how many steps there are, and is then known
    early.
    """
    state = turn.state
    beat = state.jobs.beats.get(job.job_id)
    track = _track(turn, attempt)
    total = job.step_count
    if total is None and beat is not None and (profile_s is not None or job.steps):
        total = beat.total
    recording = state.trials.traffic.get(attempt.key)
    found = None if recording is None else recording.found
    began_s = attempt.started_time_s or attempt.assigned_time_s
    fallback_s = PROFILE_S if job.trials or is_reduced(attempt, job) else STEADY_S
    return WatchedTrial(
        job=job,
        attempt=attempt,
        track=track,
        now_s=turn.now_s,
        since_s=max(began_s, state.started_s),
        profile_s=fallback_s if profile_s is None else profile_s,
        total=total,
        iteration_s=found.period_s if found is not None and found.timed else None,
    )


def _track(turn: Turn, attempt: Attempt) -> Track | None:
    """The results of this attempt by now; None: nothing."""
    state, (job_id, number) = turn.state, attempt.key
    beat, known = state.jobs.beats.get(job_id), state.trials.tracks.get(job_id)
    if beat is None or beat.time_s < (attempt.started_time_s or 0.0):  # it is of an earlier attempt
        return known if known is not None and known.attempt == number else None
    gpus = attempt.lease.allocation.width
    track = followed(known, number, gpus, beat.step, beat.time_s)
    state.trials.tracks[job_id] = track
    return track


def _end(turn: Turn, attempt: Attempt, told: TrialTold) -> None:
    """The trial is over: there is nothing in it to save."""
    turn.state.trials.tracks.pop(attempt.key.job_id, None)
    known = told.work_s is not None
    stop = StopRequested(
        cause=StopCause.TRIAL,
        grace_s=0.0,
        measured_s=told.work_s,
        unmeasured=None if known else told.basis,
    )
    turn.step_attempt(attempt.key, stop, actor="master", cause=told.words or "trial")
