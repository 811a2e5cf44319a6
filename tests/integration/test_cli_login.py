"""Getting an identity from the broker's socket, and keeping it."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from dlq_client.line.identity import KEY_FILE, load_identity, save_identity
from dlq_common.clock import SteadyClock
from dlq_common.identity.pki import Authority, Role
from support.cli_run import Dlq
from support.fake_master import FakeMaster

pytestmark = pytest.mark.integration

DAY_S = 86_400.0


class Broker:
    """A login socket that answers each line with what `answer` makes of it."""

    def __init__(self, path: Path, answer: Callable[[dict[str, Any]], bytes]) -> None:
        self.asked: list[dict[str, Any]] = []
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                line, _ = self._socket.accept()
            except OSError:
                return
            with line:
                question = json.loads(line.makefile("rb").readline())
                self.asked.append(question)
                line.sendall(self._answer(question))

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def signed_by(master: FakeMaster) -> Callable[[dict[str, Any]], bytes]:
    def answer(question: dict[str, Any]) -> bytes:
        certificate = master.authority.sign_user(
            question["csr"].encode(), "alice", Role.USER, SteadyClock().now_s()
        )
        return (
            json.dumps(
                {
                    "v": 1, "certificate": certificate.decode(),
                    "ca": master.authority.certificate_pem().decode(),
                    "address": f"127.0.0.1:{master.port}", "cluster": "lab", "user": "alice",
                    "role": "user", "expires_in_s": 30 * DAY_S,
                }
            ).encode() + b"\n"
        )  # fmt: skip

    return answer


@pytest.fixture
def broker(master: FakeMaster, tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "login.sock", signed_by(master))
    yield made
    made.close()


def test_login_keeps_an_identity_that_opens_the_master(broker: Broker, tmp_path: Path) -> None:
    dlq = Dlq(tmp_path / "home")
    said = dlq("login", "--socket", str(tmp_path / "login.sock"))
    assert (said.code, said.out) == (0, "Logged in to lab as alice (user)\n")
    assert broker.asked[0]["v"] == 1
    assert dlq("status", "-q").code == 0
    assert stat.S_IMODE((tmp_path / "home" / KEY_FILE).stat().st_mode) == 0o600


def test_other_commands_log_in_by_themselves_where_the_socket_is(
    broker: Broker, tmp_path: Path
) -> None:
    dlq = Dlq(tmp_path / "home", {"DLQ_LOGIN_SOCKET": str(tmp_path / "login.sock")})
    assert dlq("status", "-q").code == 0
    assert dlq("status", "-q").code == 0
    assert len(broker.asked) == 1


def test_an_expired_certificate_is_replaced_at_the_socket(
    broker: Broker, master: FakeMaster, tmp_path: Path
) -> None:
    old = replace(master.identity_of(), expires_s=1.0)
    save_identity(tmp_path / "home", old)
    assert Dlq(tmp_path / "home")("status").code == 4
    dlq = Dlq(tmp_path / "home", {"DLQ_LOGIN_SOCKET": str(tmp_path / "login.sock")})
    assert dlq("status", "-q").code == 0
    assert len(broker.asked) == 1


def test_a_certificate_is_renewed_once_two_thirds_of_its_life_are_over(
    master: FakeMaster, tmp_path: Path
) -> None:
    now_s = SteadyClock().now_s()
    old = replace(master.identity_of(), issued_s=now_s - 21 * DAY_S, expires_s=now_s + 9 * DAY_S)
    save_identity(tmp_path / "home", old)
    dlq = Dlq(tmp_path / "home")
    assert dlq("status", "-q").code == 0
    assert dlq("status", "-q").code == 0
    assert len(master.requests("RenewCertificate")) == 1
    fresh = load_identity(tmp_path / "home")
    assert fresh is not None
    assert fresh.key != old.key
    assert fresh.expires_s == pytest.approx(now_s + 30 * DAY_S, abs=600)


def test_a_certificate_is_renewed_where_the_ca_changes_and_that_is_asked_once_an_hour(
    master: FakeMaster, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    save_identity(home, master.identity_of())
    master.renewal_wanted = True
    dlq = Dlq(home)
    assert dlq("status", "-q").code == 0
    assert not master.requests("CheckIdentity"), "a fresh one needs no question"
    os.utime(home / "identity.crt", (1.0, 1.0))
    assert dlq("status", "-q").code == 0
    assert dlq("status", "-q").code == 0
    assert len(master.requests("CheckIdentity")) == len(master.requests("RenewCertificate")) == 1


def test_a_refusal_of_the_broker_is_told_in_its_words(tmp_path: Path) -> None:
    refusal = b'{"v":1,"error":"uid 4711 is not a user here","reason":"UNKNOWN_USER"}\n'
    broker = Broker(tmp_path / "login.sock", lambda _: refusal)
    said = Dlq(tmp_path / "home")("login", "--socket", str(tmp_path / "login.sock"))
    broker.close()
    assert (said.code, said.err) == (4, "dlq: login refused: uid 4711 is not a user here\n")


@pytest.mark.parametrize(
    "answer", [b"", b"hello\n", b"[]\n", b'{"v":1}\n', b'{"certificate":"x"}\n', b"\xff" * 99_999]
)
def test_what_is_no_broker_is_not_believed(answer: bytes, tmp_path: Path) -> None:
    broker = Broker(tmp_path / "login.sock", lambda _: answer)
    said = Dlq(tmp_path / "home")("login", "--socket", str(tmp_path / "login.sock"))
    broker.close()
    assert said.code == 69
    assert not (tmp_path / "home" / KEY_FILE).exists()


def test_without_a_socket_login_says_where_to_go(tmp_path: Path) -> None:
    said = Dlq(tmp_path / "home")("login", "--socket", str(tmp_path / "none.sock"))
    assert said.code == 69
    assert "no login broker answers" in said.err
    assert "on the master's host" in said.err


# --- through the web page ---


class Page(BaseHTTPRequestHandler):
    """The cluster's page: it gives a code, lets the command line wait once, and certifies."""

    authority: Authority
    refuses = False
    request_of_line = b""
    polls = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        status, told = getattr(self, self.path.rpartition("/")[2])(form)
        raw = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def code(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        kind = type(self)
        kind.request_of_line, kind.polls = form["certificate_request"].encode(), 0
        assert "@" in form["name"]
        page = "https://dlq.example.org/device"
        return 200, {
            "device_code": "s3cret", "user_code": "BCDF-GHJK", "verification_uri": page,
            "verification_uri_complete": f"{page}?code=BCDF-GHJK", "expires_in": 600, "interval": 1,
        }  # fmt: skip

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        kind = type(self)
        kind.polls += 1
        if self.refuses:
            return 400, {"error": "access_denied", "error_description": "ada has refused it"}
        if kind.polls < 2:
            return 400, {"error": "authorization_pending"}
        made = self.authority.sign_user_of(
            "portal", self.request_of_line, "ada", Role.USER, SteadyClock().now_s(), DAY_S
        )
        ca = self.authority.certificate_pem()
        return 200, {
            "certificate": made.decode(), "ca_certificates": ca.decode(), "address": "head:7320",
        }  # fmt: skip

    def log_message(self, *_told: object) -> None:
        """Nothing."""


@pytest.fixture
def page() -> Iterator[str]:
    Page.authority, Page.refuses = Authority.create("lab", SteadyClock().now_s()), False
    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_host_without_a_broker_logs_in_through_the_page(tmp_path: Path, page: str) -> None:
    dlq = Dlq(tmp_path / "home")
    told = dlq("login", "--oidc", "--web", page, "--json")
    assert (told.code, json.loads(told.out)["user"]) == (0, "ada")
    for words in ("https://dlq.example.org/device", "BCDF-GHJK", "confirm"):
        assert words in told.err
    identity = load_identity(tmp_path / "home")
    assert identity is not None
    assert (identity.user, identity.address, identity.renews) == ("ada", "head:7320", False)
    assert stat.S_IMODE((tmp_path / "home" / KEY_FILE).stat().st_mode) == 0o600


def test_the_page_may_be_a_setting(tmp_path: Path, page: str) -> None:
    dlq = Dlq(tmp_path / "home")
    assert dlq("config", "set", "web_address", page).code == 0
    assert "as ada (user)" in dlq("login", "--oidc").out


@pytest.mark.parametrize(("own", "warned"), [("ada", False), ("bob", True)])
def test_a_code_that_somebody_else_has_confirmed_is_noticed(
    tmp_path: Path, page: str, own: str, warned: bool
) -> None:
    told = Dlq(tmp_path / "home", {"LOGNAME": own})("login", "--oidc", "--web", page)
    assert (told.code, "unless you are ada too" in told.err) == (0, warned)


def test_a_refusal_on_the_page_is_told(tmp_path: Path, page: str) -> None:
    Page.refuses = True
    told = Dlq(tmp_path / "home")("login", "--oidc", "--web", page)
    assert told.code == 4
    assert "ada has refused it" in told.err
    assert load_identity(tmp_path / "home") is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--oidc",), "dlq config set web_address"),
        (("--web", "https://x"), "--web is for --oidc"),
        (("--oidc", "--socket", "/x"), "choose one"),
        (("--oidc", "--web", "http://dlq.example.org"), "no address of a page"),
    ],
)
def test_ways_in_that_do_not_fit_are_refused(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    told = Dlq(tmp_path / "home")("login", *arguments)
    assert told.code == 2
    assert words in told.err


def test_a_command_names_the_page_where_one_is_known(tmp_path: Path) -> None:
    environ = {"DLQ_WEB_ADDRESS": "https://dlq.example.org", "DLQ_LOGIN_SOCKET": "/nowhere/x"}
    assert "dlq login --oidc" in Dlq(tmp_path / "home", environ)("nodes").err
