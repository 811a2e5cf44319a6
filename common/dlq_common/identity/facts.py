"""Facts about the cluster's certificates that everybody may know: names and spans of time.

They stand apart from `pki.py`, which loads the library that makes and reads certificates. A process
that only opens channels with a certificate does without those megabytes.
"""

from __future__ import annotations

import re

# Every client expects this name of the master at any address: the CA is pinned.
SERVER_NAME = "dlq-master"

_URI = re.compile(r"dlq://([^/]+)/([^/]+)/([^/]+)")

LIFETIME_S = 30 * 86_400.0
CA_LIFETIME_S = 10 * 365 * 86_400.0

# Hosts disagree about the time. A certificate is valid from this instant (2020-01-01), so that a
# host whose clock is behind accepts it. Only its end limits it.
GOOD_FROM_S = 1_577_836_800.0


def names_in(uri: str) -> tuple[str, str, str] | None:
    """The cluster, the role and the name in a certificate's URI; None in another's."""
    match = _URI.fullmatch(uri)
    return None if match is None else (match[1], match[2], match[3])


def issued_s(end_s: float) -> float:
    """The signer's clock when it signed a certificate that ends then. All lives are equally long,
    so the end gives the beginning.
    """
    return end_s - LIFETIME_S


def is_near_end(end_s: float, now_s: float) -> bool:
    """Whether two thirds of the life of a certificate that ends then are over, or all of it.

    Also true if the signer's clock was so far ahead that the certificate outlives a whole life. The
    next certificate has an end by the right clock.
    """
    left_s = end_s - now_s
    return not LIFETIME_S / 3 < left_s <= 2 * LIFETIME_S
