"""Puts the parts of the server together: the door around the API and the pages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError, InternalError, InvalidRequest, NotFound
from dlq_common.ids import Ids
from dlq_web.api import openapi, reading, streams
from dlq_web.api.bridge import Bridge
from dlq_web.api.health import WebHealth
from dlq_web.api.refusals import outcome_of, refusal
from dlq_web.door.guard import HEADERS, Guard
from dlq_web.door.sessions import Person, WebSessions
from dlq_web.door.signing import SigningDoor
from dlq_web.door.wall import WallToken
from dlq_web.pages import audit, job, loans, me, pages, promises, search
from dlq_web.pages.foresee import future
from dlq_web.pages.machines import drain, gpus, nodes, use
from dlq_web.pages.machines.maps import GpuMaps
from dlq_web.pages.page import LOOK, STATIC, refusal_page
from dlq_web.pages.steer import acting, submitting
from dlq_web.wall import Wall


def build_app(
    person: Person,
    sessions: WebSessions,
    hosts: Collection[str],
    clock: Clock,
    ids: Ids,
    cookie: str,
    home: Path | None = None,
) -> Starlette:
    """The server of one person. `hosts`: the values of the header Host that are its own. `home`:
    where the token of its wall lies.
    """
    guard = Middleware(
        Guard, sessions=sessions, hosts=hosts, cookie=cookie, clock=clock, refuse=refused
    )
    wall = Wall(person.line, WallToken(home), clock)
    doors = [*SigningDoor(sessions, cookie).routes(), *wall.routes()]
    app = assembled(doors, WebHealth(), guard, clock, ids)
    app.state.person = person
    return app


def assembled(
    doors: Sequence[Route], health: WebHealth, guard: Middleware, clock: Clock, ids: Ids
) -> Starlette:
    """The API and the pages behind these doors."""
    maps = GpuMaps(clock)
    return Starlette(
        routes=[
            *doors,
            *health.routes(),
            *streams.routes(),
            *reading.routes(),
            *openapi.routes(),
            Route("/api/{service}/{method}", Bridge(ids).answer, methods=["POST"]),
            *pages.routes(clock),
            *search.routes(clock),
            *promises.routes(clock),
            *loans.routes(clock),
            *me.routes(clock),
            *job.routes(clock),
            *future.routes(clock),
            *acting.routes(clock),
            *submitting.routes(clock),
            *gpus.routes(maps),
            *nodes.routes(clock, maps),
            *drain.routes(clock, maps),
            *use.routes(clock, maps),
            *audit.routes(clock),
            Mount("/static", StaticFiles(directory=STATIC, packages=[LOOK])),
        ],
        middleware=[guard],
        exception_handlers={
            DlqError: _refused,
            HTTPException: _unknown,
            Exception: _incident,
        },
    )


def refused(http: HTTPConnection, error: DlqError) -> Response:
    """A refusal: a page for people, JSON for programs."""
    if "text/html" in http.headers.get("accept", ""):
        return refusal_page(http, error, outcome_of(error).status)
    return refusal(error)


async def _refused(http: Request, error: Exception) -> Response:
    assert isinstance(error, DlqError)
    return refused(http, error)


async def _unknown(http: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        told: DlqError = InvalidRequest(f"{http.method} is not for {http.url.path[:200]}")
        answer = refused(http, told)
        answer.status_code = 405
        answer.headers.update(error.headers or {})  # Allow
        return answer
    return refused(http, NotFound(f"there is no page {http.url.path[:200]}", kind="page"))


async def _incident(http: Request, error: Exception) -> Response:
    """Our fault. The log has the trace, and the caller no text of ours."""
    get_logger("web").error("request_failed", path=http.url.path, exc_info=error)
    answer = refused(http, InternalError("a fault of the web server", hint="see its log"))
    answer.headers.update(HEADERS)  # the guard does not see this answer
    answer.headers["Cache-Control"] = "no-store"
    return answer
