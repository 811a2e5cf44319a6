"""The author of a cancel and the reason, from the journal.

A rule of the site may have cancelled the job while its user was away.
"""

from __future__ import annotations

from dlq.v1 import event_pb2, job_pb2
from dlq_cli.app import App
from dlq_cli.output.render import clean_line
from dlq_cli.words import shown_state
from dlq_client.jobs import Jobs
from dlq_common.errors import DlqError

_CANCELLED = event_pb2.EventFilter(kinds=["job_cancelled"])
_USER = "user:"


def cancel_words(jobs: Jobs, job: job_pb2.Job) -> str:
    """Such as `by bob` or `by the master: its use was ...`.

    Empty: it was not cancelled, or the journal does not reach back so far.
    """
    found = _cancel_of(jobs, job)
    if found is None:
        return ""
    author = found.actor.removeprefix(_USER) if found.actor.startswith(_USER) else "the master"
    cause = f": {clean_line(found.cause)}" if found.cause else ""
    return f"by {clean_line(author)}{cause}"


def tell_cancel(app: App, job: job_pb2.Job) -> None:
    """Say on stderr that a job was cancelled, unless its own user has done it.

    Its end is known, so a master that is away now does not matter.
    """
    jobs = Jobs(app.connection())
    try:
        found = _cancel_of(jobs, job)
        if found is not None and found.actor != f"{_USER}{job.user}":
            app.say(f"job {job.job_id} was cancelled {cancel_words(jobs, job)}")
    except DlqError:
        return


def _cancel_of(jobs: Jobs, job: job_pb2.Job) -> event_pb2.Event | None:
    if shown_state(job) != "cancelled":
        return None
    return next(iter(jobs.events(job.job_id, chosen=_CANCELLED)), None)
