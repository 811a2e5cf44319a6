"""The caller's identity: the identity directory of a user, read fast and written safely.

The directory ($DLQ_HOME, else ~/.config/dlq) holds `identity.key` (0600), `identity.crt`, `ca.crt`
and `cluster.json`. `cluster.json` keeps the dates of the certificate too. An ordinary command need
not load a cryptography library to check them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlq_common.errors import ConfigError
from dlq_common.identity.facts import LIFETIME_S
from dlq_common.identity.private_files import read_private

HOME_VARIABLE = "DLQ_HOME"
MASTERS_VARIABLE = "DLQ_MASTERS"  # a:7320,b:7320: in place of the stored address
CLUSTER_FILE = "cluster.json"
KEY_FILE = "identity.key"
CERTIFICATE_FILE = "identity.crt"
CA_FILE = "ca.crt"
# Left behind when writing an identity was cut short.
NEXT_KEY_FILE = "identity.key.next"


_TEXTS = ("address", "cluster", "user", "role")
_DATES = ("issued_s", "expires_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """PEM bytes for mutual TLS, the master's address, and the name in the certificate."""

    key: bytes
    certificate: bytes
    ca: bytes
    address: str  # HOST:PORT of the API; of all masters, with commas, where there are several
    cluster: str
    user: str
    role: str
    issued_s: float  # UTC seconds
    expires_s: float

    @property
    def first_address(self) -> str:
        """HOST:PORT of one master."""
        return self.address.partition(",")[0]

    def is_valid(self, now_s: float) -> bool:
        """Whether the certificate has not expired yet."""
        return now_s < self.expires_s

    @property
    def renews(self) -> bool:
        """Whether the master renews it: one with a short life came through a web page, and ends."""
        return self.expires_s - self.issued_s >= LIFETIME_S - 1.0

    def renewal_due(self, now_s: float) -> bool:
        """Whether two thirds of the certificate's life are over."""
        return now_s >= self.issued_s + (self.expires_s - self.issued_s) * 2 / 3


def certified(key: bytes, certificate: bytes, ca: bytes, address: str) -> Identity:
    """The identity that a certificate proves. Unauthenticated as `pki.parse_identity`."""
    from dlq_common.identity import pki

    who = pki.parse_identity(certificate)
    return Identity(
        key=key,
        certificate=certificate,
        ca=ca,
        address=address,
        cluster=who.cluster,
        user=who.name,
        role=who.role.value,
        issued_s=who.issued_s,
        expires_s=who.not_after_s,
    )


def default_home(environ: Mapping[str, str]) -> Path:
    """$DLQ_HOME, else $XDG_CONFIG_HOME/dlq, else ~/.config/dlq."""
    if home := environ.get(HOME_VARIABLE):
        return Path(home)
    config = environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path("~/.config").expanduser()) / "dlq"


def load_identity(home: Path) -> Identity | None:
    """The stored identity, expired or not; None before the first login here.

    ConfigError when the directory cannot be read, when others than the owner may use its key, or
    when its `cluster.json` is damaged.
    """
    if os.path.exists(home / NEXT_KEY_FILE):  # Path.exists raises where we may not look
        return _completed(home)
    return _read(home)


def save_identity(home: Path, identity: Identity) -> None:
    """Write the directory; a crash leaves the old identity or the new one, and no key readable."""
    from dlq_common.identity import files as identity_files

    identity_files.save_identity(
        home,
        identity_files.StoredIdentity(identity.key, identity.certificate, identity.ca),
    )
    facts = {name: getattr(identity, name) for name in (*_TEXTS, *_DATES)}
    identity_files.write_public(
        home / CLUSTER_FILE, (json.dumps(facts, indent=2) + "\n").encode("utf-8")
    )


def _completed(home: Path) -> Identity | None:
    """The identity after a `save_identity` that was cut short; dates come from the certificate."""
    from dlq_common.identity import files as identity_files

    stored, known = identity_files.load_identity(home), _read(home)
    if known is None or stored is None:
        return None
    return certified(stored.key, stored.certificate, stored.ca, known.address)


def _read(home: Path) -> Identity | None:
    try:
        facts = json.loads((home / CLUSTER_FILE).read_bytes())
        pems = {
            "key": read_private(home / KEY_FILE),
            "certificate": (home / CERTIFICATE_FILE).read_bytes(),
            "ca": (home / CA_FILE).read_bytes(),
        }
        texts = {name: _text(facts, name) for name in _TEXTS}
        texts["address"] = os.environ.get(MASTERS_VARIABLE) or texts["address"]
        dates = {name: float(facts[name]) for name in _DATES}
        told: dict[str, Any] = {**pems, **texts, **dates}
        return Identity(**told)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}", hint="dlq --home DIR names another directory"
        ) from None
    except (KeyError, TypeError, ValueError):
        raise ConfigError(
            f"{home / CLUSTER_FILE} is damaged", hint="`dlq login` on the master's host renews it"
        ) from None


def _text(facts: Mapping[str, object], key: str) -> str:
    value = facts[key]
    if not isinstance(value, str) or not value:
        raise ValueError(key)
    return value
