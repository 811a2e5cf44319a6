"""Mutual TLS channels to the master."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import grpc

from dlq_client.line.errors import is_lost
from dlq_client.line.masters import Masters
from dlq_common.errors import ConfigError
from dlq_common.identity.facts import SERVER_NAME
from dlq_common.identity.files import StoredIdentity, load_identity, read_identity
from dlq_common.text.addresses import split_addresses

T = TypeVar("T")

# A Welcome carries every launch of the node, environments included.
LARGEST_MESSAGE_BYTES = 512 * 1024 * 1024  # a welcome holds the scripts of all jobs here


class KnownIdentity(NamedTuple):
    """A checked identity, and the facts of its certificate. The check needs a library of many
    megabytes.
    """

    stored: StoredIdentity
    name: str
    cluster: str
    not_after_s: float


@dataclass(slots=True)
class Channels:
    """Opens channels with the present identity on disk, so that a renewal needs no restart.

    They go to the presumed leader. `address`: all masters, separated by commas.
    """

    address: str
    identity_dir: Path
    masters: Masters = field(init=False)
    _known: KnownIdentity | None = None

    def __post_init__(self) -> None:
        self.masters = Masters(split_addresses(self.address))

    @property
    def count(self) -> int:
        """The number of configured masters."""
        return self.address.count(",") + 1

    def known(self) -> KnownIdentity:
        """The node's present identity with its facts, as `identity`.

        Also raises Unauthenticated, for a certificate of another kind of cluster.
        """
        identity = self.identity()
        if self._known is None or self._known.stored != identity:
            from dlq_common.identity.pki import parse_identity

            who = parse_identity(identity.certificate)
            self._known = KnownIdentity(identity, who.name, who.cluster, who.not_after_s)
        return self._known

    def identity(self) -> StoredIdentity:
        """The node's identity. ConfigError, with the remedy: it has none."""
        known = self._known
        if known is not None and read_identity(self.identity_dir) == known.stored:
            return known.stored
        identity = load_identity(self.identity_dir)
        if identity is None:
            raise ConfigError(
                f"this node has no identity in {self.identity_dir}",
                hint="run `dlq-nodeagent join --master HOST:PORT --token TOKEN` first",
            )
        return identity

    def trust_digest(self) -> str:
        """The digest of the CA certificates by which the node knows its master."""
        return hashlib.sha256(self.identity().ca).hexdigest()

    def open(self) -> grpc.aio.Channel:
        """A channel with its own connection, so that bytes of logs never delay a heartbeat."""
        identity = self.identity()
        credentials = grpc.ssl_channel_credentials(
            root_certificates=identity.ca,
            private_key=identity.key,
            certificate_chain=identity.certificate,
        )
        options = _OPTIONS if self.count == 1 else (*_OPTIONS, *_OF_SEVERAL)
        return grpc.aio.secure_channel(self.masters.address, credentials, options=options)

    async def on_leader(self, ask: Callable[[grpc.aio.Channel], Awaitable[T]]) -> T:
        """Ask the leading master: one after another, until one neither refuses as a standby nor is
        away.

        AioRpcError: that of the last one. `ask` may be repeated.
        """
        for left in reversed(range(self.count)):
            address = self.masters.address
            try:
                async with self.open() as channel:
                    return await ask(channel)
            except grpc.aio.AioRpcError as error:
                self.masters.heard(address, error)
                if not left or not is_lost(error):
                    raise
        raise AssertionError("there is a master")


def join_channel(address: str, ca: bytes) -> grpc.aio.Channel:
    """A channel to the join port: the server proves its identity, the client has none yet."""
    credentials = grpc.ssl_channel_credentials(root_certificates=ca)
    return grpc.aio.secure_channel(address, credentials, options=_OPTIONS)


_OPTIONS = [
    ("grpc.ssl_target_name_override", SERVER_NAME),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", LARGEST_MESSAGE_BYTES),
    # A cut line is noticed in seconds; the kernel alone would take a quarter of an hour.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # This concerns the pings that measure the line too: while one of them is out, none is sent for
    # this.
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Dialling again is decided by `uplink.Reconnect`; the library must not wait longer on its own.
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
]
# Where another master may take over, a dead or stopped one is noticed sooner. Later ones count.
_OF_SEVERAL = [
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
]


def hang_up(call: Any) -> None:
    """End a call of grpc.aio, and free its connection.

    After a failed write grpc.aio takes the call for done, and `cancel` does nothing. Its core would
    wait for ever, and hold the connection. A call and the generator of its messages hold each
    other, and with them the connection's socket, until Python looks at all old objects.
    """
    call.cancel()
    core = getattr(call, "_cython_call", None)
    if core is not None:
        core.cancel("hung up")
    if hasattr(call, "_message_aiter"):
        call._message_aiter = None
