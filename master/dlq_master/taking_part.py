"""A master's part among several: it stands by until it has the lease, then it leads.

One place says leader or standby. A master without `leader.masters` leads alone, and nothing of this
is loaded. A standby listens on the same ports and refuses every call with the leader's address.
"""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import psycopg

from dlq_common.clock import Clock, SteadyClock
from dlq_common.daemon.collector import Collector
from dlq_common.daemon.logs import get_logger
from dlq_common.daemon.systemd import Service
from dlq_common.errors import DlqError
from dlq_common.fence import LeaderFence
from dlq_common.ids import RandomIds
from dlq_master.ahead import Ahead
from dlq_master.control.composition.state import BuiltAhead
from dlq_master.control.config import MasterConfig
from dlq_master.control.jobs.state import window_of
from dlq_master.databases import place_of
from dlq_master.leader.keeper import LeaseKeeper
from dlq_master.leader.lease import NEVER_S, LeaderLease, LeaseTerms, MasterPart, Standing
from dlq_master.leader.postgres_row import PostgresRow, ready_standbys, standby_name
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import Node
from dlq_master.rpc.calls.auth import Door, Members
from dlq_master.rpc.calls.roles import GroupGrants
from dlq_master.rpc.calls.signs import Signs
from dlq_master.rpc.people.authorities import Authorities
from dlq_master.rpc.people.shared_authority import SharedAuthority
from dlq_master.rpc.standing_by import StandbyFacts, StandbyServer
from dlq_master.store.batch import Loaded, User
from dlq_master.store.committing import BatchWriter
from dlq_master.store.port import DatabaseDamaged
from dlq_master.store.postgres.fence import Fence
from dlq_master.store.postgres.halves import PostgresWriter
from dlq_master.store.postgres.tail import PostgresRows, StoreTail
from dlq_master.store.tables.revocations import Revocation
from dlq_master.store.tables.tenants import GivenGrant

if TYPE_CHECKING:
    from dlq_master.rpc.metrics.metrics import MetricsServer

LOOK_S: Final = 0.1
STUCK_S: Final = 60.0  # a standby that has read for so long reads from a server that is silent
# The parts that are made ahead of a takeover follow the rows so often. They take one part in so
# many of the time at most.
AHEAD_EVERY_S: Final = 5.0
AHEAD_SHARE: Final = 50

_log = get_logger("master.leader")


class SeenTurns(Protocol):
    """The last turn of each database that was seen here, in earlier lives too (turn_seen.py)."""

    def of(self, system: str) -> int: ...
    def note(self, number: int, system: str) -> None: ...


class WarmRows:
    """The rows of a start, kept up to date while another master leads, and the parts of a state
    that are made of them. Without the rows a start reads everything.
    """

    def __init__(
        self,
        config: MasterConfig,
        turns: SeenTurns,
        new_tail: Callable[[], StoreTail] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`new_tail`: of the rows to follow; None: those of the configured server. `clock`: None:
        that of this host.
        """
        self._config, self._turns = config, turns
        self._new_tail = new_tail or self._tail_of_server
        self._clock = clock
        self._tail: StoreTail | None = None
        self._failed = ""
        self._read_s = -math.inf
        self._began_s = math.inf  # of the reading that goes on
        self._patience = 1  # of STUCK_S: twice as long after each reading that was ended
        self._name = own_address(config)
        self._ahead = Ahead(config)
        self._ahead_turn = -1  # the last one that what is made ahead has in it
        self._ahead_due_s = -math.inf

    @property
    def turn(self) -> int:
        """The last one that is in the copy."""
        return 0 if self._tail is None else self._tail.number

    def read_ago_s(self) -> float:
        """Since the last turns were read; infinite: none were."""
        return self._now_s() - self._read_s

    def user(self, name: str) -> User | None:
        return None if self._tail is None else self._tail.people[0].get(name)

    def node(self, node_id: NodeId) -> Node | None:
        """No node has business with a standby."""

    @property
    def meta(self) -> Mapping[str, str]:
        """As it was read last."""
        return {} if self._tail is None else self._tail.meta

    @property
    def revocations(self) -> Mapping[str, Revocation]:
        return {} if self._tail is None else self._tail.people[1]

    @property
    def grants(self) -> Mapping[str, GivenGrant]:
        """A standby lets no guest in: the leader does."""
        return {}

    def catch_up(self, *, ready: bool = True) -> None:
        """Read what has changed, and build on it. A database that does not answer is asked again.
        `ready`: this standby would lead, and the leader may know it.
        """
        if self._read(ready):
            self._build_ahead()
            self._read_s = self._now_s()

    def _read(self, ready: bool) -> bool:
        try:
            if self._tail is None:
                self._tail = self._new_tail()
            self._began_s = self._now_s()
            self._tail.catch_up()
            self._turns.note(self._tail.number, self._tail.system)
            self._failed, self._patience = "", 1
            whole = self._tail.number >= self._turns.of(self._tail.system)
            self._tail.call_itself(standby_name(self._name, ready=ready and whole))
        except (psycopg.Error, DlqError) as error:
            if str(error) != self._failed:
                self._failed = str(error)
                _log.warning("standby_reads_nothing", cause=self._failed)
        finally:
            self._began_s = math.inf
        return not self._failed

    def _now_s(self) -> float:
        return (self._clock or SteadyClock()).boottime_s()

    def _tail_of_server(self) -> StoreTail:
        """Raises Unavailable when the server cannot be reached."""
        return StoreTail(PostgresRows(place_of(self._config)), window_of(self._config))

    def _build_ahead(self) -> None:
        """Make the parts of a state of the rows, where these have changed; now and then, so that it
        costs little. It asks the database nothing.
        """
        tail, began_s = self._tail, self._now_s()
        assert tail is not None
        if began_s >= self._ahead_due_s and tail.number not in (0, self._ahead_turn):
            self._ahead.follow(tail.loaded())
            self._ahead_turn = tail.number
            took_s = self._now_s() - began_s
            self._ahead_due_s = began_s + max(AHEAD_EVERY_S, took_s * AHEAD_SHARE)

    def look(self) -> None:
        """From another thread, now and then: end a reading that a silent server holds up. A large
        database on a slow server gets the time that it needs at the next tries.
        """
        tail, took_s = self._tail, self._now_s() - self._began_s
        if tail is not None and took_s > STUCK_S * self._patience:
            self._began_s = math.inf
            self._patience *= 2
            tail.abandon()

    def taken(self, fence: Fence, last_turn: int) -> Loaded | None:
        """All rows, after the last commit of the former leader; None: they must be read anew.
        `last_turn`: of the database in which this master leads.

        Raises DatabaseDamaged when turns are gone that this standby has seen. The lease has looked
        before, but the last reading of another server may have ended after that.
        """
        whole = self._read(ready=True)
        tail, self._tail = self._tail, None
        usable = tail if whole else None
        try:
            number = last_turn if usable is None else min(usable.number, last_turn)
            if number < (seen := self._turns.of(str(fence.system_identifier))):
                raise DatabaseDamaged(
                    f"the database lost commits: its last turn is {number}, and turn {seen} was "
                    "seen",
                    hint="promote the server that has it (docs/running/high-availability.md)",
                )
            return None if usable is None else usable.loaded(fence)
        finally:
            if tail is not None:
                tail.close()

    def built(self, loaded: Loaded) -> BuiltAhead | None:
        """The parts that were made ahead, brought up to the rows that were taken; None: there are
        none, or they cannot be shown to be the same. Nothing is left here.
        """
        return self._ahead.taken(loaded)

    def close(self) -> None:
        """Give the connection back."""
        if self._tail is not None:
            self._tail.close()


class Leadership:
    """The lease that this master has. It says when a word may leave."""

    def __init__(self, config: MasterConfig, keeper: LeaseKeeper, rows: WarmRows) -> None:
        self._config, self._keeper = config, keeper
        self.rows = rows
        self.last_turn: Callable[[], int] = lambda: 0  # of the writer
        self._end: Callable[[], None] = lambda: None  # of the loop
        self.stands_by_again = False

    @property
    def fence(self) -> LeaderFence:
        """Of this leadership."""
        return self._keeper.fence

    def rows_taken(self, writer: BatchWriter) -> Loaded | None:
        """As `WarmRows.taken`. The writer of this master has opened by then, and each turn that it
        commits is remembered.
        """
        fence = self.fence
        assert isinstance(writer, PostgresWriter)
        writer.noted = partial(self._keeper.turns.note, system=fence.system)
        self.last_turn = writer.last_turn
        where = Fence(int(fence.system), fence.timeline, fence.epoch)
        return self.rows.taken(where, writer.last_turn())

    def built_ahead(self, loaded: Loaded) -> BuiltAhead | None:
        """As `WarmRows.built`, of the rows with which this master starts."""
        return self.rows.built(loaded)

    def may_speak(self) -> bool:
        """Whether nobody else can lead now."""
        return self._keeper.may_speak()

    async def until_it_may_speak(self) -> None:
        """Wait, perhaps for ever: the process ends when the lease is over."""
        while not self._keeper.may_speak():  # noqa: ASYNC110 - a clock ends it, and tells nobody
            await asyncio.sleep(LOOK_S / 2)

    def part(self) -> MasterPart:
        """For people."""
        return self._keeper.part(self.last_turn(), 0.0, self._config.leader.masters)

    async def ready(self) -> Sequence[str]:
        """The standbys that could lead at once. Raises Unavailable."""
        return await asyncio.to_thread(ready_standbys, place_of(self._config))

    def ended_by(self, end: Callable[[], None]) -> None:
        """`end` ends the loop after what it has begun."""
        self._end = end

    def step_down(self, epoch: int) -> None:
        """Let another master lead, and stand by; after the answers that are on their way."""
        if epoch == self.fence.epoch:
            _log.info("steps_down", epoch=epoch)
            self.stands_by_again = True
            asyncio.get_running_loop().call_soon(self._end)

    def told_to_stop(self) -> None:
        """The process ends."""
        self.stands_by_again = False
        self._end()

    async def release(self) -> None:
        """Give the lease back. Nothing may be written or said afterwards."""
        await asyncio.to_thread(self._keeper.release)
        _log.info("lease_given_back", epoch=self.fence.epoch)


async def lead(
    config: MasterConfig,
    authority: Authorities,
    service: Service,
    leaving: AsyncExitStack,
    *,
    stepped_down: bool = False,
) -> Leadership | None:
    """Stand by until this master leads; None: it was asked to stop meanwhile. `stepped_down`: for
    the time of one lease it leaves the lead to others.

    Raises OSError when a port is taken.
    """
    clock, settings = SteadyClock(), config.leader
    ttl_s = float(settings.ttl)
    lease = LeaderLease(
        RandomIds(clock).request_id(),
        LeaseTerms(ttl_s=ttl_s, renew_s=settings.renew, poll_s=settings.poll),
        allow_async=config.store.allow_asynchronous,
        former=config.leader.former_systems,
        waits_until_s=clock.boottime_s() + ttl_s if stepped_down else NEVER_S,
    )
    row = PostgresRow(place_of(config), ttl_s)
    keeper = LeaseKeeper(lease, row, own_address(config), clock, config.cluster.state_dir)
    leaving.push_async_callback(asyncio.to_thread, keeper.close)
    rows = WarmRows(config, keeper.turns)
    keeper.watched = rows.look
    leaving.callback(rows.close)
    standing = _Standing(keeper, service, rows)
    shared = SharedAuthority(config.cluster.state_dir)
    standing.follow = partial(follow_authority, shared, authority, rows)
    if not await standing.until_it_leads(config, authority):
        return None
    looking = asyncio.create_task(standing.look())
    leaving.callback(looking.cancel)
    _log.info("leads", epoch=lease.fence.epoch, fence=lease.fence.text())
    return Leadership(config, keeper, rows)


async def follow_authority(shared: SharedAuthority, authority: Authorities, rows: WarmRows) -> None:
    """Sign by the CA of the leader, as the rows that were read last have it."""
    if shared.is_newer(rows.meta):
        await asyncio.to_thread(shared.take, rows.meta)
        authority.reload()


async def nothing_to_follow() -> None:
    """Of a standby whose CA never changes."""


def own_address(config: MasterConfig) -> str:
    """HOST:PORT at which others reach this master."""
    return config.listen.advertise or config.listen.api


def door_of(config: MasterConfig, authority: Signs, rows: Members) -> Door:
    """The door of a standby: the same certificates count there as at a leader."""
    identity = config.identity
    door = Door(
        config.cluster.name,
        lambda: rows,
        SteadyClock(),
        identity.web_may_act_for,
        certificates=identity.web_certificates > 0,
        grants=GroupGrants(identity.group_roles, identity.group_teams),
    )
    door.signs = authority
    return door


class _Standing:
    """The wait for the lease."""

    def __init__(self, keeper: LeaseKeeper, service: Service, rows: WarmRows) -> None:
        self._keeper, self._service, self._rows = keeper, service, rows
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._stopped = False
        self.follow: Callable[[], Awaitable[None]] = nothing_to_follow  # after each look

    async def until_it_leads(self, config: MasterConfig, authority: Signs) -> bool:
        """Whether it leads now; False: it was told to stop."""
        self._keeper.start(self._tell)
        door = door_of(config, authority, self._rows)
        refusing = StandbyServer(
            config.listen.api,
            config.listen.join,
            authority,
            SteadyClock(),
            lambda: self._keeper.lease.leader,
            StandbyFacts(door, lambda: self._part(config)),
        )
        await refusing.start()
        page = await self._page(config, authority, door)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop)
        # Python looks for nothing while a master starts, and a standby refuses calls for months.
        collector = Collector(SteadyClock().boottime_s)
        collecting = asyncio.create_task(collector.look_at_all())
        self._service.ready(f"{config.cluster.name}: standing by")
        _log.info("stands_by", masters=list(config.leader.masters))
        try:
            while not self._stopped and self._keeper.lease.standing is Standing.STANDBY:
                await self._look_once()
                collector.turned()
                await self._catch_up()
                await self.follow()
        finally:
            collecting.cancel()
            await refusing.stop()
            if page is not None:
                await page.stop()
        return not self._stopped

    async def _catch_up(self) -> None:
        """The first look reads all rows: systemd hears of this process meanwhile."""
        ready = not self._keeper.lease.why
        reading = asyncio.create_task(asyncio.to_thread(partial(self._rows.catch_up, ready=ready)))
        while not reading.done():
            self._service.alive()
            await asyncio.wait({reading}, timeout=LOOK_S)
        await reading

    async def _page(
        self, config: MasterConfig, authority: Signs, door: Door
    ) -> MetricsServer | None:
        """The port of metrics, where there is one."""
        if not config.listen.metrics:
            return None
        from dlq_master.rpc.metrics.leading import standby_page

        page = standby_page(config, authority, SteadyClock(), door, lambda: self._part(config))
        await page.start()
        return page

    def _part(self, config: MasterConfig) -> MasterPart:
        rows = self._rows
        return self._keeper.part(rows.turn, rows.read_ago_s(), config.leader.masters)

    async def look(self) -> None:
        """For as long as it leads."""
        while True:
            await self._look_once()

    async def _look_once(self) -> None:
        self._service.alive()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), LOOK_S)
        self._changed.clear()

    def _stop(self) -> None:
        self._stopped = True
        self._changed.set()

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._changed.set)
