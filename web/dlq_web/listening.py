"""The sockets and TLS of the server for all users, and the identity that a connection has proven.

A certificate of the cluster's CA is asked for and not required: it is one way to sign in. The
server's own certificate is read anew when its file changes, so a renewal needs no restart.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import ConfigError, Unauthenticated
from dlq_common.identity.pki import CertifiedIdentity, parse_identity, pem_from_der
from dlq_common.text.addresses import split_address
from dlq_web.config import UNIX, WebListenConfig
from dlq_web.door.shared_guard import CERTIFICATE

BACKLOG = 512
LOOK_S = 600.0
REQUEST_S = 20.0  # within which a connection has brought a whole head of a request


def listening_socket(listen: WebListenConfig, passed: dict[str, socket.socket]) -> socket.socket:
    """The socket of systemd, or a new one. ConfigError when it cannot be had."""
    if passed:
        given = passed.get("web") or next(iter(passed.values()))
        _refuse_open(given, listen)
        return given
    try:
        if listen.address.startswith(UNIX):
            return _unix(Path(listen.address.removeprefix(UNIX)))
        host, port = split_address(listen.address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # Connections take it over. The kernel would hold small answers back: 40 ms a call.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot listen at {listen.address}: {error}") from None


def _refuse_open(given: socket.socket, listen: WebListenConfig) -> None:
    """A socket that other hosts can reach has TLS."""
    if given.family is socket.AF_UNIX or listen.certificate:
        return
    if not ip_address(given.getsockname()[0].partition("%")[0]).is_loopback:
        raise ConfigError(
            "the socket of systemd can be reached from other hosts, so listen.certificate and "
            "listen.key are needed"
        )


def _unix(path: Path) -> socket.socket:
    """A socket for a reverse proxy of this host, which has the socket's group."""
    with suppress(FileNotFoundError):
        if path.is_socket():
            path.unlink()
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    path.chmod(0o660)
    made.listen(BACKLOG)
    return made


class Tls:
    """The server's TLS: its certificate, and the CA whose client certificates count."""

    def __init__(self, listen: WebListenConfig, cluster_ca: bytes) -> None:
        """ConfigError when the certificate or its key cannot be used."""
        self._files = (listen.certificate, listen.key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        if listen.client_certificates:
            self.context.verify_mode = ssl.CERT_OPTIONAL
            self.context.load_verify_locations(cadata=cluster_ca.decode("ascii"))
        try:
            self._seen = self._changed()
            self.context.load_cert_chain(*self._files)
            self.reads = 1  # of the certificate
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"listen.certificate {listen.certificate} and listen.key {listen.key} cannot be "
                f"used: {error}"
            ) from None

    def trust(self, cluster_ca: bytes) -> None:
        """Believe certificates of these roots, too. The master refuses those of former ones."""
        if self.context.verify_mode is ssl.CERT_OPTIONAL:
            self.context.load_verify_locations(cadata=cluster_ca.decode("ascii"))

    async def keep_fresh(self) -> None:
        """Read the certificate anew whenever it was replaced, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Read the certificate anew if it was replaced; the old one stays while that fails."""
        try:
            if (seen := self._changed()) != self._seen:
                self.context.load_cert_chain(*self._files)
                self._seen, self.reads = seen, self.reads + 1
                get_logger("web").info("certificate_read")
        except (OSError, ssl.SSLError) as error:
            get_logger("web").error("certificate_unusable", cause=str(error))

    def _changed(self) -> tuple[int, ...]:
        return tuple(os.stat(path).st_mtime_ns for path in self._files)


class OpenProtocol(H11Protocol):
    """A connection with the identity that its client has proven."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        app, shown = self.app, _shown(transport)

        async def marked(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, CERTIFICATE: shown}, receive, send)

        self.app = marked
        self._wait_for_a_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_a_request()

    def _wait_for_a_request(self) -> None:
        """A connection on which no whole request comes in time is closed."""
        cycle = getattr(self, "cycle", None)  # the request that came last
        at_work = cycle is not None and not cycle.response_complete
        if at_work and self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        elif not at_work and self._waiting is None:
            self._waiting = self.loop.call_later(REQUEST_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._waiting is not None:
            self._waiting.cancel()


def _shown(transport: asyncio.Transport) -> CertifiedIdentity | None:
    """The identity of the client's certificate, which TLS has checked; None without one."""
    tls = transport.get_extra_info("ssl_object")
    raw = tls.getpeercert(binary_form=True) if tls is not None else None
    if raw is None:
        return None
    try:
        return parse_identity(pem_from_der(raw))
    except Unauthenticated:
        return None
