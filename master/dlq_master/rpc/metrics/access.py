"""The access to `/metrics`: plain HTTP on loopback, TLS everywhere else.

Elsewhere a scraper shows a certificate of the cluster's CA whose holder is an operator or an admin.
Or it shows the bearer token of `[metrics] token_file`. With a token file, loopback needs the token
too. A restarted master makes another certificate of its own CA.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

from dlq_common.clock import Clock
from dlq_common.errors import DlqError
from dlq_common.identity.pki import CertifiedIdentity, parse_identity, pem_from_der
from dlq_common.identity.private_files import load_chain
from dlq_master.rpc.calls.certificate import MasterCertificate, PortCertificate
from dlq_master.rpc.calls.roles import OPERATORS
from dlq_master.rpc.calls.signs import Signs
from dlq_master.rpc.metrics.token_file import TokenFile

_LOOK_S: Final = 600.0  # how often a renewal of the certificate is considered


class MetricsTls:
    """The master's side of TLS, with a certificate that is renewed in time."""

    def __init__(self, authority: Signs, clock: Clock, *, demanding: bool) -> None:
        """`demanding`: a scraper without a certificate of the CA gets no connection."""
        self._clock = clock
        self._certificate = MasterCertificate(authority, clock)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._context.verify_mode = ssl.CERT_REQUIRED if demanding else ssl.CERT_OPTIONAL
        self._loaded: PortCertificate | None = None
        self._look_s = 0.0

    def context(self) -> ssl.SSLContext:
        """The TLS context of the next connection."""
        now_s = self._clock.boottime_s()
        if self._loaded is None or now_s >= self._look_s:
            self._look_s = now_s + _LOOK_S
            shown = self._certificate.shown()
            if shown != self._loaded:
                load_chain(self._context, shown.key + shown.chain)
                # Roots are only ever added to a context; the door refuses those that count no more.
                self._context.load_verify_locations(cadata=shown.roots.decode())
                self._loaded = shown
        return self._context


class MetricsDoor:
    """Decides who may read the page."""

    def __init__(
        self,
        *,
        tls: MetricsTls | None = None,
        token: TokenFile | None = None,
        check_member: Callable[[CertifiedIdentity], object] = lambda _: None,
    ) -> None:
        """Without TLS and a token every scraper may, as on loopback."""
        self.tls = tls
        self._token = token
        self._check_member = check_member

    def refusal(self, certificate: bytes | None, authorization: str) -> str:
        """Why this scraper may not read the page; empty: it may. `certificate`: DER, verified by
        TLS.
        """
        if self.tls is None and self._token is None:
            return ""
        scheme, _, given = authorization.partition(" ")
        if self._token is not None and scheme.lower() == "bearer":
            return "" if self._token.holds(given.strip()) else "the token is wrong"
        if certificate is None:
            return "a bearer token is needed" + (
                ", or the certificate of an operator" if self.tls is not None else ""
            )
        return self._refused(certificate)

    def _refused(self, certificate: bytes) -> str:
        try:
            identity = parse_identity(pem_from_der(certificate))
            self._check_member(identity)
        except (DlqError, ValueError) as error:
            return error.what if isinstance(error, DlqError) else "the certificate is unreadable"
        if identity.role not in OPERATORS:
            return f"the role {identity.role} may not read the metrics"
        return ""
