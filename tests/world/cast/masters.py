"""A master of the world: the real loop with its real wiring, sessions and conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from dlq.v1 import agent_service_pb2 as wire
from dlq_common.errors import DlqError
from dlq_master.control.composition.starting import start
from dlq_master.control.composition.state import BuiltAhead, State
from dlq_master.control.composition.wiring import WIRING
from dlq_master.control.config import MasterConfig
from dlq_master.control.jobs.state import window_of
from dlq_master.control.loop.failpoints import Failpoints
from dlq_master.control.loop.incidents import Incidents
from dlq_master.control.loop.loop import Loop
from dlq_master.control.loop.ticks import PERIODS_S
from dlq_master.control.stimuli import Caller, PlanMade, Tick
from dlq_master.model.event import JournalEvent
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.commands import RowsPlace
from dlq_master.rpc.agents.sessions import Sessions
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.reports.agent_service import session
from dlq_master.store.batch import Loaded
from dlq_master.store.port import CommitFailed, DatabaseDamaged
from dlq_master.store.postgres.fence import Fence as DatabaseFence
from dlq_master.store.postgres.tail import StoreTail
from dlq_master.taking_part import Leadership, WarmRows
from support.inline_planner import InlinePlanner
from world.stage.clocks import HostClock, ProcessClock
from world.stage.disk import SOLE, Disk, DiskHarmed, Door
from world.stage.followed import READING_S, ModelRows, TurnsHere
from world.stage.lease_row import Candidate, SeenHere
from world.stage.lines import AgentStream, incoming
from world.stage.virtual_loop import Process

if TYPE_CHECKING:
    from world.cast.world import World

ROOT = "/ckpt"
AHEAD = "a standby led from what it had built ahead"
NOWHERE = Path("/nonexistent/incidents")
REST_S = (0.1, 0.3, 1.0, 7.0)  # of a standby between two looks at the rows


class Dead(BaseException):
    """The master has been killed in the middle of a turn."""


class Armed(Failpoints):
    """Kills the master at the n-th passage of any failpoint."""

    def __init__(self, die: Callable[[], object]) -> None:
        super().__init__()
        self.left = 0
        self.last = ""
        self._kill = die

    def passed(self, name: str, events: Sequence[JournalEvent] = ()) -> None:
        if self.left:
            self.left -= 1
            if not self.left:
                self.last = name
                self._kill()
                raise Dead(name)


class Led(Leadership):
    """The product's own gate, which the world sees wait."""

    def __init__(self, candidate: Candidate, waits: Callable[[], None]) -> None:
        self._keeper = cast("Any", candidate)
        self._waits = waits

    async def until_it_may_speak(self) -> None:
        if not self.may_speak():
            self._waits()
        await super().until_it_may_speak()


class Master:
    """One host with a master on it. A process that ends is started again after a moment."""

    def __init__(
        self, world: World, name: str, config: MasterConfig, clock: HostClock, disk: Disk
    ) -> None:
        self._world = world
        self.name = name
        self.config = config
        self.clock = clock
        self.disk = disk
        self.process: Process | None = None
        self.loop: Loop | None = None  # serves calls
        self.state: State | None = None
        self.door: Door | None = None
        self.candidate: Candidate | None = None  # where masters share a store
        self.warm: WarmRows | None = None  # likewise: what this process has read as a standby
        self.draws = world.tape.stream(f"standby {name}")
        self.armed = Armed(self.crash)
        self.starts = 0
        self._seen = SeenHere()  # on its disk
        self._sessions = Sessions(CheckpointPlaces(ROOT, b"seed"))

    @property
    def serving(self) -> bool:
        return self.loop is not None and self.process is not None and self.process.alive

    def may_speak(self) -> bool:
        """Whether its words may leave: it is the only master, or its lease is fresh enough."""
        return self.candidate is None or self.candidate.may_speak()

    # --- life -----------------------------------------------------------------------------------

    def boot(self) -> None:
        """A new process."""
        self.starts += 1
        self.process = Process(f"{self.name}#{self.starts}", self._world.loop)
        self.process.burnt = self.crash
        self.process.spawn(self._run(self.process))

    def crash(self) -> None:
        """kill -9. Its host closes its lines; somebody starts it again."""
        if self.process is None or not self.process.alive:
            return
        self.process.kill()
        self.loop = self.state = self.candidate = self.warm = None
        self.armed.left = 0
        kept = self.door is not None and self.door.died()
        words = "; the batch at hand is on its disk all the same" if kept else ""
        self._world.say(f"master {self.name} is killed{words}")
        if kept:
            self._world.seen("a master died between its commit and its answer")
        self._world.lines_of_master(self)
        self._world.later(self._world.restart_s(), self.boot)

    async def _run(self, process: Process) -> None:
        try:
            await self._serve(process)
            why = "stopped"
        except Dead as dead:
            self._world.say(f"  it was at {dead}")
            return
        except CommitFailed as failed:
            why = failed.what
        except DiskHarmed as harmed:
            why = f"it does not start: {harmed.what}"
        except DatabaseDamaged:
            why = "it does not start: the database lost commits"
        except DlqError as error:
            self._world.judge.broken(f"master {self.name} cannot serve: {error.what}")
            return
        except Exception as error:  # noqa: BLE001 - whatever ends a master
            self._world.judge.broken(f"master {self.name} failed: {error!r}")
            return
        self._world.say(f"master {self.name} ends: {why}")
        self._world.seen(f"a master ended: {why}")
        self.crash()

    async def _lead(self, process: Process) -> None:
        """Wait until this process leads; it ends when it does so no more."""
        row = self._world.row
        if row is None:
            return
        clock = ProcessClock(self.clock)
        candidate = Candidate(row, self.name, process.name, clock, self._seen)
        process.spawn(candidate.keep())
        self.warm = await self._stand_by(candidate, clock)
        self.candidate = candidate
        self._world.say(f"master {self.name} leads, in epoch {row.epoch} of the row")
        self._world.seen("a master took the lead")
        process.spawn(candidate.watch(self._over))

    async def _stand_by(self, candidate: Candidate, clock: ProcessClock) -> WarmRows:
        """Read the leader's rows until this process leads itself, as the product does."""
        history = self._world.history
        assert history is not None
        rows = ModelRows(history, self.draws, self.name)
        window = window_of(self.config)
        seen = TurnsHere(self._seen)
        warm = WarmRows(self.config, seen, lambda: StoreTail(rows, window), clock)
        while not candidate.leads.is_set():
            rows.begin()
            await asyncio.sleep(self.draws.pick(READING_S))
            warm.catch_up(ready=not candidate.lease.why)
            with suppress(TimeoutError):
                await asyncio.wait_for(candidate.leads.wait(), self.draws.pick(REST_S))
        rows.begin()
        return warm

    def _load(self) -> tuple[Loaded, BuiltAhead | None]:
        """The rows with which this process starts, and what it has made of them before."""
        warm, self.warm = self.warm, None
        if warm is None or self.candidate is None:
            return self.disk.load(window_of(self.config)), None
        fence, row = self.candidate.fence, self._world.row
        assert row is not None
        last_turn = row.turn - row.behind
        where = DatabaseFence(int(fence.system), fence.timeline, fence.epoch)
        loaded = warm.taken(where, last_turn)
        if loaded is None:
            self._world.seen("a standby that leads had to read everything")
            return self.disk.load(window_of(self.config)), None
        if self.disk.harmed:  # a shared store has no such disk: the read of a server refuses it
            self.disk.load(window_of(self.config))
        built = warm.built(loaded)
        self._world.seen("a standby led from its rows" if built is None else AHEAD)
        self._world.judge.took_over(self, loaded, built)
        return loaded, built

    def _hold_all_commits(self) -> None:
        lags = self._world.row is not None and self._world.row.lags
        self._world.judge.hold(not lags, f"I1: {self.name} starts from a server that lost commits")

    def _over(self, why: str) -> None:
        self._world.say(f"master {self.name} leads no more: {why}")
        self._world.seen("a master lost the lead")
        self.crash()

    async def _serve(self, process: Process) -> None:
        disk = self.disk
        await self._lead(process)
        fence = SOLE if self.candidate is None else self.candidate
        self.door = Door(disk, fence, process.name)
        leads = None if self.candidate is None else Led(self.candidate, self._waits)
        loaded, ahead = self._load()
        self._hold_all_commits()
        clock = ProcessClock(self.clock, floor_s=loaded.last_time_s)
        state, first = start(self.config, loaded, clock.now_s(), ahead=ahead)
        await self.door.commit(first)
        self._sessions = Sessions(CheckpointPlaces(ROOT, b"seed"), leads)
        if self.candidate is not None:
            here = self.candidate.fence
            self._sessions.database = RowsPlace(here.system, here.timeline)
        planner = InlinePlanner()
        state.placement.offloaded.planner = planner
        loop = Loop(
            state=state,
            wiring=WIRING,
            clock=clock,
            store=self.door,
            records=disk.rows,
            transport=self._sessions,
            failpoints=self.armed,
            state_dir=Path("/"),
            progressed=lambda: self._turned(planner),
            incidents=Incidents(NOWHERE),
            leads=leads,
        )
        self._world.say(f"master {self.name} serves as epoch {state.epoch}")
        self.state, self.loop = state, loop
        for name, period_s in PERIODS_S.items():
            process.spawn(self._metronome(loop, name, period_s))
        process.spawn(self._watch(loop))
        await loop.run()

    def _waits(self) -> None:
        self._world.seen("a master that may not lead said nothing")

    async def _watch(self, loop: Loop) -> None:
        """A reader of all events, who sits beside the master."""
        async for event in loop.watch(loop.published.last_sequence):
            self._world.judge.told(event)

    async def _metronome(self, loop: Loop, name: str, period_s: float) -> None:
        while True:
            await asyncio.sleep(period_s)
            loop.tell(Tick(name))

    def _turned(self, planner: InlinePlanner) -> None:
        """A turn is over."""
        loop, state, process = self.loop, self.state, self.process
        if loop is None or state is None or process is None:
            return
        if planner.asked:
            process.later(self._world.plan_s(), lambda: self._planned(loop, planner))
        self._world.judge.turned(self, state, loop)

    @staticmethod
    def _planned(loop: Loop, planner: InlinePlanner) -> None:
        if planner.asked:
            loop.tell(PlanMade(planner.answer()))

    # --- agents ---------------------------------------------------------------------------------

    def accept(self, stream: AgentStream, node: str) -> None:
        """A stream of a node's agent has arrived; called in the master's process."""
        assert self.process is not None
        self.process.spawn(self._converse(stream, node, self.process))

    async def _converse(self, stream: AgentStream, node: str, process: Process) -> None:
        call = cast("Call", _AgentCall(self, node))
        requests = incoming(stream.up, wire.SessionRequest.FromString)
        try:
            async for message in session(call, requests):
                self._world.judge.speaks(self, node)
                stream.down.send(message.SerializeToString())
        except DlqError as error:
            self._world.seen(f"a session ended: {type(error).__name__}")
        stream.ended_by_master()


class _OneCa:
    """The CA never changes in this world."""

    def trust_digest(self) -> str:
        return ""


_NO_ROTATION = _OneCa()


class _AgentCall:
    """As much of a call as an agent's session needs."""

    def __init__(self, master: Master, node: str) -> None:
        assert master.loop is not None
        self._loop = master.loop
        self.caller = Caller(node, "node")
        self.parts = SimpleNamespace(
            control=master.loop, sessions=master._sessions, authority=_NO_ROTATION
        )

    @property
    def read(self) -> Any:
        return self._loop.current()

    async def ask(self, stimulus: Any) -> Any:
        return await self._loop.ask(stimulus)

    def check_member(self) -> None:
        """It is one."""
