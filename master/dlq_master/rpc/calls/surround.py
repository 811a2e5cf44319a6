"""The methods of a service as gRPC serves them, with the same steps around each."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NoReturn

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass
from grpc import aio

from dlq_common.errors import InvalidRequest
from dlq_common.identity.pki import Role
from dlq_master.control.loop.failpoints import AFTER, BEFORE
from dlq_master.rpc.calls.call import Call, Context
from dlq_master.rpc.calls.errors import forget_frames
from dlq_master.rpc.calls.parts import MasterParts
from dlq_master.rpc.calls.passage import Passage
from dlq_master.rpc.calls.roles import NOBODY, RpcMethod

Stumble = Callable[[str, str], None]  # the sender, and when; it may raise
UNREADABLE = object()  # in place of a request whose bytes are no message
_KINDS: Mapping[tuple[bool, bool], Callable[..., Any]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


async def _nobodys(call: Call, request: Any) -> NoReturn:
    raise AssertionError("the door lets nobody in here")


NOBODYS = RpcMethod(NOBODY, _nobodys)  # a method that is missing in the table


def served(
    service: str,
    methods: Mapping[str, RpcMethod],
    passage: Passage,
    parts: MasterParts,
    stumble: Stumble | None = None,
) -> grpc.GenericRpcHandler:
    """The handlers of a service. A method that is missing in the table is refused. `stumble`: a
    failpoint.
    """
    wire = Default().FindServiceByName(service)
    handlers = {}
    for one in wire.methods:
        method = methods.get(one.name, NOBODYS)
        if stumble is not None:
            method = method._replace(handler=stumbling(method.handler, stumble))
        handlers[one.name] = _handler(one, method, passage, parts)
    return grpc.method_handlers_generic_handler(service, handlers)


def stumbling(handler: Callable[..., Any], stumble: Stumble) -> Callable[..., Any]:
    """The handler with the failpoint before and after it."""

    def passed(call: Call, when: str) -> None:
        if call.identity is not None:
            kind = "node" if call.identity.role is Role.NODE else "user"
            stumble(f"{kind}:{call.identity.name}", when)

    async def answering(call: Call, request: Any) -> Any:
        passed(call, BEFORE)
        answer = await handler(call, request)
        passed(call, AFTER)
        return answer

    async def streaming(call: Call, request: Any) -> AsyncIterator[Any]:
        passed(call, BEFORE)
        async for response in handler(call, request):
            yield response
        passed(call, AFTER)

    return streaming if inspect.isasyncgenfunction(handler) else answering


def _handler(
    wire: MethodDescriptor, method: RpcMethod, passage: Passage, parts: MasterParts
) -> Any:
    path = f"/{wire.containing_service.full_name}/{wire.name}"
    kind = wire.client_streaming, wire.server_streaming

    def begun(request: Any, context: Context) -> tuple[Call, Any]:
        call = Call(path, method, context, any(kind), parts)
        if wire.client_streaming:
            return call, _noting_first(request, call)
        if request is not UNREADABLE:
            call.request = request
        return call, request

    # gRPC's servicer of health writes the answers of its stream itself.
    streams = inspect.isasyncgenfunction(method.handler)
    behave = _streaming if streams else _answering
    return _KINDS[kind](
        behave(method.handler, begun, passage),
        request_deserializer=_readable(GetMessageClass(wire.input_type).FromString),
        response_serializer=_written(GetMessageClass(wire.output_type).SerializeToString),
    )


_Begun = Callable[[Any, Context], tuple[Call, Any]]


def _answering(
    handler: Callable[..., Any], begun: _Begun, passage: Passage
) -> Callable[[Any, Context], Awaitable[Any]]:
    async def behave(request: Any, context: Context) -> Any:
        call, request = begun(request, context)
        try:
            async with passage.of(call):
                answer = await handler(call, _read(request))
                if type(answer) is not bytes:
                    call.response = answer
        except aio.AbortError as end:
            forget_frames(end)
            del call, request, context
            raise
        return answer

    return behave


def _streaming(
    handler: Callable[..., Any], begun: _Begun, passage: Passage
) -> Callable[[Any, Context], AsyncIterator[Any]]:
    async def behave(request: Any, context: Context) -> AsyncIterator[Any]:
        call, request = begun(request, context)
        try:
            async with passage.of(call):
                async for response in handler(call, _read(request)):
                    call.writing = True
                    yield response
                    call.writing = False
                    if call.cut is not None:
                        raise call.cut
        except aio.AbortError as end:
            forget_frames(end)
            del call, request, context
            raise

    return behave


def _readable(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A decoder that never raises.

    gRPC answers UNKNOWN to an exception of a decoder and logs its trace, before the door has
    checked the caller.
    """

    def attempt(raw: bytes) -> Any:
        try:
            return read(raw)
        except Exception:  # noqa: BLE001 - DecodeError, or whatever protobuf raises of bytes like these
            return UNREADABLE

    return attempt


def _written(write: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """An encoder; an answer that its handler has encoded already passes unchanged."""
    return lambda answer: answer if type(answer) is bytes else write(answer)


def _read(request: Any) -> Any:
    if request is UNREADABLE:
        raise InvalidRequest("the request is no message of this method")
    return request


async def _noting_first(requests: AsyncIterator[Any], call: Call) -> AsyncIterator[Any]:
    """The decoded requests; the first one names the subject of the call."""
    async for request in requests:
        if call.request is None:
            call.request = _read(request)
        yield _read(request)
