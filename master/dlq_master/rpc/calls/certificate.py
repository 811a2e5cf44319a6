"""The master's serving certificate: signed by its own CA, renewed without a restart.

It follows a change of the CA, too.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import grpc

from dlq_common.clock import Clock
from dlq_common.identity.pki import needs_renewal, new_key_and_csr

if TYPE_CHECKING:
    from dlq_master.rpc.calls.signs import Signs


class PortCertificate(NamedTuple):
    """The certificate of a port, and the roots of its clients' certificates."""

    key: bytes
    chain: bytes  # with the root, so that a joining node can compare it with its token
    roots: bytes

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration(
            [(self.key, self.chain)], root_certificates=self.roots
        )


class MasterCertificate:
    """The certificate of all ports, made at every start and at two thirds of its life."""

    def __init__(self, authority: Signs, clock: Clock) -> None:
        self._authority = authority
        self._clock = clock
        self._making = Lock()  # handshakes have threads of their own
        self._pinned = b""
        self._key = self._certificate = b""

    def credentials(self, *, mutual: bool) -> grpc.ServerCredentials:
        """Server credentials that follow the renewal; `mutual` demands a client certificate."""
        given = [self.shown()]

        def changed() -> grpc.ServerCertificateConfiguration | None:
            """gRPC calls it at every handshake of this port; None: no change."""
            now = self.shown()
            if now == given[0]:
                return None
            given[0] = now
            return now.configuration()

        return grpc.dynamic_ssl_server_credentials(
            given[0].configuration(),
            changed,  # type: ignore[arg-type] # gRPC documents None, its stubs do not
            require_client_authentication=mutual,
        )

    def shown(self) -> PortCertificate:
        """The present certificate, renewed if it is time, or if the CA has changed."""
        with self._making:
            pinned = self._authority.pinned_pem()
            old = not self._certificate or needs_renewal(self._certificate, self._clock.now_s())
            if old or pinned != self._pinned:
                self._make(pinned)
            roots = self._authority.certificate_pem()
            return PortCertificate(self._key, self._certificate + self._pinned, roots)

    def _make(self, pinned: bytes) -> None:
        made = new_key_and_csr("master")
        self._certificate = self._authority.sign_master(made.request, self._clock.now_s())
        self._key, self._pinned = made.key, pinned
