"""Signing in by OpenID Connect: an authorization code with PKCE, for one browser, once.

A sign-in that was begun is in memory for ten minutes, under the state that the issuer sends back.
It belongs to the browser that has its cookie. So nobody finishes the sign-in of another one, and a
code is of no use without the browser that has asked for it. A sign-in for a command line
(device.py) asks the issuer for a new one, and begins no session.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError, PermissionDenied, Unauthenticated
from dlq_common.identity.acting import ActsFor
from dlq_common.text.units import MINUTE
from dlq_web.door.sessions import SECRET_BYTES, digest_of
from dlq_web.door.shared_guard import Tries
from dlq_web.entrance.device import DeviceDoor
from dlq_web.entrance.id_tokens import Claims, TokenReader
from dlq_web.entrance.issuer import Issuer
from dlq_web.entrance.rechecks import Rechecks
from dlq_web.entrance.rules import ClaimRules
from dlq_web.entrance.ways import Entrance, OtherWay, form_of, own_path

BEGIN, BACK, LOGOUT = "/enter/openid", "/enter/openid/back", "/enter/openid/logout"
BEGUN_S = 10 * MINUTE
LONGEST_CODE = 64
MOST_BEGUN, MOST_KNOWN = 10_000, 10_000


class _Begun(NamedTuple):
    """A sign-in that waits for the issuer."""

    browser: str  # the digest of its cookie
    nonce: str
    verifier: str
    to: str
    at_s: float
    now_s: float  # UTC
    device: str  # the code of a command line; "": for this browser itself


class OpenIdDoor:
    """The way in by an issuer."""

    def __init__(
        self,
        issuer: Issuer,
        reader: TokenReader,
        rules: ClaimRules,
        entrance: Entrance,
        clock: Clock,
        *,
        origin: str,
        scopes: tuple[str, ...],
        device: DeviceDoor,
        rechecks: Rechecks,
        tries: Tries,
        skew_s: float,
    ) -> None:
        """`origin`: the address of the page, which the issuer knows with BACK behind it. `skew_s`:
        by which the issuer's clock may differ.
        """
        self._issuer = issuer
        self._reader = reader
        self._rules = rules
        self._entrance = entrance
        self._clock = clock
        self._back = origin + BACK
        self._scopes = scopes
        self._device = device
        self._rechecks = rechecks
        self._tries = tries
        self._skew_s = skew_s
        self._secure = urlsplit(origin).scheme == "https"
        self._cookie = "__Host-dlq-openid" if self._secure else "dlq_openid"
        self._begun: OrderedDict[str, _Begun] = OrderedDict()
        self._subjects: OrderedDict[str, str] = OrderedDict()  # the user of each that has come

    def way(self, words: str) -> OtherWay:
        """This way, as the page of all ways shows it."""
        routes = [
            Route(BEGIN, self.begin, methods=["GET"]),
            Route(BACK, self.back, methods=["GET"]),
            Route(LOGOUT, self.logout, methods=["POST"]),
            *self._device.routes(),
        ]
        return OtherWay(BEGIN, words, routes)

    async def begin(self, http: Request) -> Response:
        """On to the issuer."""
        endpoints = await self._issuer.endpoints()
        state, browser, nonce, verifier = (secrets.token_urlsafe(SECRET_BYTES) for _ in range(4))
        now_s = self._clock.boottime_s()
        to = own_path(http.query_params.get("next", "/"))
        device = http.query_params.get("device", "")[:LONGEST_CODE]
        self._forget(now_s)
        self._begun[digest_of(state)] = _Begun(
            digest_of(browser), nonce, verifier, to, now_s, self._clock.now_s(), device
        )
        asked = {
            "response_type": "code",
            "client_id": self._issuer.client.client_id,
            "redirect_uri": self._back,
            "scope": " ".join(self._scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": _challenge(verifier),
            "code_challenge_method": "S256",
            **({"prompt": "login"} if device else {}),
        }
        joint = "&" if "?" in endpoints.authorize else "?"
        answer = RedirectResponse(f"{endpoints.authorize}{joint}{urlencode(asked)}", 303)
        answer.set_cookie(
            self._cookie, browser, max_age=int(BEGUN_S), httponly=True, samesite="lax", path="/",
            secure=self._secure,
        )  # fmt: skip
        return answer

    async def back(self, http: Request) -> Response:
        """Back from the issuer: a session, or the words of a refusal."""
        given = http.query_params
        begun = self._taken(given.get("state", ""), http.cookies.get(self._cookie, ""))
        if given.get("iss", self._issuer.address) != self._issuer.address:
            raise Unauthenticated("another issuer has answered", hint="sign in anew at /sign-in")
        if "error" in given or not given.get("code"):
            raise Unauthenticated(
                f"the issuer refuses: {_word(given.get('error', 'no code'))}",
                hint="sign in anew at /sign-in",
            )
        try:
            tokens = await self._issuer.exchange(given["code"], begun.verifier, self._back)
            claims = await self._reader.sign_in(tokens.identity, begun.nonce)
            name, groups = self._rules.user(claims), self._rules.group_names(claims)
            if begun.device:
                self._check_fresh(claims, begun)
        except DlqError as error:
            get_logger("web").info("sign_in_refused", way="openid", cause=error.what)
            raise
        if begun.device:
            answer = await self._device.signed_in(
                http, ActsFor(name), begun.device, self._allowed(groups)
            )
            self._forget_browser(answer)
            return answer
        subject, told = str(claims["sub"]), self._rules.told(groups)
        answer = await self._entrance.begin(
            http, ActsFor(name), "openid",
            to=begun.to, allowed=self._allowed(groups), groups=told,
            told_s=float(claims["exp"]) - self._clock.now_s(),
            begun=lambda person: self._rechecks.begun(person, tokens.refresh, subject, told),
        )  # fmt: skip
        self._subjects[subject] = name
        while len(self._subjects) > MOST_KNOWN:
            self._subjects.popitem(last=False)
        self._forget_browser(answer)
        return answer

    async def logout(self, http: Request) -> Response:
        """The issuer has ended the session of somebody: end theirs here, too."""
        form = await form_of(http, 70_000)
        try:
            claims = await self._reader.logout(form.get("logout_token", ""))
        except Unauthenticated:
            self._tries.take(http)  # the issuer itself may end many sessions at once
            raise
        name = self._subjects.get(str(claims["sub"]))
        if name is not None:
            self._entrance.sessions.leave_everywhere(name)
            get_logger("web").info("signed_out", way="openid", user=name)
        return JSONResponse({"left": True})

    def _check_fresh(self, claims: Claims, begun: _Begun) -> None:
        """Unauthenticated when the issuer says that it has asked for no new sign-in. Some do not
        say when they asked.
        """
        told = claims.get("auth_time")
        if isinstance(told, int | float) and told < begun.now_s - self._skew_s:
            raise Unauthenticated(
                "the issuer did not ask you to sign in anew, as a command line needs it",
                hint="sign out at the issuer, and begin anew",
            )

    def _forget_browser(self, answer: Response) -> None:
        answer.delete_cookie(self._cookie, path="/", secure=self._secure, httponly=True)

    def _allowed(self, groups: list[str]) -> Callable[[str], None]:
        def check(role: str) -> None:
            if not self._rules.groups.allow(role, groups):
                raise PermissionDenied(
                    f"your groups at the issuer allow no sign-in with the role {role}",
                    hint=f"openid.{role}_groups in web.toml",
                )

        return check

    def _taken(self, state: str, browser: str) -> _Begun:
        """The sign-in of this state and this browser, used up by it."""
        self._forget(self._clock.boottime_s())
        begun = self._begun.pop(digest_of(state), None)
        if begun is None or not hmac.compare_digest(begun.browser, digest_of(browser)):
            raise Unauthenticated(
                "this sign-in was not begun by this browser, or is over",
                hint="sign in anew at /sign-in",
            )
        return begun

    def _forget(self, now_s: float) -> None:
        while self._begun:
            first = next(iter(self._begun.values()))
            if now_s - first.at_s < BEGUN_S and len(self._begun) < MOST_BEGUN:
                return
            self._begun.popitem(last=False)


def _challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _word(text: str) -> str:
    """A word of the issuer's refusal, which came through the browser."""
    plain = text.replace("_", "").isalnum() and text.isascii()
    return text[:64] if plain else "without a word of the standard"
