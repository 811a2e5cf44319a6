"""The page of use and of the scheduler: GPU-hours, waits, preemptions, forecasts, turns, versions.

Tables are those of `dlq report` and `dlq admin`, and each chart is drawn from the table below it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlq.v1 import (
    admin_service_pb2,
    forecast_service_pb2,
    job_pb2,
    job_service_pb2,
    master_profile_pb2,
    queue_service_pb2,
    usage_service_pb2,
)
from dlq_cli.commands.admin.estimates import quality_pairs
from dlq_cli.commands.admin.policy import planner_text
from dlq_cli.commands.report.past import WORDS
from dlq_cli.facts.common import Facts
from dlq_cli.facts.usage import hours, usage_facts
from dlq_cli.lists import reports
from dlq_cli.output.render import OutputLook
from dlq_cli.text.helpers import failing, todo
from dlq_cli.words import ENDED
from dlq_common.clock import Clock
from dlq_common.text.units import DAY
from dlq_common.text.wire import from_duration, to_timestamp
from dlq_web.door.sessions import line_of
from dlq_web.line.calls import Asking
from dlq_web.line.methods import named
from dlq_web.pages.kept import KeptAnswers
from dlq_web.pages.machines.maps import GpuMaps
from dlq_web.pages.machines.nodes import operates
from dlq_web.pages.page import page
from dlq_web.pages.sheets import Sheet, facts_sheet
from dlq_web.pages.views import REPORTED_DAYS, days_of, look_at

JOBS_AT_ONCE, MOST_PAGES = 1_000, 5  # of ended jobs
MOST_ROWS = 100
PAST_FRESH_S, USE_FRESH_S = 300.0, 30.0
_USAGE, _JOBS = named("UsageService", "GetUsage"), named("JobService", "ListJobs")
_CLUSTER, _QUALITY = (
    named("QueueService", "GetCluster"),
    named("ForecastService", "GetForecastQuality"),
)
_POLICY = named("AdminService", "GetPolicy")


class PastReports(NamedTuple):
    """Reports on jobs that ended lately."""

    waits: Sheet
    preemptions: Sheet
    jobs: int
    more: bool  # there are others that were not looked at


class UseReports(NamedTuple):
    """GPU-hours by day, and by team and user."""

    days: Sheet
    groups: Sheet


def routes(clock: Clock, maps: GpuMaps) -> list[Route]:
    """The page."""
    return [Route("/use", UsePage(clock, maps).show, methods=["GET"])]


class UsePage:
    """The page, by the time of one clock."""

    def __init__(self, clock: Clock, maps: GpuMaps) -> None:
        self._clock, self._maps = clock, maps
        self._past: KeptAnswers[PastReports] = KeptAnswers(clock, PAST_FRESH_S)
        self._use: KeptAnswers[UseReports] = KeptAnswers(clock, USE_FRESH_S)

    async def show(self, http: Request) -> Response:
        """All reports of a time span."""
        days, line, operator = days_of(http), line_of(http), operates(http)
        look = look_at(self._clock.now_s())
        since_s = look.now_s - days * DAY
        use, past, cluster, quality, whole = await asyncio.gather(
            self._use.of(http, days, lambda line: _use(line, since_s)),
            self._past.of(http, days, lambda line: _past(line, since_s, everybody=operator)),
            line.call(_CLUSTER, queue_service_pb2.GetClusterRequest()),
            line.call(_QUALITY, forecast_service_pb2.GetForecastQualityRequest()),
            self._maps.of(http),
        )
        policy = (
            await line.call(_POLICY, admin_service_pb2.GetPolicyRequest()) if operator else None
        )
        versions = Counter(one.agent_version or "unknown" for one in whole.nodes)
        return page(
            http, "use", "Use", days=days, all_days=REPORTED_DAYS, use=use, past=past,
            operator=operator, state=cluster, helpers=_helpers(cluster, look), after=-1,
            quality=[pair for pair in quality_pairs(quality, look) if pair[1]],
            planner=planner_text(policy.planner) if policy is not None else "",
            turns=_bucket_sheet(cluster.turns, "turns"),
            commits=_bucket_sheet(cluster.commits, "commits"),
            versions=sorted(versions.items()),
        )  # fmt: skip


# --- helpers, in order of use ---------------------------------------------------------------------


async def _use(line: Asking, since_s: float) -> UseReports:
    def asked(*by: str) -> usage_service_pb2.GetUsageRequest:
        return usage_service_pb2.GetUsageRequest(from_time=to_timestamp(since_s), by=by)

    by_day, by_team = await asyncio.gather(
        line.call(_USAGE, asked("day")), line.call(_USAGE, asked("team", "user"))
    )
    groups = [usage_facts(one, ("team", "user")) for one in by_team.usages]
    return UseReports(
        facts_sheet(_day_rows(by_day), ("day",)),
        facts_sheet(groups, ("team", "user"), MOST_ROWS),
    )


def _day_rows(answer: usage_service_pb2.GetUsageResponse) -> list[Facts]:
    """By day: useful and lost hours, getting ready, and for operators GPUs without a job."""
    found: dict[str, dict[str, float]] = {}
    for one in answer.usages:
        found[one.day] = {
            "useful_gpu_hours": hours(one.useful_gpu_seconds),
            "lost_gpu_hours": hours(one.preempted_gpu_seconds + one.failed_gpu_seconds),
            "transit_gpu_hours": hours(one.transit_gpu_seconds),
        }
    nothing = dict.fromkeys(("useful_gpu_hours", "lost_gpu_hours", "transit_gpu_hours"), 0.0)
    idle: Counter[str] = Counter()
    for pool in answer.pools:
        idle[pool.day] += pool.idle_gpu_seconds  # type: ignore[assignment]  # a count of seconds
    if answer.pools:
        return [
            {"day": day, **found.get(day, nothing), "idle_gpu_hours": hours(idle[day])}
            for day in sorted({*found, *idle})
        ]
    return [{"day": day, **found[day]} for day in sorted(found)]


async def _past(line: Asking, since_s: float, *, everybody: bool) -> PastReports:
    request = job_service_pb2.ListJobsRequest(
        page_size=JOBS_AT_ONCE,
        user="*" if everybody else "",
        states=sorted(ENDED),
        ended_from_time=to_timestamp(since_s),
    )
    jobs: list[job_pb2.Job] = []
    for _ in range(MOST_PAGES):
        answer = await line.call(_JOBS, request)
        jobs += answer.jobs
        request.page_token = answer.next_page_token
        if not request.page_token:
            break
    return PastReports(
        facts_sheet(reports.waits(jobs), WORDS),
        facts_sheet(reports.preemptions(jobs), WORDS, MOST_ROWS),
        len(jobs),
        bool(request.page_token),
    )


def _helpers(
    cluster: queue_service_pb2.GetClusterResponse, look: OutputLook
) -> list[Mapping[str, str]]:
    """How the processes beside the master do."""
    return [
        {
            "name": one.name,
            "told": failing(one, look) if one.failing else "works",
            "todo": todo(one) if one.failing else "",
        }
        for one in cluster.helpers
    ]


def _bucket_sheet(buckets: Sequence[master_profile_pb2.TurnBucket], name: str) -> Sheet:
    """How many took how long; empty where the master tells none."""
    rows: list[Facts] = []
    before = ""
    for one in buckets:
        ended = one.HasField("longest_duration")
        most = f"{1e3 * from_duration(one.longest_duration):g} ms" if ended else ""
        rows.append({"time": f"up to {most}" if ended else f"above {before}", name: one.turn_count})
        before = most
    return facts_sheet(rows, ("time",))
