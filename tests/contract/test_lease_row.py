"""The lease row's contract: the simulated row and PostgreSQL's keep the same promises."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dlq_common.fence import LeaderFence
from dlq_master.leader.lease import LeaderLease, LeaseTerms, carried_out
from dlq_master.leader.row import LeaseRow, RowUnknown
from support.postgres_site import PostgresServer, postgres_site
from support.simulated_lease import LeaseServer, SimulatedRow
from support.waiting import wait_until

TTL_S = 30.0
Open = Callable[[], LeaseRow]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_site() as site:
        yield site.primary


@pytest.fixture(params=["simulated", "postgresql"])
def opened(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens another session of the same empty row."""
    if request.param == "simulated":
        simulated = LeaseServer()
        yield lambda: SimulatedRow(simulated)
        return
    yield from _on_postgresql(request.getfixturevalue("server"))


def _on_postgresql(server: PostgresServer) -> Generator[Open, None, None]:
    from dlq_master.leader.postgres_row import PostgresRow
    from dlq_master.store.postgres.line import PostgresPlace
    from support.postgres_store import begin_anew

    place = PostgresPlace(server.dsn, tls="disable", allow_asynchronous=True)
    begin_anew(place)
    server.ask("UPDATE leader SET holder = '', ttl_s = 0")
    rows: list[PostgresRow] = []

    def another() -> LeaseRow:
        rows.append(PostgresRow(place, TTL_S))
        return rows[-1]

    yield another
    for row in rows:
        row.close()


def end(row: LeaseRow) -> None:
    """The end of the session that asks this row."""
    ended = row.end if isinstance(row, SimulatedRow) else getattr(row, "close")  # noqa: B009
    ended()


def test_one_of_two_gets_a_free_row_and_both_hear_who(opened: Open) -> None:
    one, two = opened(), opened()
    assert one.read().free
    mine = one.try_acquire(0, "one", "one:1", TTL_S)
    assert (mine.epoch, mine.holder, mine.address, mine.free) == (1, "one", "one:1", False)
    assert 0 < mine.left_s <= TTL_S
    told = two.try_acquire(0, "two", "two:1", TTL_S)
    assert (told.epoch, told.holder) == (1, "one")
    assert two.try_acquire(1, "two", "two:1", TTL_S).holder == "one"
    assert two.read().fence == mine.fence


def test_a_renewal_holds_for_a_whole_time_more(opened: Open) -> None:
    row = opened()
    mine = row.try_acquire(0, "one", "one:1", 1.0)
    assert row.renew(mine.fence, "one", TTL_S).left_s > 1.0


@pytest.mark.parametrize(
    ("holder", "change"), [("two", {}), ("one", {"epoch": 7}), ("one", {"timeline": 9})]
)
def test_a_renewal_and_a_release_under_another_fence_change_nothing(
    opened: Open, holder: str, change: dict[str, Any]
) -> None:
    row = opened()
    mine = row.try_acquire(0, "one", "one:1", TTL_S)
    other = mine.fence._replace(**change)
    assert row.renew(other, holder, 2 * TTL_S).left_s <= TTL_S
    assert not row.release(other, holder).free


def test_a_released_row_is_free_and_its_epochs_go_on(opened: Open) -> None:
    one, two = opened(), opened()
    mine = one.try_acquire(0, "one", "one:1", TTL_S)
    assert one.release(mine.fence, "one").free
    assert two.try_acquire(1, "two", "two:1", TTL_S).epoch == 2
    assert one.try_acquire(1, "one", "one:1", TTL_S).holder == "two"


def test_the_end_of_the_session_frees_the_row_long_before_its_time(opened: Open) -> None:
    one, two = opened(), opened()
    one.try_acquire(0, "one", "one:1", TTL_S)
    end(one)
    wait_until(lambda: two.read().free, what="the server has seen the end")
    assert two.try_acquire(1, "two", "two:1", TTL_S).holder == "two"


def test_a_row_that_a_lost_session_holds_is_no_lead_for_the_next_one(opened: Open) -> None:
    lost, row = opened(), opened()
    mine = lost.try_acquire(0, "one", "one:1", TTL_S)
    with pytest.raises(RowUnknown, match="has not ended on the server"):
        row.try_acquire(0, "one", "one:1", TTL_S)
    with pytest.raises(RowUnknown, match="has not ended on the server"):
        row.renew(mine.fence, "one", TTL_S)
    end(lost)
    wait_until(lambda: row.read().free, what="the server has seen the end")
    assert row.renew(mine.fence, "one", TTL_S).fence == mine.fence


def test_a_server_of_one_disk_says_so(opened: Open) -> None:
    told = opened().read()
    assert isinstance(told.synchronous, bool)
    assert told.fence == LeaderFence(told.system, told.timeline, 0)


def test_the_row_tells_the_last_turn_of_its_database(server: PostgresServer) -> None:
    opened = _on_postgresql(server)
    row = next(opened)()
    assert row.read().turn == 0
    server.ask("INSERT INTO meta VALUES ('batch', '8')")  # rows that were moved have no turns
    assert row.read().turn == 8
    end(row)
    opened.close()


def test_a_session_that_the_server_has_ended_is_noticed_at_once(server: PostgresServer) -> None:
    from dlq_master.leader.postgres_row import PostgresRow

    opened = _on_postgresql(server)
    row = next(opened)()
    assert isinstance(row, PostgresRow)
    mine = row.try_acquire(0, "one", "one:1", TTL_S)
    assert row.wait(0.0)
    server.end_sessions("dlq-master")
    wait_until(lambda: not row.wait(0.01), what="the end is noticed")
    assert row.renew(mine.fence, "one", TTL_S).holder == "one"
    row.abandon()
    with pytest.raises(RowUnknown):
        row.read()
    opened.close()


STANDS_STILL = """SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientRead'
    AND backend_xid IS NOT NULL AND extract(epoch FROM clock_timestamp() - xact_start) > 1.0"""


def test_sessions_are_ended_only_where_a_leader_has_not_left(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dlq_master.store.postgres.line import PostgresLine

    asked: list[str] = []
    own = PostgresLine.own

    def heard(line: Any, sql: Any, *more: Any) -> Any:
        asked.append(sql)
        return own(line, sql, *more)

    monkeypatch.setattr(PostgresLine, "own", heard)

    def ends_sessions() -> bool:
        found = any("pg_terminate_backend" in sql for sql in asked)
        asked.clear()
        return found

    rows = _on_postgresql(server)
    opened = next(rows)
    one, two = opened(), opened()
    assert two.read().free
    mine = one.try_acquire(0, "one", "one:1", TTL_S)
    assert two.try_acquire(two.read().epoch, "two", "two:1", TTL_S).holder == "one"
    assert ends_sessions()
    one.release(mine.fence, "one")
    assert two.try_acquire(two.read().epoch, "two", "two:1", TTL_S).holder == "two"
    assert not ends_sessions()
    next(rows, None)


def test_a_leader_that_stands_still_within_a_turn_keeps_nobody_from_the_row(
    server: PostgresServer,
) -> None:
    """A part of its turn is on its way to the server, and the rest never comes (SIGSTOP)."""
    import psycopg

    opened = _on_postgresql(server)
    another = next(opened)
    one, two = another(), another()
    mine = one.try_acquire(0, "one", "one:1", TTL_S)
    turn = psycopg.connect(server.dsn, application_name="dlq-master", autocommit=True)
    turn.pgconn.enter_pipeline_mode()
    for statement in (b"BEGIN", b"SELECT epoch FROM leader FOR KEY SHARE"):
        turn.pgconn.send_query_params(statement, None)
    turn.pgconn.send_flush_request()
    turn.pgconn.flush()
    wait_until(lambda: server.ask(STANDS_STILL) == [(1,)], what="it holds the row")
    assert two.try_acquire(mine.epoch, "two", "two:1", TTL_S).holder == "one"
    assert server.ask(STANDS_STILL) == [(1,)], "a leader in its time is not disturbed"
    end(one)
    wait_until(lambda: two.read().free, what="its time is over")
    assert two.try_acquire(mine.epoch, "two", "two:1", TTL_S).holder == "two"
    turn.close()
    end(two)
    opened.close()


def test_a_session_whose_descriptor_is_high_lives_on(server: PostgresServer) -> None:
    """Each agent has a descriptor of the master, and a session that broke is opened after them."""
    from dlq_master.leader.postgres_row import PostgresRow

    opened = _on_postgresql(server)
    row = next(opened)()
    assert isinstance(row, PostgresRow)
    with _descriptors_taken(1024):
        mine = row.try_acquire(0, "one", "one:1", TTL_S)
    assert row.wait(0.0)
    assert row.renew(mine.fence, "one", TTL_S).left_s > 0
    server.end_sessions("dlq-master")
    wait_until(lambda: not row.wait(0.01), what="the end is noticed")
    end(row)
    opened.close()


@pytest.mark.long("unit/master/leader/test_leader_lease.py")
def test_a_leader_falls_silent_when_its_server_is_told_to_confirm_alone() -> None:
    from dlq_master.leader.postgres_row import PostgresRow
    from dlq_master.store.postgres.line import PostgresPlace
    from support.postgres_store import begin_anew

    with postgres_site() as site:
        site.add_standby()
        place = PostgresPlace(site.primary.dsn, tls="disable")
        begin_anew(place)
        site.primary.ask("UPDATE leader SET holder = '', ttl_s = 0")
        lease, row, now_s = LeaderLease("one", LeaseTerms()), PostgresRow(place, TTL_S), 100.0

        def pass_s(span_s: float) -> None:
            nonlocal now_s
            end_s = now_s + span_s
            while now_s < end_s:
                now_s += 0.25
                if not lease.is_over(now_s) and (ask := lease.due(now_s)) is not None:
                    lease.answered(ask, carried_out(ask, lease, row, "one:7320"), now_s)

        pass_s(2.0)
        assert lease.may_speak(now_s)
        site.primary.configure({"synchronous_standby_names": "''"})
        site.primary.reload()
        shown = "SELECT current_setting('synchronous_standby_names')"
        wait_until(lambda: site.primary.ask(shown) == [("",)], what="the server has read it")
        pass_s(lease.terms.renew_s + 0.25)
        assert not lease.may_speak(now_s)
        pass_s(lease.terms.ttl_s)
        assert lease.is_over(now_s)
        assert "no second server confirms commits" in lease.why
        row.close()


@contextmanager
def _descriptors_taken(most: int) -> Iterator[None]:
    """Whatever is opened within has a descriptor of at least `most`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most + 64), hard))
    taken = [os.open("/dev/null", os.O_RDONLY)]
    try:
        while taken[-1] < most:
            taken.append(os.dup(taken[0]))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
