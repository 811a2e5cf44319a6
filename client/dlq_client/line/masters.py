"""The masters of a cluster, of which one leads: the next call goes to the one that last answered.

A cluster with a standby has several addresses, written `a:7320,b:7320` wherever one address would
stand. A master that does not lead refuses with NOT_LEADER, has done nothing, and names the leader.
A call that fails is never repeated here. The caller repeats it, with the same key, and by then the
next address is dialled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from dlq_client.line.errors import from_rpc_error, is_deadline, is_lost
from dlq_common.errors import NotLeader

# A host that is gone says nothing: so long may dialling it take, where another can be dialled.
DIAL_MS = 2_000


class Masters:
    """The addresses, and the one to dial. Threads may share it."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._addresses = list(addresses)
        self.address = addresses[0]

    def failed(self, address: str, leader: str = "") -> None:
        """A call to this address failed; `leader`: it does not lead, and this one does."""
        if leader and leader != address:
            self.address = leader
        elif address == self.address:
            place = self._addresses.index(address) + 1 if address in self._addresses else 0
            self.address = self._addresses[place % len(self._addresses)]

    def heard(self, address: str, error: grpc.RpcError, *, stream: bool = False) -> None:
        """A call to this address failed so. A stream may end because its time is over."""
        if not is_lost(error) or (stream and is_deadline(error)) or _is_cancelled(error):
            return
        told = from_rpc_error(error, address)
        self.failed(address, told.metadata.get("leader", "") if is_not_leader(told) else "")


def is_not_leader(error: Exception) -> bool:
    """Whether another master leads: this one has done nothing."""
    return isinstance(error, NotLeader)


def _is_cancelled(error: grpc.RpcError) -> bool:
    code: Any = getattr(error, "code", None)
    return code is not None and code() is grpc.StatusCode.CANCELLED


class MastersChannel(grpc.Channel):
    """A channel to whichever master leads. Each address has a channel of its own, opened late."""

    def __init__(self, masters: Masters, dial: Callable[[str], grpc.Channel]) -> None:
        self.masters = masters
        self._dial = dial
        self._channels: dict[str, grpc.Channel] = {}

    def unary_unary(self, *method: Any, **options: Any) -> Any:
        """A callable, as gRPC's stubs want it; so are the others."""
        return self._asking("unary_unary", method, options)

    def stream_unary(self, *method: Any, **options: Any) -> Any:
        return self._asking("stream_unary", method, options)

    def unary_stream(self, *method: Any, **options: Any) -> Any:
        return self._streaming("unary_stream", method, options)

    def stream_stream(self, *method: Any, **options: Any) -> Any:
        return self._streaming("stream_stream", method, options)

    def subscribe(self, *given: Any, **named: Any) -> None:
        self._channel(self.masters.address).subscribe(*given, **named)

    def unsubscribe(self, callback: Any) -> None:
        for channel in list(self._channels.values()):
            channel.unsubscribe(callback)

    def close(self) -> None:
        """End all lines."""
        for channel in list(self._channels.values()):
            channel.close()

    def __enter__(self) -> MastersChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _channel(self, address: str) -> grpc.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._dial(address)
        return channel

    def _asking(self, kind: str, method: tuple[Any, ...], options: dict[str, Any]) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            address = self.masters.address
            ask = getattr(self._channel(address), kind)(*method, **options)
            try:
                return ask(*given, **named)
            except grpc.RpcError as error:
                self.masters.heard(address, error)
                raise

        return call

    def _streaming(self, kind: str, method: tuple[Any, ...], options: dict[str, Any]) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            address = self.masters.address
            ask = getattr(self._channel(address), kind)(*method, **options)
            return _HeardStream(ask(*given, **named), address, self.masters)

        return call


class _HeardStream:
    """The messages of a stream; its failure tells which master to dial next."""

    def __init__(self, call: Any, address: str, masters: Masters) -> None:
        self._call, self._address, self._masters = call, address, masters

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._call)
        except grpc.RpcError as error:
            self._masters.heard(self._address, error, stream=True)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)
