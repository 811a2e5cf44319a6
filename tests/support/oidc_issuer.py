"""An issuer of OpenID Connect for tests, in process: honest, or wrong in one way that a test names.

It keeps the rules of the standard where a cheat would be easy: a code is good once, for its client,
its address and its PKCE verifier.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from dlq_common.clock import Clock
from dlq_common.errors import Unauthenticated, Unavailable
from dlq_web.config import OpenIdConfig
from dlq_web.entrance.issuer import ServerRefused

ADDRESS = "https://sso.example.org/realms/lab"
CLIENT_ID, CLIENT_SECRET = "dlq-page", "s3cret of the client"
LIFETIME_S = 300
Claims = dict[str, Any]


def _encoded(part: Mapping[str, Any]) -> str:
    raw = json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@dataclass
class OidcIssuer:
    """Its keys, the codes that it has given out, and how often it was asked for what."""

    clock: Clock
    algorithm: str = "ES256"
    away: bool = False
    wrong: Callable[[Claims], Claims] = dict
    """Changes the claims of the next tokens."""
    forge: Callable[[str], str] = str
    """Changes the next tokens after they were signed."""
    address: str = ADDRESS
    described_as: str = ""  # another name than its own
    refreshes: bool = False
    """Whether it gives refresh tokens. Each is good once; its answer has the next one."""
    tells_again: bool = True
    """Whether a refresh brings an ID token, too."""
    forgets_us: bool = False
    """Whether the secret of this server is another one now."""
    cannot_judge: set[str] = field(default_factory=set)
    """Subjects whose refresh tokens it fails with."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    living: dict[str, Claims] = field(default_factory=dict)
    """The claims behind each refresh token that counts."""
    fetched: list[str] = field(default_factory=list)
    key: Any = None

    def __post_init__(self) -> None:
        self.change_key()

    def change_key(self) -> None:
        """From now on another key signs, and the old one is published no more."""
        told: Any = {"kid": secrets.token_hex(4), "use": "sig"}
        made = (
            RSAKey.generate_key(2048, told)
            if self.algorithm.startswith("RS")
            else ECKey.generate_key("P-256", told)
        )
        self.key = made

    async def fetch(self, address: str, form: Mapping[str, str] | None, proof: str) -> bytes:
        """An answer, as over HTTPS."""
        self.fetched.append(urlsplit(address).path.rpartition("/")[2])
        await asyncio.sleep(0)  # others ask meanwhile
        if self.away:
            raise Unavailable("the issuer does not answer")
        if address.endswith("/.well-known/openid-configuration"):
            told: Mapping[str, Any] = {
                "issuer": self.described_as or self.address,
                "authorization_endpoint": f"{self.address}/authorize",
                "token_endpoint": f"{self.address}/token",
                "jwks_uri": f"{self.address}/keys",
            }
        elif address.endswith("/keys"):
            told = dict(KeySet([self.key]).as_dict(private=False))
            secret = {"kty": "oct", "k": "AAAA", "kid": "shared"}
            told = {"keys": [*told["keys"], secret, {"kty": "of tomorrow"}]}
        else:
            assert form is not None
            told = self._tokens_for(form, proof) | {"access_token": "not used"}
        return json.dumps(told).encode()

    def authorize(self, address: str, **claims: Any) -> dict[str, str]:
        """The user agrees: the parameters with which the browser is sent back."""
        asked = {key: values[0] for key, values in parse_qs(urlsplit(address).query).items()}
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked | {"claims": json.dumps(claims)}
        return {"code": code, "state": asked["state"], "iss": self.address}

    def token(self, claims: Claims) -> str:
        """A signed token with these claims, or a forged one."""
        header = {"alg": self.algorithm, "kid": self.key.kid}
        told = self.wrong(claims)
        if self.algorithm.startswith("HS"):
            shared = OctKey.import_key(CLIENT_SECRET.ljust(32, "."))
            return jwt.encode(header, told, shared, algorithms=[self.algorithm])
        return self.forge(jwt.encode(header, told, self.key, algorithms=[self.algorithm]))

    def logout_token(self, subject: str, **more: Any) -> str:
        """The token of a back-channel logout."""
        events: Claims = {"http://schemas.openid.net/event/backchannel-logout": {}}
        return self.token(self._usual(subject) | {"events": events, "jti": "1"} | more)

    def revoke(self, subject: str) -> None:
        """It ends the session of somebody, and tells nobody."""
        self.living = {key: it for key, it in self.living.items() if it["sub"] != subject}

    def change(self, subject: str, **claims: Any) -> None:
        """What it knows of somebody is something else now."""
        for it in self.living.values():
            it.update(claims if it["sub"] == subject else {})

    def _tokens_for(self, form: Mapping[str, str], proof: str) -> Claims:
        if form["grant_type"] == "refresh_token":
            self._check_client(proof)
            claims = self.living.get(form["refresh_token"])
            if claims is not None and claims["sub"] in self.cannot_judge:
                raise Unavailable("the issuer answers 500")
            self.living.pop(form["refresh_token"], None)
            if claims is None:
                raise Unauthenticated("the issuer refuses the code")
            fresh = {**claims, **{key: self._usual("")[key] for key in ("iat", "exp")}}
            told = {"id_token": self.token(fresh)} if self.tells_again else {}
            return told | self._refresh_token(claims)
        asked = self._asked(form, proof)
        claims = self._usual("u-17") | {"nonce": asked["nonce"]} | json.loads(asked["claims"])
        return {"id_token": self.token(claims)} | self._refresh_token(claims)

    def _refresh_token(self, claims: Claims) -> Claims:
        if not self.refreshes:
            return {}
        token = secrets.token_urlsafe(16)
        self.living[token] = {key: it for key, it in claims.items() if key != "nonce"}
        return {"refresh_token": token}

    def _check_client(self, proof: str) -> None:
        if self.forgets_us:
            raise ServerRefused("the issuer refuses this server (401)")
        pair = base64.b64decode(proof.removeprefix("Basic ")).decode()
        if pair != urlencode({CLIENT_ID: CLIENT_SECRET}).replace("=", ":").replace("+", "%20"):
            raise ServerRefused("the issuer refuses this server (401)")

    def _asked(self, form: Mapping[str, str], proof: str) -> dict[str, str]:
        self._check_client(proof)
        asked = self.codes.pop(form["code"], None)
        challenge = base64.urlsafe_b64encode(
            hashlib.sha256(form["code_verifier"].encode()).digest()
        )
        if (
            asked is None
            or asked["code_challenge"] != challenge.rstrip(b"=").decode()
            or asked["redirect_uri"] != form["redirect_uri"]
        ):
            raise Unauthenticated("the issuer refuses the code")
        return asked

    def _usual(self, subject: str) -> Claims:
        now_s = int(self.clock.now_s())
        return {
            "iss": self.address,
            "aud": CLIENT_ID,
            "sub": subject,
            "iat": now_s,
            "exp": now_s + LIFETIME_S,
        }


def openid_config(directory: Path, **words: Any) -> OpenIdConfig:
    """A server that this issuer knows; its secret lies in the directory."""
    secret = directory / "openid.secret"
    secret.write_text(f"{CLIENT_SECRET}\n")
    secret.chmod(0o600)
    return OpenIdConfig(
        issuer=ADDRESS, client_id=CLIENT_ID, client_secret_file=str(secret), **words
    )


def unsigned(token: str) -> str:
    """The same claims, with the algorithm `none`."""
    return f"{_encoded({'alg': 'none'})}.{token.split('.')[1]}."


def of_another(token: str) -> str:
    """The same claims, signed by a stranger who names the issuer's key."""
    header, payload, _ = token.split(".")
    told = json.loads(base64.urlsafe_b64decode(header + "=="))
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    stranger = ECKey.generate_key("P-256")
    return jwt.encode(told, claims, stranger, algorithms=["ES256"])


def changed(token: str) -> str:
    """Other claims below the old signature."""
    header, payload, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    return f"{header}.{_encoded(claims | {'preferred_username': 'bob'})}.{signature}"
