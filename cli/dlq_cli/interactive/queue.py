"""The queue of interactive jobs, and the jobs that go there by themselves."""

from __future__ import annotations

from collections.abc import Callable

from dlq.v1 import job_pb2, job_service_pb2, queue_pb2
from dlq_cli.app import App
from dlq_client.queues import Queues
from dlq_common.errors import InvalidRequest, QuotaExceeded
from dlq_common.text.units import format_duration


def interactive_queue(app: App) -> queue_pb2.Queue | None:
    """The queue of interactive jobs; None: this cluster has none."""
    found = Queues(app.connection()).list()
    return next((queue for queue in found if queue.HasField("interactive")), None)


def beyond(spec: job_pb2.JobSpec, queue: queue_pb2.Queue) -> str:
    """Why a job cannot be in the queue of interactive jobs; empty: it can."""
    limits, gpus = queue.interactive, spec.resources.gpu_count
    if limits.HasField("gpus_per_job_count") and gpus > limits.gpus_per_job_count:
        return f"{gpus} GPUs are more than {limits.gpus_per_job_count}"
    longest_s = limits.max_time_limit_duration.ToTimedelta().total_seconds()
    if spec.HasField("time_limit_duration"):
        asked_s = spec.time_limit_duration.ToTimedelta().total_seconds()
        if asked_s > longest_s:
            return f"{format_duration(asked_s)} is longer than {format_duration(longest_s)}"
    return "jobs with deadlines have slots of their own" if spec.deadlines else ""


def ask_for_it(app: App, message: job_pb2.JobSpec) -> None:
    """Put a job into the queue of interactive jobs, as `--interactive` says. Raises InvalidRequest
    where that cannot be.
    """
    queue = interactive_queue(app)
    if queue is None:
        raise InvalidRequest("this cluster has no queue for interactive jobs", hint="dlq queues")
    if message.queue not in ("", queue.name):
        raise InvalidRequest(
            f"--interactive means queue {queue.name}, and -p says {message.queue}: say one"
        )
    if why := beyond(message, queue):
        raise InvalidRequest(
            f"queue {queue.name} does not take it: {why}",
            hint="ask for less, or leave --interactive out: the usual queue takes it",
        )
    message.queue = queue.name


def send_interactive(
    app: App, message: job_pb2.JobSpec, send: Callable[[], job_service_pb2.SubmitJobResponse]
) -> job_service_pb2.SubmitJobResponse:
    """`send` a job whose client stays. One that names no queue goes to that of interactive jobs, if
    it fits there, and else to the usual one.
    """
    queue = None if message.queue else interactive_queue(app)
    if queue is None:
        return send()
    if why := beyond(message, queue):
        app.say(f"not in queue {queue.name}: {why}")
        return send()
    message.queue = queue.name
    try:
        answer = send()
    except QuotaExceeded as error:
        if error.metadata.get("queue") != queue.name:
            raise
        app.say(f"{error.what}; so it goes to the usual queue")
        message.queue = ""
        return send()
    limit_s = message.time_limit_duration.ToTimedelta().total_seconds()
    usual_s = queue.interactive.default_time_limit_duration.ToTimedelta().total_seconds()
    app.say(f"it is in queue {queue.name}, and may run {format_duration(limit_s or usual_s)}")
    return answer
