"""Promised deadlines: those in danger first, their slack, what they hold back, and their record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlq.v1 import job_pb2, promise_service_pb2, reservation_service_pb2
from dlq_cli.commands.admin.reserve import reservation_columns
from dlq_cli.lists.tasks import shown_id
from dlq_cli.output.render import OutputLook, clean_line, when
from dlq_cli.text.elastic import gpus_now
from dlq_cli.text.promises import answer, instead, slack, standing, target_s
from dlq_cli.words import shown_state
from dlq_common.clock import Clock
from dlq_common.text.units import HOUR
from dlq_common.text.wire import from_duration, from_timestamp
from dlq_web.door.sessions import line_of
from dlq_web.line.methods import named
from dlq_web.pages import what_if
from dlq_web.pages.page import page
from dlq_web.pages.sheets import sheet_of
from dlq_web.pages.views import look_at

MOST_ROWS = 100
HALF = 100  # of a bar of slack, in its own units: to the right there is time to spare
_PROMISES = named("PromiseService", "ListPromises")
_RESERVATIONS = named("ReservationService", "ListReservations")


class SlackBar(NamedTuple):
    """Time to spare, or the lateness, as a part of the longest on the page."""

    left: int
    width: int
    late: bool


class PromiseRow(NamedTuple):
    """A job with a deadline."""

    job_id: str
    shown: str
    name: str
    user: str
    team: str
    state: str
    gpus: int
    standing: str
    due: str
    slack: str
    bar: SlackBar | None
    holds: str  # GPU time that the promise keeps for it
    words: str  # the answer of the master
    instead: str  # what could be promised, and how to ask for it


class KeptRow(NamedTuple):
    """The record of a team."""

    team: str
    kept: int
    missed: int
    broken: int
    share: str
    short: bool  # of the goal of the policy


def routes(clock: Clock) -> list[Route]:
    """The page, and that of its questions."""
    return [
        Route("/promises", PromisesPage(clock).show, methods=["GET"]),
        *what_if.routes(clock),
    ]


class PromisesPage:
    """The page, by the time of one clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def show(self, http: Request) -> Response:
        """A page of jobs with deadlines. The first page has all that are in danger or over."""
        line, look = line_of(http), look_at(self._clock.now_s())
        token = http.query_params.get("cursor", "")
        asked = promise_service_pb2.ListPromisesRequest(page_size=MOST_ROWS, page_token=token)
        told, reserved = await asyncio.gather(
            line.call(_PROMISES, asked),
            line.call(_RESERVATIONS, reservation_service_pb2.ListReservationsRequest()),
        )
        named_ids = {job.job_id for job in told.endangered_jobs}
        others = [job for job in told.jobs if job.job_id not in named_ids]
        risky = [*told.endangered_jobs, *(job for job in others if job.promise.risk)]
        calm = [job for job in others if not job.promise.risk]
        promised = [job for job in calm if job.promise.HasField("guaranteed_index")]
        open_ = [job for job in calm if not job.promise.HasField("guaranteed_index")]
        longest_s = _longest_s([*told.endangered_jobs, *told.jobs])
        groups = [
            ("At risk", _rows(risky, longest_s, look), "No promise is at risk."),
            ("Promised", _rows(promised, longest_s, look), "No other deadline is promised."),
            ("Not promised", _rows(open_, longest_s, look), "No other job has a deadline."),
        ]
        has_record = told.HasField("record_from_time")
        return page(
            http, "promises", "Promises", after=-1, told=told, groups=groups, half=HALF,
            first=not token, any=bool(told.jobs or told.missed_jobs or told.records),
            missed=_rows(told.missed_jobs, 0.0, look), kept=_records(told),
            since=when(from_timestamp(told.record_from_time), look) if has_record else "",
            given=dict.fromkeys((*what_if.LISTS, "policy"), ""),
            target=f"{told.kept_target:.0%}" if told.HasField("kept_target") else "",
            reserved=sheet_of(reservation_columns(look), reserved.reservations),
        )  # fmt: skip


def _rows(jobs: Iterable[job_pb2.Job], longest_s: float, look: OutputLook) -> list[PromiseRow]:
    """The least slack first; unknown slack comes last."""
    ordered = sorted(jobs, key=lambda job: (_slack_s(job) is None, _slack_s(job) or 0.0))
    return [_row(job, longest_s, look) for job in ordered]


def _row(job: job_pb2.Job, longest_s: float, look: OutputLook) -> PromiseRow:
    promise = job.promise
    return PromiseRow(
        job_id=job.job_id,
        shown=shown_id(job),
        name=clean_line(job.name),
        user=clean_line(job.user),
        team=clean_line(job.team),
        state=shown_state(job),
        gpus=gpus_now(job),
        standing=standing(promise).replace("_", " "),
        due=when(target_s(promise), look) if promise.deadlines else "",
        slack=slack(promise),
        bar=_bar(_slack_s(job), longest_s),
        holds=_holds(job),
        words=clean_line(answer(promise)),
        instead=instead(promise),
    )


def _slack_s(job: job_pb2.Job) -> float | None:
    promise = job.promise
    return from_duration(promise.slack_duration) if promise.HasField("slack_duration") else None


def _longest_s(jobs: Iterable[job_pb2.Job]) -> float:
    return max((abs(_slack_s(job) or 0.0) for job in jobs), default=0.0)


def _bar(slack_s: float | None, longest_s: float) -> SlackBar | None:
    if slack_s is None or longest_s <= 0.0:
        return None
    width = max(1, round(HALF * min(1.0, abs(slack_s) / longest_s)))
    return SlackBar(HALF - width if slack_s < 0 else HALF, width, slack_s < 0)


def _holds(job: job_pb2.Job) -> str:
    """Its whole run time on all its GPUs, if that is promised."""
    promise = job.promise
    if not (promise.HasField("guaranteed_index") and promise.HasField("work_duration")):
        return ""
    return f"{from_duration(promise.work_duration) * gpus_now(job) / HOUR:.1f} GPU-hours"


def _records(told: promise_service_pb2.ListPromisesResponse) -> Sequence[KeptRow]:
    target = told.kept_target if told.HasField("kept_target") else 0.0
    rows = []
    for one in told.records:
        count = one.kept_count + one.missed_count + one.broken_count
        share = one.kept_count / count if count else 1.0
        rows.append(
            KeptRow(
                clean_line(one.team) or "no team",
                one.kept_count,
                one.missed_count,
                one.broken_count,
                f"{share:.0%}",
                share < target,
            )
        )
    return rows
