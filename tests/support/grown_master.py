"""A master of a wanted size, turn by turn, for the cost of each operation as its cluster grows.

It is the harness without its invariants, which look at everything after each turn. All nodes have a
session, and jobs hold every GPU, so that each further job waits. The agents obey each command at
once: a launch to a node without a session would wait for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from types import SimpleNamespace
from typing import Any

from dlq.v1 import job_service_pb2 as wire
from dlq_common.daemon.config import Seconds
from dlq_master.control.config import JobsConfig, MasterConfig, NodesConfig, SchedulerConfig
from dlq_master.control.read_model.job_blocks import BlockNotes
from dlq_master.control.stimuli import (
    Caller,
    Command,
    CommandDone,
    ExplainJob,
    Heartbeat,
    Launch,
    OpenSession,
    RankReports,
    ReportedPhase,
    ReportedProgress,
    ReportedRank,
    Stimulus,
    Stop,
    SubmitJob,
    SubmitMany,
    Tick,
)
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.nodes.node import Gpu
from dlq_master.model.nodes.node_steps import Registered
from dlq_master.model.resources import Request
from dlq_master.rpc.jobs.job_service import list_jobs
from dlq_master.rpc.views.job_rows import JobRows
from dlq_master.store.batch import Batch, User
from dlq_master.store.stored_tables import USERS
from dlq_master.store.tables.table import put
from support.master_harness import Master
from support.memory_store import MemoryStore

GPUS = 8
MOST_SIZES = 100  # different sizes of nodes: of memory, and of cores
UNIT_BYTES = 1 << 30
CALLERS = tuple(Caller(name, "user") for name in ("alice", "bob", "carol"))
AT_ONCE = 3_000  # submissions of one turn while the queue is filled
NARROW = 64  # jobs of one GPU that run: their ends are the completions
LARGE = NARROW // GPUS  # nodes of the largest size, where these jobs run
PAGE = 50  # jobs of a list


class TimedStore(MemoryStore):
    """Knows its own CPU seconds: a real master writes in a thread of its own. It forgets events and
    answered requests, which a start does not load.
    """

    def __init__(self) -> None:
        super().__init__()
        self.used_s = 0.0

    async def commit(self, batch: Batch) -> None:
        """As in memory."""
        begin_s = time.thread_time()
        await super().commit(batch)
        self.used_s += time.thread_time() - begin_s

    def forget(self) -> None:
        """All events but the last, and all answered requests."""
        rows = self._rows
        for kept in (rows.events, rows.outbox):
            last = next(reversed(kept), 0)
            for number in [each for each in kept if each != last]:
                del kept[number]
        rows.requests.clear()


class _Unchecked(Master):
    def _check(self) -> None:
        """Nothing: other tests have the invariants."""

    def _rows(self) -> object:
        return object()


class GrownMaster:
    """`nodes` nodes of eight or four GPUs, all held. `waiting` jobs of three users ask for one GPU
    each, and for memory and cores in `shapes` ways that these nodes tell apart.

    The first nodes are the largest: the next waiting job may have any GPU that falls free there.
    Of the others each has its own size, up to MOST_SIZES: those with more memory have fewer cores.
    """

    def __init__(self, policy: str, *, nodes: int, waiting: int, shapes: int = 1) -> None:
        config = MasterConfig(
            scheduler=SchedulerConfig(policy, {}),
            nodes=NodesConfig(start_grace=Seconds(0.0)),
            jobs=JobsConfig(queued_per_user=10**9, submit_burst=10**9, retry_backoff=Seconds(0.0)),
        )
        self.store = TimedStore()
        people = [User(one.name, "user", 1001, 1001, (), 0.0) for one in CALLERS]
        self.store.write(Batch(changes=put(USERS, people), meta={"epoch": "0"}))
        self.master = _Unchecked(config, store=self.store)
        self._shapes, self._submitted, self._sequence = shapes, 0, 0
        self._sizes = min(MOST_SIZES, max(1, nodes - LARGE))
        self._sessions: dict[NodeId, int] = {}
        widths = [GPUS if at < LARGE or at % 2 else GPUS // 2 for at in range(nodes)]
        self._join(widths)
        narrow = min(NARROW, nodes * GPUS)
        self._fill([self._largest(1)] * narrow)
        for gpus in (GPUS, GPUS // 2):
            self._fill([Request(gpus=gpus)] * widths[LARGE:].count(gpus))
        assert self._submitted == len(self.master.state.cluster.attempts), "every job runs"
        self._narrow = iter([*self.master.state.cluster.attempts][:narrow])
        self._fill([self._request(number) for number in range(waiting)])
        told_apart = sum(map(len, self.master.state.cluster.waiting.by_priority.values()))
        assert not waiting or told_apart >= min(shapes, waiting), "no two shapes are alike"

    def close(self) -> None:
        """Give its event loop back."""
        self.master.close()

    # --- operations, each of them one turn or one answer ----------------------------------------

    def submit(self) -> Callable[[], object]:
        """A job of one GPU comes, and waits."""
        return self._turn(self._submission(self._request(self._submitted)))

    def completion(self) -> Callable[[], object]:
        """A job of one GPU ends, and the next one starts."""
        key = next(self._narrow)
        name = self.master.state.cluster.attempts[key].lease.allocation.slots[0].node_id
        return self._turn(self._report(name, key, ReportedPhase.EXITED))

    def why(self) -> Callable[[], object]:
        """The first question why the newest job waits, after a change."""
        self.submit()()
        return self._turn(ExplainJob(job_id=JobId(self._submitted)))

    def page(self) -> Callable[[], object]:
        """A page of a list of the jobs that wait, when nothing of it was encoded before."""
        call: Any = SimpleNamespace(
            read=self.master.loop.published,
            caller=CALLERS[0],
            parts=SimpleNamespace(rows=JobRows(), notes=BlockNotes()),
            now_s=self.master.clock.now_s(),
            breathe=lambda: _no_pause,
        )
        request = wire.ListJobsRequest(page_size=PAGE, states=["queued"])
        return lambda: asyncio.run(list_jobs(call, request))

    def beat(self) -> Callable[[], object]:
        """The heartbeat of a node whose eight jobs tell their steps."""
        attempts = self.master.state.cluster.attempts
        some = next(iter(attempts.values())).lease.allocation.slots[0].node_id
        told = tuple(
            ReportedProgress(
                key=key, epoch=self.master.state.epoch, node_rank=0,
                step=7, total=None, loss=None, age_s=1.0,
            )
            for key, attempt in attempts.items() if key.job_id <= NARROW
            if attempt.lease.allocation.slots[0].node_id == some
        )  # fmt: skip
        return self._turn(
            Heartbeat(node_id=some, session_id=self._sessions[some], hold_revision=0, progress=told)
        )

    def join(self) -> Callable[[], object]:
        """The first hello of one more node, which has a size of its own and a name among the
        others.
        """
        count = len(self._sessions)
        name = NodeId(f"n{count // 2:05d}-{count:05d}")
        facts = self._facts(name, 0, GPUS)
        facts = replace(facts, memory_bytes=facts.memory_bytes + count)
        hello = OpenSession(node_id=name, facts=facts, highest_epoch=0, reports=())

        def act() -> None:
            self._sessions[name] = self.master.ask(hello).session_id

        return act

    def leases(self) -> Callable[[], object]:
        """The metronome's look at the leases of all nodes."""
        return self._turn(Tick("leases"))

    def restart(self) -> Callable[[], object]:
        """A new process loads everything. It is the last operation: its agents are not there."""
        return self.master.crashed

    def obey(self) -> None:
        """Each agent does what it was told, and says so."""
        told: list[Stimulus] = []
        for name, sent in self.master.wires.sent.items():
            for _, command in sent:
                told += self._done(name, command)
        self.master.wires.sent.clear()
        if told:
            self.master.turn(*told)

    # --- helpers, in order of use ---------------------------------------------------------------

    def _join(self, widths: Sequence[int]) -> None:
        """Nodes with so many GPUs each."""
        names = [NodeId(f"n{number:05d}") for number in range(len(widths))]
        hellos = [
            OpenSession(
                node_id=name,
                facts=self._facts(name, at, gpus),
                highest_epoch=0,
                reports=(),
            )
            for at, (name, gpus) in enumerate(zip(names, widths, strict=True))
        ]
        for name, opened in zip(names, self.master.turn(*hellos), strict=True):
            self._sessions[name] = opened.session_id

    def _facts(self, name: NodeId, at: int, gpus: int) -> Registered:
        size = at % self._sizes
        memory, cores = (self._sizes, self._sizes) if at < LARGE else (size + 1, self._sizes - size)
        return Registered(
            gpus=tuple(Gpu(index=index, gpu_type="h100") for index in range(gpus)),
            boot_id="1", hostname=name, cpu_count=cores, memory_bytes=memory * UNIT_BYTES,
        )  # fmt: skip

    def _largest(self, gpus: int) -> Request:
        """On the largest nodes alone."""
        size = self._sizes
        return Request(gpus=gpus, cpus_per_node=size, memory_bytes_per_node=size * UNIT_BYTES)

    def _request(self, number: int) -> Request:
        """One of the `shapes` ways, in turn."""
        cores, memory = divmod(number % self._shapes, self._sizes)
        return Request(
            gpus=1, cpus_per_node=cores + 1, memory_bytes_per_node=(memory + 1) * UNIT_BYTES
        )

    def _fill(self, requests: Sequence[Request]) -> None:
        """Submit them, many in a turn; jobs of one user that ask for the same in one call."""
        for first in range(0, len(requests), AT_ONCE):
            asks = [self._submission(each) for each in requests[first : first + AT_ONCE]]
            asks.sort(key=lambda ask: ask.caller.name)
            self.master.turn(
                *(
                    SubmitMany(caller=caller, request_id="", asks=tuple(several))
                    for caller, several in groupby(asks, lambda ask: ask.caller)
                )
            )
            self.obey()
            self.store.forget()

    def _submission(self, request: Request) -> SubmitJob:
        caller = CALLERS[self._submitted % len(CALLERS)]
        self._submitted += 1
        return self.master.submission(caller=caller, request=request)

    def _turn(self, stimulus: Stimulus) -> Callable[[], object]:
        return lambda: self.master.ask(stimulus)

    def _done(self, name: NodeId, command: Command) -> Iterable[Stimulus]:
        if isinstance(command, Launch):
            yield self._report(name, command.key, ReportedPhase.STARTED)
        elif isinstance(command, Stop):
            yield self._report(name, command.key, ReportedPhase.EXITED)
        else:
            return
        session_id = self._sessions[name]
        yield CommandDone(node_id=name, session_id=session_id, sequence=command.sequence)

    def _report(self, name: NodeId, key: AttemptKey, phase: ReportedPhase) -> RankReports:
        self._sequence += 1
        ended = phase is ReportedPhase.EXITED
        report = ReportedRank(
            sequence=self._sequence,
            key=key,
            epoch=self.master.state.epoch,
            node_rank=0,
            phase=phase,
            exit_code=0 if ended else None,
            ended_by="exited" if ended else "",
        )
        session_id = self._sessions[name]
        return RankReports(node_id=name, session_id=session_id, reports=(report,))


async def _no_pause(_: float) -> None:
    """Nobody else waits for the loop."""
