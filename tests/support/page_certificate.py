"""A certificate for a page at localhost, as a site would have one from its own or a public CA."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_FROM = datetime(2020, 1, 1, tzinfo=UTC)


def page_certificate(directory: Path, host: str = "localhost") -> tuple[Path, Path]:
    """The files of a new certificate and its key; clients trust the certificate itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    names = [x509.DNSName(host), x509.IPAddress(ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_FROM + timedelta(days=365 * 100))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = directory / "page.crt", directory / "page.key"
    certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_file, key_file
