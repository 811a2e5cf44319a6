"""The text of a join token, and fetching the CA that it pins.

`dlq1.<token id>.<secret>.<SHA-256 of the CA certificate's DER form, hexadecimal>`: a new node knows
no CA yet, so the token tells it which one to believe before it says a word.
"""

from __future__ import annotations

import re
import socket
import ssl
from dataclasses import dataclass

from dlq_common.errors import InvalidRequest, Unauthenticated, Unavailable
from dlq_common.identity.pki import fingerprint, pem_from_der

_TOKEN = re.compile(r"dlq1\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{16,128})\.([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, repr=False)
class JoinTokenText:
    """The three parts; not shown by repr, because the secret is one of them."""

    token_id: str
    secret: str
    ca_fingerprint: str

    def text(self) -> str:
        """The token as text, for `dlq-nodeagent join --token`."""
        return f"dlq1.{self.token_id}.{self.secret}.{self.ca_fingerprint}"


def parse_join_token(text: str) -> JoinTokenText:
    """The parts of a token's text; InvalidRequest, which does not repeat the text, otherwise."""
    match = _TOKEN.fullmatch(text)
    if match is None:
        raise InvalidRequest("this is not a join token", field="token")
    return JoinTokenText(match[1], match[2], match[3])


def fetch_pinned_ca(host: str, port: int, ca_fingerprint: str, *, timeout_s: float) -> bytes:
    """The PEM of the CA with this fingerprint, as the server at host:port presents it.

    Nothing but a TLS handshake is sent, so a stranger at that address learns nothing. Trust the
    returned PEM only as the anchor of a second, verified connection. Unauthenticated when the
    server presents no such certificate, Unavailable when there is no server.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host, port), timeout=timeout_s) as plain,
            context.wrap_socket(plain) as secure,
        ):
            chain = _presented_chain(secure)
    except OSError as error:
        raise Unavailable(f"no TLS server at {host}:{port}: {error}") from None
    for certificate in map(pem_from_der, chain):
        if fingerprint(certificate) == ca_fingerprint:
            return certificate
    raise Unauthenticated(
        f"the server at {host}:{port} is not of the cluster that made this token",
        hint="check the address, or make a new token on the master you mean",
    )


def _presented_chain(secure: ssl.SSLSocket) -> list[bytes]:
    """All certificates the server sent, DER. Public since Python 3.13, under the socket before."""
    if hasattr(secure, "get_unverified_chain"):
        return [bytes(certificate) for certificate in secure.get_unverified_chain()]
    inner = getattr(secure, "_sslobj")  # noqa: B009 - the stubs do not know it
    encoding_der = 2
    return [bytes(each.public_bytes(encoding_der)) for each in inner.get_unverified_chain()]
