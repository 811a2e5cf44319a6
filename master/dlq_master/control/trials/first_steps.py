"""Jobs that hang before their second step: they have no pace yet (`[first_step]`).

Only a job is judged that is known to tell steps. It has told one, or its family did, or it says how
many it has. Its time counts from the instant at which all its ranks ran. So a wait, the pull of
an image and a launch are no part of it. It has as long as its family shows, or else the window of
the rule (`policy/activity.py`). Two looks in a row must find it late. Between them its node has
reported again.

The time begins anew when this master starts, and when an agent of the job starts. It stands still
while the line is silent, and while the master sleeps. The words are those of other stalls, and the
actions those of rules for idle jobs. Nothing is stored but the events, and how long first steps of
a family took.
"""

from __future__ import annotations

import math

from dlq_common.text.units import approximate_span
from dlq_master.control.attempts import idleness, stalls
from dlq_master.control.attempts.stalls import StartWatch
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import OpenSession, ReportedProgress
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.estimates.first_steps import NO_STEP
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.lease import LeaseKind
from dlq_master.policy.activity import FirstStepRule, StepPace

_AGAIN_S = 15.0  # ranks that have sent so lately are at work
_MISSED = 3.0  # heartbeats: a longer time without a word is a silence


def hear(turn: Turn, word: ReportedProgress) -> None:
    """The first word of an attempt's first rank that this master hears."""
    kept, job_id = turn.state.attempts.stalls, word.key.job_id
    if kept.first is None:
        return
    if kept.starts.pop(job_id, None) is not None:  # of an attempt before it
        kept.forget(job_id)
    kept.starts[job_id] = StartWatch(word.key.number, turn.now_s, turn.now_s)


def heard_again(turn: Turn, start: StartWatch, age_s: float | None) -> None:
    """A further word; `age_s` of a beat without a step, which is a sign of life. A time in which
    its node was silent is no time without a step: the host may have slept.
    """
    now_s = turn.now_s
    silent_s = now_s - start.heard_s
    if silent_s > _MISSED * turn.state.terms.heartbeat_s:
        start.lost_s += silent_s
        start.late = False
    start.heard_s = now_s
    if age_s is not None and now_s - age_s > start.since_s:
        start.since_s, start.lost_s = now_s - age_s, 0.0


def hello(turn: Turn, ask: OpenSession) -> None:
    """Before this agent is known: one that has started begins the time of its jobs anew."""
    before, kept = turn.state.nodes.instances.heard.get(ask.node_id), turn.state.attempts.stalls
    if before is not None and ask.agent is not None and before.process_id == ask.agent.process_id:
        return
    for key in turn.state.cluster.attempts_on(ask.node_id):
        start = kept.starts.get(key.job_id)
        if start is not None and key.job_id not in kept.told:
            start.since_s, start.lost_s = turn.now_s, 0.0
            start.broken, start.late = True, False


def watch(turn: Turn) -> None:
    """Right after the look at steps. A job that is not due costs no call of a function."""
    kept, jobs, now_s = turn.state.attempts.stalls, turn.state.cluster.jobs, turn.now_s
    if kept.first is None or now_s < kept.first_look_s:
        return
    kept.first_look_s = now_s + stalls.LOOK_S
    due = [job_id for job_id, start in kept.starts.items() if start.due_s <= now_s]
    for job_id in due:
        job = jobs.get(job_id)
        key = None if job is None else job.live_key
        attempt = None if key is None else turn.state.cluster.attempts.get(key)
        if job is not None and attempt is not None:
            _judge(turn, kept.first, job, attempt, kept.starts[job_id])
    gone = [one for one in kept.starts if one not in jobs or jobs[one].live_attempt is None]
    for job_id in gone:
        _end(turn, job_id)


# --- helpers, in order of use ---------------------------------------------------------------------


def _judge(turn: Turn, rule: FirstStepRule, job: Job, attempt: Attempt, start: StartWatch) -> None:
    kept, now_s = turn.state.attempts.stalls, turn.now_s
    pace = kept.paces.get(job.job_id)
    if pace is not None and pace.attempt != attempt.key.number:
        pace = None
    if start.attempt != attempt.key.number:  # its first word comes soon
        return
    if _has_stepped(attempt, pace):
        _learn(turn, job, attempt, start, pace)
    if _at_its_end(turn, attempt) or (pace is not None and pace.step_s is not None):
        start.stepped, start.due_s = True, math.inf  # it has no further step, or a pace
        return
    start.due_s = now_s + stalls.LOOK_S
    if attempt.state is not AttemptState.RUNNING or attempt.stop_cause is not None:
        start.late = False
    elif job.job_id in kept.told:
        _name(turn, attempt, start, pace)
    elif (patience_s := _patience_s(turn, rule, job, start, pace)) is None:
        start.due_s = now_s + rule.window_s / 10.0  # its family may teach more meanwhile
    elif (silent_s := now_s - _since_s(turn, attempt, start, pace)) <= patience_s:
        start.late, start.due_s = False, now_s + max(stalls.LOOK_S, patience_s - silent_s)
    elif start.heard_s <= start.looked_s or not start.late:
        start.late = start.heard_s > start.looked_s  # the next report decides
    else:
        _tell(turn, rule, job, attempt, _words(turn, rule, job, pace, silent_s))
    start.looked_s = now_s


def _has_stepped(attempt: Attempt, pace: StepPace | None) -> bool:
    """Whether it has made a step, and not only told the one at which it went on."""
    if pace is None:
        return False
    before = attempt.resume_from.step if attempt.resume_from is not None else 0
    return pace.step_s is not None or pace.step not in (0, before)


def _learn(
    turn: Turn, job: Job, attempt: Attempt, start: StartWatch, pace: StepPace | None
) -> None:
    """Once for each attempt whose whole start this master has heard, on the GPUs that it asked
    for.
    """
    began_s, awake_s = attempt.started_time_s, turn.state.attempts.stalls.awake_s
    if start.learned or pace is None:
        return
    start.learned, start.lost_s = True, 0.0
    if began_s is None or start.broken or attempt.lease.kind is LeaseKind.PROFILE:
        return
    if attempt.resized_time_s is None and began_s >= max(turn.state.started_s, awake_s):
        start.took_s = max(0.0, pace.since_s - began_s)
        turn.state.cluster.first_steps.learn(job.family, start.took_s)


def _at_its_end(turn: Turn, attempt: Attempt) -> bool:
    beat = turn.state.jobs.beats.get(attempt.key.job_id)
    if beat is None or beat.total is None or beat.time_s < attempt.assigned_time_s:
        return False
    return (beat.step or 0) >= beat.total


def _patience_s(
    turn: Turn, rule: FirstStepRule, job: Job, start: StartWatch, pace: StepPace | None
) -> float | None:
    """How long it may need; None: it may need forever, as far as is known."""
    worker = idleness.worker_of(job, turn.state.config.interactive.queue)
    known = turn.state.cluster.first_steps
    tells = known.tells_steps(job.family)
    declared = job.step_count is not None and tells is None
    if job.check or not rule.covers(worker) or not (pace is not None or tells or declared):
        return None
    patience_s = rule.patience_s(rule.window_of(worker), *known.longest_s(job.family))
    return max(start.took_s, patience_s)


def _since_s(turn: Turn, attempt: Attempt, start: StartWatch, pace: StepPace | None) -> float:
    """Since when there is no step. Ranks whose traffic is recorded, and goes on, are at work."""
    sending = turn.state.attempts.stalls.sending.get(attempt.key)
    if sending is not None and sending.last:
        newest_s = max(sent_s for _, sent_s in sending.last.values())
        if sending.is_fresh(turn.now_s) and turn.now_s - newest_s < _AGAIN_S:
            start.since_s, start.lost_s = turn.now_s, 0.0
    began_s, since_s = attempt.started_time_s, start.since_s
    if began_s is not None and began_s >= turn.state.started_s:  # by this master's clock
        since_s = max(since_s, began_s)
    return start.lost_s + (since_s if pace is None else max(since_s, pace.since_s))


def _words(
    turn: Turn, rule: FirstStepRule, job: Job, pace: StepPace | None, silent_s: float
) -> str:
    longest_s, enough = turn.state.cluster.first_steps.longest_s(job.family)
    window_s = rule.window_of(idleness.worker_of(job, turn.state.config.interactive.queue))
    silent = approximate_span(silent_s)
    told = f"no step for {silent} after its start"
    if pace is not None:
        told = f"no step for {silent} after step {pace.step}, the first that it told"
    if not enough and rule.patience_s(window_s, longest_s, enough) <= window_s:
        return f"{told}, where {rule.section} allows {approximate_span(window_s)}"
    return f"{told}, where first steps of its family took at most {stalls.span(longest_s)}"


def _tell(turn: Turn, rule: FirstStepRule, job: Job, attempt: Attempt, words: str) -> None:
    kept = turn.state.attempts.stalls
    start, pace = kept.starts[job.job_id], kept.paces.get(job.job_id)
    decided = idleness.decided(turn, rule, job, attempt)
    if not decided.told:
        kept.only_seen.add(job.job_id)
    found = stalls.behind_of(turn, attempt, _steps(turn, attempt, pace))
    start.unnamed = found is None and len(attempt.ranks) > 1
    start.words = words
    facts = {"action": decided.action.value, "dry_run": rule.dry_run}
    stalls.note(turn, attempt, words, found, step=None if pace is None else pace.step,
                ending=decided.ending, **facts)  # fmt: skip
    idleness.carry_out(turn, job, attempt, decided, words)


def _name(turn: Turn, attempt: Attempt, start: StartWatch, pace: StepPace | None) -> None:
    """Reports on CPU time may come later, and show the rank."""
    if not start.unnamed:
        return
    found = stalls.behind_of(turn, attempt, _steps(turn, attempt, pace))
    if found is not None:
        start.unnamed = False
        step = None if pace is None else pace.step
        stalls.note(turn, attempt, start.words, found, step=step)


def _steps(turn: Turn, attempt: Attempt, pace: StepPace | None) -> dict[int, int]:
    """The steps of the ranks. A single one that has told none, where all others did, is at 0. Of
    others nothing is known: often only the first rank of a job tells its steps.
    """
    told = dict(turn.state.attempts.stalls.steps.get(attempt.key.job_id, {}))
    if pace is not None:
        told[0] = pace.step
    missing = [rank for rank in range(len(attempt.ranks)) if rank not in told]
    if len(missing) == 1 and (missing[0] == 0 or len(told) > 1):
        told[missing[0]] = 0
    return told


def _end(turn: Turn, job_id: JobId) -> None:
    """It runs no more. One that completed without a step teaches that its family tells none."""
    start = turn.state.attempts.stalls.starts.pop(job_id)
    turn.state.attempts.stalls.forget(job_id)
    job, known = turn.state.cluster.jobs.get(job_id), turn.state.cluster.first_steps
    if job is None or job.state is not JobState.COMPLETED or start.stepped:
        return
    expected = job.step_count is not None or known.tells_steps(job.family)
    if expected and start.heard_s - start.since_s > stalls.LOOK_S:
        known.learn(job.family, NO_STEP)
