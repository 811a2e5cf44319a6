"""The way to a certificate for a command line on a host without a login broker.

The command line shows a code. Its user types the code on this page, signs in at the issuer anew,
and confirms. Before the button the page says which host has asked, from where and when. A session
that is open already does not count, so a stolen cookie makes no identity. The master decides
whether it gives such certificates, for which roles, and for how long.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dlq.v1 import identity_service_pb2 as wire
from dlq_cli.output.render import clean_line, moment
from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError, InvalidRequest, Unauthenticated
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.pki import requested_key
from dlq_common.text.units import MINUTE
from dlq_web.door.persons import Persons
from dlq_web.door.sessions import SECRET_BYTES, digest_of
from dlq_web.door.shared_guard import Tries
from dlq_web.entrance.device_codes import (
    LASTS_S,
    SLOW_DOWN,
    DeviceCodes,
    NothingYet,
    Waiting,
    plain_code,
)
from dlq_web.entrance.ways import form_of
from dlq_web.line.methods import PublicMethod
from dlq_web.pages.page import open_page
from dlq_web.pages.views import look_at

PAGE, ASK, POLL, ANSWER = "/device", "/device/code", "/device/token", "/device/answer"
GRANTED_S = 5 * MINUTE
MOST_GRANTS = 1_000
LARGEST_FORM = 20_000
LONGEST_PLACE = 80
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_CERTIFY = PublicMethod(
    "/dlq.v1.IdentityService/CertifyUser",
    wire.CertifyUserRequest,
    wire.CertifyUserResponse,
    False,
)


class _Grant(NamedTuple):
    """A user who has signed in for a command line, and has not pressed a button yet."""

    browser: str  # the digest of its cookie
    user: ActsFor
    waiting: Waiting
    at_s: float


class DeviceDoor:
    """Gives certificates to command lines whose users confirm it in a browser."""

    def __init__(
        self, persons: Persons, tries: Tries, clock: Clock, *, origin: str, secure: bool, begin: str
    ) -> None:
        """`begin`: the path of this server at which a user signs in at the issuer."""
        self._persons = persons
        self._tries = tries
        self._clock = clock
        self._origin = origin
        self._secure = secure
        self._begin = begin
        self._cookie = "__Host-dlq-device" if secure else "dlq_device"
        self._codes = DeviceCodes(clock)
        self._grants: OrderedDict[str, _Grant] = OrderedDict()

    def routes(self) -> list[Route]:
        """For the command line, and for its user."""
        return [
            Route(PAGE, self.page, methods=["GET"]),
            Route(ASK, self.ask, methods=["POST"]),
            Route(POLL, self.poll, methods=["POST"]),
            Route(ANSWER, self.answer, methods=["POST"]),
        ]

    # --- the command line ---------------------------------------------------------------------

    async def ask(self, http: Request) -> Response:
        """A secret for the command line, and a code for its user."""
        self._tries.take(http)
        form = await form_of(http, LARGEST_FORM)
        request, place = form.get("certificate_request", "").encode(), form.get("name", "")
        requested_key(request)
        if not 0 < len(place) <= LONGEST_PLACE or clean_line(place) != place:
            raise InvalidRequest(f"a name has 1 to {LONGEST_PLACE} characters", field="name")
        secret, waiting = self._codes.begin(request, place, self._tries.address(http))
        get_logger("web").info("device_asked", place=place, address=waiting.address)
        page = f"{self._origin}{PAGE}"
        return JSONResponse(
            {
                "device_code": secret,
                "user_code": waiting.code,
                "verification_uri": page,
                "verification_uri_complete": f"{page}?{urlencode({'code': waiting.code})}",
                "expires_in": int(LASTS_S),
                "interval": int(waiting.interval_s),
            }
        )

    async def poll(self, http: Request) -> Response:
        """The certificate, once its user has confirmed; or the word of the standard."""
        form = await form_of(http, LARGEST_FORM)
        secret = form.get("device_code", "")
        if not self._codes.knows(secret):
            self._tries.take(http)  # one that polls in time spends nothing of its address's budget
        if form.get("grant_type") != DEVICE_GRANT:
            return JSONResponse({"error": "unsupported_grant_type"}, 400)
        try:
            return JSONResponse(self._codes.poll(secret))
        except NothingYet as told:
            if told.word == SLOW_DOWN:
                self._tries.take(http)
            words = {"error_description": told.what} if told.what else {}
            return JSONResponse({"error": told.word, **words}, 400)

    # --- its user -----------------------------------------------------------------------------

    async def page(self, http: Request) -> Response:
        """Where the code is typed; with a code the way to the issuer. Nothing is looked up yet:
        only somebody whom the issuer knows learns which codes there are.
        """
        typed = http.query_params.get("code", "")
        code = plain_code(typed) if typed else ""
        begin = f"{self._begin}?{urlencode({'device': code})}" if code else ""
        return open_page("device", "Sign in a command line", code=code, begin=begin)

    async def signed_in(
        self, http: Request, user: ActsFor, code: str, allowed: Callable[[str], None]
    ) -> Response:
        """A user has signed in at the issuer for the command line with this code: the page that
        asks whether they want it. Raises a DlqError when the master knows no such user, when
        `allowed` refuses the role, or when no command line waits.
        """
        waiting = self._codes.of_code(code)
        if waiting is None:
            get_logger("web").info("device_unknown", user=user.name)
            raise Unauthenticated(
                "no command line waits with this code, or it has waited too long",
                hint="begin anew: dlq login --oidc",
            )
        person = await self._persons.admit(user)
        self._persons.left(person)
        allowed(person.role)
        assert person.user is not None
        grant, browser = (secrets.token_urlsafe(SECRET_BYTES) for _ in range(2))
        self._forget()
        now_s = self._clock.boottime_s()
        self._grants[digest_of(grant)] = _Grant(digest_of(browser), person.user, waiting, now_s)
        look = look_at(self._clock.now_s())
        page = open_page(
            "device_confirm", "Sign in a command line?", grant=grant, code=waiting.code,
            place=waiting.place, address=waiting.address,
            asked=moment(waiting.asked_s, look),
            name=person.name, role=person.role, cluster=person.cluster,
        )  # fmt: skip
        page.set_cookie(
            self._cookie, browser, max_age=int(GRANTED_S), httponly=True, samesite="strict",
            path="/", secure=self._secure,
        )  # fmt: skip
        return page

    async def answer(self, http: Request) -> Response:
        """The button was pressed: certify the key of the command line, or refuse it."""
        form = await form_of(http)
        grant = self._taken(form.get("grant", ""), http.cookies.get(self._cookie, ""))
        waiting, name = grant.waiting, grant.user.name
        if self._codes.of_code(waiting.code) is not waiting:
            raise Unauthenticated(
                "this command line was answered already, or has waited too long",
                hint="begin anew: dlq login --oidc",
            )
        waiting.confirmed = True  # before anything is awaited: the first button counts
        if form.get("answer") != "yes":
            waiting.refused = f"{name} has refused it in the browser"
            get_logger("web").info("device_refused", user=name, place=waiting.place)
            return open_page("device_done", "Refused", done=False, place=waiting.place)
        try:
            waiting.answer = await self._certified(grant)
        except DlqError as error:
            waiting.refused = error.what
            get_logger("web").info("device_refused", user=name, cause=error.what)
            raise
        get_logger("web").info(
            "device_certified", user=name, place=waiting.place, address=waiting.address
        )
        return open_page("device_done", "Done", done=True, place=waiting.place)

    async def _certified(self, grant: _Grant) -> Mapping[str, str]:
        """The master's answer for the user of this grant, whose rights it looks up now."""
        person = await self._persons.admit(grant.user)
        try:
            request = wire.CertifyUserRequest(
                certificate_request=grant.waiting.request, name=grant.waiting.place
            )
            told: Any = await person.line.call(_CERTIFY, request)
        finally:
            self._persons.left(person)
        return {
            "certificate": told.certificate.decode(),
            "ca_certificates": told.ca_certificates.decode(),
            "address": told.api_address,
        }

    def _taken(self, grant: str, browser: str) -> _Grant:
        """The grant of this page and this browser, used up by it."""
        self._forget()
        found = self._grants.pop(digest_of(grant), None)
        if found is None or not hmac.compare_digest(found.browser, digest_of(browser)):
            raise Unauthenticated(
                "this page was answered already, is too old, or is of another browser",
                hint="begin anew: dlq login --oidc",
            )
        return found

    def _forget(self) -> None:
        now_s = self._clock.boottime_s()
        while self._grants:
            first = next(iter(self._grants.values()))
            if now_s - first.at_s < GRANTED_S and len(self._grants) < MOST_GRANTS:
                return
            self._grants.popitem(last=False)
