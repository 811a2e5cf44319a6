"""Other deadlines for a job that is there: judged at once if it holds a promise, else as a new
job's are.

A job with a promise gets another one or keeps its own. The request carries the answer, which the
loop works out in the time of an admission, and which is on disk with it. Anybody else is judged
anew, and told by an event. A restart of the master keeps either; an agent's, or silence, changes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlq_common.errors import IllegalTransition, InvalidRequest
from dlq_common.text.instants import format_instant
from dlq_master.control.loop.turn import Turn
from dlq_master.control.placement import execution
from dlq_master.control.placement.execution import look
from dlq_master.control.stimuli import SAME, AskedDeadline, UpdateJob
from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.naming import shown_id
from dlq_master.model.jobs.reward import Steps, soft
from dlq_master.model.plan import Plan, Reserve
from dlq_master.model.words.promise_words import no_promise

TO_COME = "write an instant to come, or a time from now such as 8h"


def wanted(turn: Turn, ask: UpdateJob, job: Job, after: Job) -> Job:
    """The job with the deadlines, and the wish for a late end, that are asked for. InvalidRequest
    names what is wrong with them."""
    if ask.deadlines is not SAME:
        steps = steps_of(turn, ask.deadlines, job.submit_time_s, field="deadlines")
        after = after._replace(steps=steps)
    late = job.rules.cancel_late if ask.on_miss is SAME else ask.on_miss == "cancel"
    if ask.on_miss is not SAME and not after.steps:
        raise InvalidRequest("on_miss means something only with a deadline", field="on_miss")
    return after._replace(rules=after.rules._replace(cancel_late=late and bool(after.steps)))


def decided(turn: Turn, job: Job, after: Job) -> tuple[Reserve, ...]:
    """The promises with other deadlines, to the job and to the jobs that make room.
    IllegalTransition where nothing is, and its promise stands.
    """
    rules = turn.state.policy.promises
    if after.steps == job.steps or not after.steps or job.promised is None or rules is None:
        return ()
    from dlq_master.policy.admit.amend import amended

    found = amended(look(turn), job, after.steps, rules)
    if found.changes:
        return found.changes
    instead = found.instead
    earliest_s = None if instead is None else instead.earliest_s
    hint = "" if earliest_s is None else f"{format_instant(earliest_s)} could be promised"
    raise IllegalTransition(
        f"job {shown_id(job)} keeps the promise that it has: {no_promise(found.by.value, instead)}",
        hint=hint,
        state=job.state.value,
    )


def cleared(job: Job, after: Job) -> Job:
    """Without what was decided about other deadlines."""
    if after.steps == job.steps:
        return after
    band = Band.SPOT if job.band in (Band.SLO, Band.FILL) else job.band
    gone = after._replace(
        promised=None, slots=(), verdict="", alternative=None, margin=None, pause=None,
        gpu_type_promised="",
    )  # fmt: skip
    return gone._replace(band=band)


def promise(turn: Turn, job: Job, changes: tuple[Reserve, ...], actor: str) -> None:
    """Make the promises that were found, now that it has its deadlines."""
    turn.state.deadlines.note_cancel_late(turn.job(job.job_id))
    if changes:
        execution.carry_out(turn, Plan(changes), actor)


def steps_of(
    turn: Turn, asked: Sequence[AskedDeadline], submitted_s: float, *, field: str
) -> Steps:
    """Deadlines as seconds from the submission. InvalidRequest names the first that is in the past,
    or out of order."""
    times = []
    for number, due in enumerate(asked, 1):
        after_s = due.after_s if due.at_s is None else due.at_s - turn.now_s
        if after_s <= 0.0:
            when = format_instant(turn.now_s + after_s)
            what = f"deadline {number} is in the past: {when}"
            raise InvalidRequest(what, field=field, hint=TO_COME)
        times.append((turn.now_s + after_s - submitted_s, due.reward))
    try:
        return soft(times)
    except ValueError as error:
        raise InvalidRequest(str(error), field=field) from None


def told(job: Job) -> str:
    """Its deadlines, as a change of them is told."""
    if not job.steps:
        return "none"
    words = [format_instant(due_s(job, number)) for number in range(len(job.steps))]
    if len(words) == 1:
        return words[0]
    return ", ".join(f"{at}:{step.reward:g}" for at, step in zip(words, job.steps, strict=True))


def told_on_miss(job: Job) -> str:
    """The treatment of the job once it is late."""
    return "cancel" if job.rules.cancel_late else "continue"
