"""A person's line to the master: calls and streams, over mutual TLS, without blocking the server.

A call is tried once. The browser or program repeats it, with the same key where it changes
something. A restarted master is dialled again by gRPC itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message
from grpc import aio

from dlq.v1 import identity_service_pb2 as identity_wire
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub
from dlq_client.line.connection import (
    CALL_DEADLINE_S,
    STREAM_DEADLINE_S,
    channel_credentials,
    channel_options,
)
from dlq_client.line.errors import from_rpc_error, is_deadline
from dlq_client.line.identity import Identity, certified
from dlq_common.clock import Clock
from dlq_common.errors import DlqError, Unavailable
from dlq_common.identity.pki import new_key_and_csr
from dlq_web.line.methods import PublicMethod

RENEWAL_LOOK_S = 600.0


class Asking(Protocol):
    """Asks the master as one person. Calls raise a DlqError when the master refuses or is away."""

    async def call(self, method: PublicMethod, request: Message, timeout_s: float = ...) -> Any: ...
    def stream(self, method: PublicMethod, request: Message) -> AsyncGenerator[Any]: ...


class Overdue(Unavailable):
    """The time of the call was over before the master answered."""


class MasterLine:
    """The master, asked with one identity."""

    def __init__(self, identity: Identity, clock: Clock) -> None:
        """To be made in the running event loop, whose channel it is."""
        self.identity = identity
        self._clock = clock
        self._channel = open_channel(identity)

    async def call(
        self, method: PublicMethod, request: Message, timeout_s: float = CALL_DEADLINE_S
    ) -> Any:
        """The answer of a unary method. Raises DlqError."""
        ask = self._channel.unary_unary(
            method.path, type(request).SerializeToString, method.response.FromString
        )
        try:
            return await ask(request, timeout=timeout_s)
        except grpc.RpcError as error:
            told = from_rpc_error(error, self.identity.address)
            raise Overdue(told.what) if is_deadline(error) else told from None

    async def stream(self, method: PublicMethod, request: Message) -> AsyncGenerator[Any]:
        """The messages of a method that streams its answer. Raises DlqError, also in the middle."""
        ask = self._channel.unary_stream(
            method.path, type(request).SerializeToString, method.response.FromString
        )
        call = ask(request, timeout=STREAM_DEADLINE_S)
        try:
            async for message in call:
                yield message
        except grpc.RpcError as error:
            raise from_rpc_error(error, self.identity.address) from None
        finally:
            call.cancel()

    async def keep_renewed(self) -> None:
        """Renew the certificate in time, for ever: a server runs for weeks. The new one stays in
        memory, and calls on their way end on the old channel.
        """
        while True:
            await asyncio.sleep(RENEWAL_LOOK_S)
            if not self.identity.renewal_due(self._clock.now_s()):
                continue
            try:
                self.identity = await self._renewed()
            except (grpc.RpcError, DlqError):
                continue  # the master is away; there is a third of the certificate's life left
            old, self._channel = self._channel, open_channel(self.identity)
            await old.close(grace=STREAM_DEADLINE_S)

    async def _renewed(self) -> Identity:
        old, fresh = self.identity, new_key_and_csr(self.identity.user)
        request = identity_wire.RenewCertificateRequest(certificate_request=fresh.request)
        stub: Any = IdentityServiceStub(self._channel)
        answer = await stub.RenewCertificate(request, timeout=CALL_DEADLINE_S)
        ca = answer.ca_certificates or old.ca
        return certified(fresh.key, answer.certificate, ca, old.address)

    async def close(self) -> None:
        """End the line; open streams are cancelled."""
        await self._channel.close()


def open_channel(identity: Identity) -> aio.Channel:
    """A channel of the running event loop, with the settings of every line to the master."""
    return aio.secure_channel(
        identity.address, channel_credentials(identity), options=channel_options()
    )
