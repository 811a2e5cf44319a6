"""The page of one job: its reasons, its promise, its lease, its attempts, its output.

It asks a few calls of the master, and one for each of a few nodes. Each answer is bounded. A node
that is not there any more leaves its GPUs out, and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlq.v1 import event_pb2, job_pb2, job_service_pb2, node_pb2, node_service_pb2
from dlq_cli.commands.cluster.gpus import GPU_CELLS, gpu_row
from dlq_cli.facts.gpus import Row, rows_of
from dlq_cli.lists.story import ATTEMPT_CELLS, attempt_row
from dlq_cli.words import ENDED, shown_state
from dlq_client.jobs import SEE_ALL
from dlq_common.clock import Clock
from dlq_common.errors import DlqError
from dlq_common.text.hook_words import hook_words
from dlq_web.door.sessions import line_of, person_of
from dlq_web.line.calls import Asking
from dlq_web.line.methods import named
from dlq_web.pages import job_views, views
from dlq_web.pages.job_group import group_of
from dlq_web.pages.page import page
from dlq_web.pages.sheets import Sheet, sheet

MOST_NODES = 8  # whose GPUs are shown
MOST_EVENTS = 200
_STORY = ("promise_*", "attempt_preempted", "attempt_preempted_lost")
_GET_JOB, _EXPLAIN = named("JobService", "GetJob"), named("JobService", "ExplainJob")
_EVENTS, _GET_NODE = named("JobService", "ListEvents"), named("NodeService", "GetNode")


def routes(clock: Clock) -> list[Route]:
    """The page."""
    return [Route("/jobs/{job}", JobPage(clock).show, methods=["GET"], name="job")]


class JobPage:
    """A job, by the time of one clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def show(self, http: Request) -> Response:
        """Everything about one job."""
        line, look, person = line_of(http), views.look_at(self._clock.now_s()), person_of(http)
        job_id = http.path_params["job"]
        answer, why = await asyncio.gather(
            line.call(_GET_JOB, job_service_pb2.GetJobRequest(job_id=job_id)),
            line.call(_EXPLAIN, job_service_pb2.ExplainJobRequest(job_id=job_id)),
        )
        job, attempts = answer.job, list(answer.attempts)
        living = next((one for one in attempts[-1:] if not one.HasField("end_time")), None)
        events, gpus, group = await asyncio.gather(
            _story(line, job), _gpus(line, living), group_of(line, job, look)
        )
        cards = job_views.cards_of(answer, look)
        return page(
            http, "job", f"Job {job.job_id}", row=views.job_row(job, look), job=job, why=why,
            reasons=job_views.reasons_of(why, look, every=person.role in SEE_ALL),
            depends=job_views.depends_of(job), waits=job_views.waits_of(why), bar=job_views.BAR,
            lease=job_views.lease_of(living, look), promise=cards.promise, saving=cards.saving,
            speed=cards.speed, facts=cards.rest, preempted=job_views.preempted_of(job),
            events=job_views.event_rows(events, look), gpus=_gpu_sheet(gpus),
            attempts=sheet(ATTEMPT_CELLS, [attempt_row(one, look) for one in attempts[::-1]]),
            ending=job_views.ending_of(attempts), start=job_views.start_of(job, look),
            output=job_views.output_of(attempts), actions=actions_for(shown_state(job)), after=-1,
            group=group, notes=[hook_words(note) for note in answer.spec.hook_notes],
        )  # fmt: skip


def actions_for(state: str) -> list[str]:
    """The changes that suit a job in this state. The master may still refuse one."""
    if state in ENDED:
        return []
    if state == "held":
        return ["release", "resume", "cancel"]
    if state in ("pending", "queued"):
        return ["hold", "cancel"]
    return ["pause", "requeue", "cancel"]


async def _story(line: Asking, job: job_pb2.Job) -> Sequence[event_pb2.Event]:
    """The events of its promise, and of its GPUs that others took; most jobs have none."""
    if not job.HasField("promise") and not job.preemption_count:
        return ()
    chosen = event_pb2.EventFilter(kinds=_STORY)
    request = job_service_pb2.ListEventsRequest(
        job_id=job.job_id, page_size=MOST_EVENTS, filter=chosen
    )
    found: Sequence[event_pb2.Event] = (await line.call(_EVENTS, request)).events
    return found


async def _gpus(line: Asking, living: job_pb2.Attempt | None) -> list[Row]:
    """The GPUs that it holds, in the order of its ranks."""
    slots = living.lease.allocation.slots[:MOST_NODES] if living is not None else ()
    nodes = await asyncio.gather(*(_node(line, slot.node_id) for slot in slots))
    return [
        row
        for slot, node in zip(slots, nodes, strict=True)
        if node is not None
        for row in rows_of([node])
        if row.gpu.index in slot.gpu_indexes
    ]


async def _node(line: Asking, node_id: str) -> node_pb2.Node | None:
    try:
        answer = await line.call(_GET_NODE, node_service_pb2.GetNodeRequest(node_id=node_id))
    except DlqError:
        return None
    node: node_pb2.Node = answer.node
    return node


def _gpu_sheet(rows: Sequence[Row]) -> Sheet:
    return sheet(GPU_CELLS, [gpu_row(row) for row in rows])
