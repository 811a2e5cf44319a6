"""The certificate of a node: it joins with a token, and renews with its present certificate.

The library that makes certificates is loaded at the first use, which is mostly weeks after the
start.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from dlq.v1 import agent_service_pb2 as wire_agent
from dlq.v1 import identity_service_pb2 as wire
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub, JoinServiceStub
from dlq_common.clock import Clock, SteadyClock, clock_doubt
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError, Unauthenticated, Unavailable
from dlq_common.identity.facts import is_near_end
from dlq_common.identity.files import (
    StoredIdentity,
    save_identity,
    write_private,
    write_public,
)
from dlq_common.text.addresses import split_address, split_addresses
from dlq_common.text.instants import format_instant
from dlq_nodeagent.line.channel import Channels, join_channel

if TYPE_CHECKING:
    from dlq_common.identity.pki import CertifiedIdentity, KeyAndRequest

ADDRESS_FILE = "master-address"
_REQUEST_FILE = "join-request.json"
_DEADLINE_S = 20.0
_RENEW_LOOK_S = 600.0
_AGAIN_S = 1.0
_AFTER_A_FAULT_S = 5.0

log = get_logger("nodeagent.identity")


@dataclass(frozen=True, slots=True)
class Joined:
    """The identity of a node in its cluster from now on."""

    node_id: str
    api_address: str


async def join(address: str, token_text: str, *, wished_node_id: str, state_dir: Path) -> Joined:
    """Exchange a token for a node certificate and store it in `state_dir`. `address`: one master's.

    The server is trusted only if it presents the CA that the token pins. The key is made here and
    never leaves. May be repeated with the same token when an answer was lost: the request is kept
    until it is answered, and the master recognises it. Raises DlqError.
    """
    from dlq_common.identity.join_token import fetch_pinned_ca, parse_join_token

    token = parse_join_token(token_text)
    host, port = split_address(address)
    ca = await asyncio.to_thread(
        fetch_pinned_ca, host, port, token.ca_fingerprint, timeout_s=_DEADLINE_S
    )
    made = _kept_request(state_dir, wished_node_id)
    request = wire.JoinRequest(token=token_text, certificate_request=made.request)
    try:
        async with join_channel(address, ca) as channel:
            answer = await JoinServiceStub(channel).Join(request, timeout=_DEADLINE_S)
    except grpc.aio.AioRpcError as error:
        raise _error(error, "join") from None
    _must_be_read(answer)
    identity = StoredIdentity(made.key, answer.certificate, answer.ca_certificates)
    who = _check(identity, answer.node_id, ca)
    if who.not_after_s <= SteadyClock().now_s():
        raise Unauthenticated(
            f"the clock of this host is ahead of the master's: to it, the new certificate ended at "
            f"{format_instant(who.not_after_s)}; set the clock (timedatectl) and join again"
        )
    save_identity(state_dir, identity)
    write_public(state_dir / ADDRESS_FILE, f"{answer.api_address}\n".encode())
    (state_dir / _REQUEST_FILE).unlink(missing_ok=True)
    return Joined(answer.node_id, answer.api_address)


async def join_any(
    addresses: str, token_text: str, *, wished_node_id: str, state_dir: Path
) -> Joined:
    """Join by the first leading master. Unavailable: all are standbys or away."""
    *others, last = split_addresses(addresses)
    ask = partial(join, token_text=token_text, wished_node_id=wished_node_id, state_dir=state_dir)
    for address in others:
        with suppress(Unavailable):
            return await ask(address)
    return await ask(last)


async def persist(
    attempt: Callable[[], Awaitable[Joined]],
    patience_s: float,
    clock: Clock,
    pause_s: float = _AGAIN_S,
) -> Joined:
    """Repeat the join while the master does not answer; Unavailable after `patience_s`."""
    end_s = clock.boottime_s() + patience_s
    while True:
        try:
            return await attempt()
        except Unavailable:
            if clock.boottime_s() >= end_s:
                raise
        await asyncio.sleep(pause_s)


def _kept_request(state_dir: Path, wished_node_id: str) -> "KeyAndRequest":
    """The key and request of an unanswered join, or new ones, stored before they are used."""
    from dlq_common.identity.pki import KeyAndRequest, new_key_and_csr

    path = state_dir / _REQUEST_FILE
    if path.exists():
        kept = json.loads(path.read_text("ascii"))
        if kept["node_id"] == wished_node_id:
            return KeyAndRequest(kept["key"].encode(), kept["request"].encode())
    made = new_key_and_csr(wished_node_id)
    state_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    texts = {"key": made.key.decode(), "request": made.request.decode()}
    write_private(path, json.dumps({"node_id": wished_node_id, **texts}).encode())
    return made


def stored_address(state_dir: Path) -> str | None:
    """The API address that the master gave at the join; None: not joined yet."""
    try:
        return (state_dir / ADDRESS_FILE).read_text("ascii").strip() or None
    except FileNotFoundError:
        return None


class RenewalWish:
    """The master's order that this node renews at once, because the cluster's CA changes.

    It comes with heartbeats. All nodes hear it within seconds, so each waits for a random part of
    `spread_s`.
    """

    def __init__(self, channels: Channels, spread_s: float = 0.0) -> None:
        self._channels = channels
        self._spread_s = spread_s
        self._heard = asyncio.Event()

    def hear(self, reply: wire_agent.HeartbeatReply) -> None:
        """Note the order in one answer."""
        if not reply.trust_digest:
            return
        wanted = reply.renewal_wanted
        if wanted or reply.trust_digest != self._channels.trust_digest():
            self._heard.set()

    async def wait(self, longest_s: float) -> bool:
        """Wait for an order, or until the time is over; whether there is one, which is
        then taken.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self._heard.wait(), longest_s)
        if not self._heard.is_set():
            return False
        await asyncio.sleep(random.uniform(0.0, self._spread_s))
        return True

    def taken(self) -> None:
        """The certificate is new."""
        self._heard.clear()


async def renew_if_due(channels: Channels, clock: Clock, *, wanted: bool = False) -> bool:
    """Renew at two thirds of the certificate's life, or on the master's order; whether it did.

    Raises DlqError. The name stays; the key is new. The old identity stays in place until the new
    one is on disk.
    """
    known = channels.known()
    if not wanted and not is_near_end(known.not_after_s, clock.now_s()):
        return False
    from dlq_common.identity.pki import new_key_and_csr

    before, name = known.stored, known.name
    made = new_key_and_csr(name)
    request = wire.RenewCertificateRequest(certificate_request=made.request)
    try:
        async with channels.open() as channel:
            stub = IdentityServiceStub(channel)
            answer = await stub.RenewCertificate(request, timeout=_DEADLINE_S)
    except grpc.aio.AioRpcError as error:
        raise _error(error, "renew the certificate") from None
    _must_be_read(answer)
    identity = StoredIdentity(made.key, answer.certificate, answer.ca_certificates or before.ca)
    # The line proves the master. A new CA may have signed, and its root is in the answer.
    _check(identity, name, identity.ca)
    save_identity(channels.identity_dir, identity)
    return True


async def keep_renewed(
    channels: Channels,
    clock: Clock,
    wish: RenewalWish | None = None,
    renewed: Callable[[], object] = lambda: None,
) -> None:
    """Check every ten minutes, and on the master's order, for ever.

    A failure is logged and tried again. `renewed` is called after a renewal that the master
    ordered.
    """
    wish, wanted = wish or RenewalWish(channels), False
    while True:
        try:
            if await renew_if_due(channels, clock, wanted=wanted):
                log.info("certificate_renewed")
                wish.taken()
                if wanted:
                    renewed()
                    wanted = False
        except (DlqError, OSError, ValueError) as error:
            # A full disk or a broken file, too: the next look may find it mended.
            log.error("certificate_not_renewed", error=str(error))
            await asyncio.sleep(_AFTER_A_FAULT_S)
        wanted = await wish.wait(_RENEW_LOOK_S)


def _check(identity: StoredIdentity, node_id: str, pinned_ca: bytes) -> "CertifiedIdentity":
    """The identity that a certificate proves. Unauthenticated: it is not ours."""
    from dlq_common.identity.pki import Role, belongs_together, is_signed_by, parse_identity

    who = parse_identity(identity.certificate)
    if who.role is not Role.NODE or who.name != node_id:
        raise Unauthenticated(f"the master sent a certificate for {who.role} {who.name}")
    if not belongs_together(identity.key, identity.certificate):
        raise Unauthenticated("the master sent a certificate for another key")
    if not is_signed_by(identity.certificate, pinned_ca):
        raise Unauthenticated("the master sent a certificate of another CA")
    return who


def _must_be_read(answer: object) -> None:
    """Unavailable: the answer is no message. gRPC returns None for it."""
    if answer is None:
        raise Unavailable("the master's answer cannot be read")


def _error(error: grpc.aio.AioRpcError, what: str) -> DlqError:
    words = f"cannot {what}: {error.details() or error.code().name}"
    if doubt := clock_doubt(words):
        words += f"; {doubt}"
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return Unavailable(words)
    return Unauthenticated(words)
