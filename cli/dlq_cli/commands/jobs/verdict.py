"""`dlq submit` and a deadline: promised, refused with the offer, or not judged yet."""

from __future__ import annotations

from dlq.v1 import job_pb2
from dlq_cli.app import App
from dlq_cli.commands.jobs.admission import NO_ANSWER_YET, is_judged
from dlq_cli.lists.tasks import shown_id
from dlq_cli.text.promises import GUARANTEED, SAVING_UNKNOWN, answer, instead
from dlq_cli.words import shown_state
from dlq_client.watch import watch_jobs
from dlq_common.errors import DlqError

PATIENCE_S = 2.0


def judged_soon(app: App, job: job_pb2.Job) -> job_pb2.Job:
    """The new job once its deadline has been judged, or after two seconds; of an array the first
    task.

    Does not wait for a job that is measured first, or held, because that takes longer. The job is
    queued: a master that is away is no failure here.
    """
    if _is_settled(job):
        return job
    connection = app.connection()
    until_s = connection.clock.boottime_s() + PATIENCE_S
    try:
        for value in watch_jobs(connection, [job.job_id], until_s=until_s):
            job = value
            if _is_settled(job):
                break
    except DlqError:
        pass
    return job


def tell_verdict(app: App, job: job_pb2.Job) -> None:
    """Print the verdict on stderr: programs read the number on stdout."""
    promise, name = job.promise, shown_id(job)
    of_array = " (and each of the other tasks is judged for itself)" if _is_array(job) else ""
    if not is_judged(job):
        why = promise.detail.removeprefix(NO_ANSWER_YET)
        app.say(f"job {name} is {NO_ANSWER_YET}{why or ', whether its deadline is promised'}")
        app.say(f"to see it: dlq show {name}; to wait for it: dlq submit --wait-admission")
        return
    if shown_state(job) == "held" and promise.state == "undecided":
        app.say(f"job {name} is held: its deadline is judged when it is let go")
        return
    app.say(f"job {name} is {answer(promise)}{of_array}")
    if offered := instead(promise):
        app.say(offered)
    if promise.state == GUARANTEED and promise.saving_unknown:
        app.say(f"{SAVING_UNKNOWN}: say it with --checkpoint-marker, --save-signal or --signal")


# --- helpers, in order of use ---------------------------------------------------------------------


def _is_settled(job: job_pb2.Job) -> bool:
    """Whether two seconds would change nothing."""
    return is_judged(job) or job.promise.detail != NO_ANSWER_YET


def _is_array(job: job_pb2.Job) -> bool:
    return job.HasField("array_task") and job.array_task.task_count > 1
