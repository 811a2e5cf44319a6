"""A root that signs authorities, and certificates that lead to it."""

from __future__ import annotations

import pytest

from dlq_common.identity.pki import (
    Authority,
    Role,
    is_signed_by,
    new_key_and_csr,
    parse_identity,
)

NOW_S = 1.8e9


def below(root: Authority) -> Authority:
    made = new_key_and_csr("signing")
    return Authority.load(made.key, root.sign_intermediate(made.request, NOW_S))


def test_what_an_intermediate_signs_leads_to_the_root() -> None:
    root = Authority.create("lab", NOW_S, signs_authorities=True)
    signer = below(root)
    certificate = signer.sign_user(new_key_and_csr("a").request, "alice", Role.USER, NOW_S)
    assert is_signed_by(certificate, signer.certificate_pem())
    assert signer.certificate_pem() == root.certificate_pem()
    assert not is_signed_by(certificate, Authority.create("lab", NOW_S).certificate_pem())
    assert parse_identity(certificate).issuer == signer.key_id != root.key_id
    assert signer.not_after_s <= root.not_after_s


def test_one_of_several_roots_is_enough() -> None:
    one, other = (Authority.create("lab", NOW_S) for _ in range(2))
    certificate = one.sign_node(new_key_and_csr("n").request, "gpu01", NOW_S)
    assert is_signed_by(certificate, other.certificate_pem() + one.certificate_pem())
    assert not is_signed_by(certificate, other.certificate_pem())
    assert parse_identity(certificate).issuer == one.key_id


def test_a_root_of_a_cluster_signs_no_authorities() -> None:
    with pytest.raises(ValueError, match="signs no other authorities"):
        below(Authority.create("lab", NOW_S))


def test_a_chain_that_does_not_hold_is_refused() -> None:
    root, other = (Authority.create("lab", NOW_S, signs_authorities=True) for _ in range(2))
    made = new_key_and_csr("signing")
    chain = root.sign_intermediate(made.request, NOW_S)
    own = chain[: chain.index(b"-----BEGIN", 10)]
    with pytest.raises(ValueError, match="not signed by the one above it"):
        Authority.load(made.key, own + other.certificate_pem())
    with pytest.raises(ValueError, match="not signed by the one above it"):
        Authority.load(made.key, own)  # without its root
