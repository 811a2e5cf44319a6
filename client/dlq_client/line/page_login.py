"""A certificate through the cluster's web page, for a host without a login broker (RFC 8628).

The key is made here and stays here. The page gets a request for a certificate, its user confirms
that in a browser, and the certificate fits this key alone. A page that is away, or restarts, is
asked again until the code ends; a restarted page knows the code no more, and says so.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from dlq_client.line.identity import Identity, certified
from dlq_common.clock import Clock
from dlq_common.errors import DlqError, InvalidRequest, PermissionDenied, Unavailable
from dlq_common.identity.pki import belongs_together, is_signed_by, new_key_and_csr

ASK, POLL = "/device/code", "/device/token"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
PATIENCE_S = 10.0
LARGEST_ANSWER = 64 * 1024
SHORTEST_S, SLOWER_S, LONGEST_S = 1.0, 5.0, 60.0  # between two questions
LOOPBACK = ("localhost", "127.0.0.1", "::1")
BEGIN_ANEW = "dlq login --oidc begins anew"

Answer = Mapping[str, Any]
Post = Callable[[str, Mapping[str, str]], Answer]
"""A path and a form. The answer, also of a refusal in the standard's form. Raises a DlqError."""


class Shown(NamedTuple):
    """A page for the user, and the code to type there."""

    code: str
    page: str
    page_with_code: str
    lasts_s: float


def login_at_page(
    post: Post,
    place: str,
    show: Callable[[Shown], None],
    clock: Clock,
    sleep: Callable[[float], None],
) -> Identity:
    """Ask for a code, show it, and wait for the certificate. `place`: the name of this host, as the
    page shows it. PermissionDenied when the user or the master refuses, or the code has ended.
    """
    fresh = new_key_and_csr("user")
    asked = post(ASK, {"certificate_request": fresh.request.decode("ascii"), "name": place})
    try:
        lasts_s = min(float(asked["expires_in"]), 3_600.0)
        secret, interval_s = str(asked["device_code"]), float(asked.get("interval", SLOWER_S))
        shown = Shown(
            str(asked["user_code"]),
            str(asked["verification_uri"]),
            str(asked.get("verification_uri_complete", "")),
            lasts_s,
        )
    except (KeyError, ValueError, TypeError):
        raise _no_page() from None
    show(shown)
    end_s = clock.boottime_s() + lasts_s
    told = _awaited(post, secret, interval_s, end_s, clock, sleep)
    try:
        certificate, ca = (
            str(told[name]).encode("ascii") for name in ("certificate", "ca_certificates")
        )
        if not (belongs_together(fresh.key, certificate) and is_signed_by(certificate, ca)):
            raise ValueError("a certificate of another key")
        return certified(fresh.key, certificate, ca, str(told["address"]))
    except (KeyError, ValueError, DlqError):
        raise _no_page() from None


def posting(address: str) -> Post:
    """A way to ask the page at this address, over HTTPS, without following it elsewhere.
    InvalidRequest for an address that is none.
    """
    _check(address)
    opener = build_opener(HTTPSHandler(context=ssl.create_default_context()), _Stays())

    def post(path: str, form: Mapping[str, str]) -> Answer:
        headers = {"Accept": "application/json"}
        request = Request(address.rstrip("/") + path, urlencode(form).encode(), headers)
        try:
            try:
                with opener.open(request, timeout=PATIENCE_S) as answer:
                    return _object(answer.read(LARGEST_ANSWER))
            except HTTPError as error:
                return _refused(error.code, error.read(LARGEST_ANSWER))
        except (URLError, OSError, HTTPException, ValueError) as error:
            why = getattr(error, "reason", error)
            raise Unavailable(f"{address} does not answer: {why}", hint=_TRUST) from None

    return post


_TRUST = "SSL_CERT_FILE names the CA of a page whose certificate this host does not trust"


class _Stays(HTTPRedirectHandler):
    """A page that sends us elsewhere is refused."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


def _awaited(
    post: Post,
    secret: str,
    interval_s: float,
    end_s: float,
    clock: Clock,
    sleep: Callable[[float], None],
) -> Answer:
    interval_s = min(max(interval_s, SHORTEST_S), LONGEST_S)
    while clock.boottime_s() < end_s:
        sleep(interval_s)
        try:
            told = post(POLL, {"grant_type": DEVICE_GRANT, "device_code": secret})
        except Unavailable:
            interval_s = min(interval_s * 2, LONGEST_S)
            continue
        match told.get("error"):
            case None:
                return told
            case "authorization_pending":
                continue
            case "slow_down":
                interval_s = min(interval_s + SLOWER_S, LONGEST_S)
            case "access_denied":
                words = str(told.get("error_description", "") or "it was refused in the browser")
                raise PermissionDenied(f"no certificate: {words[:300]}")
            case "expired_token":
                break
            case _:
                raise _no_page()
    raise PermissionDenied("nobody has confirmed the code in time", hint=BEGIN_ANEW)


def _refused(status: int, raw: bytes) -> Answer:
    """A refusal of the standard, to be read; or an error of the page's own."""
    if status >= 500:
        raise Unavailable(f"the page answers {status}")
    if status == 429:
        raise Unavailable(_of_too_many(raw))
    told = _object(raw)
    if isinstance(told.get("error"), str):
        return told
    words, hint = told.get("message"), told.get("hint")
    if status == 404 or not isinstance(words, str):
        raise _no_page()
    raise PermissionDenied(words[:300], hint=hint[:300] if isinstance(hint, str) else "")


def _of_too_many(raw: bytes) -> str:
    words = ""
    with suppress(DlqError):  # a proxy may have answered
        words = str(_object(raw).get("message", ""))[:300]
    return f"the page answers 429: {words}" if words else "the page answers 429"


def _object(raw: bytes) -> Answer:
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise _no_page()
    return told


def _no_page() -> PermissionDenied:
    return PermissionDenied(
        "this address is no page of dlq that gives certificates",
        hint="its operator needs [openid] in web.toml",
    )


def _check(address: str) -> None:
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        parts, host = urlsplit(""), None
    plain = parts.path in ("", "/") and not parts.query and not parts.fragment
    safe = parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)
    if not host or not safe or not plain or "@" in parts.netloc:
        raise InvalidRequest(
            f"{address[:100]!r} is no address of a page", hint="it is as https://dlq.example.org"
        )
