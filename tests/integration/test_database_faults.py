"""A lease and its commits on three real servers: the primary is lost, a server that lacks turns is
promoted, a line is half open, a wait for the other servers is ended, a disk is full.

`make ha` draws the same faults under load.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dlq_common.clock import SteadyClock
from dlq_common.ids import RandomIds
from dlq_master.leader.keeper import LeaseKeeper
from dlq_master.leader.lease import LeaderLease
from dlq_master.leader.postgres_row import PostgresRow
from dlq_master.leader.row import RowUnknown
from dlq_master.store.batch import Batch
from dlq_master.store.port import CommitFailed
from dlq_master.store.postgres.fence import JUMP
from dlq_master.store.postgres.halves import PostgresWriter
from dlq_master.store.postgres.line import PostgresPlace
from support.held_lines import BOTH, HeldLine
from support.postgres_site import DATABASE, PASSWORD, QUICK, USER
from support.postgres_store import begin_anew, connect
from support.rotating_site import RotatingSite, rotating_site
from support.stored_values import a_job
from support.waiting import wait_until

pytestmark = pytest.mark.integration
TTL_S = 30.0


@pytest.fixture(scope="module")
def servers() -> Iterator[RotatingSite]:
    with rotating_site(QUICK) as made:
        yield made


@pytest.fixture
def site(servers: RotatingSite) -> RotatingSite:
    """With the tables of a cluster that nobody has led."""
    place = PostgresPlace(servers.dsn)
    begin_anew(place)
    with connect(place) as line:
        line.execute("UPDATE leader SET holder = '', ttl_s = 0")
    return servers


@contextmanager
def row_of(dsn: str, ttl_s: float = TTL_S, secret: Path | None = None) -> Iterator[PostgresRow]:
    place = PostgresPlace(dsn, "" if secret is None else str(secret), tls="disable")
    with closing(PostgresRow(place, ttl_s)) as row:
        yield row


@contextmanager
def keeper_of(site: RotatingSite, state_dir: Path) -> Iterator[LeaseKeeper]:
    """A master that stands by, and gives the lease back at the end."""
    state_dir.mkdir(exist_ok=True)
    row = PostgresRow(PostgresPlace(site.dsn), TTL_S)
    holder = RandomIds(clock := SteadyClock()).request_id()  # anew at each start
    keeper = LeaseKeeper(LeaderLease(holder), row, "one:1", clock, state_dir)
    keeper.start(lambda: None)
    try:
        yield keeper
    finally:
        keeper.release()
        keeper.close()


def test_a_lease_is_free_on_the_promoted_server_and_its_epoch_jumps(site: RotatingSite) -> None:
    with row_of(site.dsn) as one, row_of(site.dsn) as two:
        mine = one.try_acquire(0, "one", "one:1", TTL_S)
        site.kill_primary()
        lost = site.promote_best()
        with pytest.raises(RowUnknown):
            one.renew(mine.fence, "one", TTL_S)
        told = two.read()
        assert (told.epoch, told.free, told.system) == (mine.epoch, True, mine.system)
        assert told.timeline > mine.timeline
        assert two.try_acquire(told.epoch, "two", "two:1", TTL_S).epoch == mine.epoch + JUMP
        assert one.renew(mine.fence, "one", TTL_S).holder == "two"
        site.come_back(lost)


def test_a_server_that_lacks_turns_is_refused_and_the_right_one_is_led_on_afterwards(
    site: RotatingSite, tmp_path: Path
) -> None:
    with keeper_of(site, tmp_path / "led") as keeper:
        wait_until(keeper.may_speak, what="it leads")
        behind = site.others.pop()
        behind.kill()
        site.primary.ask("INSERT INTO meta VALUES ('batch', '7')")
        keeper.turns.note(7, keeper.fence.system)  # as its writer does
    site.kill_primary()
    behind.start()
    behind.promote()
    with keeper_of(site, tmp_path / "led") as again:
        wait_until(lambda: "turn 7 was seen" in again.lease.why, what="it refuses")
        assert site.epoch(behind) == 1
        behind.kill()
        lost = site.promote_best()
        site.come_back(behind)
        site.come_back(lost)
        wait_until(again.may_speak, what="it leads on the right server")


def test_a_lease_over_a_half_open_line_ends_with_its_time(
    site: RotatingSite, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.touch(mode=0o600)
    secret.write_text(PASSWORD)
    with HeldLine(f"127.0.0.1:{site.primary.port}").running() as line:
        port = line.address.rpartition(":")[2]
        dsn = f"host=127.0.0.1 port={port} user={USER} dbname={DATABASE}"
        with row_of(dsn, 1.0, secret) as one, row_of(site.dsn) as two:
            mine = one.try_acquire(0, "one", "one:1", 1.0)
            line.hold(BOTH)
            failed: list[RowUnknown] = []

            def renew() -> None:
                try:
                    one.renew(mine.fence, "one", 1.0)
                except RowUnknown as unknown:
                    failed.append(unknown)

            asking = threading.Thread(target=renew)
            asking.start()
            wait_until(lambda: two.read().free, what="its time is over")
            assert two.try_acquire(mine.epoch, "two", "two:1", TTL_S).holder == "two"
            assert asking.is_alive(), "nothing tells it"
            one.abandon()  # as the loop does
            asking.join()
            assert failed


@pytest.mark.parametrize("how", ["cancel", "terminate"])
def test_a_renewal_whose_wait_was_ended_is_unknown(site: RotatingSite, how: str) -> None:
    with row_of(site.dsn) as one:
        mine = one.try_acquire(0, "one", "one:1", TTL_S)
        for server in site.others:
            server.pause()
        failed: list[RowUnknown] = []

        def renew() -> None:
            try:
                one.renew(mine.fence, "one", TTL_S)
            except RowUnknown as unknown:
                failed.append(unknown)

        asking = threading.Thread(target=renew)
        asking.start()
        end = f"SELECT pg_{how}_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        wait_until(lambda: site.primary.ask(end), what="it waits, and the wait is ended")
        asking.join()
        for server in site.others:
            server.resume()
        assert failed


async def test_a_full_disk_of_the_log_ends_the_writer_and_loses_nothing_it_confirmed(
    site: RotatingSite,
) -> None:
    if not site.can_fill:
        pytest.skip(f"user {os.geteuid()} cannot mount a small disk")
    place = PostgresPlace(site.dsn, allow_asynchronous=True)  # they sync nothing
    writer = PostgresWriter(place, "here")
    await writer.commit(Batch(jobs=[a_job(1)]))
    await asyncio.to_thread(site.fill, site.primary)
    with pytest.raises(CommitFailed):
        await writer.commit(Batch(jobs=[a_job(2)]))
    writer.close()
    lost = site.primary
    site.kill_primary()
    site.promote_best()
    with connect(place) as line:
        kept = [job for (job,) in line.execute("SELECT job_id FROM jobs ORDER BY job_id")]
    assert kept in ([1], [1, 2])
    site.come_back(lost)
