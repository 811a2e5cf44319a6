"""Facts about the cluster's certificates that everybody may know: names and spans of time.

They stand apart from `pki.py`, which loads the library that makes and reads certificates. A process
that only opens channels with a certificate does without those megabytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Every client expects this name of the master at any address: the CA is pinned.
SERVER_NAME = "dlq-master"

_VOUCHED = re.compile(r"([^ ]+) ([0-9]{1,7})", re.ASCII)
_URI = re.compile(r"dlq://([^/]+)/([^/]+)/([^/]+)")

LIFETIME_S = 30 * 86_400.0
# Of a guest of another organisation; the introduction for it ends sooner.
GUEST_LIFE_S = 4 * 3_600.0
CA_LIFETIME_S = 10 * 365 * 86_400.0

# Hosts disagree about the time. A certificate is valid from this instant (2020-01-01), so that a
# host whose clock is behind accepts it. Only its end limits it.
GOOD_FROM_S = 1_577_836_800.0


def names_in(uri: str) -> tuple[str, str, str] | None:
    """The cluster, the role and the name in a certificate's URI; None in another's."""
    match = _URI.fullmatch(uri)
    return None if match is None else (match[1], match[2], match[3])


def vouched_word(service: str, life_s: float) -> str:
    """The unit in a certificate of a user who signed in at this service, with its life in it."""
    return f"{service} {life_s:.0f}"


def vouched_in(units: Sequence[str]) -> tuple[str, float]:
    """The service and the life in a certificate's units; without a unit no service, and the usual
    life. ValueError for any other unit.
    """
    if not units:
        return "", LIFETIME_S
    match = _VOUCHED.fullmatch(units[0])
    if match is None or len(units) > 1 or not 1 <= int(match[2]) <= LIFETIME_S:
        raise ValueError("its unit is none of ours")
    return match[1], float(match[2])


def is_near_end(end_s: float, now_s: float) -> bool:
    """Whether two thirds of the life of a certificate that ends then are over, or all of it.

    Also true if the signer's clock was so far ahead that the certificate outlives a whole life. The
    next certificate has an end by the right clock.
    """
    left_s = end_s - now_s
    return not LIFETIME_S / 3 < left_s <= 2 * LIFETIME_S
