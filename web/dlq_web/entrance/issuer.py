"""The issuer of OpenID Connect: its description, its keys, and the exchange of a code for a token.

Its answers are believed only over HTTPS from the configured address, and in the form of the
standard. Keys are kept for an hour. They are fetched anew for a token with an unknown one, since
the issuer may have changed its keys. While the issuer is away, nobody signs in this way, and
sessions go on.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from dlq_common.clock import Clock
from dlq_common.errors import ConfigError, DlqError, Unauthenticated, Unavailable
from dlq_common.text.units import HOUR, MINUTE

KEPT_S = HOUR
AGAIN_S = MINUTE / 2  # at the earliest, for a token with an unknown key
PATIENCE_S = 10.0
LARGEST_ANSWER = 1 << 20
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DESCRIPTION = "/.well-known/openid-configuration"

Form = Mapping[str, str]
Fetch = Callable[[str, Form | None, str], Awaitable[bytes]]
"""An address, perhaps a form to post, and perhaps a header Authorization. Raises Unavailable while
the issuer is away, Unauthenticated when it refuses a code or a token, and ServerRefused else."""


class Endpoints(NamedTuple):
    """The addresses that the issuer names."""

    authorize: str
    token: str
    keys: str


class Client(NamedTuple):
    """How the issuer knows this server."""

    client_id: str
    secret: str = ""  # "": a public client, which PKCE alone protects


class ServerRefused(Unauthenticated):
    """The issuer does not know this server, or its secret: that says nothing about a user."""


class TokensTold(NamedTuple):
    """The tokens in an answer of the issuer."""

    identity: str  # the ID token; "": none
    refresh: str  # "": none


class Issuer:
    """One issuer."""

    def __init__(self, address: str, client: Client, fetch: Fetch, clock: Clock) -> None:
        self.address = address
        self.client = client
        self._fetch = fetch
        self._clock = clock
        self._endpoints: Endpoints | None = None
        self._endpoints_s = 0.0
        self._keys: KeySet | None = None
        self._keys_s = 0.0
        self._fetching = asyncio.Lock()

    async def endpoints(self) -> Endpoints:
        """Its addresses. Raises Unavailable when it is away or tells nonsense."""
        async with self._fetching:
            now_s = self._clock.boottime_s()
            if self._endpoints is None or now_s - self._endpoints_s >= KEPT_S:
                raw = await self._fetch(self.address.rstrip("/") + _DESCRIPTION, None, "")
                self._endpoints, self._endpoints_s = self._described(_object(raw)), now_s
            return self._endpoints

    async def keys(self, kid: str | None) -> KeySet:
        """Its keys, fetched anew when they are old, or when none has this name. Raises
        Unavailable.
        """
        address = (await self.endpoints()).keys
        async with self._fetching:
            age_s = self._clock.boottime_s() - self._keys_s
            known = self._keys is not None and (
                kid is None or any(key.kid == kid for key in self._keys)
            )
            if self._keys is None or age_s >= (KEPT_S if known else AGAIN_S):
                found = _keys(_object(await self._fetch(address, None, "")))
                self._keys, self._keys_s = found, self._clock.boottime_s()
            return self._keys

    async def exchange(self, code: str, verifier: str, back: str) -> TokensTold:
        """The tokens for a code, an ID token among them. Raises Unauthenticated when the issuer
        refuses the code.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "client_id": self.client.client_id,
            "code_verifier": verifier,
        }
        told = await self._tokens(form)
        if not told.identity:
            raise Unavailable("the issuer has told no ID token")
        return told

    async def refresh(self, token: str) -> TokensTold:
        """New tokens for a refresh token. Raises Unauthenticated when it counts no more, and
        Unavailable while the issuer is away.
        """
        form = {"grant_type": "refresh_token", "refresh_token": token}
        try:
            return await self._tokens(form | {"client_id": self.client.client_id})
        except ServerRefused:
            raise Unavailable("the issuer refuses this server, or its secret") from None

    async def _tokens(self, form: Form) -> TokensTold:
        address = (await self.endpoints()).token
        told = _object(await self._fetch(address, form, self._proof()))
        found = (told.get(name) for name in ("id_token", "refresh_token"))
        return TokensTold(*(one if isinstance(one, str) else "" for one in found))

    def _proof(self) -> str:
        if not self.client.secret:
            return ""
        pair = f"{quote(self.client.client_id, safe='')}:{quote(self.client.secret, safe='')}"
        return "Basic " + base64.b64encode(pair.encode()).decode()

    def _described(self, told: Mapping[str, Any]) -> Endpoints:
        if told.get("issuer") != self.address:
            raise Unavailable("the issuer calls itself by another name than openid.issuer")
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        found = [told.get(name) for name in names]
        # An issuer elsewhere has us ask no service of this host that lacks TLS.
        begins = "http" if self.address.startswith("http://") else "https://"
        if not all(isinstance(one, str) and is_safe(one, begins) for one in found):
            raise Unavailable(f"the issuer does not describe {', '.join(names)} with https://")
        return Endpoints(*map(str, found))


def is_safe(address: str, begins: str = "http") -> bool:
    """Whether nobody can change what comes from there: HTTPS, or this host. It must begin so."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    if "@" in parts.netloc or not parts.hostname or not address.startswith(begins):
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)


def fetching(ca_file: str) -> Fetch:
    """A way to fetch over HTTPS, without following anybody elsewhere. ConfigError for a CA file
    that cannot be read.
    """
    try:
        trust = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"openid.ca_file {ca_file}: {error}") from None
    opener = build_opener(HTTPSHandler(context=trust), _Stays())

    def ask(address: str, form: Form | None, proof: str) -> bytes:
        body = urlencode(form).encode() if form is not None else None
        headers = {"Accept": "application/json"} | ({"Authorization": proof} if proof else {})
        try:
            with opener.open(Request(address, body, headers), timeout=PATIENCE_S) as answer:
                return bytes(answer.read(LARGEST_ANSWER))
        except HTTPError as error:
            raise _refusal(error) from None
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise Unavailable(f"the issuer does not answer: {type(error).__name__}") from None

    async def fetch(address: str, form: Form | None, proof: str) -> bytes:
        return await asyncio.to_thread(ask, address, form, proof)

    return fetch


def _refusal(error: HTTPError) -> DlqError:
    """Its meaning. The word `error` of the answer says it (RFC 6749, 5.2): issuers differ in the
    status.
    """
    with error, suppress(HTTPException, OSError, ValueError, Unavailable):
        if _object(error.read(LARGEST_ANSWER)).get("error") == "invalid_grant":
            return Unauthenticated("the issuer refuses the code", hint="sign in anew")
    if error.code in (400, 401, 403):
        return ServerRefused(
            f"the issuer refuses this server ({error.code})",
            hint="an operator looks at client_id and client_secret_file of [openid]",
        )
    return Unavailable(f"the issuer answers {error.code}")


class _Stays(HTTPRedirectHandler):
    """An issuer that sends us elsewhere is refused."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise Unavailable("the issuer's answer makes no sense")
    return told


def _keys(told: Mapping[str, Any]) -> KeySet:
    """Its public keys for signatures; others are nobody's business here."""
    listed = told.get("keys")
    wanted = [
        one
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict)
        and one.get("kty") in ("RSA", "EC")
        and one.get("use", "sig") == "sig"
    ]
    try:
        return KeySet.import_key_set({"keys": wanted})
    except (JoseError, ValueError, KeyError, TypeError):
        raise Unavailable("the issuer's keys make no sense") from None
