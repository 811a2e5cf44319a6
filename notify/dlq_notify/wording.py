"""An event in the words of the command line: one line of plain text for people.

Names of jobs and causes come from users. Control characters are gone from every text that leaves
here, so no text begins another line or header.
"""

from __future__ import annotations

from typing import NamedTuple

from dlq.v1 import event_pb2, forecast_pb2, job_pb2, job_service_pb2
from dlq_cli.lists.columns import exit_text
from dlq_cli.lists.tasks import shown_id
from dlq_cli.output.render import age
from dlq_cli.text.promises import answer, instead, slack
from dlq_common.text.instants import format_instant
from dlq_common.text.names import printable
from dlq_common.text.wire import from_duration, from_timestamp

LONGEST_LINE = 600
ENDS = ("job_completed", "job_cancelled", "job_failed", "job_timed_out")
FAILURES = ("job_failed", "job_timed_out", "job_poisoned")
TEST_WORD = "test"


class JobNotice(NamedTuple):
    """Something that one rule tells."""

    sequence: int  # of its event; of a notice without one: the newest event then
    word: str  # of the rule
    kind: str  # of the event; of a notice without one: the word
    time_s: float
    text: str
    job_id: str = ""
    name: str = ""
    group: str = ""  # the array
    attempt: int = 0
    rank: int = 0  # that failed first

    @property
    def is_failure(self) -> bool:
        return self.kind in FAILURES


def notice_of(told: job_service_pb2.WatchEventsResponse, word: str, rank: int = 0) -> JobNotice:
    """The notice of an event about a job."""
    event, job = told.event, told.job
    return JobNotice(
        sequence=event.sequence,
        word=word,
        kind=event.kind,
        time_s=from_timestamp(event.event_time),
        text=clean(f"job {titled(job)} {_said(event, job)}"),
        job_id=job.job_id,
        name=clean(job.name),
        group=job.array_task.array_id if job.HasField("array_task") else "",
        attempt=int(job.attempt_count),
        rank=rank,
    )


def moved_notice(
    job_id: str, name: str, before_s: float, now: forecast_pb2.TimeRange, cursor: int, now_s: float
) -> JobNotice:
    """The notice of a start estimate that has moved."""
    likely_s = from_timestamp(now.likely_time)
    apart = age(abs(likely_s - before_s))
    way = "later" if likely_s > before_s else "earlier"
    text = f"job {job_id} ({name}) will probably start {apart} {way}: {format_instant(likely_s)}"
    return JobNotice(cursor, "start_moved", "start_moved", now_s, clean(text), job_id, clean(name))


def titled(job: job_pb2.Job) -> str:
    """A job's number and name."""
    return f"{shown_id(job)} ({job.name})" if job.name else shown_id(job)


def clean(text: str) -> str:
    """Untrusted text as one bounded line without control characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


# --- helpers, in order of use ---------------------------------------------------------------------


def _said(event: event_pb2.Event, job: job_pb2.Job) -> str:
    match event.kind:
        case "job_admitted":
            return f"waits in {job.queue}"
        case "job_ran":
            return f"runs on {', '.join(job.node_ids[:8])}" if job.node_ids else "runs"
        case "job_requeued":
            return f"waits again: {event.cause or event.data.get('reason', '')}"
        case "job_completed":
            return f"has completed after {age(from_duration(job.run_duration))}"
        case "job_failed" | "job_timed_out" | "job_poisoned":
            return f"{_ENDED[event.kind]}: {_why(event, job)}"
        case "job_cancelled":
            return f"was cancelled by {event.actor.removeprefix('user:')}"
        case "job_displaced":
            return _displaced(event, job)
        case "job_reclaimed":
            return event.cause
        case "promise_at_risk":
            return _at_risk(job.promise)
        case "attempt_warned":
            left = event.data.get("left_s", "")
            shown = f", {age(float(left))} left" if _is_number(left) else ""
            return f"is near its time limit{shown}"
        case kind:
            words = kind.removeprefix("job_").replace("_", " ")
            return f"{words}: {event.cause}" if event.cause else words


_ENDED = {
    "job_failed": "has failed",
    "job_timed_out": "was ended at its time limit",
    "job_poisoned": "is held: too many attempts failed because of the cluster, or were preempted",
}


def _why(event: event_pb2.Event, job: job_pb2.Job) -> str:
    found = [job.end_reason or event.data.get("reason", "") or event.cause, exit_text(job)]
    return ", ".join(filter(None, found)) or "no reason is known"


def _displaced(event: event_pb2.Event, job: job_pb2.Job) -> str:
    """For whom, as far as the cluster shows names, by which rule, and the job's own cost."""
    taken, data = job.last_preemption, event.data
    for_job, user = data.get("for_job", ""), data.get("user", "")
    whom = f"job {for_job}" + (f" of {user}" if user else "")
    words = f"leaves its GPUs for {whom}: {data.get('rule', '') or event.cause}"
    if taken.for_job_id == for_job and taken.HasField("lost_duration"):
        lost_s = from_duration(taken.lost_duration)
        return f"{words}. {age(lost_s)} of work are done again"
    costs = []
    if job.HasField("work_at_risk_duration"):
        at_risk_s = from_duration(job.work_at_risk_duration)
        costs.append(f"{age(at_risk_s)} of work since its last checkpoint")
    if job.HasField("stop_cost_duration"):
        stop_s = from_duration(job.stop_cost_duration)
        costs.append(f"{age(stop_s)} to save and resume")
    return f"{words}. At stake: {' and '.join(costs)}" if costs else words


def _at_risk(promise: job_pb2.Promise) -> str:
    told = [answer(promise)]
    if spare := slack(promise):
        told.append(f"slack {spare}")
    if offered := instead(promise):
        told.append(offered)
    return "; ".join(told)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
