"""The certificate the master serves with: made by its own CA, renewed without a restart."""

from __future__ import annotations

import grpc

from dlq_common.clock import Clock
from dlq_common.identity.pki import Authority, needs_renewal, new_key_and_csr


class MasterCertificate:
    """The certificate of both ports, made anew at every start and at two thirds of its life."""

    def __init__(self, authority: Authority, clock: Clock) -> None:
        self._authority = authority
        self._clock = clock
        self._key, self._certificate = self._made()

    def credentials(self, *, mutual: bool) -> grpc.ServerCredentials:
        """Server credentials that follow the renewal; `mutual` demands a client certificate."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(),
            self._renewed,  # type: ignore[arg-type] # gRPC documents None, its stubs do not
            require_client_authentication=mutual,
        )

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Asked by gRPC at every handshake, in a thread of its own; None means no change."""
        return self._configuration() if self._renews() else None

    def chain(self) -> tuple[bytes, bytes]:
        """The key, and the certificate with the CA's behind it, renewed where it is time."""
        self._renews()
        return self._key, self._certificate + self._authority.certificate_pem()

    def _renews(self) -> bool:
        if not needs_renewal(self._certificate, self._clock.now_s()):
            return False
        self._key, self._certificate = self._made()
        return True

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        ca = self._authority.certificate_pem()
        # The CA goes with the chain, so that a joining node can compare it with its token.
        return grpc.ssl_server_certificate_configuration(
            [(self._key, self._certificate + ca)], root_certificates=ca
        )

    def _made(self) -> tuple[bytes, bytes]:
        made = new_key_and_csr("master")
        return made.key, self._authority.sign_master(made.request, self._clock.now_s())
