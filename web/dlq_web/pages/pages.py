"""One function for each page: it asks the master, and shows the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlq.v1 import job_service_pb2, queue_service_pb2
from dlq_cli.lists.states import parse_states
from dlq_cli.words import ENDED, SHOWN_STATES
from dlq_common.clock import Clock
from dlq_web.api.lists import total_of
from dlq_web.door.sessions import line_of
from dlq_web.line.methods import named
from dlq_web.pages import views
from dlq_web.pages.page import page
from dlq_web.pages.search import headings, listed_jobs

MOST_ROWS = 200
_QUEUES = named("QueueService", "ListQueues")
Shown = Callable[[Request], Awaitable[Response]]


def routes(clock: Clock) -> list[Route]:
    """The pages."""
    pages = Pages(clock)
    return [
        Route("/jobs", pages.jobs, methods=["GET"]),
        Route("/favicon.ico", _no_icon, methods=["GET"]),
    ]


class Pages:
    """The pages, by the time of one clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def jobs(self, http: Request) -> Response:
        """All that the person may see, filtered by the master, a page at a time."""
        look, query = views.look_at(self._clock.now_s()), http.query_params
        states = query.get("state", "")
        asked = job_service_pb2.ListJobsRequest(
            page_size=MOST_ROWS,
            page_token=query.get("cursor", ""),
            user=query.get("user", "*"),
            queue=query.get("queue", ""),
            name=query.get("name", ""),
            team=query.get("team", ""),
            text=query.get("q", ""),
            order=query.get("order", ""),
            with_total=True,
            states=parse_states(states) or [one for one in SHOWN_STATES if one not in ENDED],
        )
        listed, queues = await asyncio.gather(
            listed_jobs(line_of(http), asked),
            line_of(http).call(_QUEUES, queue_service_pb2.ListQueuesRequest()),
        )
        rows = [views.job_row(job, look) for job in listed.jobs]
        following = http.url.include_query_params(cursor=listed.next_page_token)
        return page(
            http, "jobs", "Queue", rows=rows, queues=queues.queues, after=listed.cursor,
            asked={"state": states, "user": asked.user, "queue": asked.queue, "name": asked.name,
                   "q": asked.text, "team": asked.team, "order": asked.order},
            total=total_of(listed), headings=headings(http, asked.order),
            following=f"{following.path}?{following.query}" if listed.next_page_token else "",
        )  # fmt: skip


async def _no_icon(_http: Request) -> Response:
    return Response(status_code=204)
