"""Stored revocations: certificates that count for nothing before their end.

A row of a serial stands for one certificate. A row of a user or node stands for all certificates
signed before its `good_from_s`. Sessions and tokens of web servers that began before end, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SERIAL: Final = "serial"
USER: Final = "user"
NODE: Final = "node"
KINDS: Final = (SERIAL, USER, NODE)


def subject_of(kind: str, name: str) -> str:
    """The key of a row."""
    return f"{kind}:{name}"


@dataclass(frozen=True, slots=True)
class Revocation:
    """One row."""

    subject: str  # as `subject_of` makes it
    time_s: float
    good_from_s: float  # a whole second, as dates in certificates are
    by: str
    reason: str = ""


def signing_s(rows: Mapping[str, Revocation], kind: str, name: str, now_s: float) -> float:
    """The time with which a new certificate is signed: a revocation in the same second of its
    former ones must not hit it.
    """
    row = rows.get(subject_of(kind, name)) if rows else None
    return now_s if row is None else max(now_s, row.good_from_s)
