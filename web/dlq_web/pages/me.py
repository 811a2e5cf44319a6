"""The first page: the news of a person's jobs, then all of them.

A promise in danger comes first, then the next start and the cost of preemptions. All of it follows
from two lists of the master. When `start_now` is asked for, the twin is asked a few times, and its
answer serves all renewals of the page for KEPT_S.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlq.v1 import job_pb2, job_service_pb2, queue_service_pb2
from dlq_cli.lists.tasks import shown_id
from dlq_cli.output.render import OutputLook, clean_line, moment, number, sentence
from dlq_cli.text.foreseen import long_range
from dlq_cli.text.promises import answer, instead, slack
from dlq_cli.words import ENDED, SHOWN_STATES
from dlq_common.clock import Clock
from dlq_common.errors import InvalidRequest
from dlq_common.text.units import parse_span
from dlq_common.text.wire import from_duration, from_timestamp
from dlq_web.api.resources import RECENT_S
from dlq_web.door.sessions import line_of
from dlq_web.line.methods import named
from dlq_web.pages import views
from dlq_web.pages.foresee.start_now import StartNow, start_now
from dlq_web.pages.kept import KeptAnswers
from dlq_web.pages.page import page

MOST_ROWS, MOST_ENDED = 200, 50
MOST_TOLD = 5  # jobs of the notices above the lists
KEPT_S, MOST_KEPT = 60.0, 256
LIVING = [one for one in SHOWN_STATES if one not in ENDED]
_LIST, _CLUSTER = named("JobService", "ListJobs"), named("QueueService", "GetCluster")


class PromiseInDanger(NamedTuple):
    """A promise, or a deadline, that may not be kept."""

    job_id: str
    shown: str
    words: str
    slack: str
    instead: str


class ToldPreemption(NamedTuple):
    """A job that another one has displaced."""

    job_id: str
    shown: str
    when: str
    words: str


def routes(clock: Clock) -> list[Route]:
    """The page."""
    return [Route("/", MePage(clock).show, methods=["GET"])]


class MePage:
    """The jobs of one person, by the time of one clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: KeptAnswers[StartNow] = KeptAnswers(clock, KEPT_S, MOST_KEPT)

    async def show(self, http: Request) -> Response:
        """The person's own jobs."""
        call, look = line_of(http).call, views.look_at(self._clock.now_s())
        living, ended, cluster = await asyncio.gather(
            call(_LIST, job_service_pb2.ListJobsRequest(states=LIVING, page_size=MOST_ROWS)),
            call(
                _LIST,
                job_service_pb2.ListJobsRequest(
                    states=sorted(ENDED), ended_within_seconds=RECENT_S, order="-end",
                    page_size=MOST_ENDED,
                ),
            ),
            call(_CLUSTER, queue_service_pb2.GetClusterRequest()),
        )  # fmt: skip
        groups = views.by_state(views.job_row(job, look) for job in living.jobs)
        groups["ended"] = [views.job_row(job, look) for job in ended.jobs]
        length = http.query_params.get("length", "")
        return page(
            http, "me", "Me", groups=groups, state=cluster, after=living.cursor, length=length,
            more={"ended": bool(ended.next_page_token), "living": bool(living.next_page_token)},
            dangers=dangers_of(living.jobs, look), next_start=next_start_of(living.jobs, look),
            preempted=preempted_of((*living.jobs, *ended.jobs), look),
            lost=lost_of((*living.jobs, *ended.jobs)),
            now=await self._now(http, cluster, length, look) if length else None,
        )  # fmt: skip

    async def _now(self, http: Request, cluster: Any, length: str, look: OutputLook) -> StartNow:
        """The widest job that would start now, as it was told within the last minute."""
        length_s = span_of(length)
        return await self._kept.of(
            http, length, lambda line: start_now(line, cluster.free_gpu_count, length_s, look)
        )


def span_of(text: str) -> float:
    """The length of a job. Raises InvalidRequest."""
    try:
        seconds = parse_span(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= RECENT_S * 366:
        raise InvalidRequest(
            f"length: {text[:64]!r} is no span", field="length", hint="write 90m, 4h or 2d"
        )
    return seconds


def dangers_of(jobs: Iterable[job_pb2.Job], look: OutputLook) -> list[PromiseInDanger]:
    """Promises at risk and deadlines that will be late, the least slack first."""
    late = [job for job in jobs if job.promise.risk or _slack_s(job) < 0]
    return [
        PromiseInDanger(
            job.job_id, shown_id(job), sentence(answer(job.promise), look),
            slack(job.promise), instead(job.promise),
        )
        for job in sorted(late, key=_slack_s)[:MOST_TOLD]
    ]  # fmt: skip


def next_start_of(jobs: Iterable[job_pb2.Job], look: OutputLook) -> tuple[str, str, str] | None:
    """The waiting job that is likely to start first: its number, its shown number, its range."""
    known = [job for job in jobs if job.start_estimate.HasField("likely_time")]
    if not known:
        return None
    first = min(known, key=lambda job: from_timestamp(job.start_estimate.likely_time))
    return first.job_id, shown_id(first), long_range(first.start_estimate, look)


def preempted_of(jobs: Iterable[job_pb2.Job], look: OutputLook) -> list[ToldPreemption]:
    """The last preemptions, the newest first."""
    found = [job for job in jobs if job.HasField("last_preemption")]
    found.sort(key=lambda job: from_timestamp(job.last_preemption.decide_time), reverse=True)
    return [
        ToldPreemption(
            job.job_id, shown_id(job),
            moment(from_timestamp(job.last_preemption.decide_time), look),
            sentence(job.last_preemption.detail, look),
        )
        for job in found[:MOST_TOLD]
    ]  # fmt: skip


def lost_of(jobs: Sequence[job_pb2.Job]) -> str:
    """The cost of all stops of these jobs in a sentence; empty: there were none."""
    times = sum(job.preemption_count for job in jobs)
    lost = sum(job.lost_gpu_seconds for job in jobs)
    if not times:
        return ""
    told = "once" if times == 1 else f"{times} times"
    spent = f"up to {number(round(lost))} GPU-seconds of work were lost" if lost else "no work lost"
    return clean_line(f"taken off their GPUs {told}, {spent}")


def _slack_s(job: job_pb2.Job) -> float:
    known = job.promise.HasField("slack_duration")
    return from_duration(job.promise.slack_duration) if known else 0.0
