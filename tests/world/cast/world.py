"""A whole cluster in one process, on virtual time, from one tape."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from typing import Any, NamedTuple

from dlq_common.daemon.config import Bytes, Seconds
from dlq_master.control.config import (
    JobsConfig,
    LeaseConfig,
    MasterConfig,
    NodesConfig,
    QueueConfig,
    SchedulerConfig,
    StoreConfig,
)
from dlq_master.control.stimuli import Caller
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId
from dlq_master.store.batch import Batch, User
from dlq_master.store.stored_tables import USERS
from dlq_master.store.tables.table import put
from world.cast.agents import Node
from world.cast.clients import Client
from world.cast.hosts import Killed, NodeHost
from world.cast.masters import Dead, Master
from world.judging.judge import SMALL_QUEUE, Judge
from world.stage.acts import CLIENTS, LEADER, Act
from world.stage.clocks import HostClock
from world.stage.disk import Disk
from world.stage.followed import TurnHistory
from world.stage.lease_row import SharedRow
from world.stage.lines import Link
from world.stage.plot import Plot
from world.stage.tape import Draws, Tape
from world.stage.virtual_loop import Deadlock, Order, Process, VirtualLoop

# In worlds of one master and few lost calls: jobs of minutes change their level, and starve.
LEVELS = {"thresholds": "60", "promote_knob": "1", "max_preemptions": "3"}
LAGS = "a server that has not heard of the leader was promoted"
CALM_S = 1500.0  # the longest time until all is at rest
LOOK_S = 5.0
OUTSIDE = Context()  # of what no process does


class Outcome(NamedTuple):
    """How a world went. `broken` is empty if all was well."""

    seed: int
    broken: str
    digest: str
    lines: tuple[str, ...]
    seen: Counter[str]
    virtual_s: float
    steps: int
    draws: dict[str, dict[int, int]]


def config_of(plot: Plot) -> MasterConfig:
    """The master's configuration in this world."""
    settings = plot.settings
    levels = settings.policy == "tiresias-las" and settings.masters == 1 and settings.lost < 150
    more = dict(LEVELS) if levels else {}
    if settings.keep_s and settings.policy == "dlq":
        more["keep_gpus_s"] = f"{settings.keep_s:g}"
    return MasterConfig(
        scheduler=SchedulerConfig(settings.policy, more),
        lease=LeaseConfig(
            hold=Seconds(settings.hold_s), be_term=Seconds(60.0), slo_term=Seconds(120.0)
        ),
        nodes=NodesConfig(start_grace=Seconds(20.0), reconnect_jitter=Seconds(5.0)),
        jobs=JobsConfig(
            retry_backoff=Seconds(1.0),
            first_grace=Seconds(15.0),
            grace_floor=Seconds(5.0),
            grace_cap=Seconds(30.0),
            barrier_timeout=Seconds(60.0),
        ),
        queues=(
            QueueConfig("default"),
            QueueConfig("small", priority=1, jobs_per_user=SMALL_QUEUE),
        ),
        store=StoreConfig(free_disk_floor=Bytes(0)),
    )


class World:
    """Call `run` once."""

    def __init__(self, seed: int, plot: Plot, draws: Draws | None = None) -> None:
        self.tape = Tape(seed, draws)
        self.settings = settings = plot.settings
        self._plot = plot
        self.loop = VirtualLoop(self.tape.stream("order"))
        self.loop.order = Order(settings.order)
        self.loop.set_exception_handler(self._failed)
        self.judge = Judge(self)
        self.lines: list[str] = []
        self._digest = hashlib.sha256()
        self._seen: Counter[str] = Counter()
        self._ticks = 0
        self._tried: Counter[str] = Counter()
        self.labels: dict[str, JobId] = {}
        self.begun: set[tuple[str, int, int]] = set()
        self.trouble_lost, self.trouble_doubled = settings.lost, settings.doubled
        self._restarts = self.tape.stream("restarts")
        self._hosts = self.tape.stream("hosts")
        self.disk = Disk(self.tape.stream("disk"))
        self._fill()
        self.disk.written = self._written
        two = settings.masters > 1
        self.row = SharedRow(self.loop, self.tape.stream("row")) if two else None
        self.history = None if self.row is None else TurnHistory(self.row, self.disk.rows)
        config = config_of(plot)
        self.masters = {
            name: Master(self, name, config, self._clock(), self.disk)
            for name in (f"m{number + 1}" for number in range(settings.masters))
        }
        self.nodes = {
            name: self._node(name, gpus)
            for name, gpus in ((f"n{at}", gpus) for at, gpus in enumerate(settings.gpus))
        }
        self.clients = {
            name: Client(self, name, Caller(user, "user")) for name, user in CLIENTS.items()
        }
        self.operator = Client(self, "op", Caller("root", "admin"))

    def _fill(self) -> None:
        """A database as `dlq-master init` makes it."""
        people = [
            *(
                User(name, "user", uid, uid, (), 0.0)
                for uid, name in ((1001, "alice"), (1002, "bob"))
            ),
            User("root", "admin", 0, 0, (), 0.0),
        ]
        self.disk.rows.write(Batch(changes=put(USERS, people), meta={"epoch": "0"}))

    def _written(self, batch: Batch, writer: str) -> None:
        if self.history is not None:
            self.history.written(batch)
        self.judge.committed(batch, writer)

    def _clock(self) -> HostClock:
        draws, drift = self._hosts, self.settings.drift
        return HostClock(
            self.loop,
            boot_s=draws.pick((1_000.0, 50.0, 9e6)),
            drift=draws.pick((0.0, drift, -drift)),
            off_s=draws.pick((0.0, 2.0, -2.0, 900.0)),
        )

    def _node(self, name: str, gpus: int) -> Node:
        host = NodeHost(name, self._clock(), gpus)
        host.late_s = self.settings.late_s
        host.began, host.ended = self.judge.began, self.judge.ended
        links = {
            master: Link(name, self.loop, self.tape.stream(f"link {name} {master}"))
            for master in self.masters
        }
        return Node(self, host, links)

    # --- what its parts ask ---------------------------------------------------------------------

    def next_master(self, who: str) -> str:
        """Where a node or a client tries next: the lists of masters are in their configuration."""
        names = tuple(self.masters)
        return names[self._tried[who] % len(names)]

    def turn_away(self, who: str, master: str) -> None:
        """It got no answer there. Another call of it may have turned to the next one already: two
        that fail together would come back to the same one again and again.
        """
        if self.next_master(who) == master:
            self._tried[who] += 1

    def leader(self) -> Master | None:
        """The master that serves, if there is one."""
        serving = [master for master in self.masters.values() if master.serving]
        return next((master for master in serving if master.may_speak()), None)

    def lines_of_master(self, master: Master) -> None:
        """A master has died: its host closes its streams."""
        for node in self.nodes.values():
            link = node.links[master.name]
            for stream in list(link.streams):
                if not stream.master.alive:
                    link.streams.remove(stream)
                    stream.ended_by_master()

    def restart_s(self) -> float:
        """So long until somebody starts again what has died."""
        return self._restarts.pick((1.0, 0.2, 3.0, 15.0))

    def plan_s(self) -> float:
        """So long a planner takes."""
        return self._restarts.pick((0.01, 0.2, 2.0))

    def later(self, delay_s: float, act: Callable[..., object], *given: Any) -> None:
        """Call it as nobody's process."""
        self.loop.call_later(delay_s, act, *given, context=OUTSIDE)

    def tick(self) -> int:
        """A number that rises with every look at it: the order of what clients see."""
        self._ticks += 1
        return self._ticks

    def say(self, words: str) -> None:
        """One line of the story."""
        seconds = self.loop.time()
        whole = int(seconds)
        at = f"{whole // 3600:02}:{whole // 60 % 60:02}:{seconds % 60:06.3f}"
        line = f"{at} {words}"
        self.lines.append(line)
        self._digest.update(line.encode())

    def seen(self, what: str) -> None:
        """An interesting state has been reached."""
        self._seen[what] += 1

    def noted(self, event: JournalEvent) -> None:
        """A line of the journal is on disk."""
        about = "" if event.job_id is None else f" job {event.job_id}"
        number = "" if event.attempt is None else f".{event.attempt}"
        where = "" if event.node_id is None else f" {event.node_id}"
        cause = f" ({event.cause})" if event.cause else ""
        self.say(f"    | {event.kind}{about}{number}{where}{cause}")
        self._seen[f"journal: {event.kind}"] += 1

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback or a task has failed."""
        error = context.get("exception")
        if not isinstance(error, Killed | Dead):
            self.judge.broken(f"something failed: {context.get('message')}: {error!r}")

    # --- the run --------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Play the plot, let it become calm, and judge."""
        collecting = gc.isenabled()
        gc.disable()  # nothing of a dead process may end at a moment that memory chooses
        try:
            main = self.loop.create_task(self._play(), context=OUTSIDE)
            main.add_done_callback(lambda _: self.loop.stop())
            self.loop.run_forever()
            if main.done() and (error := main.exception()) is not None:
                raise error
        except Deadlock:
            self.judge.broken("nothing moves any more")
        finally:
            virtual_s = self.loop.time()
            self.loop.end()
            if collecting:
                gc.enable()
        return Outcome(
            seed=self.tape.seed,
            broken=self.judge.first,
            digest=self._digest.hexdigest(),
            lines=tuple(self.lines),
            seen=self._seen,
            virtual_s=virtual_s,
            steps=self.loop.steps,
            draws=self.tape.taken(),
        )

    async def _play(self) -> None:
        for master in self.masters.values():
            master.boot()
        for node in self.nodes.values():
            node.boot()
        for act in self._plot.acts:
            await self._until(act.at_s)
            self._do(act)
        await self._until(self.settings.busy_s)
        self._calm_down()
        await self._rest()

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self.loop.time()))

    def _do(self, act: Act) -> None:
        facts = act.facts
        programs = {**self.clients, self.operator.name: self.operator}
        cast = {*self.nodes, *self.masters, *programs, LEADER}
        parts = ("node", "master", "host", "program")
        if any(facts.get(part, LEADER) not in cast for part in parts):
            return  # a shorter story has left it out
        if act.what in ("drain", "undrain"):
            self.operator.do(act.what, facts)
        elif "client" in facts:
            self.clients[facts["client"]].do(act.what, facts)
        else:
            if facts.get("master") == LEADER:
                leader = self.leader()
                facts = {**facts, "master": "m1" if leader is None else leader.name}
            getattr(self, f"_{act.what}")(**facts)

    def _calm_down(self) -> None:
        self.say("all trouble is over")
        self.trouble_lost = self.trouble_doubled = 0
        self.settings = self.settings._replace(bad_start=0, slow_release=0, hung=0)
        self.disk.heal()
        if self.row is not None:
            self.row.cut_off.clear()
            self.row.promote_right()
        for master in self.masters.values():
            master.armed.left = 0
            if master.process is not None:
                master.process.fuse = 0
        for client in (*self.clients.values(), self.operator):
            client.process.fuse = 0
        for node in self.nodes.values():
            node.fuse, node.host.fuse, node.journal.fails = 0, 0, False
            if node.process is not None:
                node.process.fuse = 0
            for link in node.links.values():
                link.slow_s = link.slow_down_s = 0.0
                link.set_cut(up=False, down=False)
        for name in self.nodes:
            self.operator.do("open", {"node": name})

    async def _rest(self) -> None:
        if not await self._at_rest():
            return
        for job_id in sorted(self.labels.values()):
            await self.clients["c1"].look(job_id)
        # Meanwhile a slow database may have kept the leader silent for a moment.
        if await self._at_rest():
            self.judge.last()

    async def _at_rest(self) -> bool:
        """Wait until nothing happens any more; False, and the world is broken: it never is."""
        end_s = self.loop.time() + CALM_S
        while True:
            await asyncio.sleep(LOOK_S)
            busy = any(client.busy for client in (*self.clients.values(), self.operator))
            why = "a client waits" if busy else self.judge.unfinished()
            if not why:
                return True
            if self.loop.time() > end_s:
                self.judge.broken(f"after {CALM_S:g} s of calm {why}")
                return False

    # --- trouble --------------------------------------------------------------------------------

    def _kill_master(self, master: str, at: str, number: int) -> None:
        one = self.masters[master]
        if at == "once":
            one.crash()
        elif at == "failpoint":
            one.armed.left = number
        elif one.process is not None:
            one.process.fuse = number

    def _kill_agent(self, node: str, touches: int = 0, callbacks: int = 0) -> None:
        one = self.nodes[node]
        if callbacks:
            if one.process is not None:
                one.process.fuse = callbacks
        elif touches:
            one.fuse = touches
        else:
            one.crash()

    def _kill_client(self, program: str, callbacks: int) -> None:
        """At so many of its callbacks from now; 0: at once."""
        one = self.operator if program == self.operator.name else self.clients[program]
        if callbacks:
            one.process.fuse = callbacks
        else:
            one.crash()

    def _kill_shim(self, node: str, steps: int, which: int) -> None:
        """At so many steps of the shims of a host from now; 0: one of those that run, at once."""
        host = self.nodes[node].host
        if steps:
            host.fuse = steps
        else:
            host.kill_shim(which)

    def _power_cut(self, node: str) -> None:
        self.nodes[node].power_cut()

    def _stop_master(self, master: str, for_s: float) -> None:
        process = self.masters[master].process
        if process is not None and process.alive:
            self.say(f"master {master} is stopped for {for_s:g} s")
            process.stop()
            self.later(for_s, process.go_on)

    def _stop_agent(self, node: str, for_s: float) -> None:
        process = self.nodes[node].process
        if process is not None and process.alive:
            self.say(f"agent {node} is stopped for {for_s:g} s")
            process.stop()
            self.later(for_s, process.go_on)

    def _cut(self, node: str, way: str, for_s: float) -> None:
        self.say(f"the line of {node} is cut ({way}) for {for_s:g} s")
        for link in self.nodes[node].links.values():
            link.set_cut(up=way != "down", down=way != "up")
        self.later(for_s, self._mend, node)

    def _mend(self, node: str) -> None:
        self.say(f"the line of {node} is mended")
        for link in self.nodes[node].links.values():
            link.set_cut(up=False, down=False)

    def _cut_off(self, master: str, for_s: float) -> None:
        self.say(f"all lines to master {master} are cut for {for_s:g} s")
        for node in self.nodes.values():
            node.links[master].set_cut(up=True, down=True)
            self.later(for_s, node.links[master].mend)

    def _reset(self, node: str) -> None:
        self.say(f"the line of {node} is reset")
        for link in self.nodes[node].links.values():
            link.reset()

    def _cut_from_store(self, master: str, for_s: float) -> None:
        if self.row is not None:
            self.say(f"master {master} cannot reach the store for {for_s:g} s")
            self.row.cut_off.add(master)
            self.later(for_s, self.row.cut_off.discard, master)

    def _promote(self, lagging: bool, behind: int, for_s: float) -> None:
        if self.row is None or not self.row.promote(lagging=lagging, behind=behind):
            return
        self.say(f"another server of the database takes over{', and lags' if lagging else ''}")
        if lagging:
            self.seen("a server that lacks turns was promoted" if behind else LAGS)
            self.later(for_s, self._promote_right)

    def _promote_right(self) -> None:
        if self.row is not None:
            self.say("the right server of the database takes over")
            self.row.promote_right()

    def _slow_line(self, node: str, by_s: float, for_s: float) -> None:
        self.say(f"the line of {node} is slower by {by_s:g} s for {for_s:g} s")
        for link in self.nodes[node].links.values():
            link.slow_s = by_s
            self.later(for_s, setattr, link, "slow_s", 0.0)

    def _slow_answers(self, node: str, by_s: float, for_s: float) -> None:
        self.say(f"the line to {node} is slower by {by_s:g} s for {for_s:g} s")
        for link in self.nodes[node].links.values():
            link.slow_down_s = by_s
            self.later(for_s, setattr, link, "slow_down_s", 0.0)

    def _freeze(self, node: str, for_s: float) -> None:
        one = self.nodes[node]
        if one.process is not None and one.process.alive and not one.host.frozen:
            self.say(f"host {node} is frozen for {for_s:g} s")
            one.process.stop()
            one.host.freeze()
            self.later(for_s, self._thaw, node, one.process, for_s)

    def _thaw(self, node: str, process: Process, for_s: float) -> None:
        self.say(f"host {node} goes on")
        self.nodes[node].host.thaw(for_s)
        process.go_on()

    def _lost_record(self, node: str) -> None:
        """A flipped bit in the agent's records. It shows at the next start."""
        key = self.nodes[node].journal.lose_one()
        if key is not None:
            self.say(f"a record of the agent of {node} cannot be read any more: {key}")
            self.nodes[node].crash()

    def _slow_disk(self, by_s: float, for_s: float) -> None:
        self.say(f"the master's disk is slower by {by_s:g} s for {for_s:g} s")
        self.disk.slow_s = by_s
        self.later(for_s, setattr, self.disk, "slow_s", 0.0)

    def _bad_disk(self, how: str, for_s: float) -> None:
        self.say(f"the master's disk is {how} for {for_s:g} s")
        setattr(self.disk, how, True)
        self.later(for_s, setattr, self.disk, how, False)

    def _harmed_disk(self, how: str, for_s: float) -> None:
        """All masters are dead when it comes; a restored copy of all rows ends it."""
        for master in self.masters.values():
            master.crash()
        if how == "unreadable":
            self.say(f"nothing can be read from the master's disk for {for_s:g} s")
            self.disk.unreadable = True
            self.later(for_s, setattr, self.disk, "unreadable", False)
        elif body := self.disk.turn_a_bit():
            self.say(f"the disk turns a bit of {body}, and its copy is there after {for_s:g} s")
            self.later(for_s, self.disk.restore)

    def _set_clock(self, host: str, by_s: float) -> None:
        self.say(f"somebody sets the wall clock of {host} by {by_s:g} s")
        owner = self.masters.get(host)
        clock = self.nodes[host].host.host_clock if owner is None else owner.clock
        clock.wall_off_s = max(-1700.0, min(1700.0, clock.wall_off_s + by_s))

    def _full_agent(self, node: str, for_s: float) -> None:
        self.say(f"the disk of the agent of {node} is full for {for_s:g} s")
        journal = self.nodes[node].journal
        journal.fails = True
        self.later(for_s, setattr, journal, "fails", False)
