"""Mutual TLS channels to the master."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import grpc

from dlq_common.errors import ConfigError
from dlq_common.identity.facts import SERVER_NAME
from dlq_common.identity.files import StoredIdentity, load_identity, read_identity

# A Welcome carries every launch of the node, environments included.
LARGEST_MESSAGE_BYTES = 512 * 1024 * 1024  # a welcome holds the scripts of all jobs here


class KnownIdentity(NamedTuple):
    """An identity that was checked, and the facts of its certificate: to check it takes a library
    of many megabytes.
    """

    stored: StoredIdentity
    name: str
    cluster: str
    not_after_s: float


@dataclass(slots=True)
class Channels:
    """Opens channels with the present identity on disk, so that a renewal needs no restart."""

    address: str
    identity_dir: Path
    _known: KnownIdentity | None = None

    def known(self) -> KnownIdentity:
        """The node's present identity with its facts, as `identity`. Raises also Unauthenticated,
        for a certificate of another kind of cluster.
        """
        identity = self.identity()
        if self._known is None or self._known.stored != identity:
            from dlq_common.identity.pki import parse_identity

            who = parse_identity(identity.certificate)
            self._known = KnownIdentity(identity, who.name, who.cluster, who.not_after_s)
        return self._known

    def identity(self) -> StoredIdentity:
        """The node's identity; ConfigError, with the remedy, without an identity."""
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

    def open(self) -> grpc.aio.Channel:
        """A channel of its own connection: bytes of logs never stand before a heartbeat."""
        identity = self.identity()
        credentials = grpc.ssl_channel_credentials(
            root_certificates=identity.ca,
            private_key=identity.key,
            certificate_chain=identity.certificate,
        )
        return grpc.aio.secure_channel(self.address, credentials, options=_OPTIONS)


def join_channel(address: str, ca: bytes) -> grpc.aio.Channel:
    """A channel to the join port: the server proves itself, the client has nothing to show yet."""
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
