"""Documents that one organisation signs for another: grants, introductions, statements.

A document is one line of JSON: its kind, its body, the certificates of its signer, a signature. The
signer is a key that lived for this signature alone. The CA of the organisation has certified it
with the role "exchange". So the key of a root signs no document, and no certificate of a user, a
node or the master can sign one. The reader pins the roots of the other organisation.

Each body has `made_s`, when it was signed by the clock of its signer. Everything here is pure of
clocks. It needs `cryptography`: import it only where documents are signed or read.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dlq_common.errors import InvalidRequest, Unauthenticated
from dlq_common.identity.pki import (
    EXCHANGE_LIFE_S,
    EXCHANGE_NAME,
    Role,
    ca_cluster,
    new_key_and_csr,
    parse_identity,
)

GRANT: Final = "grant"
INTRODUCTION: Final = "introduction"
STATEMENT: Final = "statement"
KINDS: Final = (GRANT, INTRODUCTION, STATEMENT)
LARGEST_DOCUMENT_BYTES: Final = 48 * 1024
_VERSION: Final = 1
# No signature of TLS or of a certificate begins like this.
_CONTEXT: Final = b"dlq signed document 1\0"
_HASH: Final = ec.ECDSA(hashes.SHA256())
Body = Mapping[str, Any]


class SignsExchange(Protocol):
    """See `pki.Authority`."""

    def sign_exchange(self, request: bytes, now_s: float) -> bytes: ...


def signed(authority: SignsExchange, kind: str, body: Body, now_s: float) -> str:
    """A document, in one line. `made_s` is put into its body."""
    fresh = new_key_and_csr(EXCHANGE_NAME)
    certificates = authority.sign_exchange(fresh.request, now_s)
    key = serialization.load_pem_private_key(fresh.key, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    content = json.dumps({**body, "made_s": now_s}, sort_keys=True).encode()
    return json.dumps(
        {
            "v": _VERSION,
            "kind": kind,
            "body": base64.b64encode(content).decode(),
            "certificates": certificates.decode(),
            "signature": base64.b64encode(key.sign(_message(kind, content), _HASH)).decode(),
        }
    )


def claimed(text: str, kind: str = "") -> tuple[str, Body]:
    """The kind and the body of a document that nobody has verified. InvalidRequest: it is none, or
    is of another kind.
    """
    told = _told(text)
    if kind and told["kind"] != kind:
        raise InvalidRequest(f"this document is no {kind}, but a {told['kind']}", field="document")
    body: Body = json.loads(_bytes(told["body"]))
    return told["kind"], body


def verified(text: str, kind: str, roots: str) -> Body:
    """The body of a document that an organisation with one of these roots (PEM) has signed.

    InvalidRequest: it is no document of this kind. Unauthenticated: another one has signed it, or
    it has been changed.
    """
    _, body = claimed(text, kind)
    told = _told(text)
    pinned = x509.load_pem_x509_certificates(roots.encode())
    try:
        leaf, *above = x509.load_pem_x509_certificates(told["certificates"].encode())
        _check_chain(leaf, above, pinned)
        _check_exchange(leaf, {ca_cluster(root) for root in pinned}, float(body["made_s"]))
        key = leaf.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise ValueError("its signer has another kind of key")
        key.verify(_bytes(told["signature"]), _message(kind, _bytes(told["body"])), _HASH)
    except InvalidSignature:
        raise Unauthenticated(f"the {kind} is forged: its signature does not fit") from None
    except (KeyError, TypeError, ValueError) as error:
        raise Unauthenticated(f"the {kind} is not signed by this organisation: {error}") from None
    return body


# --- helpers, in order of use ---------------------------------------------------------------------


def _message(kind: str, content: bytes) -> bytes:
    return _CONTEXT + kind.encode() + b"\0" + content


def _told(text: str) -> dict[str, str]:
    if len(text) > LARGEST_DOCUMENT_BYTES:
        raise InvalidRequest("the document is too large", field="document")
    try:
        told = json.loads(text)
        wanted = ("kind", "body", "certificates", "signature")
        if told["v"] != _VERSION or not all(isinstance(told[key], str) for key in wanted):
            raise ValueError
        if told["kind"] not in KINDS or not isinstance(json.loads(_bytes(told["body"])), dict):
            raise ValueError
    except (KeyError, TypeError, ValueError, RecursionError):
        raise InvalidRequest("this is no signed document of dlq", field="document") from None
    found: dict[str, str] = told
    return found


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _check_chain(
    leaf: x509.Certificate, above: list[x509.Certificate], pinned: list[x509.Certificate]
) -> None:
    """ValueError unless a pinned root has signed it, directly or through authorities."""
    lower = leaf
    for upper in above:
        if not _is_authority(upper):
            raise ValueError("a certificate above its signer is no authority")
        _check_issued(lower, upper)
        lower = upper
    for root in pinned:
        try:
            _check_issued(lower, root)
        except ValueError:
            continue
        return
    raise ValueError("none of its roots is known")


def _check_issued(lower: x509.Certificate, upper: x509.Certificate) -> None:
    try:
        lower.verify_directly_issued_by(upper)
    except (ValueError, TypeError, InvalidSignature):
        raise ValueError("a certificate was not signed by the one above it") from None


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return found.ca and usage.key_cert_sign


def _check_exchange(leaf: x509.Certificate, clusters: set[str], made_s: float) -> None:
    pem = leaf.public_bytes(serialization.Encoding.PEM)
    who = parse_identity(pem)
    if who.role is not Role.EXCHANGE or who.cluster not in clusters:
        raise ValueError("its signer may sign no documents")
    if not 0.0 <= who.not_after_s - made_s <= EXCHANGE_LIFE_S + 1.0:
        raise ValueError("its signer's certificate is of another time")
