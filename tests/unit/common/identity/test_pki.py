"""Certificates: what the CA signs, what it refuses, and how an identity is kept on disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from dlq_common.errors import ConfigError, InvalidRequest, Unauthenticated
from dlq_common.identity import pki
from dlq_common.identity.files import StoredIdentity, load_identity, save_identity, write_private
from dlq_common.identity.join_token import JoinTokenText, parse_join_token
from dlq_common.identity.pki import Authority, Role, new_key_and_csr, parse_identity

NOW_S = 1_800_000_000.0
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("lab", NOW_S)


def test_an_identity_is_what_the_signer_says_and_not_what_the_request_says(
    authority: Authority,
) -> None:
    request = new_key_and_csr("root").request
    identity = parse_identity(authority.sign_user(request, "alice", Role.OPERATOR, NOW_S))
    assert (identity.name, identity.role, identity.cluster) == ("alice", Role.OPERATOR, "lab")


def test_a_forged_alternative_name_in_a_request_is_dropped(authority: Authority) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    forged = x509.UniformResourceIdentifier("dlq://lab/admin/mallory")
    request = (
        x509.CertificateSigningRequestBuilder(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mallory")])
        )
        .add_extension(x509.SubjectAlternativeName([forged]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    signed = authority.sign_user(request, "mallory", Role.USER, NOW_S)
    assert parse_identity(signed).role is Role.USER
    constraints = x509.load_pem_x509_certificate(signed).extensions.get_extension_for_class(
        x509.BasicConstraints
    )
    assert constraints.value.ca is False


def test_a_request_whose_signature_is_not_of_its_key_is_refused(authority: Authority) -> None:
    good = x509.load_pem_x509_csr(new_key_and_csr("alice").request)
    broken = bytearray(good.public_bytes(serialization.Encoding.DER))
    broken[-1] ^= 1
    pem = x509.load_der_x509_csr(bytes(broken)).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(InvalidRequest):
        authority.sign_user(pem, "alice", Role.USER, NOW_S)


def test_a_request_with_another_kind_of_key_is_refused(authority: Authority) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    request = (
        x509.CertificateSigningRequestBuilder(x509.Name([]))
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    with pytest.raises(InvalidRequest):
        authority.sign_user(request, "alice", Role.USER, NOW_S)


@pytest.mark.parametrize("junk", [b"", b"\x00" * 100, b"-----BEGIN", b"A" * 20_000])
def test_junk_is_not_a_request(authority: Authority, junk: bytes) -> None:
    with pytest.raises(InvalidRequest):
        authority.sign_node(junk, "gpu01", NOW_S)


@pytest.mark.parametrize("name", ["", "a/b", "../x", "Alice", "a\nb", "a" * 33, "alice@dlq://x"])
def test_a_name_that_could_bend_the_uri_is_never_signed(authority: Authority, name: str) -> None:
    with pytest.raises(ValueError, match="not allowed"):
        authority.sign_user(new_key_and_csr("x").request, name, Role.USER, NOW_S)


@pytest.mark.parametrize("role", [Role.NODE, Role.MASTER])
def test_a_person_cannot_be_signed_as_a_machine(authority: Authority, role: Role) -> None:
    with pytest.raises(ValueError, match="not a role of people"):
        authority.sign_user(new_key_and_csr("x").request, "alice", role, NOW_S)


def test_a_certificate_is_good_on_a_host_whose_clock_is_years_behind(authority: Authority) -> None:
    certificate = authority.sign_master(new_key_and_csr("x").request, NOW_S)
    for each in (certificate, authority.certificate_pem()):
        assert pki.is_valid(each, NOW_S - 5 * 365 * DAY_S)


def test_a_certificate_that_was_signed_far_in_the_future_is_renewed_at_once(
    authority: Authority,
) -> None:
    certificate = authority.sign_node(new_key_and_csr("x").request, "gpu01", NOW_S + 365 * DAY_S)
    assert pki.is_valid(certificate, NOW_S)
    assert pki.needs_renewal(certificate, NOW_S)


def test_a_certificate_lasts_thirty_days_and_asks_for_renewal_after_twenty(
    authority: Authority,
) -> None:
    certificate = authority.sign_node(new_key_and_csr("x").request, "gpu01", NOW_S)
    assert parse_identity(certificate).not_after_s == NOW_S + 30 * DAY_S
    assert not pki.needs_renewal(certificate, NOW_S + 19 * DAY_S)
    assert pki.needs_renewal(certificate, NOW_S + 20 * DAY_S)
    assert pki.is_valid(certificate, NOW_S + 29 * DAY_S)
    assert not pki.is_valid(certificate, NOW_S + 30 * DAY_S)


def test_the_ca_survives_a_round_trip_through_its_files(authority: Authority) -> None:
    loaded = Authority.load(authority.key_pem(), authority.certificate_pem())
    certificate = loaded.sign_master(new_key_and_csr("x").request, NOW_S)
    assert loaded.cluster == "lab"
    assert pki.is_signed_by(certificate, authority.certificate_pem())


def test_the_certificate_of_another_ca_is_told_apart(authority: Authority) -> None:
    other = Authority.create("lab", NOW_S)
    certificate = other.sign_node(new_key_and_csr("x").request, "gpu01", NOW_S)
    assert not pki.is_signed_by(certificate, authority.certificate_pem())


def test_the_ca_certificate_is_no_identity(authority: Authority) -> None:
    with pytest.raises(Unauthenticated):
        parse_identity(authority.certificate_pem())


def test_a_certificate_with_two_identities_is_nobody() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")])
    ours = Authority.create("lab", NOW_S)
    template = x509.load_pem_x509_certificate(ours.certificate_pem())
    uris = [x509.UniformResourceIdentifier(f"dlq://lab/{role}/alice") for role in ("user", "admin")]
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(template.not_valid_before_utc)
        .not_valid_after(template.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName(uris), critical=False)
        .sign(key, hashes.SHA256())
    )
    with pytest.raises(Unauthenticated):
        parse_identity(certificate.public_bytes(serialization.Encoding.PEM))


def test_the_same_key_in_two_requests_has_one_fingerprint() -> None:
    first, second = new_key_and_csr("a"), new_key_and_csr("a")
    again = pki.requested_key_fingerprint(first.request)
    assert pki.requested_key_fingerprint(first.request) == again
    assert pki.requested_key_fingerprint(second.request) != again


def _identity(authority: Authority, name: str) -> StoredIdentity:
    made = new_key_and_csr(name)
    certificate = authority.sign_user(made.request, name, Role.USER, NOW_S)
    return StoredIdentity(made.key, certificate, authority.certificate_pem())


def test_a_stored_key_is_for_its_owner_only(authority: Authority, tmp_path: Path) -> None:
    home = tmp_path / "home"
    old_mask = os.umask(0)
    try:
        save_identity(home, _identity(authority, "alice"))
    finally:
        os.umask(old_mask)
    assert stat.S_IMODE((home / "identity.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert not list(home.glob(".*")), "no temporary file stays"


@pytest.mark.parametrize(
    ("on_disk", "found_is_new"),
    [({"identity.key.next"}, False), ({"identity.key.next", "identity.crt"}, True)],
)
def test_a_renewal_cut_short_leaves_the_old_or_the_new_identity(
    authority: Authority, tmp_path: Path, on_disk: set[str], found_is_new: bool
) -> None:
    old, new = _identity(authority, "alice"), _identity(authority, "alice")
    save_identity(tmp_path, old)
    written = {"identity.key.next": new.key, "identity.crt": new.certificate}
    for name in on_disk:
        write_private(tmp_path / name, written[name])
    found = load_identity(tmp_path)
    assert found == (new if found_is_new else old)
    assert load_identity(tmp_path) == found


def test_a_key_that_fits_no_certificate_is_no_identity(
    authority: Authority, tmp_path: Path
) -> None:
    save_identity(tmp_path, _identity(authority, "alice"))
    (tmp_path / "identity.key").write_bytes(_identity(authority, "alice").key)
    assert load_identity(tmp_path) is None


@pytest.mark.parametrize("name", ["identity.key", "identity.key.next"])
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_key_that_others_may_use_is_refused_with_the_remedy(
    authority: Authority, tmp_path: Path, name: str, mode: int
) -> None:
    save_identity(tmp_path, _identity(authority, "alice"))
    key = (tmp_path / "identity.key").rename(tmp_path / name)
    key.chmod(mode)
    with pytest.raises(ConfigError, match=f"other users may use this key.*{mode:04o}") as caught:
        load_identity(tmp_path)
    assert f"chmod 600 {key}" in caught.value.hint


def test_nothing_stored_is_no_identity(tmp_path: Path) -> None:
    assert load_identity(tmp_path) is None


def test_a_token_text_comes_back_as_its_parts() -> None:
    token = JoinTokenText("7", "s" * 43, "ab" * 32)
    assert parse_join_token(token.text()) == token
    assert "s" * 43 not in repr(token)


@pytest.mark.parametrize("text", ["", "dlq1.a.b.c", "dlq2.7." + "s" * 43 + "." + "ab" * 32, "x\n"])
def test_a_text_that_is_no_token_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_join_token(text)
    assert caught.value.field == "token"
