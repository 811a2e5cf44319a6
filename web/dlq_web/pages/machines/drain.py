"""The price of a drain before it is done: its jobs, their work and their promises.

The page shows it, and its button asks the master for the same change as `dlq admin node drain`.
While the master is away nothing changes. An agent that is away leaves its jobs until it is back.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlq.v1 import job_pb2
from dlq_cli.commands.cluster.nodes import names_of
from dlq_cli.lists.tasks import shown_id
from dlq_cli.output.render import clean_line
from dlq_cli.text.elastic import gpus_now
from dlq_cli.text.promises import slack, standing
from dlq_common.clock import Clock
from dlq_common.errors import InvalidRequest, PermissionDenied
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.units import approximate_span
from dlq_common.text.wire import from_duration
from dlq_web.door.sessions import line_of, person_of
from dlq_web.pages.machines.gpu_map import GpuMap, GpuUse
from dlq_web.pages.machines.maps import GpuMaps
from dlq_web.pages.machines.nodes import jobs_on, nodes_of, operates
from dlq_web.pages.page import page

MOST_NODES = 100
UNCOUNTED = 20  # so many nodes and jobs need no number typed in


class DrainedJob(NamedTuple):
    """A job that would have to leave."""

    job_id: str
    shown: str
    name: str
    user: str
    gpus: int
    loss: str  # of work that nothing is known to save; empty: it saves
    at_risk: str  # work since its last checkpoint
    grace: str
    promise: str
    endangered: bool


class DrainPrice(NamedTuple):
    """All of them together."""

    jobs: Sequence[DrainedJob]
    more: int  # that are not among `jobs`
    gpus: int
    free_elsewhere: int
    losing: int
    promised: int
    endangered: int
    longest_grace: str


def routes(clock: Clock, maps: GpuMaps) -> list[Route]:
    """The page."""
    return [Route("/drain", DrainPage(clock, maps).show, methods=["GET"])]


class DrainPage:
    """The page of one server."""

    def __init__(self, clock: Clock, maps: GpuMaps) -> None:
        self._maps = maps

    async def show(self, http: Request) -> Response:
        """The price of a drain of the named nodes. Raises PermissionDenied for users."""
        if not operates(http):
            person = person_of(http)
            raise PermissionDenied(
                f"this is for operators, and {person.name} is {person.role}", needs="operator"
            )
        names = _names(http)
        line = line_of(http)
        found = await nodes_of(line, names)
        known = [one.node_id for one in found]
        open_ones = [one for one in found if "draining" not in one.flags]
        jobs = await jobs_on(line, open_ones)
        attempts = {key for node in open_ones for key in node.attempts}
        price = price_of(jobs, len(attempts), await self._maps.of(http), frozenset(known))
        shown = compress_hostlist(known)
        return page(
            http, "drain", "Drain nodes", names=shown, nodes=known, price=price,
            missing=[one for one in names if one not in known],
            already=[one.node_id for one in found if "draining" in one.flags],
            counted=max(len(known), len(attempts)), uncounted=UNCOUNTED, after=-1,
            command=f"dlq admin node drain {shlex.quote(shown)} --reason",
        )  # fmt: skip


def price_of(
    jobs: Sequence[job_pb2.Job], attempts: int, whole: GpuMap, leaving: frozenset[str]
) -> DrainPrice:
    """The price of letting these jobs leave. `attempts` may be more than there are jobs told."""
    rows = [_drained(job) for job in jobs if not job.stop_cause]
    graces = [from_duration(job.grace_duration) for job in jobs if job.HasField("grace_duration")]
    free = sum(
        gpu.use is GpuUse.FREE
        for node in whole.nodes
        if node.node_id not in leaving
        for gpu in node.gpus
    )
    return DrainPrice(
        rows,
        max(0, attempts - len(jobs)),
        sum(row.gpus for row in rows),
        free,
        sum(bool(row.loss) for row in rows),
        sum(bool(row.promise) for row in rows),
        sum(row.endangered for row in rows),
        approximate_span(max(graces)) if graces else "",
    )


# --- helpers, in order of use ---------------------------------------------------------------------


def _names(http: Request) -> list[str]:
    """The nodes of the query, each of which may be a list. Raises InvalidRequest."""
    names = list(dict.fromkeys(names_of(list(filter(None, http.query_params.getlist("node"))))))
    if len(names) > MOST_NODES:
        raise InvalidRequest(
            f"{len(names)} nodes are more than {MOST_NODES}",
            field="node",
            hint="dlq admin node drain takes more at once",
        )
    return names


def _drained(job: job_pb2.Job) -> DrainedJob:
    promised = job.HasField("promise") and job.promise.state == "guaranteed"
    words = f"{standing(job.promise)} {slack(job.promise)}".strip() if promised else ""
    return DrainedJob(
        job.job_id,
        shown_id(job),
        clean_line(job.name),
        clean_line(job.user),
        gpus_now(job),
        clean_line(job.stop_loss.detail) if job.HasField("stop_loss") else "",
        _span(job, "work_at_risk_duration"),
        _span(job, "grace_duration"),
        clean_line(words),
        promised and _endangered(job),
    )


def _span(job: job_pb2.Job, field: str) -> str:
    return approximate_span(from_duration(getattr(job, field))) if job.HasField(field) else ""  # type: ignore[arg-type]  # the names of fields


def _endangered(job: job_pb2.Job) -> bool:
    """It is at risk already, or its slack is shorter than its stop, even with GPUs at once."""
    if job.promise.risk:
        return True
    if not job.promise.HasField("slack_duration"):
        return False
    cost_s = from_duration(job.stop_cost_duration)
    if job.HasField("stop_loss"):
        cost_s += from_duration(job.stop_loss.work_duration)
    return from_duration(job.promise.slack_duration) < cost_s
