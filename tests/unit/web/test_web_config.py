"""web.toml: what is wrong with it is said in words; and the socket and the certificate it names."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dlq_common.errors import ConfigError
from dlq_common.identity.pki import Authority
from dlq_web.config import WebConfig, WebListenConfig, read_config
from dlq_web.daemon import main
from dlq_web.listening import Tls, listening_socket
from support.page_certificate import page_certificate

GOOD = '[page]\norigin = "https://dlq.example.org"\n'
EXAMPLE = Path(__file__).resolve().parents[3] / "deploy/config/web.toml"


def read(tmp_path: Path, text: str) -> WebConfig:
    path = tmp_path / "web.toml"
    path.write_text(text)
    return read_config(path)


def test_the_example_is_accepted_and_differs_from_the_defaults() -> None:
    assert read_config(EXAMPLE) != WebConfig()


def test_what_check_config_prints_is_accepted_again(tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["serve", "--config", str(EXAMPLE), "--check-config"])
    assert told.exit_code == 0
    assert read(tmp_path, told.output) == read_config(EXAMPLE)


def test_a_missing_package_is_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "web.toml").write_text(GOOD)
    monkeypatch.setitem(sys.modules, "dlq_web.running", None)
    told = CliRunner().invoke(main, ["serve", "--config", str(tmp_path / "web.toml")])
    assert told.exit_code == 1
    assert "pip install 'dlq[web]'" in told.output


def test_a_loopback_address_and_a_unix_socket_need_no_certificate(tmp_path: Path) -> None:
    assert not read(tmp_path, GOOD).behind_proxy
    assert read(tmp_path, GOOD + '[listen]\naddress = "unix:/run/dlq-web/web.sock"\n').behind_proxy
    plain = '[page]\norigin = "http://localhost:7330"\n'
    assert read(tmp_path, plain).page.origin == "http://localhost:7330"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "page.origin is the address"),
        ('[page]\norigin = "https://dlq.example.org/"\n', "page.origin is the address"),
        ('[page]\norigin = "https://me@dlq.example.org"\n', "page.origin is the address"),
        ('[page]\norigin = "dlq.example.org"\n', "page.origin is the address"),
        ('[page]\norigin = "https://DLQ.example.org"\n', "lower case"),
        ('[page]\norigin = "http://dlq.example.org"\n', "begins with https://"),
        (GOOD + '[listen]\naddress = "0.0.0.0:443"\n', "listen.certificate and listen.key"),
        (GOOD + '[listen]\naddress = "nowhere"\n', "is not HOST:PORT"),
        (GOOD + '[listen]\ncertificate = "/a"\n', "belong together"),
        (
            GOOD + '[listen]\naddress = "unix:/s"\ncertificate = "/a"\nkey = "/b"\n',
            "a reverse proxy",
        ),
        (
            '[page]\norigin = "http://localhost:1"\n[listen]\ncertificate = "/a"\nkey = "/b"\n',
            "begins with https://",
        ),
        (GOOD + "[listen]\nport = 443\n", "port"),
    ],
)
def test_a_wrong_file_is_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, text)
    assert words in refused.value.what
    assert str(tmp_path / "web.toml") in refused.value.what


def test_an_open_socket_of_systemd_without_a_certificate_is_refused() -> None:
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        with pytest.raises(ConfigError, match="reached from other hosts"):
            listening_socket(WebListenConfig(), {"web": everywhere})
        told = WebListenConfig(certificate="/a", key="/b")
        assert listening_socket(told, {"web": everywhere}) is everywhere
    with socket.create_server(("127.0.0.1", 0)) as here:
        assert listening_socket(WebListenConfig(), {"unknown": here}) is here


def test_a_unix_socket_is_for_its_group_and_replaces_a_dead_one(tmp_path: Path) -> None:
    told = WebListenConfig(address=f"unix:{tmp_path / 'web.sock'}")
    for _ in range(2):
        with listening_socket(told, {}) as made:
            assert made.family is socket.AF_UNIX
            assert (tmp_path / "web.sock").stat().st_mode & 0o777 == 0o660


def test_an_address_that_cannot_be_had_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match="cannot listen at"):
            listening_socket(WebListenConfig(address=address), {})


def test_a_certificate_is_read_anew_when_its_file_changes(tmp_path: Path) -> None:
    ca = Authority.create("lab", 1_790_000_000.0).certificate_pem()
    certificate, key = page_certificate(tmp_path)
    told = WebListenConfig(certificate=str(certificate), key=str(key))
    tls = Tls(told, ca)
    assert tls.reads == 1
    tls.look()
    assert tls.reads == 1, "nothing has changed"
    page_certificate(tmp_path)
    tls.look()
    assert tls.reads == 2
    key.write_text("nothing")
    tls.look()
    assert tls.reads == 2, "the old one stays"
    with pytest.raises(ConfigError, match="cannot be used"):
        Tls(told, ca)


OPENID = GOOD + '[openid]\nissuer = "https://sso.example.org"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OPENID, "openid.client_id is missing"),
        (OPENID + 'client_id = "x"\nscopes = ["profile"]\n', "openid.scopes"),
        (OPENID + 'client_id = "x"\nclock_skew = "1h"\n', "from 0s to 5m"),
        (OPENID + 'client_id = "x"\nuser_pattern = "("\n', "no pattern"),
        (OPENID + 'client_id = "x"\nuser_pattern = "a"\n', "one pair of parentheses"),
        (OPENID + 'client_id = "x"\ntold_groups = [""]\n', "told_groups"),
        (GOOD + '[openid]\nissuer = "http://sso.example.org"\n', "begins with https://"),
    ],
)
def test_a_wrong_issuer_is_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, text)
    assert words in refused.value.what


def test_an_issuer_is_read(tmp_path: Path) -> None:
    text = OPENID + 'client_id = "x"\nuser_pattern = "([a-z]+)@example\\\\.org"\n'
    assert read(tmp_path, text).openid.user_pattern == r"([a-z]+)@example\.org"
