"""Tokens of programs: made by their users, shown once, kept as digests in one file.

The file is replaced at once and durably before a token is told or its end is acknowledged. The
master decides at each call what the user of a token may do. So a token of a removed user is worth
nothing, also when a later user has the same name.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlq_common.clock import Clock
from dlq_common.errors import ConfigError, InvalidRequest, NotFound, QuotaExceeded
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.files import write_private
from dlq_common.identity.private_files import read_private
from dlq_common.text.units import DAY
from dlq_web.door.sessions import SECRET_BYTES, digest_of
from dlq_web.line.scope import Scope

TOKEN_FILE = "tokens.json"
LONGEST_S = 365 * DAY
MOST_OF_A_USER, MOST = 20, 10_000
LONGEST_LABEL = 60
_PREFIX = "dlqt"
_ID_BYTES = 6
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret; times are UTC seconds."""

    token_id: str
    digest: str
    name: str
    role: str
    since_s: float  # by the master's clock: the user's session when it was made
    label: str
    scope: Scope
    created_s: float
    end_s: float
    certificate: str = ""  # the serial of the one with which its maker had signed in; "": none

    @property
    def user(self) -> ActsFor:
        """The user for whom it speaks; it ends with its maker's certificate, if that is revoked."""
        return ActsFor(self.name, self.role, self.since_s, shown=self.certificate)


class Tokens:
    """All tokens of the server. Lives in the event loop's thread."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        """ConfigError when the file is damaged, or others may read it."""
        self._path = directory / TOKEN_FILE
        self._clock = clock
        self._tokens = _read(self._path)
        self._writing = asyncio.Lock()

    async def make(self, user: ActsFor, label: str, scope: Scope, lifetime_s: float) -> str:
        """The secret of a new token, which is never told again. Raises InvalidRequest and
        QuotaExceeded.
        """
        if not 0 < lifetime_s <= LONGEST_S:
            raise InvalidRequest("a token is good for 1 to 365 days", field="days")
        if not label or len(label) > LONGEST_LABEL or not label.isprintable():
            raise InvalidRequest(f"a label has 1 to {LONGEST_LABEL} characters", field="label")
        async with self._writing:
            if len(self.of_user(user.name)) >= MOST_OF_A_USER or len(self._tokens) >= MOST:
                raise QuotaExceeded(
                    f"{user.name} has {MOST_OF_A_USER} tokens", hint="revoke one of them first"
                )
            token_id = secrets.token_hex(_ID_BYTES)
            secret, now_s = secrets.token_urlsafe(SECRET_BYTES), self._clock.now_s()
            since_s = now_s if user.since_s is None else user.since_s
            token = Token(
                token_id, digest_of(secret), user.name, user.role, since_s, label, scope, now_s,
                now_s + lifetime_s, user.shown.partition(".")[0],
            )  # fmt: skip
            await self._keep({**self._tokens, token_id: token})
        return f"{_PREFIX}_{token_id}_{secret}"

    def find(self, text: str) -> Token | None:
        """The token with this secret; None: there is none, or its end has come."""
        prefix, _, rest = text.partition("_")
        token_id, _, secret = rest.partition("_")
        token = self._tokens.get(token_id) if prefix == _PREFIX else None
        if token is None or not hmac.compare_digest(token.digest, digest_of(secret)):
            return None
        return token if self._clock.now_s() < token.end_s else None

    def holds(self, token_id: str) -> bool:
        """Whether the token with this id is good still."""
        token = self._tokens.get(token_id)
        return token is not None and self._clock.now_s() < token.end_s

    def of_user(self, name: str) -> list[Token]:
        """The tokens of a user that have not ended, the oldest first."""
        now_s = self._clock.now_s()
        return [one for one in self._tokens.values() if one.name == name and one.end_s > now_s]

    async def revoke(self, name: str, token_id: str) -> None:
        """End a token of this user. NotFound: it is another's, or gone."""
        async with self._writing:
            token = self._tokens.get(token_id)
            if token is None or token.name != name:
                raise NotFound(f"there is no token {token_id[:32]}", kind="token")
            await self._keep({key: one for key, one in self._tokens.items() if key != token_id})

    async def _keep(self, tokens: Mapping[str, Token]) -> None:
        now_s = self._clock.now_s()
        living = {key: one for key, one in tokens.items() if one.end_s > now_s}
        told = {
            "v": _VERSION,
            "tokens": [_but_certificate(one) for one in living.values()],
            # Apart, because former releases read no further fields of a token.
            "certificates": {key: one.certificate for key, one in living.items()},
        }
        await asyncio.to_thread(write_private, self._path, json.dumps(told).encode() + b"\n")
        self._tokens = living


def _read(path: Path) -> dict[str, Token]:
    try:
        told = json.loads(read_private(path))
        if told["v"] != _VERSION:
            raise ValueError("v")
        known = told.get("certificates", {})
        made = (_token(one, str(known.get(one["token_id"], ""))) for one in told["tokens"])
        return {one.token_id: one for one in made}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"{path} is damaged", hint="remove it: everybody makes tokens anew", source=path
        ) from None


def _token(told: Mapping[str, Any], certificate: str) -> Token:
    return Token(**{**told, "scope": Scope(told["scope"])}, certificate=certificate)


def _but_certificate(token: Token) -> dict[str, Any]:
    told = asdict(token)
    del told["certificate"]
    return told
