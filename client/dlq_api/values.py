"""Answers about a job as plain values: typed, printable, and drawn as tables in notebooks.

Instants are in UTC. None stands for what the master does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape

from google.protobuf.message import Message

from dlq.v1 import forecast_pb2, forecast_service_pb2, job_pb2, job_service_pb2
from dlq_cli.lists.story import reason_text
from dlq_cli.output.render import OutputLook, clean_line
from dlq_cli.text import promises
from dlq_cli.text.foreseen import long_range
from dlq_common.text.wire import from_duration, from_timestamp

_PLAIN = OutputLook(tty=False, color=False, now_s=0.0)


def instant_of(message: Message, field: str) -> datetime | None:
    """An instant of a message; None: unset."""
    if not message.HasField(field):
        return None
    return datetime.fromtimestamp(from_timestamp(getattr(message, field)), UTC)


def span_of(message: Message, field: str) -> timedelta | None:
    """A duration of a message; None: unset."""
    if not message.HasField(field):
        return None
    return timedelta(seconds=from_duration(getattr(message, field)))


def html_table(rows: Sequence[tuple[str, object]], title: str = "") -> str:
    """Names and values for a notebook. All text is escaped; empty values are left out."""
    head = f"<caption>{escape(title)}</caption>" if title else ""
    body = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in rows
        if value not in (None, "")
    )
    return f"<table>{head}<tbody>{body}</tbody></table>"


@dataclass(frozen=True, slots=True)
class JobPromise:
    """The promise about the deadlines of a job."""

    state: str
    """`guaranteed`, `unguaranteed`, `undecided`, `run_time_unknown` or `not_offered`."""
    detail: str
    """The reason, as a sentence."""
    deadlines: tuple[datetime, ...]
    slack: timedelta | None
    """Time to spare; below zero the delay."""
    risk: str
    """Why the promise may not be kept; empty: no reason is known."""
    instead: str
    """The offers in its place; empty: none."""
    text: str

    @property
    def guaranteed(self) -> bool:
        """Whether one of the deadlines is promised."""
        return self.state == promises.GUARANTEED

    def __str__(self) -> str:
        return f"{self.text}; {self.instead}" if self.instead else self.text

    def _repr_html_(self) -> str:
        rows = [("deadline", each) for each in self.deadlines]
        told = (("promise", self.text), ("slack", self.slack), ("instead", self.instead))
        return html_table([*rows, *told])


@dataclass(frozen=True, slots=True)
class EtaRange:
    """An instant that is not certain: one time in ten it is earlier, one time in ten later."""

    earliest: datetime | None
    likely: datetime | None
    latest: datetime | None
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Eta:
    """When a job starts and ends, if nothing else changes."""

    start: EtaRange | None
    """None: it runs, has ended, or no start is foreseen."""
    end: EtaRange | None
    basis: str
    """The source of its run time, such as `estimate` or `family`."""
    missing: str
    """Why there is no forecast; empty: there is one."""

    def __str__(self) -> str:
        if self.missing:
            return f"no forecast: {self.missing}"
        told = (("starts", self.start), ("ends", self.end))
        return "; ".join(f"{word} {each}" for word, each in told if each) or "no start is foreseen"

    def _repr_html_(self) -> str:
        rows = (("starts", self.start), ("ends", self.end), ("no forecast", self.missing))
        return html_table([(name, value or "") for name, value in rows])


@dataclass(frozen=True, slots=True)
class WhyReason:
    """One reason for a job not to run."""

    code: str
    """A fixed word of docs/reference/reasons.md."""
    text: str
    blocking_jobs: tuple[str, ...]
    spent: timedelta | None
    """How long it has kept the job waiting."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Why:
    """Every reason why a job does not run; none when it runs or has ended."""

    reasons: tuple[WhyReason, ...]
    jobs_ahead: int | None

    def __bool__(self) -> bool:
        return bool(self.reasons)

    def __str__(self) -> str:
        return "\n".join(map(str, self.reasons)) or "nothing keeps it from running"

    def _repr_html_(self) -> str:
        rows = [(each.code, each.text) for each in self.reasons]
        return html_table([*rows, ("jobs ahead", self.jobs_ahead)])


def promise_of(job: job_pb2.Job) -> JobPromise | None:
    """The promise of a job; None: it has no deadline."""
    if not job.HasField("promise"):
        return None
    promise = job.promise
    due = [instant_of(step, "due_time") for step in promise.deadlines]
    return JobPromise(
        state=promise.state,
        detail=clean_line(promise.detail),
        deadlines=tuple(each for each in due if each is not None),
        slack=span_of(promise, "slack_duration"),
        risk=clean_line(promise.risk),
        instead=promises.instead(promise),
        text=promises.answer(promise),
    )


def eta_of(answer: forecast_service_pb2.EstimateJobResponse) -> Eta:
    """The forecast of a job."""
    start = _range_of(answer.start) if answer.HasField("start") else None
    end = _range_of(answer.end) if answer.HasField("end") else None
    return Eta(start, end, answer.basis, clean_line(answer.missing))


def _range_of(found: forecast_pb2.TimeRange) -> EtaRange:
    return EtaRange(
        instant_of(found, "earliest_time"),
        instant_of(found, "likely_time"),
        instant_of(found, "latest_time"),
        long_range(found, _PLAIN),
    )


def why_of(answer: job_service_pb2.ExplainJobResponse) -> Why:
    """The reasons of a job."""
    reasons = (
        WhyReason(
            each.code,
            reason_text(each),
            tuple(each.blocking_job_ids),
            span_of(each, "spent_duration"),
        )
        for each in answer.reasons
    )
    ahead = answer.jobs_ahead_count if answer.HasField("jobs_ahead_count") else None
    return Why(tuple(reasons), ahead)
