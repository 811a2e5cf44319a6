"""One call on its way in, and the interceptor that surrounds every kind of call with the same
step.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message
from grpc import aio

from dlq_common.errors import InvalidRequest
from dlq_common.identity.pki import CertifiedIdentity

# Requests and responses differ from method to method; here they are only passed on.
Context: TypeAlias = "aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


UNREADABLE = object()  # in place of a request whose bytes are no message


@dataclass(slots=True)
class Call:
    """The knowledge of the steps around a call about it; they learn it on the way in."""

    method: str  # "/dlq.v1.JobService/SubmitJob"
    context: Context
    streaming: bool  # in either direction
    request: Message | None = None  # of a client that streams the first, once it has come
    response: Message | None = None  # set when one answer was made
    identity: CertifiedIdentity | None = None  # set once the certificate has been read


Step: TypeAlias = Callable[[Call], AbstractAsyncContextManager[None]]


class Surround(aio.ServerInterceptor):
    """Runs a step around each call; a step is a context manager that may refuse by raising."""

    def __init__(self, step: Step) -> None:
        self._step = step

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler with the step around it; None (no such method) stays None."""
        handler = await continuation(handler_call_details)
        return None if handler is None else self._wrapped(handler, handler_call_details.method)

    def _wrapped(self, handler: Handler, method: str) -> Handler:
        make, inner = _behaviour(handler)
        streams_answers = handler.response_streaming
        behave = (
            self._streaming(inner, method, handler.request_streaming)
            if streams_answers and inspect.isasyncgenfunction(inner)
            else self._answering(inner, method, handler.request_streaming, streams_answers)
        )
        wrapped: Handler = make(
            behave,
            request_deserializer=_readable(handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )
        return wrapped

    def _answering(
        self, inner: Callable[..., Any], method: str, request_streams: bool, writes: bool
    ) -> Callable[[Any, Context], Awaitable[Any]]:
        async def behave(request: Any, context: Context) -> Any:
            call = Call(method, context, request_streams or writes)
            if request_streams:
                request = _all_read(request)
            elif request is not UNREADABLE:
                call.request = request
            async with self._step(call):
                call.response = await inner(_read(request), context)
            return call.response

        return behave

    def _streaming(
        self, inner: Callable[..., Any], method: str, request_streams: bool
    ) -> Callable[[Any, Context], AsyncIterator[Any]]:
        async def behave(request: Any, context: Context) -> AsyncIterator[Any]:
            call = Call(method, context, True)
            if request_streams:
                request = _noting_first(_all_read(request), call)
            elif request is not UNREADABLE:
                call.request = request
            async with self._step(call):
                async for response in inner(_read(request), context):
                    yield response

        return behave


def _readable(read: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """The same reader; it never raises. gRPC answers UNKNOWN to what a reader raises, and logs its
    trace, before anybody has been asked who they are."""
    if read is None:
        return None

    def attempt(raw: bytes) -> Any:
        try:
            return read(raw)
        except Exception:  # noqa: BLE001 - DecodeError, or whatever protobuf raises of bytes like these
            return UNREADABLE

    return attempt


def _read(request: Any) -> Any:
    if request is UNREADABLE:
        raise InvalidRequest("the request is no message of this method")
    return request


async def _all_read(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _read(request)


async def _noting_first(requests: AsyncIterator[Any], call: Call) -> AsyncIterator[Any]:
    """The same requests; the first says what the call is about."""
    async for request in requests:
        if call.request is None:
            call.request = request
        yield request


def _behaviour(handler: Handler) -> tuple[Callable[..., Any], Callable[..., Any]]:
    kinds: tuple[tuple[Callable[..., Any], Callable[..., Any] | None], ...] = (
        (grpc.unary_unary_rpc_method_handler, handler.unary_unary),
        (grpc.unary_stream_rpc_method_handler, handler.unary_stream),
        (grpc.stream_unary_rpc_method_handler, handler.stream_unary),
        (grpc.stream_stream_rpc_method_handler, handler.stream_stream),
    )
    return next((make, inner) for make, inner in kinds if inner is not None)
