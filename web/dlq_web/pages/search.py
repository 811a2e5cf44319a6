"""Finding things: the search of every page, and the columns by which the queue is ordered.

The master searches and orders, so a page never has more than its own rows. A word that means one
thing leads there. Other words lead to a page with the jobs, nodes and users that they may mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dlq.v1 import job_service_pb2, node_service_pb2
from dlq_cli.output.render import clean_line
from dlq_cli.words import NODE_STATES
from dlq_common.clock import Clock
from dlq_common.errors import PermissionDenied
from dlq_web.api.lists import refuse_unknown, total_of
from dlq_web.api.resources import RECENT_S
from dlq_web.door.sessions import line_of
from dlq_web.line.calls import Asking
from dlq_web.line.methods import named
from dlq_web.pages import views
from dlq_web.pages.page import page

MOST_FOUND: Final = 20
_JOBS, _NODES = named("JobService", "ListJobs"), named("NodeService", "ListNodes")
_SORTED: Final = ("number", "user", "gpus", "submit")


class SortHeading(NamedTuple):
    """The heading of a column that orders the list."""

    href: str
    sorts: str  # for aria-sort


def headings(http: Request, order: str) -> Mapping[str, SortHeading]:
    """By their orders. The heading of the present order turns it around."""
    present = order or "number"
    found = {}
    for key in _SORTED:
        following = f"-{key}" if present == key else key
        url = http.url.remove_query_params("cursor").include_query_params(order=following)
        sorts = {key: "ascending", f"-{key}": "descending"}.get(present, "none")
        found[key] = SortHeading(f"{url.path}?{url.query}", sorts)
    return found


def routes(clock: Clock) -> list[Route]:
    """The search."""

    async def search(http: Request) -> Response:
        return await _search(http, clock)

    return [Route("/search", search, methods=["GET"])]


async def _search(http: Request, clock: Clock) -> Response:
    """A number is that of a job. All else is looked for in jobs, nodes and users."""
    word = http.query_params.get("q", "").strip()
    if word.isascii() and word.replace("_", "").isdigit():
        return _to(http, "job", job=word)
    line = line_of(http)
    jobs, nodes = await asyncio.gather(_jobs(line, word), _nodes(line, word))
    count, node_count = total_of(jobs) or 0, total_of(nodes) or 0
    if (count, node_count) == (1, 0):
        return _to(http, "job", job=jobs.jobs[0].job_id)
    if (count, node_count) == (0, 1):
        return _to(http, "node", node=nodes.nodes[0].node_id)
    look = views.look_at(clock.now_s())
    return page(
        http, "search", "Search", word=word, after=-1, total=count, node_total=node_count,
        rows=[views.job_row(job, look) for job in jobs.jobs],
        nodes=[(node.node_id, NODE_STATES.get(node.state) or "unknown") for node in nodes.nodes],
        users=_users(jobs.jobs, word),
        everything=http.url_for("jobs").include_query_params(q=word).query,
    )  # fmt: skip


def _to(http: Request, name: str, **parts: str) -> Response:
    return RedirectResponse(http.url_for(name, **parts).path, 303)


async def _jobs(line: Asking, word: str) -> job_service_pb2.ListJobsResponse:
    """Jobs of everybody, else one's own where those of others are hidden."""
    asked = job_service_pb2.ListJobsRequest(
        user="*", text=word, order="-number", page_size=MOST_FOUND, with_total=True,
        ended_within_seconds=RECENT_S,
    )  # fmt: skip
    if not word:
        return job_service_pb2.ListJobsResponse(total_count=0)
    return await listed_jobs(line, asked)


async def listed_jobs(
    line: Asking, asked: job_service_pb2.ListJobsRequest
) -> job_service_pb2.ListJobsResponse:
    """The list; where everybody's is asked for and those of others are hidden, one's own, and
    `asked` says so.
    """
    try:
        found = await line.call(_JOBS, asked)
    except PermissionDenied:
        if asked.user != "*":
            raise
        asked.user = ""
        found = await line.call(_JOBS, asked)
    refuse_unknown(asked, found)
    return found  # type: ignore[no-any-return]  # of each method its own


async def _nodes(line: Asking, word: str) -> node_service_pb2.ListNodesResponse:
    asked = node_service_pb2.ListNodesRequest(text=word, page_size=MOST_FOUND, with_total=True)
    if not word:
        return node_service_pb2.ListNodesResponse(total_count=0)
    found = await line.call(_NODES, asked)
    refuse_unknown(asked, found)
    return found  # type: ignore[no-any-return]  # of each method its own


def _users(jobs: Any, word: str) -> list[str]:
    """The users among the found jobs whose names have one of the words."""
    words = word.lower().split()
    users = sorted({clean_line(job.user) for job in jobs})
    return [user for user in users if any(one in user.lower() for one in words)]
