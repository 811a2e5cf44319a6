"""Every unary call of the master as HTTP, by the rules of Connect (connectrpc.com/docs/protocol).

`POST /api/dlq.v1.JobService/GetJob` takes the request as JSON or as protobuf and answers in the
same form. No method is written down here: the descriptors of the protocol say all.
"""

from __future__ import annotations

import json
import zlib

from google.protobuf.json_format import MessageToDict, Parse, ParseError
from google.protobuf.message import DecodeError, Message
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dlq_client.line.connection import CALL_DEADLINE_S
from dlq_common.errors import InvalidRequest, NotFound
from dlq_common.ids import Ids
from dlq_web.door.guard import LARGEST_BODY
from dlq_web.door.sessions import line_of
from dlq_web.line.methods import METHODS, PublicMethod

JSON, PROTO = "application/json", "application/proto"
CODINGS = ("identity", "gzip")
LONGEST_CALL_S = 60.0
KEY_HEADER = "Idempotency-Key"
DEEPEST = 64  # messages within messages


class Bridge:
    """Answers calls by the name of their method."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    async def answer(self, http: Request) -> Response:
        """One call. Raises DlqError."""
        method = _method_of(http)
        kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (JSON, PROTO):
            return _unsupported()
        coding = http.headers.get("content-encoding", "identity").strip().lower()
        if coding not in CODINGS:
            return _unknown_coding(coding)
        body = await http.body()
        request = read_request(method, kind, _unpacked(body) if coding == "gzip" else body)
        key = self._sign(method, request, http.headers.get(KEY_HEADER, ""))
        answer = await line_of(http).call(method, request, _deadline_s(http))
        headers = {KEY_HEADER: key} if key else {}
        if kind == PROTO:
            return Response(answer.SerializeToString(), media_type=PROTO, headers=headers)
        return JSONResponse(MessageToDict(answer), headers=headers)

    def _sign(self, method: PublicMethod, request: Message, given: str) -> str:
        """The key by which the master knows a repeat of this change; "": it changes nothing."""
        if not method.takes_request_id:
            return ""
        own = str(getattr(request, "request_id", ""))
        if own and given and own != given:
            raise InvalidRequest(
                f"{KEY_HEADER} and requestId name two different keys", field="requestId"
            )
        key = own or given or self._ids.request_id()
        setattr(request, "request_id", key)  # noqa: B010 - no type of all requests has the field
        return key


def read_request(method: PublicMethod, kind: str, body: bytes) -> Message:
    """The request in a body; InvalidRequest when it is none of this method."""
    name = method.request.DESCRIPTOR.name
    try:
        if kind == PROTO:
            return method.request.FromString(body)
        text = body.decode("utf-8") or "{}"
        return Parse(text, method.request(), max_recursion_depth=DEEPEST)
    except (ParseError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise InvalidRequest(f"the body is no {name}: {_short(error)}") from None
    except DecodeError:
        raise InvalidRequest(f"the body is no {name}") from None


def _method_of(http: Request) -> PublicMethod:
    path = f"/{http.path_params['service']}/{http.path_params['method']}"
    method = METHODS.get(path)
    if method is None:
        raise NotFound(f"there is no method {path[1:200]}", kind="method", id=path[1:200])
    if method.streams:
        raise InvalidRequest(
            f"{path[1:]} is a stream",
            hint="events and output are read at /v1/events and /v1/jobs/JOB/logs",
        )
    return method


def _deadline_s(http: Request) -> float:
    told = http.headers.get("connect-timeout-ms", "")
    if not told:
        return CALL_DEADLINE_S
    if not told.isascii() or not told.isdigit() or len(told) > 10:
        raise InvalidRequest("Connect-Timeout-Ms is a number of milliseconds of up to ten digits")
    return min(int(told) / 1000, LONGEST_CALL_S)


def _unsupported() -> Response:
    told = json.dumps({"code": "unknown", "message": f"the body is {JSON} or {PROTO}"})
    return Response(told, 415, {"Accept-Post": f"{JSON}, {PROTO}"}, media_type=JSON)


def _unknown_coding(coding: str) -> Response:
    told = {"code": "unimplemented", "message": f"a body cannot be packed by {coding[:64]!r} here"}
    return JSONResponse(told, 501, {"Accept-Encoding": ", ".join(CODINGS)})


def _unpacked(body: bytes) -> bytes:
    """The body that gzip has packed, up to the most that a body may have."""
    packed = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        text = packed.decompress(body, LARGEST_BODY + 1)
    except zlib.error:
        raise InvalidRequest("the body is no gzip") from None
    if len(text) > LARGEST_BODY:
        raise InvalidRequest(f"a request has at most {LARGEST_BODY} bytes")
    if not packed.eof or packed.unused_data:
        raise InvalidRequest("the body is no gzip")
    return text


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__
