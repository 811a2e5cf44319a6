"""The content of pages, made of the master's answers with the words of the command line."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from typing import NamedTuple

from starlette.requests import Request

from dlq.v1 import job_pb2
from dlq_cli.lists.columns import reason, where
from dlq_cli.lists.tasks import shown_id
from dlq_cli.output.render import OutputLook, clean_line, when
from dlq_cli.text.elastic import gpus_now
from dlq_cli.text.foreseen import short_range
from dlq_cli.text.promises import slack, standing
from dlq_cli.words import ENDED, SHOWN_STATES, shown_state
from dlq_common.errors import InvalidRequest
from dlq_common.text.units import approximate_span
from dlq_common.text.wire import from_duration, from_timestamp

WAITING = ("pending", "queued", "held")
RUNNING = tuple(one for one in SHOWN_STATES if one not in (*WAITING, *ENDED))
REPORTED_DAYS = (1, 7, 30)  # that a report may look back


class JobRow(NamedTuple):
    """A job as one line of a table."""

    job_id: str
    shown: str
    name: str
    user: str
    state: str
    gpus: int
    where: str  # its nodes, else why it does not run
    start: str
    promise: str
    mine: bool  # whether the reader sees all of it, and may change it


def look_at(now_s: float) -> OutputLook:
    """Instants in UTC: the browser shows them in its reader's zone."""
    return OutputLook(tty=True, color=False, now_s=now_s, zone=UTC)


def days_of(http: Request) -> int:
    """The days that a report is asked to look back. Raises InvalidRequest."""
    text = http.query_params.get("days", "7")
    if text not in map(str, REPORTED_DAYS):
        known = ", ".join(map(str, REPORTED_DAYS))
        raise InvalidRequest(f"days: {text[:20]!r} is none of {known}", field="days")
    return int(text)


def job_row(job: job_pb2.Job, look: OutputLook) -> JobRow:
    """One line."""
    start = short_range(job.start_estimate, look) if job.HasField("start_estimate") else ""
    promised = job.HasField("promise") and not job.redacted
    return JobRow(
        job_id=job.job_id,
        shown=shown_id(job),
        name=clean_line(job.name),
        user=clean_line(job.user),
        state=shown_state(job),
        gpus=gpus_now(job),
        where=clean_line(where(job, look)) if job.node_ids else _why(job),
        start=start or _started(job, look),
        promise=clean_line(_promise(job.promise)) if promised else "",
        mine=not job.redacted,
    )


def by_state(rows: Iterable[JobRow]) -> dict[str, list[JobRow]]:
    """Running, waiting and ended ones, each newest first."""
    found: dict[str, list[JobRow]] = {"running": [], "waiting": [], "ended": []}
    for row in rows:
        waits = row.state in WAITING
        found["ended" if row.state in ENDED else "waiting" if waits else "running"].insert(0, row)
    return found


def _promise(promise: job_pb2.Promise) -> str:
    return f"{standing(promise)} {slack(promise)}".strip()


def _why(job: job_pb2.Job) -> str:
    return "" if job.redacted else clean_line(reason(job))


def _started(job: job_pb2.Job, look: OutputLook) -> str:
    """How long ago it ended, else how long it has run, else how long ago it came."""
    if job.HasField("end_time"):
        return f"ended {when(from_timestamp(job.end_time), look)}"
    if job.HasField("start_time"):
        return f"runs {approximate_span(from_duration(job.run_duration))}"
    return f"came {when(from_timestamp(job.submit_time), look)}"
