"""Reads a signed token of the issuer. All that it says is believed only after every check here.

The algorithms are RS256 and ES256. A token without a signature is refused, and so is one with a
signature made of a shared secret. Times may differ by a bounded skew between two hosts.
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError

from dlq_common.clock import Clock
from dlq_common.errors import Unauthenticated
from dlq_common.text.units import HOUR
from dlq_web.entrance.issuer import Issuer

ALGORITHMS = ("RS256", "ES256")
LARGEST_TOKEN = 64 * 1024
MOST_S = 1e12  # of a time; NaN, which passes every comparison, is none
OLDEST_S = HOUR  # of a fresh token, by its time of issue
LOGOUT = "http://schemas.openid.net/event/backchannel-logout"
Claims = Mapping[str, Any]


class TokenReader:
    """Reads tokens that one issuer has made for this server."""

    def __init__(self, issuer: Issuer, clock: Clock, skew_s: float) -> None:
        self._issuer = issuer
        self._clock = clock
        self._skew_s = skew_s

    async def sign_in(self, token: str, nonce: str) -> Claims:
        """The claims of an ID token of this very sign-in. Raises Unauthenticated, with the check
        that it has failed.
        """
        claims = await self._signed(token)
        told = claims.get("nonce")
        if not isinstance(told, str) or not hmac.compare_digest(told.encode(), nonce.encode()):
            raise _refusal("it belongs to another sign-in (nonce)")
        return claims

    async def refreshed(self, token: str, subject: str) -> Claims:
        """The claims of an ID token that came with a refresh, of the same person. Raises
        Unauthenticated.
        """
        claims = await self._signed(token)
        if claims["sub"] != subject:
            raise _refusal("it is of somebody else")
        return claims

    async def logout(self, token: str) -> Claims:
        """The claims of a token with which the issuer ends sessions. Raises Unauthenticated."""
        claims = await self._signed(token)
        events = claims.get("events")
        if not isinstance(events, dict) or LOGOUT not in events or "nonce" in claims:
            raise _refusal("it is no token of a logout")
        return claims

    async def _signed(self, token: str) -> Claims:
        header = _header(token)
        if header.get("alg") not in ALGORITHMS:
            raise _refusal(f"its signature is not by {' or '.join(ALGORITHMS)}")
        kid = header.get("kid")
        keys = await self._issuer.keys(kid if isinstance(kid, str) else None)
        try:
            claims = jwt.decode(token, keys, algorithms=list(ALGORITHMS)).claims
        except (JoseError, ValueError, KeyError, TypeError):
            raise _refusal("its signature is not the issuer's") from None
        self._check(claims)
        return claims

    def _check(self, claims: Claims) -> None:
        client_id = self._issuer.client.client_id
        if claims.get("iss") != self._issuer.address:
            raise _refusal("it is of another issuer")
        told = claims.get("aud")
        audience = told if isinstance(told, list) else [told]
        if client_id not in audience:
            raise _refusal("it is for another client (aud)")
        if claims.get("azp", client_id) != client_id or (len(audience) > 1 and "azp" not in claims):
            raise _refusal("it was given to another client (azp)")
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise _refusal("it names nobody (sub)")
        now_s = self._clock.now_s()
        if now_s >= _time(claims, "exp") + self._skew_s:
            raise _refusal("it has expired; or the clocks of two hosts differ")
        issued_s = _time(claims, "iat")
        early_s = max(issued_s, _time(claims, "nbf") if "nbf" in claims else issued_s)
        if early_s > now_s + self._skew_s:
            raise _refusal("it is of the future; or the clocks of two hosts differ")
        if issued_s < now_s - OLDEST_S - self._skew_s:
            raise _refusal("it is too old")


def _time(claims: Claims, name: str) -> float:
    told = claims.get(name)
    if not isinstance(told, int | float) or isinstance(told, bool) or not abs(told) < MOST_S:
        raise _refusal(f"it lacks a time ({name})")
    return float(told)


def _header(token: str) -> Mapping[str, Any]:
    first = token.partition(".")[0]
    try:
        if len(token) > LARGEST_TOKEN:
            raise ValueError("too large")
        told = json.loads(urlsafe_b64decode(first + "=" * (-len(first) % 4)))
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise _refusal("it is no signed token")
    return told


def _refusal(why: str) -> Unauthenticated:
    return Unauthenticated(f"the issuer's token is refused: {why}", hint="sign in anew")
