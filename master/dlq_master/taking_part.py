"""A master's part among several: it stands by until it has the lease, then it leads.

One place says leader or standby. A master without `leader.masters` leads alone, and nothing of this
is loaded. A standby listens on the same ports and refuses every call with the leader's address.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

import psycopg

from dlq_common.clock import SteadyClock
from dlq_common.daemon.logs import get_logger
from dlq_common.daemon.systemd import Service
from dlq_common.errors import DlqError
from dlq_common.fence import LeaderFence
from dlq_common.identity.files import write_public
from dlq_common.ids import RandomIds
from dlq_master.control.config import MasterConfig
from dlq_master.control.jobs.state import window_of
from dlq_master.databases import place_of
from dlq_master.leader.keeper import LeaseKeeper
from dlq_master.leader.lease import LeaderLease, LeaseTerms, Standing
from dlq_master.leader.postgres_row import PostgresRow
from dlq_master.rpc.calls.signs import Signs
from dlq_master.rpc.standing_by import StandbyServer
from dlq_master.store.batch import Loaded
from dlq_master.store.port import DatabaseDamaged
from dlq_master.store.postgres.fence import Fence
from dlq_master.store.postgres.tail import StoreTail

LOOK_S: Final = 0.1
LOST: Final = "turn-seen"  # in the state directory: a turn that a database had lost

_log = get_logger("master.leader")


class WarmRows:
    """The rows of a start, kept up to date while another master leads. Without them a start reads
    everything.
    """

    def __init__(self, config: MasterConfig) -> None:
        self._config = config
        self._tail: StoreTail | None = None
        self._failed = ""
        self._path = config.cluster.state_dir / LOST
        self._seen = _turn_in(self._path)  # the last turn that is known to have been committed

    def catch_up(self) -> None:
        """Read what has changed. A database that does not answer is asked again."""
        try:
            if self._tail is None:
                self._tail = StoreTail(place_of(self._config), window_of(self._config))
            self._tail.catch_up()
            self._seen = max(self._seen, self._tail.number)
            self._failed = ""
        except (psycopg.Error, DlqError) as error:
            if str(error) != self._failed:
                self._failed = str(error)
                _log.warning("standby_reads_nothing", cause=self._failed)

    def taken(self, fence: Fence) -> Loaded | None:
        """All rows, after the last commit of the former leader; None: they must be read anew.

        Raises DatabaseDamaged when turns are gone that this standby has seen.
        """
        self.catch_up()
        tail, self._tail = self._tail, None
        if tail is None or self._failed:
            return None
        if tail.number < self._seen:
            tail.close()
            write_public(self._path, f"{self._seen}\n".encode())
            raise DatabaseDamaged(
                f"the database lost commits: its last turn is {tail.number}, and turn {self._seen} "
                "was seen",
                hint="promote the server that has it (docs/running/high-availability.md)",
            )
        rows = tail.loaded(fence)
        tail.close()
        return rows

    def close(self) -> None:
        """Give the connection back."""
        if self._tail is not None:
            self._tail.close()


def _turn_in(path: Path) -> int:
    return int(path.read_text("ascii")) if path.exists() else 0


class Leadership:
    """The lease that this master has. It says when a word may leave."""

    def __init__(self, keeper: LeaseKeeper, rows: WarmRows) -> None:
        self._keeper = keeper
        self.rows = rows

    @property
    def fence(self) -> LeaderFence:
        """Of this leadership."""
        return self._keeper.fence

    def rows_taken(self) -> Loaded | None:
        """As `WarmRows.taken`. The writer of this master has opened by then."""
        fence = self.fence
        return self.rows.taken(Fence(int(fence.system), fence.timeline, fence.epoch))

    def may_speak(self) -> bool:
        """Whether nobody else can lead now."""
        return self._keeper.may_speak()

    async def until_it_may_speak(self) -> None:
        """Wait, perhaps for ever: the process ends when the lease is over."""
        while not self._keeper.may_speak():  # noqa: ASYNC110 - a clock ends it, and tells nobody
            await asyncio.sleep(LOOK_S / 2)

    async def release(self) -> None:
        """Give the lease back. Nothing may be written or said afterwards."""
        await asyncio.to_thread(self._keeper.release)
        _log.info("lease_given_back", epoch=self.fence.epoch)


async def lead(
    config: MasterConfig, authority: Signs, service: Service, leaving: AsyncExitStack
) -> Leadership | None:
    """Stand by until this master leads; None: it was asked to stop meanwhile.

    Raises OSError when a port is taken.
    """
    clock, settings = SteadyClock(), config.leader
    ttl_s = float(settings.ttl)
    lease = LeaderLease(
        RandomIds(clock).request_id(),
        LeaseTerms(ttl_s=ttl_s, renew_s=settings.renew, poll_s=settings.poll),
        allow_async=config.store.allow_asynchronous,
        former=config.leader.former_systems,
    )
    row = PostgresRow(place_of(config), ttl_s)
    keeper = LeaseKeeper(lease, row, own_address(config), clock, config.cluster.state_dir)
    leaving.push_async_callback(asyncio.to_thread, keeper.close)
    rows = WarmRows(config)
    leaving.callback(rows.close)
    standing = _Standing(keeper, service, rows)
    if not await standing.until_it_leads(config, authority):
        return None
    looking = asyncio.create_task(standing.look())
    leaving.callback(looking.cancel)
    _log.info("leads", epoch=lease.fence.epoch, fence=lease.fence.text())
    return Leadership(keeper, rows)


def own_address(config: MasterConfig) -> str:
    """HOST:PORT at which others reach this master."""
    return config.listen.advertise or config.listen.api


class _Standing:
    """The wait for the lease."""

    def __init__(self, keeper: LeaseKeeper, service: Service, rows: WarmRows) -> None:
        self._keeper, self._service, self._rows = keeper, service, rows
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._stopped = False

    async def until_it_leads(self, config: MasterConfig, authority: Signs) -> bool:
        """Whether it leads now; False: it was told to stop."""
        self._keeper.start(self._tell)
        refusing = StandbyServer(
            config.listen.api,
            config.listen.join,
            authority,
            SteadyClock(),
            lambda: self._keeper.lease.leader,
        )
        await refusing.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop)
        self._service.ready(f"{config.cluster.name}: standing by")
        _log.info("stands_by", masters=list(config.leader.masters))
        try:
            while not self._stopped and self._keeper.lease.standing is Standing.STANDBY:
                await self._look_once()
                await asyncio.to_thread(self._rows.catch_up)
        finally:
            await refusing.stop()
        return not self._stopped

    async def look(self) -> None:
        """For as long as it leads."""
        while True:
            await self._look_once()

    async def _look_once(self) -> None:
        self._service.alive()
        self._keeper.look()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), LOOK_S)
        self._changed.clear()

    def _stop(self) -> None:
        self._stopped = True
        self._changed.set()

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._changed.set)
