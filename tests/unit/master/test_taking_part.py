"""The rows of a standby: what it has seen of the leader, and a database that lacks some of it."""

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from dlq_common.clock import SteadyClock
from dlq_common.daemon.collector import collecting_later
from dlq_common.daemon.config import Seconds
from dlq_common.errors import Unauthenticated, Unavailable
from dlq_common.identity.files import write_private, write_public
from dlq_common.identity.pki import Authority, CertifiedIdentity, Role
from dlq_master import serving, taking_part
from dlq_master.control.config import ClusterConfig, IdentityConfig, MasterConfig, StoreConfig
from dlq_master.leader.lease import LeaderLease, Standing
from dlq_master.leader.turn_seen import NAME, TurnSeen
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import Node
from dlq_master.rpc.people.authorities import Authorities
from dlq_master.store.batch import User
from dlq_master.store.port import DatabaseDamaged
from dlq_master.store.postgres.fence import Fence
from dlq_master.store.tables.revocations import Revocation
from dlq_master.store.tables.tenants import GivenGrant
from dlq_master.taking_part import WarmRows, door_of
from support.waiting import wait_until

FENCE = Fence(71, 2, 8)
NOW_S = 1_790_000_000.0


class FakeTail:
    """A tail of a database whose last turn the test says."""

    number = 0
    system = "71"
    away = silent = False
    names: ClassVar[list[str]] = []

    def __init__(self, *_: Any) -> None:
        self.closed = False
        self.answers = threading.Event()

    def catch_up(self) -> None:
        if self.silent:
            self.answers.wait()
        if self.away or self.silent:
            raise Unavailable("the server is away")

    def call_itself(self, name: str) -> None:
        self.names.append(name)

    def abandon(self) -> None:
        self.answers.set()

    def loaded(self, fence: Fence | None = None) -> Any:
        return ("rows", fence)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WarmRows:
    monkeypatch.setattr(taking_part, "StoreTail", FakeTail)
    monkeypatch.setattr(taking_part, "PostgresRows", lambda place: None)
    monkeypatch.setattr(FakeTail, "number", 0)
    monkeypatch.setattr(FakeTail, "away", False)
    monkeypatch.setattr(FakeTail, "silent", False)
    monkeypatch.setattr(FakeTail, "names", [])
    return _rows(tmp_path)


def _rows(state_dir: Path) -> WarmRows:
    store = StoreConfig(backend="postgresql", dsn="host=db dbname=dlq")
    config = MasterConfig(cluster=ClusterConfig(state_dir=state_dir), store=store)
    found = WarmRows(config, TurnSeen(state_dir / NAME))
    found._ahead = cast(Any, CountedAhead())
    return found


def _taken(rows: WarmRows) -> Any:
    return rows.taken(FENCE, FakeTail.number)


def test_a_standby_that_leads_has_the_rows_already(rows: WarmRows) -> None:
    rows.catch_up()
    FakeTail.number = 7
    assert _taken(rows) == ("rows", FENCE)


def test_rows_that_cannot_be_followed_are_read_at_the_start(rows: WarmRows) -> None:
    rows.catch_up()
    FakeTail.away = True
    assert _taken(rows) is None


def test_rows_that_are_read_at_the_start_lack_no_turn_that_was_seen(rows: WarmRows) -> None:
    FakeTail.number = 7
    rows.catch_up()
    FakeTail.away = True
    with pytest.raises(DatabaseDamaged, match="its last turn is 6, and turn 7 was seen"):
        rows.taken(FENCE, 6)


def test_a_standby_lets_the_leader_know_that_it_is_ready(rows: WarmRows) -> None:
    FakeTail.number = 5
    rows.catch_up()
    rows.catch_up(ready=False)
    FakeTail.number = 4
    rows.catch_up()
    ready = f"dlq-standby {MasterConfig().listen.api}"
    assert FakeTail.names == [ready, "dlq-master", "dlq-master"]
    assert rows.read_ago_s() < 60.0


def test_a_server_that_is_silent_holds_up_no_standby_for_ever(
    rows: WarmRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking_part, "STUCK_S", 0.0)
    FakeTail.silent = True
    reading = threading.Thread(target=rows.catch_up)
    reading.start()
    while reading.is_alive():
        rows.look()
        reading.join(0.01)
    FakeTail.silent, FakeTail.number = False, 7
    rows.look()
    assert _taken(rows) == ("rows", FENCE)


class CountedAhead:
    """It counts the looks at rows, each of which lasts as long as the test says."""

    looks = 0
    lasts_s = 0.0

    def follow(self, loaded: Any) -> None:
        assert loaded == ("rows", None)
        self.looks += 1
        SetClock.now_s += self.lasts_s


def test_a_standby_builds_ahead_now_and_then_where_rows_have_changed(
    rows: WarmRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking_part, "SteadyClock", SetClock)
    monkeypatch.setattr(SetClock, "now_s", 0.0)
    ahead = rows._ahead = cast(Any, CountedAhead())

    def looks_after(passed_s: float) -> int:
        SetClock.now_s += passed_s
        rows.catch_up()
        return int(ahead.looks)

    assert looks_after(0.0) == 0, "there are no rows"
    FakeTail.number, ahead.lasts_s = 7, 2.0
    assert looks_after(1.0) == 1
    assert looks_after(200.0) == 1, "nothing has changed"
    FakeTail.number, ahead.lasts_s = 8, 0.01
    assert looks_after(0.0) == 2
    FakeTail.number = 9
    assert looks_after(4.9) == 2, "too early"
    assert looks_after(0.2) == 3
    FakeTail.number, FakeTail.away = 10, True
    assert looks_after(6.0) == 3, "the rows are not as they are read"


def test_building_takes_a_small_part_of_the_time(
    rows: WarmRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking_part, "SteadyClock", SetClock)
    monkeypatch.setattr(SetClock, "now_s", 0.0)
    ahead = rows._ahead = cast(Any, CountedAhead())
    ahead.lasts_s = 2.0
    for turn in range(1, 1001):
        FakeTail.number = turn
        SetClock.now_s += 1.0
        rows.catch_up()
    assert ahead.looks * 2.0 <= 2.0 + 1.05 * SetClock.now_s / taking_part.AHEAD_SHARE


class SetClock:
    """CLOCK_BOOTTIME as the test says."""

    now_s = 0.0

    def boottime_s(self) -> float:
        return self.now_s


class SlowTail(FakeTail):
    """Each reading lasts until it is abandoned, or the test lets it go."""

    readings: ClassVar[list[threading.Event]] = []
    abandoned = 0

    def catch_up(self) -> None:
        going = threading.Event()
        self.readings.append(going)
        going.wait()
        raise Unavailable("the line was ended")

    def abandon(self) -> None:
        type(self).abandoned += 1
        self.readings[-1].set()


def test_a_reading_that_was_ended_gets_twice_the_time_at_the_next_try(
    rows: WarmRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking_part, "SteadyClock", SetClock)
    monkeypatch.setattr(taking_part, "StoreTail", SlowTail)
    monkeypatch.setattr(SetClock, "now_s", 0.0)
    monkeypatch.setattr(SlowTail, "readings", [])
    monkeypatch.setattr(SlowTail, "abandoned", 0)
    for tries, lasts_s in enumerate((60.0, 120.0, 240.0)):
        reading = threading.Thread(target=rows.catch_up)
        reading.start()
        wait_until(lambda: len(SlowTail.readings) > tries, what="it reads")  # noqa: B023 - at once
        SetClock.now_s += lasts_s
        rows.look()
        assert SlowTail.abandoned == tries
        SetClock.now_s += 0.5
        rows.look()
        assert SlowTail.abandoned == tries + 1
        reading.join()


def test_a_database_without_turns_that_were_seen_is_refused_also_later(
    rows: WarmRows, tmp_path: Path
) -> None:
    FakeTail.number = 815
    rows.catch_up()
    FakeTail.number = 812
    with pytest.raises(DatabaseDamaged, match="its last turn is 812, and turn 815 was seen"):
        rows.taken(FENCE, FakeTail.number)
    with pytest.raises(DatabaseDamaged):
        _rows(tmp_path).taken(FENCE, FakeTail.number)
    (tmp_path / NAME).unlink()  # an operator accepts the loss
    assert _taken(_rows(tmp_path)) == ("rows", FENCE)


class People:
    """An operator, and the web server through which she signed in."""

    revocations: ClassVar[dict[str, Revocation]] = {}
    grants: ClassVar[dict[str, GivenGrant]] = {}

    def user(self, name: str) -> User | None:
        roles = {"olga": "operator", "page": "web"}
        return User(name, roles[name], 1, 1, (), 0.0) if name in roles else None

    def node(self, node_id: NodeId) -> Node | None:
        """None is known."""


def test_the_certificates_that_count_at_a_leader_count_at_a_standby(tmp_path: Path) -> None:
    authority = Authority.create("lab", NOW_S)
    write_public(tmp_path / "ca.crt", authority.certificate_pem())
    write_private(tmp_path / "ca.key", authority.key_pem())
    signs = Authorities(tmp_path, "lab")
    cluster = ClusterConfig(name="lab", state_dir=tmp_path)
    by_page = CertifiedIdentity(
        name="olga",
        role=Role.OPERATOR,
        cluster="lab",
        serial="1",
        not_after_s=SteadyClock().now_s() + 60.0,
        through="page",
        issuer=authority.key_id,
    )
    given = IdentityConfig(web_may_act_for=("user", "operator"), web_certificates=Seconds(3600.0))
    door = door_of(MasterConfig(cluster=cluster, identity=given), signs, People())
    assert door.check_member(by_page).person
    signs.turned = True
    with pytest.raises(Unauthenticated, match="former CA"):
        door.check_member(replace(by_page, issuer="another"))
    none = door_of(MasterConfig(cluster=cluster), signs, People())
    with pytest.raises(Unauthenticated, match="count no more"):
        none.check_member(by_page)


class FakeServer:
    """The ports of a standby that nobody calls."""

    def __init__(self, *_: Any) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class RefusedCall:
    """It refers to itself, as a refused call of gRPC does."""

    def __init__(self) -> None:
        self.itself = self


class CalledRows:
    """Each look at the rows leaves a refused call behind; after some the master leads."""

    def __init__(self, lease: LeaderLease) -> None:
        self._lease = lease
        self.calls: list[weakref.ref[RefusedCall]] = []

    def catch_up(self, *, ready: bool) -> None:
        assert ready
        self.calls.append(weakref.ref(RefusedCall()))
        if len(self.calls) == 5:
            self._lease.standing = Standing.LEADING


class QuietService:
    """It counts the signs of life."""

    signs = 0

    def ready(self, _: str) -> None: ...

    def alive(self) -> None:
        self.signs += 1


class FakeKeeper:
    def __init__(self, lease: LeaderLease) -> None:
        self.lease = lease

    def start(self, _: Any) -> None: ...


async def test_a_standby_keeps_nothing_of_the_calls_that_it_has_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A start lets Python look for nothing, and a standby may stand by for months."""
    monkeypatch.setattr(taking_part, "StandbyServer", FakeServer)
    lease = LeaderLease("one")
    rows, keeper, service = (
        cast(Any, it) for it in (CalledRows(lease), FakeKeeper(lease), QuietService())
    )
    config, authority = MasterConfig(), Authority.create("dlq", NOW_S)
    with collecting_later():
        assert await taking_part._Standing(keeper, service, rows).until_it_leads(config, authority)
        assert not gc.isenabled(), "the start goes on"
        kept = [call for call in rows.calls if call() is not None]
    assert len(kept) < len(rows.calls) - 1


class LongRows:
    """A first look that lasts until it has been heard three times that the standby lives."""

    def __init__(self, lease: LeaderLease, service: QuietService) -> None:
        self._lease, self._service = lease, service

    def catch_up(self, *, ready: bool) -> None:
        before = self._service.signs
        wait_until(lambda: self._service.signs >= before + 3, what="signs of life")
        self._lease.standing = Standing.LEADING


async def test_a_standby_that_reads_for_long_still_gives_signs_of_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(taking_part, "StandbyServer", FakeServer)
    lease, service = LeaderLease("one"), QuietService()
    standing = taking_part._Standing(
        cast(Any, FakeKeeper(lease)), cast(Any, service), cast(Any, LongRows(lease, service))
    )
    assert await standing.until_it_leads(MasterConfig(), Authority.create("dlq", NOW_S))


class Enough(Exception):
    """The start has come far enough for the test."""


async def test_a_standby_that_leads_signs_by_the_ca_that_lies_there_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator has copied a change of the CA here while it stood by."""

    def lay_down(authority: Authority) -> None:
        write_public(tmp_path / "ca.crt", authority.certificate_pem())
        write_private(tmp_path / "ca.key", authority.key_pem())

    former, present = Authority.create("lab", NOW_S), Authority.create("lab", NOW_S)
    read: list[bytes] = []

    class Noted(Authorities):
        def __init__(self, state_dir: Path, cluster: str) -> None:
            super().__init__(state_dir, cluster)
            read.append(self.certificate_pem())

    async def waited(*_: Any) -> tuple[object, bool]:
        lay_down(present)
        return object(), False

    def stop(*_: Any) -> None:
        raise Enough

    lay_down(former)
    monkeypatch.setattr(serving, "Authorities", Noted)
    monkeypatch.setattr(serving, "_part", waited)
    monkeypatch.setattr(serving, "open_store", lambda *_: (None, None))
    monkeypatch.setattr(serving, "_rows", lambda *_: SimpleNamespace(meta={}))
    monkeypatch.setattr(serving, "this_boot", stop)
    config = MasterConfig(cluster=ClusterConfig(name="lab", state_dir=tmp_path))
    with pytest.raises(Enough):
        await serving.serve(config)
    assert read == [former.certificate_pem(), present.certificate_pem()]
