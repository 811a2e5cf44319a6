"""A person's line to the master: calls and streams, over mutual TLS, without blocking the server.

A call is tried once. The browser or program repeats it, with the same key where it changes
something. A restarted master is dialled again by gRPC itself. Of several masters the one that leads
is asked: one that stands by has done nothing, so its word is followed within the call.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import grpc
from google.protobuf.message import Message
from grpc import aio

from dlq.v1 import identity_service_pb2 as identity_wire
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub
from dlq_client.line.connection import (
    CALL_DEADLINE_S,
    MOST_FOLLOWED,
    STREAM_DEADLINE_S,
    channel_credentials,
    channel_options,
)
from dlq_client.line.errors import from_rpc_error, is_deadline
from dlq_client.line.identity import Identity, certified
from dlq_client.line.masters import DIAL_MS, Masters
from dlq_common.clock import Clock
from dlq_common.errors import DlqError, NotLeader, Unauthenticated, Unavailable
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.pki import new_key_and_csr
from dlq_common.text.addresses import split_addresses
from dlq_web.line.methods import PublicMethod

RENEWAL_LOOK_S = 60.0
CALLS_AT_ONCE = 8  # of one person: many large answers at once would hold everybody else up


class Asking(Protocol):
    """Asks the master as one person. Calls raise a DlqError when the master refuses or is away."""

    async def call(self, method: PublicMethod, request: Message, timeout_s: float = ...) -> Any: ...
    def stream(self, method: PublicMethod, request: Message) -> AsyncGenerator[Any]: ...


class Overdue(Unavailable):
    """The time of the call was over before the master answered."""


def _nothing_renewed(_identity: Identity) -> None:
    """Nobody waits for that."""


def _nothing() -> None:
    """Nobody waits for that."""


class MasterLine:
    """The master, asked with one identity, or as a user for whom this identity may act."""

    def __init__(
        self,
        identity: Identity,
        clock: Clock,
        acts_for: ActsFor | None = None,
        present: Callable[[], Identity] | None = None,
    ) -> None:
        """To be made in the running event loop, whose channel it is. `present`: the identity of
        now, where somebody else renews it.
        """
        self.identity = identity
        self.gone: Callable[[], None] = _nothing
        """Hears when the master knows the caller no more."""
        self.renewed: Callable[[Identity], None] = _nothing_renewed
        self.places = asyncio.Semaphore(CALLS_AT_ONCE)
        """For calls on their way; lines of one person may share it."""
        self._clock = clock
        self._metadata = None if acts_for is None else acts_for.metadata()
        self._channel = MasterChannels(identity)
        self._present = present
        self._former: dict[asyncio.Task[None], MasterChannels] = {}

    def speak_for(self, user: ActsFor) -> None:
        """From now on each call is this user's."""
        self._metadata = user.metadata()

    async def call(
        self, method: PublicMethod, request: Message, timeout_s: float = CALL_DEADLINE_S
    ) -> Any:
        """The answer of a unary method. Raises DlqError."""
        async with self.places:
            for _ in range(MOST_FOLLOWED):
                with suppress(NotLeader):
                    return await self._ask(method, request, timeout_s)
            return await self._ask(method, request, timeout_s)

    async def _ask(self, method: PublicMethod, request: Message, timeout_s: float) -> Any:
        to = self._channels().present()
        ask = to.channel.unary_unary(
            method.path, type(request).SerializeToString, method.response.FromString
        )
        try:
            return await ask(request, timeout=timeout_s, metadata=self._metadata)
        except asyncio.CancelledError:
            raise self._cut_off() from None
        except grpc.RpcError as error:
            self._channel.masters.heard(to.address, error)
            told = self._told(error)
            raise Overdue(told.what) if is_deadline(error) else told from None

    async def stream(self, method: PublicMethod, request: Message) -> AsyncGenerator[Any]:
        """The messages of a method that streams its answer. Raises DlqError, also in the middle."""
        to = self._channels().present()
        ask = to.channel.unary_stream(
            method.path, type(request).SerializeToString, method.response.FromString
        )
        call = ask(request, timeout=STREAM_DEADLINE_S, metadata=self._metadata)
        try:
            async for message in call:
                yield message
        except asyncio.CancelledError:
            raise self._cut_off() from None
        except grpc.RpcError as error:
            self._channel.masters.heard(to.address, error, stream=True)
            raise self._told(error) from None
        finally:
            call.cancel()

    def _channels(self) -> MasterChannels:
        """The channels of the present identity. Calls on their way end on the former ones."""
        if self._present is not None and (fresh := self._present()) is not self.identity:
            self._take(fresh)
        return self._channel

    def _take(self, fresh: Identity) -> None:
        former, self._channel = self._channel, MasterChannels(fresh)
        self.identity = fresh
        leaving = asyncio.get_running_loop().create_task(former.close(STREAM_DEADLINE_S))
        self._former[leaving] = former
        leaving.add_done_callback(self._former.pop)

    @staticmethod
    def _cut_off() -> BaseException:
        """The asker was cancelled, or this line was closed. gRPC raises the same for both."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return asyncio.CancelledError()
        return Unavailable("this line to the master was closed")

    def _told(self, error: grpc.RpcError) -> DlqError:
        told = from_rpc_error(error, self.identity.address)
        if isinstance(told, Unauthenticated):
            self.gone()
        return told

    async def keep_renewed(self) -> None:
        """Renew the certificate in time, for ever: a server runs for weeks. The new one stays in
        memory, and calls on their way end on the old channel.
        """
        while True:
            await asyncio.sleep(RENEWAL_LOOK_S)
            try:
                if not self.identity.renewal_due(self._clock.now_s()) and not await self._wanted():
                    continue
                self._take(await self._renewed())
            except (grpc.RpcError, DlqError, OSError):
                continue  # the master is away, or the disk full; a third of its life is left
            self.renewed(self.identity)

    async def _wanted(self) -> bool:
        """Whether the master wishes a renewal, because the CA of the cluster changes."""
        digest = hashlib.sha256(self.identity.ca).hexdigest()
        request = identity_wire.CheckIdentityRequest(trust_digest=digest)
        stub: Any = IdentityServiceStub(self._channel.present().channel)
        return bool((await stub.CheckIdentity(request, timeout=CALL_DEADLINE_S)).renewal_wanted)

    async def _renewed(self) -> Identity:
        old, fresh = self.identity, new_key_and_csr(self.identity.user)
        request = identity_wire.RenewCertificateRequest(certificate_request=fresh.request)
        stub: Any = IdentityServiceStub(self._channel.present().channel)
        answer = await stub.RenewCertificate(request, timeout=CALL_DEADLINE_S)
        ca = answer.ca_certificates or old.ca
        return certified(fresh.key, answer.certificate, ca, old.address)

    async def close(self) -> None:
        """End the line; open streams are cancelled."""
        former = dict(self._former)
        for leaving in former:
            leaving.cancel()
        await asyncio.gather(self._channel.close(), *(each.close() for each in former.values()))


class DialledMaster(NamedTuple):
    """A master, and the channel to it."""

    address: str
    channel: aio.Channel


class MasterChannels:
    """The channels of one identity in the running event loop: one for each master that was
    dialled.
    """

    def __init__(self, identity: Identity) -> None:
        self.masters = Masters(split_addresses(identity.address))
        self._identity = identity
        self._channels: dict[str, aio.Channel] = {}

    def present(self) -> DialledMaster:
        """The master that is taken for the leader."""
        address = self.masters.address
        if address not in self._channels:
            self._channels[address] = open_channel(self._identity, address)
        return DialledMaster(address, self._channels[address])

    async def close(self, grace: float | None = None) -> None:
        """End all lines."""
        await asyncio.gather(*(each.close(grace) for each in self._channels.values()))


def open_channel(identity: Identity, address: str) -> aio.Channel:
    """A channel of the running event loop, with the settings of every line to the master."""
    # Each line is a connection of its own: the streams of one person leave room for another's.
    options = [*channel_options(), ("grpc.use_local_subchannel_pool", 1)]
    if "," in identity.address:
        options.append(("grpc.min_reconnect_backoff_ms", DIAL_MS))
    return aio.secure_channel(address, channel_credentials(identity), options=options)
