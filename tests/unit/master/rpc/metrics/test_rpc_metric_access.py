"""Who may read /metrics: everybody on loopback, elsewhere operators by certificate or token."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlq_common.clock import SteadyClock
from dlq_common.errors import ConfigError, Unauthenticated
from dlq_common.identity.pki import Authority, CertifiedIdentity, Role, new_key_and_csr
from dlq_master.app import _check_addresses
from dlq_master.control.config import ListenConfig, MasterConfig, MetricsConfig, VisibilityConfig
from dlq_master.rpc.metrics.access import MetricsDoor, MetricsTls
from dlq_master.rpc.metrics.exposition import MetricFamily, gauge
from dlq_master.rpc.metrics.metrics import MOST_AT_ONCE, PATIENCE_S, MetricsServer
from dlq_master.rpc.metrics.token_file import TokenFile
from support.fake_clock import FakeClock

TOKEN = "a" * 32
CLOCK = SteadyClock()
AUTHORITY = Authority.create("lab", CLOCK.now_s())


def token_file(tmp_path: Path, token: str = TOKEN, mode: int = 0o600) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{token}\n")
    path.chmod(mode)
    return path


def certified(tmp_path: Path, name: str, role: Role, by: Authority = AUTHORITY) -> ssl.SSLContext:
    """A scraper with a certificate; none where `name` is empty."""
    context = ssl.create_default_context(cadata=AUTHORITY.certificate_pem().decode())
    context.check_hostname = False
    if name:
        made = new_key_and_csr(name)
        pem = tmp_path / f"{name}.pem"
        pem.write_bytes(made.key + by.sign_user(made.request, name, role, CLOCK.now_s()))
        context.load_cert_chain(pem)
    return context


def known(identity: CertifiedIdentity) -> None:
    if identity.name == "gone":
        raise Unauthenticated("there is no user gone (any more)")


def door(token: Path | None = None, *, tls: bool = True) -> MetricsDoor:
    return MetricsDoor(
        tls=MetricsTls(AUTHORITY, CLOCK, demanding=token is None) if tls else None,
        token=None if token is None else TokenFile(token),
        check_member=known,
    )


async def scrape(
    port: int, context: ssl.SSLContext | None = None, token: str = "", accept: str = "*/*"
) -> tuple[str, str]:
    """The status line and the body; empty where the line is cut."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        shown = f"Authorization: Bearer {token}\r\n" if token else ""
        head = f"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n{shown}\r\n"
        writer.write(head.encode())
        text = (await reader.read()).decode()
        writer.close()
    except (OSError, ssl.SSLError):
        return "", ""
    head, _, body = text.partition("\r\n\r\n")
    return head.partition("\r\n")[0].removeprefix("HTTP/1.0 "), body


class Counted:
    """A page that counts how often it is made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> list[MetricFamily]:
        self.made += 1
        return [gauge("dlq_x", "X.", 1)]


async def served(
    door: MetricsDoor, talk: Callable[[int], object], page: Counted | None = None, **more: Any
) -> None:
    server = MetricsServer(
        "127.0.0.1:0", {"/metrics": page or Counted()}, FakeClock(), door, **more
    )
    await server.start()
    try:
        await talk(server.port)  # type: ignore[misc]
    finally:
        await server.stop()


async def test_on_loopback_nobody_is_asked() -> None:
    async def talk(port: int) -> None:
        assert (await scrape(port))[0] == "200 OK"

    await served(MetricsDoor(), talk)


@pytest.mark.parametrize(
    ("name", "role", "status"),
    [
        ("olga", Role.OPERATOR, "200 OK"),
        ("root", Role.ADMIN, "200 OK"),
        ("alice", Role.USER, "401 Unauthorized"),
        ("gone", Role.OPERATOR, "401 Unauthorized"),
        ("", Role.USER, ""),
    ],
)
async def test_elsewhere_a_certificate_of_an_operator_opens(
    tmp_path: Path, name: str, role: Role, status: str
) -> None:
    async def talk(port: int) -> None:
        assert (await scrape(port, certified(tmp_path, name, role)))[0] == status

    await served(door(), talk)


async def test_a_certificate_of_another_ca_and_a_plain_request_have_no_connection(
    tmp_path: Path,
) -> None:
    other = Authority.create("lab", CLOCK.now_s())

    async def talk(port: int) -> None:
        foreign = certified(tmp_path, "olga", Role.OPERATOR, other)
        assert (await scrape(port, foreign))[0] == ""
        assert (await scrape(port))[0] == ""

    await served(door(), talk)


async def test_a_token_opens_in_place_of_a_certificate(tmp_path: Path) -> None:
    async def talk(port: int) -> None:
        nobody = certified(tmp_path, "", Role.USER)
        assert (await scrape(port, nobody, TOKEN))[0] == "200 OK"
        assert await scrape(port, nobody, "b" * 32) == (
            "401 Unauthorized",
            "the token is wrong\n",
        )
        status, words = await scrape(port, nobody)
        assert status == "401 Unauthorized"
        assert "a bearer token is needed" in words
        assert (await scrape(port, certified(tmp_path, "olga", Role.OPERATOR)))[0] == "200 OK"

    await served(door(token_file(tmp_path)), talk)


async def test_with_a_token_loopback_asks_for_it_too(tmp_path: Path) -> None:
    async def talk(port: int) -> None:
        assert (await scrape(port))[0] == "401 Unauthorized"
        assert (await scrape(port, token=TOKEN))[0] == "200 OK"

    await served(door(token_file(tmp_path), tls=False), talk)


def test_a_token_file_is_read_again_once_it_has_changed(tmp_path: Path) -> None:
    path = token_file(tmp_path)
    token = TokenFile(path)
    assert token.holds(TOKEN)
    token_file(tmp_path, "b" * 40)
    assert not token.holds(TOKEN)
    assert token.holds("b" * 40)
    path.chmod(0o644)
    assert not token.holds("b" * 40)
    path.chmod(0o600)
    assert token.holds("b" * 40)
    path.unlink()
    assert not token.holds("b" * 40)


@pytest.mark.parametrize(
    ("token", "mode", "words"),
    [
        (TOKEN, 0o640, "other users may use"),
        ("short", 0o600, "16 to 1024 characters"),
        ("two words of a token", 0o600, "no space"),
        ("ü" * 20, 0o600, "not ASCII"),
        (None, 0o600, "No such file"),
    ],
)
def test_a_file_of_no_use_is_refused_at_the_start(
    tmp_path: Path, token: str | None, mode: int, words: str
) -> None:
    path = tmp_path / "none" if token is None else token_file(tmp_path, token, mode)
    config = MasterConfig(
        listen=ListenConfig(metrics="0.0.0.0:7322"), metrics=MetricsConfig(token_file=str(path))
    )
    with pytest.raises(ConfigError, match=words) as refused:
        _check_addresses(config)
    assert refused.value.metadata["key"] == "metrics.token_file"


@pytest.mark.parametrize(
    ("address", "token", "words"),
    [
        ("7322", "", r"listen\.metrics"),
        ("", "/x", "listen.metrics only"),
        ("[::]:1", "x", "absolute"),
    ],
)
def test_an_address_or_a_path_that_means_nothing_is_refused(
    address: str, token: str, words: str
) -> None:
    config = MasterConfig(
        listen=ListenConfig(metrics=address), metrics=MetricsConfig(token_file=token)
    )
    with pytest.raises(ConfigError, match=words):
        _check_addresses(config)


def test_names_that_others_may_not_see_need_a_token_on_loopback(tmp_path: Path) -> None:
    def config(others: str, address: str = "127.0.0.1:7322", token: str = "") -> MasterConfig:
        return MasterConfig(
            listen=ListenConfig(metrics=address),
            metrics=MetricsConfig(job_info=True, token_file=token),
            visibility=VisibilityConfig(others=others),
        )

    with pytest.raises(ConfigError, match=r"visibility\.others hides"):
        _check_addresses(config("nameless"))
    _check_addresses(config("named"))
    _check_addresses(config("hidden", "0.0.0.0:7322"))
    _check_addresses(config("hidden", token=str(token_file(tmp_path))))


async def test_a_page_is_made_once_for_all_that_ask_within_a_second() -> None:
    page = Counted()

    async def talk(port: int) -> None:
        for accept in ("*/*", "*/*", "application/openmetrics-text", "*/*"):
            assert (await scrape(port, accept=accept))[0] == "200 OK"

    await served(MetricsDoor(), talk, page)
    assert page.made == 2, "once in each format"


async def test_silent_scrapers_are_few_and_are_left_for_those_that_ask() -> None:
    async def talk(port: int) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * MOST_AT_ONCE)]
        assert (await scrape(port))[0] == "200 OK"
        assert await silent[0][0].read() == b"", "it was left"
        for _, writer in silent:
            writer.close()

    await served(MetricsDoor(), talk, patience_s=0.2)


async def test_silent_scrapers_give_way_at_once_to_one_that_asks() -> None:
    async def talk(port: int) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * MOST_AT_ONCE)]
        async with asyncio.timeout(6 * PATIENCE_S):
            assert (await scrape(port))[0] == "200 OK"
        for _, writer in silent:
            writer.close()

    await served(MetricsDoor(), talk, patience_s=60 * PATIENCE_S)


def test_a_certificate_is_made_anew_in_time() -> None:
    clock = FakeClock(now_s=CLOCK.now_s())
    tls = MetricsTls(AUTHORITY, clock, demanding=True)
    tls.context()
    first = tls._loaded
    clock.advance(3_600.0)
    tls.context()
    assert tls._loaded == first
    clock.advance(25 * 86_400.0)
    tls.context()
    assert tls._loaded != first
