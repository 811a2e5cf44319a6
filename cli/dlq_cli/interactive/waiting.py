"""Words for a user whose job waits: its place in line, its start, and smaller jobs that would start
now.

Once it runs, there is the warning before the wall limit of an interactive job. A thread asks the
master from time to time while the job waits. On a terminal it keeps one line of stderr up to date.
Elsewhere it prints a line after each change, or with --json one object. A silent or restarting
master changes nothing: the thread asks again.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import NamedTuple

from dlq.v1 import event_pb2, forecast_service_pb2, job_pb2, queue_pb2
from dlq_cli.app import App
from dlq_cli.facts.common import document
from dlq_cli.facts.job import range_facts
from dlq_cli.interactive.queue import beyond, interactive_queue
from dlq_cli.interactive.terminal import size
from dlq_cli.jobs.held import HoldTeller
from dlq_cli.lists.story import reason_text
from dlq_cli.output.render import OutputLook, clean_line
from dlq_cli.output.said import refresh_line, say_line
from dlq_cli.text.foreseen import long_range
from dlq_cli.words import shown_state
from dlq_client.forecasts import Forecasts
from dlq_client.jobs import Jobs
from dlq_common.errors import DlqError
from dlq_common.text.units import format_span
from dlq_common.text.wire import from_timestamp

FIRST_S, EVERY_S = 2.0, 20.0
AT_ONCE_S = 30.0
_ANSWER_S = 3.0  # for each forecast
_WAITING = frozenset({"pending", "queued"})


class Wish(NamedTuple):
    """A smaller request: its flags, and its spec."""

    flags: str
    spec: job_pb2.JobSpec


class News(NamedTuple):
    """The state of a waiting job."""

    job_id: str
    ahead: int | None
    reason: str
    start: forecast_service_pb2.EstimateJobResponse
    at_once: tuple[str, ...]

    def words(self, look: OutputLook) -> str:
        """One line for people. On a terminal `offer` is a line of its own: it would be cut off."""
        parts = []
        if self.ahead is not None:
            jobs = "1 job" if self.ahead == 1 else f"{self.ahead} jobs"
            parts.append(f"{jobs} ahead of it" if self.ahead else "first in line")
        if self.start.HasField("start"):
            parts.append(f"starts {long_range(self.start.start, look)}")
        if self.reason:
            parts.append(self.reason)
        if self.at_once and not look.tty:
            parts.append(self.offer)
        return f"job {self.job_id} waits: {'; '.join(parts) or 'no more is known'}"

    @property
    def offer(self) -> str:
        """The smaller requests that would start now, in words; empty: none is known."""
        return f"{', '.join(self.at_once)} would start now" if self.at_once else ""

    def facts(self) -> str:
        """The same as one JSON object."""
        start = range_facts(self.start.start) if self.start.HasField("start") else None
        return document(
            {
                "waiting": {
                    "job_id": self.job_id,
                    "jobs_ahead_count": self.ahead,
                    "reason": self.reason,
                    "start": start,
                    "would_start_now": list(self.at_once),
                }
            }
        )


class WaitTeller(HoldTeller):
    """Prints holds, and news of a waiting job. Call `look` with each value of the job."""

    def __init__(self, app: App, spec: job_pb2.JobSpec, *, as_json: bool = False) -> None:
        super().__init__(app)
        self._spec = spec
        self._as_json = as_json
        self._lock = threading.Lock()
        self._waits = ""  # the job that waits
        self._over = threading.Event()
        self._started = False
        self._offered = ""  # the last of the offers on a terminal
        self._job_id = ""
        self._queue: queue_pb2.Queue | None = None
        self._warned = 0  # the last attempt whose wall limit was told to be near

    def __enter__(self) -> WaitTeller:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._set("")

    def look(self, job: job_pb2.Job) -> None:
        """Follow this value of the job: whether it waits."""
        waits = shown_state(job) in _WAITING
        self._job_id = job.job_id
        self._set(job.job_id if waits else "")
        super().look(job)
        if not self._started:
            self._started = True
            threading.Thread(target=self._tell, daemon=True, name="waiting").start()

    def _set(self, job_id: str) -> None:
        with self._lock:
            self._waits = job_id
            if not job_id:
                refresh_line("")

    def _tell(self) -> None:
        told, pause_s = "", FIRST_S
        while not self._over.wait(pause_s):
            pause_s = EVERY_S
            job_id = self._waits
            try:
                if not job_id:
                    self._look_at_limit()
                    continue
                news = look_at(self._app, job_id, self._spec)
            except (DlqError, ValueError):  # ValueError: the line is closed
                continue
            with self._lock:
                if self._waits == job_id:
                    told = self._show(news, told)

    def _look_at_limit(self) -> None:
        """Print the warning of the wall limit, once for each attempt.

        Jobs of other queues have none, or get a signal that they asked for.
        """
        queue = self._queue = self._queue or interactive_queue(self._app)
        if queue is None or self._spec.queue != queue.name:
            self._over.set()
            return
        chosen = event_pb2.EventFilter(kinds=["attempt_warned"])
        for event in Jobs(self._app.connection()).events(self._job_id, chosen=chosen):
            if event.attempt > self._warned:
                self._warned = event.attempt
                left_s = float(event.data.get("left_s", 0.0))
                ends_s = from_timestamp(event.event_time) + left_s
                self._warn(max(0.0, ends_s - self._app.clock.now_s()))

    def _warn(self, left_s: float) -> None:
        words = f"job {self._job_id} reaches its time limit in {format_span(left_s)}, and ends then"
        if self._as_json:
            facts = {"job_id": self._job_id, "left_s": left_s, "message": words}
            say_line(document({"warning": facts}))
        else:
            self._app.say(words)

    def _show(self, news: News, told: str) -> str:
        """Print news; return what was printed."""
        if self._as_json:
            if (text := news.facts()) != told:
                say_line(text)
            return text
        look = OutputLook(tty=sys.stderr.isatty(), color=False, now_s=self._app.clock.now_s())
        text = clean_line(news.words(look))
        if look.tty:
            if news.offer not in ("", self._offered):
                self._offered = news.offer
                self._app.say(news.offer)
            refresh_line(f"dlq: {text}"[: size()[0] - 1])
        elif text != told:
            self._app.say(text)
        return text


def look_at(app: App, job_id: str, spec: job_pb2.JobSpec) -> News:
    """The state of a waiting job, and the smaller requests that would start now."""
    connection = app.connection()
    why, forecasts = Jobs(connection).explain(job_id), Forecasts(connection)
    ahead = why.jobs_ahead_count if why.HasField("jobs_ahead_count") else None
    reason = reason_text(why.reasons[0]) if why.reasons else ""
    start = forecasts.of_job(job_id, wait_s=_ANSWER_S)
    at_once = [] if starts_at_once(start) else list(_at_once(app, forecasts, spec))
    return News(job_id, ahead, reason, start, tuple(at_once))


def _at_once(app: App, forecasts: Forecasts, spec: job_pb2.JobSpec) -> Iterator[str]:
    narrower = False
    for wish in smaller(spec, interactive_queue(app)):
        if narrower and wish.flags.startswith("--gpus"):
            continue  # a wider one starts
        try:
            starts = starts_at_once(forecasts.of_spec(wish.spec, wait_s=_ANSWER_S))
        except DlqError:
            continue  # this cluster, or its limits, would refuse it
        if starts:
            narrower = narrower or wish.flags.startswith("--gpus")
            yield wish.flags


def starts_at_once(answer: forecast_service_pb2.EstimateJobResponse) -> bool:
    """Whether the forecast is a start within half a minute."""
    if not (answer.HasField("start") and answer.start.HasField("likely_time")):
        return False
    likely_s = from_timestamp(answer.start.likely_time)
    return likely_s - from_timestamp(answer.estimate_time) <= AT_ONCE_S


def smaller(spec: job_pb2.JobSpec, queue: queue_pb2.Queue | None) -> Iterator[Wish]:
    """Fewer GPUs, GPUs of any type, and the queue of interactive jobs."""
    asked = spec.resources
    fixed = asked.HasField("node_count") or spec.HasField("elastic") or spec.HasField("roles")
    gpus = 0 if fixed else asked.gpu_count
    while (gpus := gpus // 2) >= 1:
        wish = _copy(spec)
        wish.resources.gpu_count = gpus
        yield Wish(f"--gpus {gpus}", wish)
    if asked.gpu_type:
        wish = _copy(spec)
        wish.resources.gpu_type = ""
        del wish.resources.or_gpu_types[:]
        yield Wish("GPUs of any type", wish)
    if queue is not None and spec.queue != queue.name and not beyond(spec, queue):
        wish = _copy(spec)
        wish.queue = queue.name
        yield Wish(f"-p {queue.name}", wish)


def _copy(spec: job_pb2.JobSpec) -> job_pb2.JobSpec:
    copy = job_pb2.JobSpec()
    copy.CopyFrom(spec)
    return copy
