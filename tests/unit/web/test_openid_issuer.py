"""Asking an issuer over HTTP: bounded, and never led elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs

import pytest

from dlq_common.errors import ConfigError, DlqError, Unauthenticated, Unavailable
from dlq_web.entrance.issuer import (
    LARGEST_ANSWER,
    Client,
    Issuer,
    ServerRefused,
    fetching,
    is_safe,
)
from support.fake_clock import FakeClock

REFUSALS = {"none": b"{}", "nonsense": b"nonsense", "list": b"[]"}


class _Answers(BaseHTTPRequestHandler):
    """Answers by the path that is asked for."""

    posted: ClassVar[list[tuple[str, dict[str, list[str]]]]] = []

    def do_GET(self) -> None:
        path = self.path.strip("/")
        if path.isdigit():
            self._say(int(path), b"{}", {"Location": "/json"} if path == "302" else {})
        elif path == "garbage":
            self.wfile.write(b"no such protocol\r\n\r\n")
            self.close_connection = True
        elif path == "large":
            self._say(200, b"x" * (LARGEST_ANSWER + 10))
        else:
            self._say(200, json.dumps({"path": path}).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        status, _, error = self.path.strip("/").partition("/")
        if status.isdigit():
            self._say(int(status), REFUSALS.get(error) or json.dumps({"error": error}).encode())
            return
        self.posted.append((self.headers["Authorization"] or "", parse_qs(body)))
        self._say(200, b'{"id_token": "a.b.c"}')

    def log_message(self, *_args: object) -> None:
        """Not on the terminal."""

    def _say(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def served() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


async def test_an_answer_that_is_no_http_is_none() -> None:
    """An error of the protocol ended the task that asks about open sessions."""
    with served() as address, pytest.raises(Unavailable, match="does not answer"):
        await fetching("")(f"{address}/garbage", None, "")


async def test_answers_and_refusals_come_as_they_are() -> None:
    fetch = fetching("")
    with served() as address:
        assert json.loads(await fetch(f"{address}/json", None, "")) == {"path": "json"}
        assert len(await fetch(f"{address}/large", None, "")) == LARGEST_ANSWER
        kinds: dict[str, type[DlqError]] = {
            "302": Unavailable, "400": Unauthenticated, "401": Unauthenticated, "500": Unavailable,
        }  # fmt: skip
        for path, kind in kinds.items():
            with pytest.raises(kind):
                await fetch(f"{address}/{path}", None, "")
    with pytest.raises(Unavailable, match="does not answer"):
        await fetch(f"{address}/json", None, "")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("400/invalid_grant", Unauthenticated),
        ("401/invalid_grant", Unauthenticated),
        ("403/invalid_grant", Unauthenticated),
        ("400/invalid_client", ServerRefused),
        ("400/unauthorized_client", ServerRefused),
        ("401/invalid_client", ServerRefused),
        ("400/none", ServerRefused),
        ("400/nonsense", ServerRefused),
        ("403/list", ServerRefused),
        ("503/temporarily_unavailable", Unavailable),
    ],
)
async def test_the_word_of_a_refusal_says_whether_a_token_is_void(
    path: str, kind: type[DlqError]
) -> None:
    """RFC 6749, 5.2. One that means this server would end the sessions of all its users."""
    with served() as address, pytest.raises(DlqError) as refused:
        await fetching("")(f"{address}/{path}", {"grant_type": "refresh_token"}, "")
    assert type(refused.value) is kind


async def test_a_code_is_exchanged_with_the_verifier_and_the_proof_of_the_client() -> None:
    with served() as address:
        issuer = Issuer(address, Client("me", "s:1"), fetching(""), FakeClock())
        issuer._endpoints = issuer._described(
            {
                "issuer": address,
                "authorization_endpoint": f"{address}/a",
                "token_endpoint": f"{address}/t",
                "jwks_uri": f"{address}/k",
            }
        )
        told = await issuer.exchange("c", "v", "https://page/back")
        assert told == ("a.b.c", "")
    proof, form = _Answers.posted[-1]
    assert proof == "Basic bWU6cyUzQTE="
    assert form == {
        "grant_type": ["authorization_code"],
        "code": ["c"],
        "redirect_uri": ["https://page/back"],
        "client_id": ["me"],
        "code_verifier": ["v"],
    }


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"nonsense", b"[" * 100_000, b'{"issuer": "https://a"}', b"\xff"]
)
async def test_nonsense_of_an_issuer_is_told_as_such(answer: bytes) -> None:
    async def fetch(_address: str, _form: object, _proof: str) -> bytes:
        return answer

    issuer = Issuer("https://a", Client("me"), fetch, FakeClock())
    with pytest.raises(Unavailable, match="the issuer"):
        await issuer.endpoints()


def test_only_https_and_this_host_are_safe() -> None:
    assert is_safe("https://a.example/x")
    assert is_safe("http://localhost:8080/x")
    for address in ("http://a.example", "ftp://a", "https://me@a.example", "file:///etc", "x", ""):
        assert not is_safe(address), address


async def test_an_issuer_elsewhere_has_this_host_ask_no_service_of_its_own() -> None:
    address = "https://sso.example.org"
    told = {
        "issuer": address,
        "authorization_endpoint": f"{address}/authorize",
        "token_endpoint": f"{address}/token",
        "jwks_uri": "http://127.0.0.1:8500/v1/kv",
    }

    async def fetch(_address: str, _form: object, _proof: str) -> bytes:
        return json.dumps(told).encode()

    for keys in ("http://127.0.0.1:8500/v1/kv", "http://localhost/", "https://[", "file:///x"):
        told["jwks_uri"] = keys
        with pytest.raises(Unavailable, match="https://"):
            await Issuer(address, Client("a"), fetch, FakeClock()).endpoints()
    told["jwks_uri"] = f"{address}/keys"
    assert await Issuer(address, Client("a"), fetch, FakeClock()).endpoints()


def test_a_file_of_authorities_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ca_file"):
        fetching(str(tmp_path / "none.pem"))
