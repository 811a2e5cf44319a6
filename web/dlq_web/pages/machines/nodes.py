"""The pages of nodes: a list with the reasons against new work, and each node by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlq.v1 import (
    event_pb2,
    job_pb2,
    job_service_pb2,
    node_pb2,
    node_service_pb2,
    queue_service_pb2,
)
from dlq_cli.commands.cluster.gpus import GPU_CELLS, gpu_row
from dlq_cli.commands.cluster.nodes import node_pairs, reasons_of, since_of, state_of
from dlq_cli.commands.look.events import about_of
from dlq_cli.facts.gpus import rows_of
from dlq_cli.output.render import Cell, OutputLook, clean_line, when
from dlq_client.jobs import SEE_ALL
from dlq_common.clock import Clock
from dlq_common.errors import NotFound
from dlq_common.text.units import DAY
from dlq_common.text.wire import from_timestamp, to_timestamp
from dlq_web.door.sessions import line_of, person_of
from dlq_web.line.calls import Asking
from dlq_web.line.methods import named
from dlq_web.pages import views
from dlq_web.pages.kept import KeptAnswers
from dlq_web.pages.machines.gpu_map import MapNode
from dlq_web.pages.machines.maps import GpuMaps
from dlq_web.pages.page import page
from dlq_web.pages.sheets import Sheet, sheet

ROWS = 25  # nodes of a page
TOGETHER = 4  # calls at a time
MOST_JOBS = 200
MOST_EVENTS = 50
HISTORY_S, HISTORY_FRESH_S = DAY, 60.0
MOST_PAGES = 4  # of the journal, for a history
SHOWS = {"": "all", "hindered": "those that take no work", "behind": "those with another version"}
HISTORY = ("node_*",)
LENT = "loaned"
LEFT_OPEN = ("node_not_drained", "node_not_quarantined")
_LIST, _GET = named("NodeService", "ListNodes"), named("NodeService", "GetNode")
_CLUSTER, _JOBS = named("QueueService", "GetCluster"), named("JobService", "ListJobs")
_EVENTS = named("JobService", "ListEvents")
_EVENT_CELLS = (Cell("WHEN"), Cell("EVENT"), Cell("NODE"), Cell("BY"), Cell("WHY"))


class WhyClosed(NamedTuple):
    """One thing that keeps a node from work."""

    kind: str
    words: str
    actor: str
    since: str


class NodeLine(NamedTuple):
    """A node in the list."""

    node_id: str
    state: str
    flags: str
    gpus: str
    version: str
    behind: bool
    reasons: Sequence[WhyClosed]


def routes(clock: Clock, maps: GpuMaps) -> list[Route]:
    """The list, and each node."""
    pages = NodePages(clock, maps)
    return [
        Route("/nodes", pages.nodes, methods=["GET"]),
        Route("/nodes/{node}", pages.node, methods=["GET"]),
    ]


class NodePages:
    """Both pages, by the time of one clock."""

    def __init__(self, clock: Clock, maps: GpuMaps) -> None:
        self._clock = clock
        self._maps = maps
        self._events: KeptAnswers[Sheet] = KeptAnswers(clock, HISTORY_FRESH_S)

    async def nodes(self, http: Request) -> Response:
        """The nodes of a choice, and for operators those that the master itself left open."""
        line, look, given = line_of(http), views.look_at(self._clock.now_s()), http.query_params
        whole, cluster = await asyncio.gather(
            self._maps.of(http), line.call(_CLUSTER, queue_service_pb2.GetClusterRequest())
        )
        version, show, word = cluster.master_version, given.get("show", ""), given.get("q", "")
        fitting = [one for one in whole.nodes if _fits(one, show, word, version)]
        cursor = given.get("cursor", "")
        later = [one.node_id for one in fitting if one.node_id > cursor]
        found, left_open = await asyncio.gather(
            nodes_of(line, later[:ROWS]), self._told(http, LEFT_OPEN, "")
        )
        following = http.url.include_query_params(cursor=later[ROWS - 1]) if later[ROWS:] else None
        return page(
            http, "nodes", "Nodes", rows=[_line(one, version, look) for one in found],
            asked={"show": show, "q": word}, shows=SHOWS, shown=len(fitting),
            whole=len(whole.nodes), hindered=sum(one.hindered for one in whole.nodes),
            behind=sum(one.agent_version != version for one in whole.nodes), version=version,
            following=f"/nodes?{following.query}" if following else "", left_open=left_open,
            operator=operates(http), after=-1,
        )  # fmt: skip

    async def node(self, http: Request) -> Response:
        """Everything about one node: its GPUs, its jobs, its history. Raises NotFound."""
        line, look = line_of(http), views.look_at(self._clock.now_s())
        node_id = http.path_params["node"]
        request = node_service_pb2.GetNodeRequest(node_id=node_id)
        answer, history = await asyncio.gather(
            line.call(_GET, request), self._told(http, HISTORY, node_id)
        )
        node: node_pb2.Node = answer.node
        jobs = await (jobs_on(line, [node]) if operates(http) else _own_on(line, node))
        facts = [(name, clean_line(text)) for name, text in node_pairs(node, look) if text]
        return page(
            http, "node", f"Node {node.node_id}", node=node, state=state_of(node), facts=facts,
            gpus=sheet(GPU_CELLS[1:], [gpu_row(row)[1:] for row in rows_of([node])]),
            jobs=[views.job_row(job, look) for job in jobs], history=history,
            operator=operates(http), draining="draining" in node.flags, after=-1,
        )  # fmt: skip

    async def _told(self, http: Request, kinds: Sequence[str], node_id: str) -> Sheet | None:
        """Events of nodes, the newest first; None: not for this reader."""
        if not operates(http):
            return None
        now_s = self._clock.now_s()

        async def ask(line: Asking) -> Sheet:
            asked = event_pb2.EventFilter(
                kinds=kinds,
                node_ids=[node_id] if node_id else [],
                since_time=to_timestamp(now_s - HISTORY_S),
            )
            request = job_service_pb2.ListEventsRequest(filter=asked)
            events: list[event_pb2.Event] = []
            for _ in range(MOST_PAGES):
                answer = await line.call(_EVENTS, request)
                events += answer.events
                request.page_token = answer.next_page_token
                if not request.page_token:
                    break
            look = views.look_at(now_s)
            return sheet(_EVENT_CELLS, [_event(one, look) for one in events[::-1]], MOST_EVENTS)

        return await self._events.of(http, (*kinds, node_id), ask)


async def jobs_on(line: Asking, nodes: Iterable[node_pb2.Node]) -> Sequence[job_pb2.Job]:
    """The jobs on these nodes, MOST_JOBS at most. For operators: to users it may be refused."""
    numbers = {int(key.partition(".")[0]) for node in nodes for key in node.attempts}
    if not numbers:
        return []
    request = job_service_pb2.ListJobsRequest(
        job_ids=map(str, sorted(numbers)[:MOST_JOBS]), page_size=MOST_JOBS, user="*"
    )
    jobs: Sequence[job_pb2.Job] = (await line.call(_JOBS, request)).jobs
    return jobs


# --- helpers, in order of use ---------------------------------------------------------------------


def operates(http: Request) -> bool:
    """Whether to show what is for operators. The master decides what they may do."""
    return person_of(http).role in SEE_ALL


async def _own_on(line: Asking, node: node_pb2.Node) -> Sequence[job_pb2.Job]:
    """The reader's own jobs there."""
    request = job_service_pb2.ListJobsRequest(states=views.RUNNING, page_size=MOST_JOBS)
    return [job for job in (await line.call(_JOBS, request)).jobs if node.node_id in job.node_ids]


def _fits(node: MapNode, show: str, word: str, version: str) -> bool:
    if word and word.lower() not in f"{node.node_id} {' '.join(node.flags)}".lower():
        return False
    behind = node.agent_version != version
    return node.hindered if show == "hindered" else behind if show == "behind" else True


async def nodes_of(line: Asking, node_ids: Sequence[str]) -> list[node_pb2.Node]:
    """These nodes; one that has been forgotten meanwhile is left out."""
    free = asyncio.Semaphore(TOGETHER)

    async def one(node_id: str) -> node_pb2.Node | None:
        async with free:
            try:
                answer = await line.call(_GET, node_service_pb2.GetNodeRequest(node_id=node_id))
            except NotFound:
                return None
        node: node_pb2.Node = answer.node
        return node

    return [node for node in await asyncio.gather(*map(one, node_ids)) if node is not None]


def _line(node: node_pb2.Node, version: str, look: OutputLook) -> NodeLine:
    counts: dict[str, int] = {}
    for row in rows_of([node]):
        counts[row.status.state] = counts.get(row.status.state, 0) + 1
    reasons = [
        WhyClosed(one.kind, clean_line(one.words), clean_line(one.actor), since_of(one, look))
        for one in reasons_of(node)
        if one.kind
        != LENT  # a server that is lent takes work, and its flag stands beside its state
    ]
    if node.pool == "inference" and LENT not in node.flags:
        reasons.append(WhyClosed("inference", "not lent", "", ""))
    return NodeLine(
        node.node_id,
        state_of(node),
        ", ".join(node.flags),
        ", ".join(f"{count} {state}" for state, count in counts.items()) or "none",
        clean_line(node.agent_version),
        node.agent_version != version,
        reasons,
    )


def _event(event: event_pb2.Event, look: OutputLook) -> list[str]:
    told = when(from_timestamp(event.event_time), look)
    return [told, event.kind, event.node_id, event.actor, about_of(event)]
