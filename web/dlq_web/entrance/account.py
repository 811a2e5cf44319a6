"""The account page: the tokens of programs, and the end of all sessions.

A token is made and revoked by a person in a browser. A program with a token makes no further one.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dlq_cli.output.render import when
from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import InvalidRequest, PermissionDenied
from dlq_common.identity.acting import ActsFor
from dlq_common.text.units import DAY, approximate_span
from dlq_web.door.bearers import Bearers
from dlq_web.door.sessions import person_of, session_of
from dlq_web.door.tokens import Token, Tokens
from dlq_web.entrance.ways import GROUPS_S
from dlq_web.line.scope import Scope
from dlq_web.pages.page import page
from dlq_web.pages.views import look_at

USUAL_DAYS, MOST_DAYS = 30, 365


class AccountPage:
    """Pages and requests of one person about themselves."""

    def __init__(self, tokens: Tokens, bearers: Bearers, clock: Clock) -> None:
        self._tokens = tokens
        self._bearers = bearers
        self._clock = clock

    def routes(self) -> list[Route]:
        """The page, and its requests."""
        return [
            Route("/account", self.page, methods=["GET"]),
            Route("/account/tokens", self.listed, methods=["GET"]),
            Route("/account/tokens", self.make, methods=["POST"]),
            Route("/account/tokens/{token}", self.revoke, methods=["DELETE"]),
        ]

    async def page(self, http: Request) -> Response:
        """The tokens, and a form for another one."""
        look = look_at(self._clock.now_s())
        rows = [
            (
                one.token_id,
                one.label,
                one.scope.value,
                when(one.created_s, look),
                when(one.end_s, look),
            )
            for one in self._own(http)
        ]
        user = person_of(http).user
        scopes = [scope.value for scope in Scope]
        return page(
            http,
            "account",
            "Account",
            tokens=rows,
            scopes=scopes,
            days=USUAL_DAYS,
            most=MOST_DAYS,
            after=-1,
            groups=() if user is None else user.groups,
            groups_last=approximate_span(GROUPS_S),
        )

    async def listed(self, http: Request) -> Response:
        """The tokens without their secrets."""
        return JSONResponse({"tokens": [_facts(one) for one in self._own(http)]})

    async def make(self, http: Request) -> Response:
        """A new token; its secret is in this answer, and nowhere else."""
        user = _in_person(http)
        asked = _object(await http.body())
        try:
            scope = Scope(asked.get("scope", "read"))
        except ValueError:
            raise InvalidRequest(f"a scope is one of {', '.join(Scope)}", field="scope") from None
        days = asked.get("days", USUAL_DAYS)
        if not isinstance(days, int) or isinstance(days, bool) or not 1 <= days <= MOST_DAYS:
            raise InvalidRequest(f"days are a number from 1 to {MOST_DAYS}", field="days")
        label = asked.get("label", "")
        if not isinstance(label, str):
            raise InvalidRequest("a label is a text", field="label")
        secret = await self._tokens.make(user, label.strip(), scope, days * DAY)
        get_logger("web").info("token_made", user=user.name, scope=scope.value, days=days)
        return JSONResponse({"token": secret}, 201)

    async def revoke(self, http: Request) -> Response:
        """End a token of this user, with what its program has open."""
        user, token_id = _in_person(http), http.path_params["token"]
        await self._tokens.revoke(user.name, token_id)
        self._bearers.end(token_id)
        get_logger("web").info("token_revoked", user=user.name, token=token_id)
        return JSONResponse({"revoked": token_id})

    def _own(self, http: Request) -> list[Token]:
        return self._tokens.of_user(person_of(http).name)


def _in_person(http: Request) -> ActsFor:
    """The user of this browser. PermissionDenied for a program with a token."""
    user = person_of(http).own  # a program has nothing of what groups give
    if user is None or not session_of(http).by_cookie:
        raise PermissionDenied("a program with a token makes and revokes no tokens")
    return user


def _object(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise InvalidRequest("the body is a JSON object")
    return told


def _facts(token: Token) -> dict[str, object]:
    return {
        "token_id": token.token_id,
        "label": token.label,
        "scope": token.scope.value,
        "create_time_s": token.created_s,
        "end_time_s": token.end_s,
    }
