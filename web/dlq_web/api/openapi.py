"""`/openapi.json`: the API by OpenAPI 3.1, made of the protocol's descriptors and of the tables of
reads and streams. The server answers by the same tables, so it cannot say what the server does not
do. The refusals of streams alone are written by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dlq_cli.facts.common import SCHEMA
from dlq_web.api.bridge import JSON
from dlq_web.api.params import Param
from dlq_web.api.resources import RESOURCES, Resource
from dlq_web.api.stream_reads import STREAMS, StreamRead
from dlq_web.line.methods import METHODS, PublicMethod

_F = FieldDescriptor
_TEXT: dict[str, Any] = {"type": "string"}
_WIDE = {"type": ["string", "integer"], "format": "int64"}
_SCALARS: dict[int, dict[str, Any]] = {
    _F.TYPE_BOOL: {"type": "boolean"},
    _F.TYPE_STRING: _TEXT,
    _F.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    _F.TYPE_INT32: {"type": "integer", "format": "int32"},
    _F.TYPE_UINT32: {"type": "integer", "minimum": 0},
    _F.TYPE_SINT32: {"type": "integer", "format": "int32"},
    _F.TYPE_INT64: _WIDE,
    _F.TYPE_SINT64: _WIDE,
    _F.TYPE_UINT64: _WIDE,
    _F.TYPE_DOUBLE: {"type": "number"},
    _F.TYPE_FLOAT: {"type": "number"},
}
_KNOWN = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?\d+(\.\d+)?s$"},
}
_ERROR = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {
        "code": {"type": "string", "description": "The word of Connect."},
        "message": {"type": "string", "description": "One line for people."},
        "reason": {"type": "string", "description": "The stable word of dlq."},
        "hint": {"type": "string", "description": "What helps."},
        "field": {"type": "string", "description": "The wrong part of the request."},
        "facts": {"type": "object", "additionalProperties": _TEXT},
        "details": {"type": "array", "items": {"type": "object"}},
    },
}
_RETRY_AFTER = {
    "description": "Seconds after which to come back.",
    "schema": {"type": "integer", "minimum": 1},
}
_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "session": {"type": "apiKey", "in": "cookie", "name": "dlq_PORT"},
}


def routes() -> list[Route]:
    """The one route."""
    return [Route("/openapi.json", _told, methods=["GET"])]


async def _told(_http: Request) -> Response:
    return JSONResponse(description())


@cache
def description() -> dict[str, Any]:
    """The whole description."""
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths = {f"/v1{one.path}": {"get": _read(one)} for one in RESOURCES}
    paths |= {f"/v1{one.path}": {"get": _stream(one)} for one in STREAMS}
    for path, method in METHODS.items():
        if not method.streams:
            paths[f"/api{path}"] = {"post": _call(method, schemas)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "dlq", "version": version("dlq")},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": _SECURITY},
        "security": [{name: []} for name in _SECURITY],
    }


def _read(resource: Resource) -> dict[str, Any]:
    within = [f"{{{param.name}}}" in resource.path for param in resource.params]
    params = [
        _param(param, in_path=inside) for param, inside in zip(resource.params, within, strict=True)
    ]
    own = [
        _named("fields", "Only these fields, with commas between them.", _TEXT),
        _named("wait", "Seconds to wait for another answer than that of If-None-Match.",
               {"type": "integer", "minimum": 0, "maximum": 60}),
    ]  # fmt: skip
    return {
        "summary": resource.summary,
        "operationId": "read" + "".join(_words(resource.path)),
        "parameters": [*params, *own],
        "responses": _responses(_document(resource)) | {"304": {"description": "Nothing changed."}},
    }


def _stream(stream: StreamRead) -> dict[str, Any]:
    """A stream. Its answer is a text to JSON schema, whose parts come one by one."""
    content = {
        kind: {"schema": _TEXT | {"description": words}} for kind, words in stream.kinds.items()
    }
    answer: dict[str, Any] = {"description": "The stream.", "content": content}
    if stream.told:
        answer["headers"] = {
            name: {"description": words, "schema": {"type": "integer"}}
            for name, words in stream.told.items()
        }
    refusals = {str(status): _refusal(stream.refusals[status]) for status in stream.refusals}
    for status in ("429", "503"):
        refusals[status]["headers"] = {"Retry-After": _RETRY_AFTER}
    return {
        "summary": stream.summary,
        "description": stream.help,
        "operationId": "stream" + "".join(_words(stream.path)),
        "parameters": [
            *(_param(param, in_path=True) for param in stream.of_path()),
            *(_param(param, in_path=False) for param in stream.of_query()),
            *(
                _named(name, words, _TEXT) | {"in": "header"}
                for name, words in stream.asked.items()
            ),
        ],
        "responses": {"200": answer, **dict(sorted(refusals.items())), **_other()},
    }


def _document(resource: Resource) -> dict[str, Any]:
    """The part of the facts that each answer of a read has."""
    known: dict[str, Any] = {"schema": {"const": SCHEMA}}
    if resource.items:
        known[resource.items] = {"type": "array", "items": {"type": "object"}}
    return {"type": "object", "required": list(known), "properties": known}


def _words(path: str) -> Iterable[str]:
    return (word.strip("{}").capitalize() for word in path.split("/") if word)


def _param(param: Param, *, in_path: bool) -> dict[str, Any]:
    told = _named(param.name, param.help, {"type": param.kind})
    return told | {"in": "path", "required": True} if in_path else told


def _named(name: str, help_: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": help_, "schema": schema}


def _call(method: PublicMethod, schemas: dict[str, Any]) -> dict[str, Any]:
    asked: Any = method.request.DESCRIPTOR
    told: Any = method.response.DESCRIPTOR
    service, name = method.path.rsplit("/", 1)
    return {
        "operationId": f"{service.rsplit('.', 1)[1]}{name}",
        "requestBody": {"required": True, "content": {JSON: {"schema": _message(asked, schemas)}}},
        "responses": _responses(_message(told, schemas)),
    }


def _responses(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "200": {"description": "The answer.", "content": {JSON: {"schema": schema}}},
        **_other(),
    }


def _other() -> dict[str, Any]:
    return {"default": _refusal("A refusal.")}


def _refusal(words: str) -> dict[str, Any]:
    error = {"schema": {"$ref": "#/components/schemas/Error"}}
    return {"description": words, "content": {JSON: error}}


def _message(kind: Descriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    """A reference to the schema of a message, which is made where it is not there yet."""
    if kind.full_name in _KNOWN:
        return _KNOWN[kind.full_name]
    if kind.full_name not in schemas:
        schemas[kind.full_name] = {}  # messages may be within themselves
        properties = {field.json_name: _field(field, schemas) for field in kind.fields}
        schemas[kind.full_name] = {"type": "object", "properties": properties}
    return {"$ref": f"#/components/schemas/{kind.full_name}"}


def _field(field: FieldDescriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = field.message_type.fields_by_name["value"]
        return {"type": "object", "additionalProperties": _single(value, schemas)}
    single = _single(field, schemas)
    return {"type": "array", "items": single} if field.is_repeated else single


def _single(field: FieldDescriptor, schemas: dict[str, Any]) -> dict[str, Any]:
    if field.message_type is not None:
        return _message(field.message_type, schemas)
    if field.enum_type is not None:
        return {"enum": [value.name for value in field.enum_type.values]}
    return _SCALARS[field.type]
