"""The identity of the web server for all: from the broker or a copy, renewed and kept. And the
command that makes a link to its page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dlq_client import service as module
from dlq_client.line.identity import Identity, certified, load_identity, save_identity
from dlq_common.errors import ConfigError, NotFound, Unavailable
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.pki import Role
from dlq_master.store.tables.revocations import Revocation
from dlq_web.line import calls
from dlq_web.line.service import ServiceLine, service_identity
from support.cli_run import Dlq
from support.fake_master import FakeMaster
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.shared_web_house import service_home

pytestmark = pytest.mark.integration
DAY_S = 86_400.0


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


def identity_of(
    house: RpcHouse, name: str = "portal", role: Role = Role.WEB, age_s: float = 0.0
) -> Identity:
    key, certificate = house.certificate(name, role, now_s=house.clock.now_s() - age_s)
    address = f"127.0.0.1:{house.server.api_port}"
    return certified(key, certificate, house.authority.certificate_pem(), address)


async def test_the_broker_gives_the_first_identity_and_it_is_kept(
    house: RpcHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, asked = tmp_path / "service/identity", []

    def login(socket: Path, _name: str) -> Identity:
        asked.append(socket)
        return identity_of(house)

    monkeypatch.setattr(module, "login", login)
    first = service_identity(service_home(home), house.clock)
    assert (first.user, asked) == ("portal", [service_home(home).login_socket])
    assert service_identity(service_home(home), house.clock) == first
    assert len(asked) == 1
    assert (home / "identity.key").stat().st_mode & 0o077 == 0
    save_identity(home, identity_of(house, age_s=31 * DAY_S))
    assert service_identity(service_home(home), house.clock).is_valid(house.clock.now_s())
    assert len(asked) == 2, "one that has ended is no identity"


async def test_without_an_identity_it_says_how_to_get_one(house: RpcHouse, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no identity") as refused:
        service_identity(service_home(tmp_path / "none"), house.clock)
    assert "--role web" in refused.value.hint
    save_identity(tmp_path / "alices", identity_of(house, "alice", Role.USER))
    with pytest.raises(ConfigError, match="alice has the role user"):
        service_identity(service_home(tmp_path / "alices"), house.clock)


async def test_a_renewed_identity_is_there_after_a_restart(house: RpcHouse, tmp_path: Path) -> None:
    old = identity_of(house, age_s=21 * DAY_S)
    line = ServiceLine(old, service_home(tmp_path / "home"), house.clock)
    (tmp_path / "home").mkdir(mode=0o700)
    fresh = await line._renewed()
    await line.close()
    kept = load_identity(tmp_path / "home")
    assert kept is not None
    assert kept.certificate == fresh.certificate != old.certificate


async def test_after_the_end_of_its_certificate_the_broker_gives_another(
    house: RpcHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master was away for so long, or the host was."""
    monkeypatch.setattr(module, "login", lambda _socket, _name: identity_of(house))
    ended = identity_of(house, age_s=31 * DAY_S)
    line = ServiceLine(ended, service_home(tmp_path / "home"), house.clock)
    fresh = await line._renewed()
    await line.close()
    assert ended.renewal_due(house.clock.now_s())
    assert fresh.is_valid(house.clock.now_s())
    kept = load_identity(tmp_path / "home")
    assert kept is not None
    assert kept.certificate == fresh.certificate


@pytest.mark.parametrize("revoked", [False, True])
async def test_a_change_of_the_ca_or_a_revocation_gives_another_identity_soon(
    house: RpcHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revoked: bool
) -> None:
    monkeypatch.setattr(calls, "RENEWAL_LOOK_S", 0.01)
    asked, renewed = [], asyncio.Event()
    now_s = house.clock.now_s()

    def login(_socket: Path, name: str) -> Identity:
        asked.append(name)
        return identity_of(house, age_s=-2.0)

    monkeypatch.setattr(module, "login", login)
    line = ServiceLine(identity_of(house), service_home(tmp_path / "home"), house.clock)
    (tmp_path / "home").mkdir(mode=0o700)
    line.renewed = lambda _fresh: renewed.set()
    if revoked:
        row = Revocation("user:portal", now_s, now_s + 1.0, "root")
        house.control.published.all_revocations[row.subject] = row
    else:
        monkeypatch.setattr(house.authority, "trust_digest", lambda: "another")
    keeping = asyncio.create_task(line.keep_renewed())
    async with asyncio.timeout(DEADLINE_S):
        await renewed.wait()
    keeping.cancel()
    await asyncio.wait([keeping])
    await line.close()
    assert len(asked) == revoked, "only the broker knows a service whose certificate counts no more"


async def test_an_identity_that_cannot_be_kept_is_renewed_at_a_later_look(
    house: RpcHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "RENEWAL_LOOK_S", 0.01)
    old, in_the_way = identity_of(house, age_s=21 * DAY_S), tmp_path / "service"
    in_the_way.write_text("no directory")
    refused, kept = asyncio.Event(), asyncio.Event()

    class Watched(ServiceLine):
        async def _renewed(self) -> Identity:
            try:
                fresh = await super()._renewed()
            except OSError:
                refused.set()
                raise
            kept.set()
            return fresh

    line = Watched(old, service_home(in_the_way / "identity"), house.clock)
    keeping = asyncio.create_task(line.keep_renewed())
    async with asyncio.timeout(DEADLINE_S):
        await refused.wait()
        in_the_way.unlink()
        (in_the_way / "identity").mkdir(mode=0o700, parents=True)
        await kept.wait()
    keeping.cancel()
    await asyncio.wait([keeping])
    await line.close()


async def test_the_service_asks_for_health_and_uses_links_up(
    house: RpcHouse, tmp_path: Path
) -> None:
    line = ServiceLine(identity_of(house), service_home(tmp_path), house.clock)
    await line.probe(10.0)
    secret = house.server.links.make("alice", "user")
    user = await line.use_link("alice", secret)
    assert user[:2] == ActsFor("alice", "user")[:2]
    assert user.since_s == pytest.approx(house.clock.now_s(), abs=60)
    with pytest.raises(NotFound, match="has been used"):
        await line.use_link("alice", secret)
    await house.server.stop(0.0)
    with pytest.raises(Unavailable):
        await line.probe(10.0)
    await line.close()


def test_the_command_prints_a_link_to_the_page(tmp_path: Path) -> None:
    master = FakeMaster()
    try:
        dlq = Dlq(master.home(tmp_path / "home"), {})
        said = dlq("web", "--link")
        user = load_identity(tmp_path / "home")
        assert user is not None
        assert said.out == f"https://dlq.example.org/enter?user={user.user}&link=s3cret\n"
    finally:
        master.stop()
