"""Randomness that identifies: request ids, session ids, secrets, and seeds for jitter.

Job and attempt ids are not here: the store counts them.
"""

from __future__ import annotations

import base64
import os
import random
import uuid
from typing import Protocol

from dlq_common.clock import Clock

SECRET_BYTES = 32


class Ids(Protocol):
    """The source of identifiers and seeds for a shell."""

    def request_id(self) -> str:
        """A UUID that sorts by the time it was made; the key under which a retry is recognised."""
        ...

    def session_id(self) -> str:
        """A positive 63-bit integer as decimal text."""
        ...

    def secret(self) -> str:
        """256 unguessable bits, URL-safe text without padding; for tokens."""
        ...

    def rng(self) -> random.Random:
        """A fresh generator for jitter and sampling; never for secrets."""
        ...


class RandomIds:
    """The real source: the kernel's random bytes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def request_id(self) -> str:
        return time_ordered_uuid(self._clock.now_s(), os.urandom(10))

    def session_id(self) -> str:
        return positive_decimal(os.urandom(8))

    def secret(self) -> str:
        return url_safe(os.urandom(SECRET_BYTES))

    def rng(self) -> random.Random:
        return random.Random(os.urandom(16))


def time_ordered_uuid(now_s: float, entropy: bytes) -> str:
    """A version 7 UUID (RFC 9562): 48 bits of milliseconds, then 74 of the 80 random bits given."""
    milliseconds = int(now_s * 1000) & ((1 << 48) - 1)
    noise = int.from_bytes(entropy, "big")
    high, low = (noise >> 62) & 0xFFF, noise & ((1 << 62) - 1)
    return str(uuid.UUID(int=(milliseconds << 80) | (7 << 76) | (high << 64) | (2 << 62) | low))


def positive_decimal(entropy: bytes) -> str:
    """Eight bytes as the decimal text of an integer in 1..2^63-1."""
    return str((int.from_bytes(entropy, "big") >> 1) or 1)


def url_safe(entropy: bytes) -> str:
    """Base64 with `-` and `_`, without padding: safe in a URL, a shell word and a file name."""
    return base64.urlsafe_b64encode(entropy).rstrip(b"=").decode("ascii")
