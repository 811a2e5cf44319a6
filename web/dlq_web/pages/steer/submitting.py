"""Queues a job from a form: first its meaning and its likely start, then the job.

One opened form and one text are one idempotency key: a second press queues nothing more. The
master accepts a job, or an array, as a whole or not at all. Where the master is away the page says
that the job may have been queued, and the same press again is safe.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dlq.v1 import forecast_service_pb2, job_pb2, node_service_pb2, team_service_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_cli.commands.jobs.submitted import Manner, accepted_line
from dlq_cli.commands.look.estimated import estimate_text
from dlq_cli.jobs.whole_nodes import take_whole_nodes
from dlq_cli.lists.story import reason_text
from dlq_cli.output.render import clean_line
from dlq_cli.spec.message import put_instants, to_message
from dlq_cli.spec.slurm.request import ACCOUNT, FEWEST, WHOLE
from dlq_cli.spec.understood import understood
from dlq_cli.spec.validate import Spec
from dlq_common.clock import Clock
from dlq_common.errors import DlqError, InvalidRequest, TryAgain, Unavailable, Unsatisfiable
from dlq_common.ids import Ids, RandomIds
from dlq_common.text.wire import to_duration
from dlq_web.api.refusals import body_of, outcome_of
from dlq_web.door.sessions import line_of, person_of
from dlq_web.line.calls import Asking
from dlq_web.line.methods import named
from dlq_web.pages.page import page
from dlq_web.pages.steer.asked import asked, key_of
from dlq_web.pages.steer.pasted import Pasted, Understood, understand
from dlq_web.pages.views import look_at

ESTIMATE_S = 5.0  # how long people wait for a forecast
REMEMBERED = 256  # submissions whose repeat is sent as it was
_SUBMIT, _ESTIMATE = named("JobService", "SubmitJob"), named("ForecastService", "EstimateJob")
_TEAMS, _NODES = named("TeamService", "ListTeams"), named("NodeService", "ListNodes")
_FIELDS = dict.fromkeys(("content", "name", "words", "directory", "zone", "key"), str)
_MANNER = Manner(parsable=False, as_json=False, wait=False, follow=False)


def routes(clock: Clock) -> list[Route]:
    """The form, what it means, and the submission."""
    form = SubmitForm(clock, RandomIds(clock))
    return [
        Route("/submit", form.show, methods=["GET"]),
        Route("/submit", form.submit, methods=["POST"]),
        Route("/submit/check", form.check, methods=["POST"]),
    ]


class SubmitForm:
    """The form for a job."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids
        self._sent: OrderedDict[tuple[str, str], job_pb2.JobSpec] = OrderedDict()
        self._reading: set[str] = set()  # people whose text is being read

    async def show(self, http: Request) -> Response:
        """An empty form with a key of its own."""
        return page(http, "submit", "Submit a job", key=self._ids.request_id(), after=-1)

    async def check(self, http: Request) -> Response:
        """Tell the meaning of the text, the word of the master, and the likely start."""
        told = await asked(http, _FIELDS)
        found = await self._read(http, told)
        if found.spec is None:
            return _refused(found.problems)
        line, message = line_of(http), await self._message(line_of(http), found.spec, told)
        try:
            answer = await _sent(line, found.spec, message, key="", validate_only=True)
            estimate = await self._estimate(line, message)
        except DlqError as error:
            return _refused([error])
        return JSONResponse(
            {
                "understood": understood(found.spec),
                "notes": [clean_line(note) for note in found.notes],
                "reasons": [reason_text(one) for one in answer.reasons],
                "estimate": estimate,
            }
        )

    async def submit(self, http: Request) -> Response:
        """Queue the job."""
        told = await asked(http, _FIELDS)
        key, found = key_of(told), await self._read(http, told)
        if found.spec is None:
            return _refused(found.problems)
        key = f"{key}.{_digest(told)}"
        line, message = line_of(http), await self._first(http, key, found.spec, told)
        try:
            answer = await _sent(line, found.spec, message, key=key)
        except Unavailable as error:
            error.hint = "it may have been queued; press again: it is queued once"
            raise
        except DlqError as error:
            return _refused([error])
        array = answer.job.HasField("array_task")
        job_id = answer.job.array_task.array_id if array else answer.job.job_id
        return JSONResponse(
            {
                "told": clean_line(accepted_line(job_id, answer.job, _MANNER)),
                "page": f"/jobs/{answer.job.job_id}",
                "reasons": [reason_text(one) for one in answer.reasons],
            }
        )

    async def _read(self, http: Request, told: dict[str, Any]) -> Understood:
        """The meaning of the text, off the loop: a long one takes seconds. One of each person."""
        name = person_of(http).name
        if name in self._reading:
            raise TryAgain("your last text is being read still", hint="press again in a moment")
        self._reading.add(name)
        try:
            return await asyncio.to_thread(understand, _pasted(told))
        finally:
            self._reading.discard(name)

    async def _first(
        self, http: Request, key: str, spec: Spec, told: dict[str, Any]
    ) -> job_pb2.JobSpec:
        """The message of the first press: in a second one `now+2h` would be another instant, and
        the master would take it for another job.
        """
        at = (person_of(http).name, key)
        if at not in self._sent:
            self._sent[at] = await self._message(line_of(http), spec, told)
            while len(self._sent) > REMEMBERED:
                self._sent.popitem(last=False)
        return self._sent[at]

    async def _message(self, line: Asking, spec: Spec, told: dict[str, Any]) -> job_pb2.JobSpec:
        """The spec as it is sent, settled as `dlq submit` settles one of Slurm's."""
        message = to_message(spec)
        put_instants(message, spec, now_s=self._clock.now_s(), zone=zone_named(told["zone"]))
        if spec.origins.get("team") == ACCOUNT and message.team:
            teams = await line.call(_TEAMS, team_service_pb2.ListTeamsRequest())
            if not teams.teams:
                message.team = ""  # without teams an account is any word
        if spec.origins.get("nodes") == WHOLE:
            nodes = await line.call(_NODES, node_service_pb2.ListNodesRequest(page_size=10_000))
            take_whole_nodes(message.resources, nodes.nodes)
        return message

    async def _estimate(self, line: Asking, message: job_pb2.JobSpec) -> str:
        """When it would start, in the words of `dlq estimate`."""
        request = forecast_service_pb2.EstimateJobRequest(
            spec=message, wait_duration=to_duration(ESTIMATE_S)
        )
        answer = await line.call(_ESTIMATE, request)
        return estimate_text(answer, look_at(self._clock.now_s()))


def zone_named(name: str) -> tzinfo:
    """The viewer's zone, in which a time without an offset is meant; UTC for an unknown one."""
    try:
        return ZoneInfo(name[:64])
    except (KeyError, ValueError, OSError):
        return UTC


async def _sent(
    line: Asking, spec: Spec, message: job_pb2.JobSpec, *, key: str, validate_only: bool = False
) -> wire.SubmitJobResponse:
    """The answer. A script of Slurm's that fits on no one node is spread, as `dlq submit` does."""
    request = wire.SubmitJobRequest(request_id=key, spec=message, validate_only=validate_only)
    try:
        answer: wire.SubmitJobResponse = await line.call(_SUBMIT, request)
    except Unsatisfiable:
        if spec.origins.get("nodes") != FEWEST or not message.resources.HasField("node_count"):
            raise
        message.resources.ClearField("node_count")
        request.spec.CopyFrom(message)
        request.request_id = f"{key}-s" if key else ""
        answer = await line.call(_SUBMIT, request)
    return answer


def _pasted(told: dict[str, Any]) -> Pasted:
    return Pasted(
        told["content"], told["name"] or "script", told["words"], told["directory"].strip()
    )


def _digest(told: dict[str, Any]) -> str:
    """Another text in the same form is another job."""
    words = "\0".join(told[name] for name in ("content", "name", "words", "directory"))
    return hashlib.blake2b(words.encode(), digest_size=8).hexdigest()


def _refused(problems: list[Any]) -> Response:
    """Every problem, as the first one's refusal."""
    first = problems[0]
    told = [
        {"message": clean_line(one.what), "hint": one.hint, "field": _field(one)}
        for one in problems
    ]
    return JSONResponse({**body_of(first), "problems": told}, outcome_of(first).status)


def _field(error: DlqError) -> str:
    return error.field if isinstance(error, InvalidRequest) else ""
