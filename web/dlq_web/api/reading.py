"""Answers the reads below `/v1`: tags to see that nothing changed, waiting, and chosen fields.

A read with `wait=30` and the tag of its last answer waits until something else would be answered.
It then asks again after each event that its caller may see, once a second at most. It asks once
more at the end: not all that changes is an event for everybody.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dlq_cli.facts.common import SCHEMA, Facts
from dlq_common.errors import InvalidRequest
from dlq_web.api.lists import refuse_unknown
from dlq_web.api.params import by_parameter, fill, whole_number
from dlq_web.api.resources import RESOURCES, Resource
from dlq_web.door.sessions import line_of, person_of

LONGEST_WAIT_S = 60
BETWEEN_LOOKS_S = 1.0
_OWN = ("fields", "wait")  # of every read


def routes() -> list[Route]:
    """A route for each resource."""
    return [Route(f"/v1{one.path}", _endpoint(one), methods=["GET"]) for one in RESOURCES]


def _endpoint(resource: Resource) -> Any:
    async def endpoint(http: Request) -> Response:
        return await read(resource, http)

    return endpoint


async def read(resource: Resource, http: Request) -> Response:
    """The answer, or 304 when the caller has it already. Raises DlqError."""
    given = _given(http)
    wait_s = whole_number("wait", given.pop("wait", "0"), 0, LONGEST_WAIT_S)
    fields = [name for name in given.pop("fields", "").split(",") if name]
    request = resource.method.request()
    resource.usual(request)
    fill(request, resource.params, {**given, **_of_path(http)})
    known = _known_tags(http)
    feed, loop = person_of(http).feed, asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    while True:
        mark = feed.mark() if wait_s else 0
        answer = await _asked(resource, request, http)
        refuse_unknown(request, answer)
        body = _document(chosen(resource.facts(answer), fields, resource.items))
        tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
        if not known & {tag, "*"}:
            return Response(body, media_type="application/json", headers={"ETag": tag})
        left_s = until_s - loop.time()
        if left_s <= 0 or feed.closed or await http.is_disconnected():
            return Response(status_code=304, headers={"ETag": tag})
        if await feed.changed(mark, left_s):
            await asyncio.sleep(min(BETWEEN_LOOKS_S, max(0.0, until_s - loop.time())))


async def _asked(resource: Resource, request: Any, http: Request) -> Any:
    try:
        return await line_of(http).call(resource.method, request)
    except InvalidRequest as error:
        raise by_parameter(resource.params, error) from None


def _known_tags(http: Request) -> set[str]:
    """The tags in If-None-Match. A weak one, which proxies make of ours, is as good."""
    told = ",".join(http.headers.getlist("if-none-match"))
    return {tag.strip().removeprefix("W/") for tag in told.split(",")}


def chosen(facts: Facts, fields: list[str], items: str) -> Facts:
    """The facts with these fields alone: of each item of a list, else of the only thing. All, when
    no field is named. InvalidRequest for a field that is not there.
    """
    if not fields:
        return facts
    if items:
        return facts | {items: [_some(one, fields) for one in facts[items]]}
    if len(facts) == 1:
        ((key, only),) = facts.items()
        return {key: _some(only, fields)}
    return _some(facts, fields)


def _some(facts: Mapping[str, Any], fields: list[str]) -> Facts:
    missing = next((name for name in fields if name not in facts), None)
    if missing is not None:
        raise InvalidRequest(
            f"fields: there is no {missing[:64]!r}",
            field="fields",
            hint="fields: " + ", ".join(facts),
        )
    return {name: facts[name] for name in fields}


def _document(facts: Facts) -> bytes:
    told = {"schema": SCHEMA, **facts}
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _given(http: Request) -> dict[str, str]:
    """The query; InvalidRequest for a parameter that comes twice."""
    given: dict[str, str] = {}
    for name, value in http.query_params.multi_items():
        if name in given:
            raise InvalidRequest(f"{name[:64]} is given twice", field=name[:64])
        given[name] = value
    return given


def _of_path(http: Request) -> dict[str, str]:
    return {name: str(value) for name, value in http.path_params.items()}
