"""An identity on disk: key, certificate and the cluster's CA, written so that a crash loses none.

Used by the CLI (`identity.*` in $DLQ_HOME) and by the agent (in its state directory). The key is
readable by its owner only, from its first byte on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dlq_common.identity.private_files import read_private

KEY_FILE = "identity.key"
CERTIFICATE_FILE = "identity.crt"
CA_FILE = "ca.crt"
# Secrets that a master derived from the first key of its CA. They outlive that key.
SEEDS_FILE = "ca.seeds"
# The new key waits under this name until its certificate is on disk.
NEXT_KEY_FILE = "identity.key.next"


@dataclass(frozen=True, slots=True)
class StoredIdentity:
    """PEM bytes, ready for `grpc.ssl_channel_credentials(ca, key, certificate)`."""

    key: bytes
    certificate: bytes
    ca: bytes


def save_identity(directory: Path, identity: StoredIdentity) -> None:
    """Store an identity; after a crash at any point `load_identity` finds the old or the new
    one.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_public(directory / CA_FILE, identity.ca)
    write_private(directory / NEXT_KEY_FILE, identity.key)
    write_public(directory / CERTIFICATE_FILE, identity.certificate)
    (directory / NEXT_KEY_FILE).rename(directory / KEY_FILE)
    _sync_directory(directory)


def load_identity(directory: Path) -> StoredIdentity | None:
    """The stored identity, None when there is none or its key does not fit its certificate.

    Completes a `save_identity` that was cut short after the certificate was written. ConfigError
    when others than the owner may read or write the key.
    """
    certificate = _read(directory / CERTIFICATE_FILE)
    ca = _read(directory / CA_FILE)
    if certificate is None or ca is None:
        return None
    for name in (KEY_FILE, NEXT_KEY_FILE):
        key = _read(directory / name, private=True)
        if key is not None and _fits(key, certificate):
            if name == NEXT_KEY_FILE:
                (directory / name).rename(directory / KEY_FILE)
                _sync_directory(directory)
            return StoredIdentity(key, certificate, ca)
    return None


def read_identity(directory: Path) -> StoredIdentity | None:
    """The files as they are; None when one is missing. Their key may belong to another certificate:
    this is for a comparison with an identity that was loaded.
    """
    key = _read(directory / KEY_FILE, private=True)
    certificate, ca = _read(directory / CERTIFICATE_FILE), _read(directory / CA_FILE)
    if key is None or certificate is None or ca is None:
        return None
    return StoredIdentity(key, certificate, ca)


def write_private(path: Path, content: bytes) -> None:
    """Replace a file at once and durably; mode 0600."""
    _replace(path, content, 0o600)


def write_public(path: Path, content: bytes) -> None:
    """Replace a file at once and durably; mode 0644."""
    _replace(path, content, 0o644)


def _replace(path: Path, content: bytes, mode: int) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    # O_EXCL: never write a secret into a file or link that another user has put there.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path, *, private: bool = False) -> bytes | None:
    try:
        return read_private(path) if private else path.read_bytes()
    except FileNotFoundError:
        return None


def _fits(key: bytes, certificate: bytes) -> bool:
    from dlq_common.identity.pki import belongs_together  # it loads `cryptography`: megabytes

    try:
        return belongs_together(key, certificate)
    except ValueError:
        return False
