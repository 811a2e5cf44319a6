"""Getting an identity from the broker's socket, and keeping it."""

from __future__ import annotations

import json
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlq_client.line.identity import KEY_FILE, load_identity, save_identity
from dlq_common.clock import SteadyClock
from dlq_common.identity.pki import Role
from support.cli_run import Dlq
from support.fake_master import FakeMaster

pytestmark = pytest.mark.integration

DAY_S = 86_400.0


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    running = FakeMaster()
    yield running
    running.stop()


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
