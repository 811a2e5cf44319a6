"""A command line that asks a web page for a certificate: patient, polite, and believing little."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from dlq_client.line.page_login import Shown, login_at_page, posting
from dlq_common.errors import DlqError, InvalidRequest, PermissionDenied, Unavailable
from dlq_common.identity.pki import Authority, Role, new_key_and_csr
from support.fake_clock import FakeClock

LIFE_S = 86_400.0
Poll = Mapping[str, Any] | DlqError


class Page:
    """Answers in the given order; "yes" is the certificate."""

    def __init__(self, clock: FakeClock, *polls: Poll | str, **first: Any) -> None:
        self.clock, self.polls = clock, list(polls)
        self.authority = Authority.create("lab", clock.now_s())
        self.first = {
            "device_code": "s3cret", "user_code": "BCDF-GHJK",
            "verification_uri": "https://dlq.example.org/device", "expires_in": 600, "interval": 5,
        } | first  # fmt: skip
        self.request = b""
        self.slept: list[float] = []

    def post(self, path: str, form: Mapping[str, str]) -> Mapping[str, Any]:
        if path == "/device/code":
            self.request = form["certificate_request"].encode()
            assert form["name"] == "ada@login1"
            return self.first
        assert form["device_code"] == "s3cret"
        told = self.polls.pop(0) if len(self.polls) > 1 else self.polls[0]
        if isinstance(told, DlqError):
            raise told
        return self.certificate(self.request) if isinstance(told, str) else told

    def certificate(self, request: bytes) -> dict[str, str]:
        sign = self.authority.sign_user_of
        made = sign("portal", request, "ada", Role.USER, self.clock.now_s(), LIFE_S)
        ca = self.authority.certificate_pem()
        return {
            "certificate": made.decode(), "ca_certificates": ca.decode(), "address": "head:7320",
        }  # fmt: skip

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds)


def log_in(page: Page, show: Callable[[Shown], None] = lambda _shown: None) -> Any:
    return login_at_page(page.post, "ada@login1", show, page.clock, page.sleep)


PENDING, SLOWER = {"error": "authorization_pending"}, {"error": "slow_down"}


def test_it_shows_a_code_and_waits_politely() -> None:
    page = Page(FakeClock(), PENDING, SLOWER, Unavailable("away"), PENDING, "yes")
    shown: list[Shown] = []
    identity = log_in(page, shown.append)
    assert (identity.user, identity.role, identity.address) == ("ada", "user", "head:7320")
    assert identity.expires_s - identity.issued_s == LIFE_S
    assert not identity.renews
    assert [one.code for one in shown] == ["BCDF-GHJK"]
    assert page.slept == [5, 5, 10, 20, 20], "slower where it is told, and while nobody answers"


@pytest.mark.parametrize(
    ("poll", "words"),
    [
        ({"error": "access_denied", "error_description": "ada has refused"}, "ada has refused"),
        ({"error": "access_denied"}, "refused in the browser"),
        ({"error": "expired_token"}, "in time"),
        (PENDING, "in time"),
        (Unavailable("away"), "in time"),
        ({"error": "of tomorrow"}, "no page of dlq"),
        ({"certificate": "x", "ca_certificates": "y", "address": "z"}, "no page of dlq"),
        ({}, "no page of dlq"),
    ],
)
def test_each_other_end_is_told_in_words(poll: Poll, words: str) -> None:
    page = Page(FakeClock(), poll)
    with pytest.raises(PermissionDenied, match=words):
        log_in(page)
    assert sum(page.slept) <= 700, "the code ends, whatever the page says"


def test_a_certificate_of_another_key_or_ca_is_not_taken() -> None:
    page = Page(FakeClock(), "yes")
    page.polls = [page.certificate(new_key_and_csr("x").request)]
    with pytest.raises(PermissionDenied):
        log_in(page)
    page.polls = ["yes"]
    twin = Authority.create("lab", page.clock.now_s()).certificate_pem()
    usual = page.certificate
    page.certificate = lambda request: usual(request) | {"ca_certificates": twin.decode()}  # type: ignore[method-assign]
    with pytest.raises(PermissionDenied):
        log_in(page)


@pytest.mark.parametrize("first", [{"interval": 0}, {"interval": -5}, {"interval": 1e9}])
def test_no_page_makes_it_hurry_or_sleep_for_ever(first: Mapping[str, Any]) -> None:
    page = Page(FakeClock(), PENDING, "yes", **first)
    log_in(page)
    assert all(1 <= seconds <= 60 for seconds in page.slept)


@pytest.mark.parametrize("first", [{"expires_in": "soon"}, {"device_code": None, "interval": {}}])
def test_an_answer_without_a_code_is_no_page_of_dlq(first: Mapping[str, Any]) -> None:
    with pytest.raises(PermissionDenied, match="no page of dlq"):
        log_in(Page(FakeClock(), "yes", **first))


@pytest.mark.parametrize(
    "address",
    [
        "", "dlq.example.org", "http://dlq.example.org", "ftp://dlq.example.org", "https://",
        "https://a@dlq.example.org", "https://dlq.example.org/else", "https://dlq.example.org?x=1",
        "https://[", "file:///etc/passwd",
    ],
)  # fmt: skip
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(InvalidRequest, match="no address of a page"):
        posting(address)


def test_a_page_that_is_away_is_told(tmp_path: object) -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        posting("http://127.0.0.1:1")("/device/code", {})


@pytest.mark.parametrize(
    ("body", "words"),
    [(b'{"message": "64 command lines wait"}', "429: 64 command lines wait"), (b"<html>", "429$")],
)
def test_a_page_that_is_asked_too_much_is_told_in_its_words(body: bytes, words: str) -> None:
    class Full(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(429)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            return None

    with HTTPServer(("127.0.0.1", 0), Full) as server:
        Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(Unavailable, match=words):
            posting(f"http://127.0.0.1:{server.server_port}")("/device/code", {})
