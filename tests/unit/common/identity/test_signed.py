"""Documents between organisations: who may sign one, and what makes one worthless."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dlq_common.errors import InvalidRequest, Unauthenticated
from dlq_common.identity import signed as documents
from dlq_common.identity.pki import Authority, Role, new_key_and_csr
from dlq_common.identity.signed import GRANT, INTRODUCTION, claimed, signed, verified

NOW_S = 1_790_000_000.0
BODY = {"user": "ann", "to": "ff"}


@pytest.fixture(scope="module")
def orga() -> Authority:
    return Authority.create("orga", NOW_S)


def roots(authority: Authority) -> str:
    return authority.certificate_pem().decode()


def bent(text: str, **told: Any) -> str:
    return json.dumps(json.loads(text) | told)


def test_the_reader_gets_what_was_signed(orga: Authority) -> None:
    text = signed(orga, INTRODUCTION, BODY, NOW_S)
    assert verified(text, INTRODUCTION, roots(orga)) == {**BODY, "made_s": NOW_S}
    assert claimed(text)[0] == INTRODUCTION
    assert "\n" not in text


def test_an_intermediate_whose_root_lies_offline_signs_too() -> None:
    root = Authority.create("orga", NOW_S, signs_authorities=True)
    made = new_key_and_csr("ca")
    below = Authority.load(made.key, root.sign_intermediate(made.request, NOW_S))
    text = signed(below, GRANT, BODY, NOW_S)
    assert verified(text, GRANT, roots(root))["user"] == "ann"


def test_another_ca_of_the_same_name_counts_for_nothing(orga: Authority) -> None:
    twin = Authority.create("orga", NOW_S)
    with pytest.raises(Unauthenticated, match="not signed by this organisation"):
        verified(signed(twin, INTRODUCTION, BODY, NOW_S), INTRODUCTION, roots(orga))


def test_a_changed_word_is_found(orga: Authority) -> None:
    text = signed(orga, INTRODUCTION, BODY, NOW_S)
    other = base64.b64encode(json.dumps({**BODY, "user": "root", "made_s": NOW_S}).encode())
    with pytest.raises(Unauthenticated, match="forged"):
        verified(bent(text, body=other.decode()), INTRODUCTION, roots(orga))


def test_a_document_of_one_kind_passes_for_no_other(orga: Authority) -> None:
    text = signed(orga, GRANT, BODY, NOW_S)
    with pytest.raises(InvalidRequest, match="no introduction"):
        verified(text, INTRODUCTION, roots(orga))
    with pytest.raises(Unauthenticated, match="forged"):
        verified(bent(text, kind=INTRODUCTION), INTRODUCTION, roots(orga))


@pytest.mark.parametrize("role", [Role.USER, Role.ADMIN, Role.NODE, Role.MASTER])
def test_no_other_certificate_of_the_organisation_signs(orga: Authority, role: Role) -> None:
    """Somebody who holds one of its keys signs a document with it."""
    made = new_key_and_csr("ann")
    certificate = {
        Role.NODE: lambda: orga.sign_node(made.request, "ann", NOW_S),
        Role.MASTER: lambda: orga.sign_master(made.request, NOW_S),
    }.get(role, lambda: orga.sign_user(made.request, "ann", role, NOW_S))()
    text = signed_with(made.key, certificate)
    with pytest.raises(Unauthenticated, match="may sign no documents"):
        verified(text, INTRODUCTION, roots(orga))


def test_a_user_is_no_authority_for_a_signer(orga: Authority) -> None:
    """The holder of a user's key makes a certificate for a signer with it."""
    user, signer = new_key_and_csr("ann"), new_key_and_csr("dlq-exchange")
    own = x509.load_pem_x509_certificate(orga.sign_user(user.request, "ann", Role.USER, NOW_S))
    pattern = x509.load_pem_x509_certificate(orga.sign_exchange(signer.request, NOW_S))
    builder = (
        x509.CertificateBuilder(issuer_name=own.subject, subject_name=pattern.subject)
        .public_key(pattern.public_key())
        .serial_number(7)
        .not_valid_before(pattern.not_valid_before_utc)
        .not_valid_after(pattern.not_valid_after_utc)
    )
    for one in pattern.extensions:
        builder = builder.add_extension(one.value, one.critical)
    forged = builder.sign(key_of(user.key), hashes.SHA256())
    chain = b"".join(one.public_bytes(serialization.Encoding.PEM) for one in (forged, own))
    with pytest.raises(Unauthenticated, match="is no authority"):
        verified(signed_with(signer.key, chain), INTRODUCTION, roots(orga))


def test_a_signer_of_another_time_is_refused(orga: Authority) -> None:
    made = new_key_and_csr("dlq-exchange")
    certificate = orga.sign_exchange(made.request, NOW_S - 2 * 3_600.0)
    with pytest.raises(Unauthenticated, match="another time"):
        verified(signed_with(made.key, certificate), INTRODUCTION, roots(orga))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "x" * 100_000, '{"v": 1}', '{"v": 2, "kind": "grant"}', "[" * 5_000]
)
def test_what_is_no_document_is_refused_in_words(orga: Authority, text: str) -> None:
    with pytest.raises(InvalidRequest):
        verified(text, INTRODUCTION, roots(orga))


def test_a_document_without_certificates_or_with_broken_ones_is_refused(orga: Authority) -> None:
    text = signed(orga, INTRODUCTION, BODY, NOW_S)
    for wrong in ("", "no PEM", roots(orga)):
        with pytest.raises(Unauthenticated):
            verified(bent(text, certificates=wrong), INTRODUCTION, roots(orga))


def key_of(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


class _Signs:
    """An authority that hands out this certificate, whoever asks."""

    def __init__(self, certificate: bytes) -> None:
        self._certificate = certificate

    def sign_exchange(self, request: bytes, now_s: float) -> bytes:
        return self._certificate


def signed_with(key: bytes, certificates: bytes) -> str:
    """As `signed`, by a key of one's own."""
    text = signed(_Signs(certificates), INTRODUCTION, BODY, NOW_S)
    content = base64.b64decode(json.loads(text)["body"])
    message = documents._message(INTRODUCTION, content)
    signature = key_of(key).sign(message, ec.ECDSA(hashes.SHA256()))
    return bent(text, signature=base64.b64encode(signature).decode())
