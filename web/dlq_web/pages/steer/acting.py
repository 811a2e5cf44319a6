"""One order to each of some jobs: all are tried, and each tells its fate.

The calls are those of the command line. Each job has an idempotency key of its own, made of the
page's key and of its number: an order that comes twice happens once. While the master is away no
job changes, and the page gives the same order again.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_cli.commands.jobs.cancel import ordered
from dlq_cli.commands.jobs.steer import leaving, standing
from dlq_cli.lists.tasks import shown_id
from dlq_cli.output.render import clean_line
from dlq_client.jobs import MANY_DEADLINE_S
from dlq_common.clock import Clock
from dlq_common.errors import DlqError, InvalidRequest, Unavailable, WorkWouldBeLost
from dlq_web.door.sessions import line_of
from dlq_web.line.calls import Asking
from dlq_web.line.methods import PublicMethod, named
from dlq_web.pages.steer.asked import asked, key_of

MOST_JOBS = 1_000
UNCOUNTED = 20  # so many jobs need no number typed in
TOGETHER = 8  # calls at a time
_CANCEL_MANY = named("JobService", "CancelJobs")


class JobOrder(NamedTuple):
    """A change that people may ask for."""

    method: PublicMethod
    told: Callable[[job_pb2.Job], str]  # the state of a job after it
    may_lose: bool = False  # it may stop a job that does not save


ORDERS: Mapping[str, JobOrder] = {
    "hold": JobOrder(named("JobService", "HoldJob"), standing),
    "release": JobOrder(named("JobService", "ReleaseJob"), standing),
    "pause": JobOrder(named("JobService", "PauseJob"), standing, may_lose=True),
    "resume": JobOrder(named("JobService", "ResumeJob"), standing),
    "requeue": JobOrder(named("JobService", "RequeueJob"), leaving, may_lose=True),
    "cancel": JobOrder(named("JobService", "CancelJob"), ordered),
}
_FIELDS = {"order": str, "jobs": list, "key": str, "accept_loss": bool, "count": int}


class JobOutcome(NamedTuple):
    """The fate of one job."""

    job: str  # as the page names it
    told: str
    done: bool
    loses: bool = False  # it refused because its work would be lost


def routes(_clock: Clock) -> list[Route]:
    """The one address of all orders."""
    return [Route("/act", act, methods=["POST"])]


async def act(http: Request) -> Response:
    """Give the order. Raises DlqError where the request is wrong, or no job could be asked."""
    told = await asked(http, _FIELDS)
    order, jobs = _order(told), _jobs(told)
    key, accept = key_of(told), bool(told["accept_loss"])
    if told["order"] == "cancel" and len(jobs) > 1:
        outcomes = await _cancelled(line_of(http), jobs, key)
    else:
        outcomes = await _each(line_of(http), order, jobs, key, accept_loss=accept)
    return JSONResponse(
        {
            "command": shlex.join(["dlq", told["order"], *jobs]),
            "jobs": [one._asdict() for one in outcomes],
        }
    )


def _order(told: Mapping[str, Any]) -> JobOrder:
    order = ORDERS.get(told["order"])
    if order is None:
        raise InvalidRequest(
            f"there is no order {told['order'][:64]!r}",
            field="order",
            hint=f"orders: {', '.join(ORDERS)}",
        )
    return order


def _jobs(told: Mapping[str, Any]) -> Sequence[str]:
    """The jobs, each once; more than a handful only with their number."""
    jobs = tuple(dict.fromkeys(told["jobs"]))
    if not jobs or len(jobs) > MOST_JOBS:
        raise InvalidRequest(f"an order is for 1 to {MOST_JOBS} jobs", field="jobs")
    if len(jobs) > UNCOUNTED and told["count"] != len(jobs):
        raise InvalidRequest(
            f"{len(jobs)} jobs would change, and {told['count']} is typed in",
            field="count",
            hint=f"type {len(jobs)} to go on",
        )
    return jobs


async def _each(
    line: Asking, order: JobOrder, jobs: Sequence[str], key: str, *, accept_loss: bool
) -> list[JobOutcome]:
    """Some calls at a time; the outcomes are in the order of the jobs."""
    free = asyncio.Semaphore(TOGETHER)

    async def one(job: str) -> JobOutcome | Unavailable:
        request = order.method.request()
        _fill(request, job_id=job, request_id=f"{key}.{job[:20]}")
        if order.may_lose:
            _fill(request, accept_loss=accept_loss)
        async with free:
            try:
                answer = await line.call(order.method, request)
            except Unavailable as error:
                return error
            except DlqError as error:
                return JobOutcome(job, clean_line(error.what), False, _loses(error.reason))
        return _outcome(job, answer, order)

    found = await asyncio.gather(*map(one, jobs))
    away = [one for one in found if isinstance(one, Unavailable)]
    if len(away) == len(jobs):
        raise away[0]
    return [
        JobOutcome(job, clean_line(one.what), False) if isinstance(one, Unavailable) else one
        for job, one in zip(jobs, found, strict=True)
    ]


def _outcome(job: str, answer: Any, order: JobOrder) -> JobOutcome:
    """Of an array: the state of its first task, or the first refusal."""
    if answer.refusals:
        first = answer.refusals[0]
        more = f", and {len(answer.refusals) - 1} more" if len(answer.refusals) > 1 else ""
        return JobOutcome(job, clean_line(first.detail) + more, False, _loses(first.reason))
    lost = [f"; {clean_line(one.detail)} is lost" for one in getattr(answer, "losses", ())]
    return JobOutcome(job, clean_line(order.told(answer.job)) + "".join(lost), True)


async def _cancelled(line: Asking, jobs: Sequence[str], key: str) -> list[JobOutcome]:
    """One call for all of them."""
    request = wire.CancelJobsRequest(request_id=key, job_ids=jobs, with_jobs=True)
    answer = await line.call(_CANCEL_MANY, request, MANY_DEADLINE_S)
    refused = {one.job_id: clean_line(one.detail) for one in answer.refusals}
    after = {name: ordered(job) for job in answer.jobs for name in (job.job_id, shown_id(job))}
    return [
        JobOutcome(job, refused[job], False)
        if job in refused
        else JobOutcome(job, after.get(job, "cancelled"), True)
        for job in jobs
    ]


def _loses(reason: str) -> bool:
    return reason == WorkWouldBeLost.reason


def _fill(request: Message, **values: object) -> None:
    for name, value in values.items():
        setattr(request, name, value)
