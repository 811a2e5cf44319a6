"""The ways into a server for all users: a one-time link, and a client certificate.

Each way proves who somebody is, the master says what they may, and a session begins. OpenID Connect
is a way of its own (openid.py). Nothing is opened by looking: a link is used up by a button.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError, InvalidRequest, NotFound, PermissionDenied, Unauthenticated
from dlq_common.identity.acting import ActsFor
from dlq_common.text.names import check_user_name
from dlq_common.text.units import HOUR
from dlq_web.door.persons import Persons
from dlq_web.door.sessions import LONGEST_S, Person, WebSessions, person_of, session_of
from dlq_web.door.shared_guard import certificate_of
from dlq_web.line.scope import Scope
from dlq_web.pages.page import open_page

LARGEST_FORM = 4096
# A session with groups ends with the issuer's token, and then the issuer is asked anew. Some tokens
# last for a minute, in which nobody works, and some for a day.
GROUPS_S = HOUR
LEAST_GROUPS_S = 300.0
UseLink = Callable[[str, str], Awaitable[ActsFor]]


def _everyone(_role: str) -> None:
    """A way that proves a user of the cluster leaves the role to the master."""


def _nobody_hears(_person: Person) -> None:
    """A way that asks nobody again."""


class OtherWay(NamedTuple):
    """A way in that has pages of its own."""

    address: str
    words: str
    routes: Sequence[Route]


class Entrance:
    """Lets browsers in and out."""

    def __init__(
        self,
        sessions: WebSessions,
        persons: Persons,
        use_link: UseLink,
        cookie: str,
        *,
        secure: bool,
        certificates: bool,
    ) -> None:
        """`secure`: the page has HTTPS, so its cookie goes nowhere else. `certificates`: the server
        ends TLS itself, and asks for one.
        """
        self.sessions = sessions
        self._persons = persons
        self._use_link = use_link
        self._cookie = cookie
        self._secure = secure
        self._certificates = certificates
        self._others: list[OtherWay] = []

    def add(self, way: OtherWay) -> None:
        """Offer this way, too."""
        self._others.append(way)

    def routes(self) -> list[Route]:
        """In and out."""
        return [
            Route("/sign-in", self.ways, methods=["GET"]),
            Route("/enter", self.ask, methods=["GET"]),
            Route("/enter", self.by_link, methods=["POST"]),
            Route("/enter/certificate", self.by_certificate, methods=["POST"]),
            Route("/leave", self.leave, methods=["POST"]),
            Route("/leave/everywhere", self.leave_everywhere, methods=["POST"]),
            *(route for way in self._others for route in way.routes),
        ]

    async def ways(self, http: Request) -> Response:
        """The ways in."""
        query = urlencode({"next": own_path(http.query_params.get("next", "/"))})
        ways = [(f"{way.address}?{query}", way.words) for way in self._others]
        return open_page("sign_in", "Sign in", ways=ways, certificates=self._certificates)

    async def ask(self, http: Request) -> Response:
        """A button that uses the link up. So a program that looks at links uses none up, and a page
        of somebody else signs nobody in as somebody else without a word.
        """
        name = _user(http.query_params.get("user", ""))
        link = http.query_params.get("link", "")
        return open_page("enter", "Sign in", name=name, link=link)

    async def by_link(self, http: Request) -> Response:
        """A session for the user of the link."""
        form = await form_of(http)
        name = _user(form.get("user", ""))
        try:
            user = await self._use_link(name, form.get("link", ""))
        except NotFound as error:
            get_logger("web").info("sign_in_refused", way="link", user=name)
            raise Unauthenticated(error.what, hint=error.hint) from None
        return await self.begin(http, user, "link")

    async def by_certificate(self, http: Request) -> Response:
        """A session for the holder of the certificate that this connection has shown."""
        identity = certificate_of(http)
        if identity is None:
            raise Unauthenticated(
                "this connection has shown no certificate of the cluster",
                hint="import ~/.config/dlq/identity.crt with its key into the browser",
            )
        if identity.through:
            raise PermissionDenied(
                f"this certificate came through {identity.through}, and opens no session",
                hint="sign in at /sign-in as you did for the certificate",
            )
        # Dates in certificates are whole seconds: it was signed before this one ended.
        since_s = identity.issued_s + 1.0
        shown = f"{identity.serial}.{identity.issuer}" if identity.issuer else identity.serial
        user = ActsFor(identity.name, identity.role.value, since_s, shown=shown)
        return await self.begin(http, user, "certificate", certificate=identity.serial)

    async def begin(
        self,
        http: Request,
        user: ActsFor,
        way: str,
        *,
        to: str = "/",
        certificate: str = "",
        allowed: Callable[[str], None] = _everyone,
        groups: tuple[str, ...] = (),
        told_s: float = GROUPS_S,
        begun: Callable[[Person], None] = _nobody_hears,
    ) -> Response:
        """A new session in a cookie, and the way to the page. A session that the browser had ends.
        Raises a DlqError when the master knows no such user, or when `allowed` refuses the user's
        own role. `groups`: of the issuer, whose word on them lasts for `told_s`: such a session
        ends early. `begun` hears whose session it is.
        """
        try:
            person = await self._persons.admit(user, groups)
            try:
                allowed(person.role if person.own is None else person.own.role)
            except DlqError:
                self._persons.left(person)
                raise
        except DlqError as error:
            get_logger("web").info("sign_in_refused", way=way, user=user.name, reason=error.reason)
            raise
        self.sessions.leave(http.cookies.get(self._cookie, ""))
        secret = self.sessions.begin(
            person, by_cookie=True, certificate=certificate, scope=Scope.ALL,
            longest_s=min(GROUPS_S, max(LEAST_GROUPS_S, told_s)) if groups else LONGEST_S,
        )  # fmt: skip
        begun(person)
        get_logger("web").info(
            "signed_in", way=way, user=person.name, role=person.role, groups=",".join(groups)
        )
        answer = RedirectResponse(to, 303)
        answer.set_cookie(
            self._cookie, secret, max_age=int(LONGEST_S), httponly=True, samesite="lax", path="/",
            secure=self._secure,
        )  # fmt: skip
        return answer

    async def leave(self, http: Request) -> Response:
        """End the session, also in other tabs."""
        self.sessions.leave(http.cookies.get(self._cookie, ""))
        return self._left()

    async def leave_everywhere(self, http: Request) -> Response:
        """End all sessions of this user, in all browsers. Tokens of programs stay. PermissionDenied
        for a program: none of its scopes is about browsers.
        """
        if not session_of(http).by_cookie:
            raise PermissionDenied("a program with a token signs nobody out")
        self.sessions.leave_everywhere(person_of(http).name)
        return self._left()

    def _left(self) -> Response:
        answer = JSONResponse({"left": True})
        answer.delete_cookie(self._cookie, path="/", secure=self._secure, httponly=True)
        return answer


async def form_of(http: Request, largest: int = LARGEST_FORM) -> dict[str, str]:
    """The fields of a form; each comes once."""
    body = await http.body()
    if len(body) > largest:
        raise InvalidRequest("the form is too large")
    try:
        fields = parse_qs(body.decode("ascii", "replace"), max_num_fields=10)
    except ValueError:
        raise InvalidRequest("the form has too many fields") from None
    return {name: values[0] for name, values in fields.items() if len(values) == 1}


def _user(name: str) -> str:
    try:
        return check_user_name(name)
    except ValueError:
        raise InvalidRequest("the link names no user", field="user") from None


def own_path(text: str) -> str:
    """A path of this server to go to after signing in; "/" for all that leads elsewhere."""
    plain = text.startswith("/") and not text.startswith("//") and text.isascii()
    if not plain or not text.isprintable() or "\\" in text or len(text) > 500:
        return "/"
    return text
