"""The cluster's certificates: one CA, and the identities it signs for users, nodes and the master.

An identity is the certificate's URI name `dlq://<cluster>/<role>/<name>`, with the same name as the
common name. The names in a certificate request are never believed: the signer chooses them.
Everything here is pure of clocks (`now_s` is UTC seconds since the epoch) and works on PEM bytes.
It needs `cryptography`: import it only where certificates are made or read.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dlq_common.errors import InvalidRequest, Unauthenticated
from dlq_common.identity.facts import (
    CA_LIFETIME_S,
    GOOD_FROM_S,
    LIFETIME_S,
    SERVER_NAME,
    is_near_end,
    names_in,
    vouched_in,
    vouched_word,
)
from dlq_common.text.names import (
    GUEST_MARK,
    check_node_name,
    check_person_name,
    check_user_name,
    check_word,
)

LARGEST_REQUEST_BYTES = 16 * 1024
EXCHANGE_NAME = "dlq-exchange"
EXCHANGE_LIFE_S = 3_600.0
_DOCUMENT_SIGNING = x509.ObjectIdentifier("1.3.6.1.5.5.7.3.36")  # RFC 9336


class Role(StrEnum):
    """The kind of a certificate's holder; the master's table gives each kind its rights."""

    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"
    INFERENCE = "inference"
    NOTIFIER = "notifier"
    WEB = "web"
    GUEST = "guest"
    NODE = "node"
    MASTER = "master"
    EXCHANGE = "exchange"


PEOPLE = frozenset(
    {
        *(Role.USER, Role.OPERATOR, Role.ADMIN, Role.INFERENCE, Role.NOTIFIER, Role.WEB),
        Role.GUEST,
    }
)


@dataclass(frozen=True, slots=True)
class CertifiedIdentity:
    """The name and role that a certificate proves, and the end of its life (UTC seconds).

    `by`: the service that acts for this user with a certificate of its own; its serial is told.
    `groups`: those of this user that the service tells, and that give something. `through`: the
    service at which the user signed in for this certificate; "" = none.
    """

    name: str
    role: Role
    cluster: str
    serial: str
    not_after_s: float
    by: CertifiedIdentity | None = None
    groups: tuple[str, ...] = ()
    through: str = ""
    life_s: float = LIFETIME_S
    issuer: str = ""  # the id of the key that signed, hexadecimal

    @property
    def issued_s(self) -> float:
        """The signer's clock when it signed: the end and the length of a life give it."""
        return self.not_after_s - self.life_s


@dataclass(frozen=True, slots=True)
class KeyAndRequest:
    """A fresh private key and the PKCS #10 request that proves its possession, both PEM."""

    key: bytes
    request: bytes


class Authority:
    """The CA of one cluster: its key, its certificate and the three kinds it signs.

    It is a root itself, or an intermediate whose root may lie offline. `above` leads to the root.
    """

    def __init__(
        self,
        key: ec.EllipticCurvePrivateKey,
        certificate: x509.Certificate,
        above: tuple[x509.Certificate, ...] = (),
    ) -> None:
        if certificate.public_key() != key.public_key():
            raise ValueError("the CA's key and certificate do not belong together")
        self._key = key
        self._certificate = certificate
        self._chain = (certificate, *above)
        for lower, upper in zip(self._chain, (*above, self._chain[-1]), strict=True):
            _check_signed(lower, upper)
        self.cluster = ca_cluster(certificate)

    @classmethod
    def create(cls, cluster: str, now_s: float, *, signs_authorities: bool = False) -> Authority:
        """A new root. `signs_authorities`: also intermediates. ValueError when the cluster's name
        is not a word.
        """
        check_word(cluster, "cluster name")
        key = _new_key()
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, cluster),
                x509.NameAttribute(NameOID.COMMON_NAME, "dlq CA"),
            ]
        )
        certificate = (
            x509.CertificateBuilder(issuer_name=subject, subject_name=subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_instant(GOOD_FROM_S))
            .not_valid_after(_instant(now_s + CA_LIFETIME_S))
            .add_extension(
                x509.BasicConstraints(ca=True, path_length=int(signs_authorities)), critical=True
            )
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    def sign_intermediate(self, request: bytes, now_s: float) -> bytes:
        """An authority below this one, which signs for the same cluster; PEM, with all above it.
        ValueError when this one may sign no authorities.
        """
        own = self._certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        if own.path_length == 0:
            raise ValueError("this root signs no other authorities: make one that does")
        public_key = requested_key(request)
        subject = [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, self.cluster),
            x509.NameAttribute(NameOID.COMMON_NAME, "dlq signing CA"),
        ]
        certificate = (
            x509.CertificateBuilder(
                issuer_name=self._certificate.subject, subject_name=x509.Name(subject)
            )
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_instant(GOOD_FROM_S))
            .not_valid_after(_instant(min(now_s + CA_LIFETIME_S, self.not_after_s)))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return _pem(certificate) + self.chain_pem()

    @classmethod
    def load(cls, key: bytes, certificate: bytes) -> Authority:
        """The CA from its two PEM files; those of the authorities above it may follow its own.
        ValueError when they are not a CA of ours.
        """
        private = serialization.load_pem_private_key(key, password=None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ValueError("the CA's key is not an elliptic curve key")
        first, *above = x509.load_pem_x509_certificates(certificate)
        return cls(private, first, tuple(above))

    @property
    def key_id(self) -> str:
        """Of its key, as `issuer` of the certificates that it signs."""
        return x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()).digest.hex()

    def chain_pem(self) -> bytes:
        """Its own certificate and all above it, as the file of a CA holds them."""
        return b"".join(map(_pem, self._chain))

    @property
    def not_after_s(self) -> float:
        """When the CA's certificate ends."""
        return self._certificate.not_valid_after_utc.timestamp()

    @staticmethod
    def unseal(sealed: bytes, passphrase: bytes) -> bytes:
        """The key as `key_pem` gives it. ValueError for another passphrase."""
        private = serialization.load_pem_private_key(sealed, password=passphrase)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ValueError("the CA's key is not an elliptic curve key")
        return _key_pem(private)

    def sealed_key_pem(self, passphrase: bytes) -> bytes:
        """The private key, encrypted: it may leave the host."""
        return self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(passphrase),
        )

    def key_pem(self) -> bytes:
        """The private key; belongs in a file of its own that only the master reads."""
        return _key_pem(self._key)

    def certificate_pem(self) -> bytes:
        """The certificate of the root, which every member of the cluster pins."""
        return _pem(self._chain[-1])

    def pinned_pem(self) -> bytes:
        """The root that a join token pins, and the servers of the master show."""
        return self.certificate_pem()

    def counts(self, identity: CertifiedIdentity) -> bool:
        """Whether the authority that signed this certificate counts. TLS has checked that."""
        return True

    def saw(self, identity: CertifiedIdentity, now_s: float) -> None:
        """A member came: nobody asks."""

    def is_former(self, identity: CertifiedIdentity) -> bool:
        """Whether its holder is to renew: there is no other authority."""
        return False

    def trust_digest(self) -> str:
        """Of the roots that members are to know; "": they were always the same."""
        return ""

    def pins(self, seal: str) -> bool:
        """Whether a join token with this fingerprint is of this cluster."""
        return hmac.compare_digest(seal, fingerprint(self.certificate_pem()))

    def sign_user(self, request: bytes, name: str, role: Role, now_s: float) -> bytes:
        """A certificate for a person or service. ValueError unless name and role are a person's."""
        return self._sign_person(request, name, role, now_s, LIFETIME_S, "")

    def sign_user_of(
        self, service: str, request: bytes, name: str, role: Role, now_s: float, life_s: float
    ) -> bytes:
        """The same for a user who signed in at a service: it names the service, and its own life.
        ValueError also for a life that is longer than the usual one.
        """
        if not 1.0 <= life_s <= LIFETIME_S:
            raise ValueError(f"a certificate lives from 1 s to {LIFETIME_S:.0f} s")
        word = vouched_word(check_user_name(service), life_s)
        return self._sign_person(request, name, role, now_s, life_s, word)

    def _sign_person(
        self, request: bytes, name: str, role: Role, now_s: float, life_s: float, unit: str
    ) -> bytes:
        check_person_name(name)
        if role not in PEOPLE:
            raise ValueError(f"{role} is not a role of people")
        if (role is Role.GUEST) is not (GUEST_MARK in name):
            raise ValueError(f"{name} cannot have the role {role}")
        usages = (ExtendedKeyUsageOID.CLIENT_AUTH,)
        return self._sign(request, name, role, now_s, usages, (), life_s, unit)

    def sign_node(self, request: bytes, node_id: str, now_s: float) -> bytes:
        """A certificate with which an agent speaks for one node."""
        check_node_name(node_id)
        return self._sign(
            request, node_id, Role.NODE, now_s, (ExtendedKeyUsageOID.CLIENT_AUTH,), ()
        )

    def sign_master(self, request: bytes, now_s: float) -> bytes:
        """A certificate with which the master serves both ports; it opens no door as a client."""
        return self._sign(
            request,
            SERVER_NAME,
            Role.MASTER,
            now_s,
            (ExtendedKeyUsageOID.SERVER_AUTH,),
            (x509.DNSName(SERVER_NAME),),
        )

    def sign_exchange(self, request: bytes, now_s: float) -> bytes:
        """A certificate for a key that signs documents for other organisations (signed.py); it
        opens no door.
        """
        return self._sign(
            request, EXCHANGE_NAME, Role.EXCHANGE, now_s, (_DOCUMENT_SIGNING,), (), EXCHANGE_LIFE_S
        )

    def _sign(
        self,
        request: bytes,
        name: str,
        role: Role,
        now_s: float,
        usages: tuple[x509.ObjectIdentifier, ...],
        more_names: tuple[x509.GeneralName, ...],
        life_s: float = LIFETIME_S,
        unit: str = "",
    ) -> bytes:
        uri = x509.UniformResourceIdentifier(f"dlq://{self.cluster}/{role}/{name}")
        public_key = requested_key(request)
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if unit:
            subject.insert(0, x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
        certificate = (
            x509.CertificateBuilder(
                issuer_name=self._certificate.subject, subject_name=x509.Name(subject)
            )
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_instant(GOOD_FROM_S))
            .not_valid_after(_instant(now_s + life_s))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName([uri, *more_names]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        # An intermediate goes along: a member knows the root alone.
        return b"".join(map(_pem, (certificate, *self._chain[:-1])))


def new_key_and_csr(name: str) -> KeyAndRequest:
    """A fresh P-256 key and a request for it; the name is only a wish."""
    key = _new_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder(subject).sign(key, hashes.SHA256())
    return KeyAndRequest(_key_pem(key), request.public_bytes(serialization.Encoding.PEM))


def requested_name(request: bytes) -> str:
    """The common name a request wishes for, empty when it wishes for none."""
    names = _checked_request(request).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def requested_key(request: bytes) -> ec.EllipticCurvePublicKey:
    """The public key of a request whose signature proves that its maker holds the private one."""
    key = _checked_request(request).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InvalidRequest("the key is not on the curve P-256", field="certificate_request")
    return key


def requested_key_fingerprint(request: bytes) -> str:
    """SHA-256 of a request's public key, hexadecimal: by it a repeated request is recognised."""
    encoded = requested_key(request).public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digest = hashes.Hash(hashes.SHA256())
    digest.update(encoded)
    return digest.finalize().hex()


def parse_identity(certificate: bytes) -> CertifiedIdentity:
    """The identity that a PEM certificate proves. Unauthenticated for a certificate that our CA
    would not sign.

    The signature and the dates are not checked here: TLS has done that, or the caller must.
    """
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        common_names = parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        names_said = names_in(uris[0]) if len(uris) == 1 else None
        if names_said is None or [name.value for name in common_names] != [names_said[2]]:
            raise ValueError("it names no single identity")
        cluster, role, name = names_said[0], Role(names_said[1]), names_said[2]
        units = parsed.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
        through, life_s = vouched_in([str(unit.value) for unit in units])
        signer = parsed.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    except (ValueError, x509.ExtensionNotFound, UnsupportedAlgorithm) as error:
        raise Unauthenticated(f"not a certificate of a dlq cluster: {error}") from None
    return CertifiedIdentity(
        name=name,
        role=role,
        cluster=cluster,
        serial=f"{parsed.serial_number:x}",
        not_after_s=parsed.not_valid_after_utc.timestamp(),
        through=through,
        life_s=life_s,
        issuer=(signer.key_identifier or b"").hex(),
    )


def fingerprint(certificate: bytes) -> str:
    """SHA-256 of the DER form of a PEM certificate, hexadecimal."""
    return x509.load_pem_x509_certificate(certificate).fingerprint(hashes.SHA256()).hex()


def pem_from_der(certificate: bytes) -> bytes:
    return x509.load_der_x509_certificate(certificate).public_bytes(serialization.Encoding.PEM)


def belongs_together(key: bytes, certificate: bytes) -> bool:
    """Whether a PEM key is the private half of a PEM certificate."""
    private = serialization.load_pem_private_key(key, password=None)
    return private.public_key() == x509.load_pem_x509_certificate(certificate).public_key()


def is_signed_by(certificate: bytes, ca_certificates: bytes) -> bool:
    """Whether one of these roots signed this certificate, by the intermediates that follow it.
    Dates and purposes are not looked at.
    """
    try:
        leaf, *between = x509.load_pem_x509_certificates(certificate)
        for above in between:
            _check_signed(leaf, above)
            leaf = above
        return any(_signed(leaf, root) for root in x509.load_pem_x509_certificates(ca_certificates))
    except ValueError:
        return False


def _signed(lower: x509.Certificate, upper: x509.Certificate) -> bool:
    try:
        lower.verify_directly_issued_by(upper)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _check_signed(lower: x509.Certificate, upper: x509.Certificate) -> None:
    if not _signed(lower, upper):
        raise ValueError("a certificate was not signed by the one above it")


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def is_valid(certificate: bytes, now_s: float) -> bool:
    """Whether `now_s` lies between the certificate's dates."""
    parsed = x509.load_pem_x509_certificate(certificate)
    not_before_s = parsed.not_valid_before_utc.timestamp()
    return not_before_s <= now_s < parsed.not_valid_after_utc.timestamp()


def needs_renewal(certificate: bytes, now_s: float) -> bool:
    """Whether two thirds of the certificate's life are over, or all of it (facts.py)."""
    end_s = x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()
    return is_near_end(end_s, now_s)


def _checked_request(request: bytes) -> x509.CertificateSigningRequest:
    if len(request) > LARGEST_REQUEST_BYTES:
        raise InvalidRequest("the certificate request is too large", field="certificate_request")
    try:
        parsed = x509.load_pem_x509_csr(request)
        if parsed.is_signature_valid:
            return parsed
    except (ValueError, TypeError, UnsupportedAlgorithm):
        pass
    raise InvalidRequest(
        "not a PEM PKCS #10 request signed by its own key", field="certificate_request"
    )


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def ca_cluster(certificate: x509.Certificate) -> str:
    """The cluster of a CA. ValueError when its certificate names none."""
    names = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    if len(names) != 1:
        raise ValueError("the CA's certificate does not name its cluster")
    return check_word(str(names[0].value), "cluster name")


def _instant(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=int(epoch_s))
