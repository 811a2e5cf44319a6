"""A master of a wanted size, turn by turn, for the cost of each operation as its cluster grows.

It is the harness without its invariants, which look at everything after each turn. All nodes have a
session, and jobs hold every GPU, so that each further job waits. The agents obey each command at
once: a launch to a node without a session would wait for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from dlq.v1 import job_service_pb2 as wire
from dlq_common.daemon.config import Seconds
from dlq_master.control.config import JobsConfig, MasterConfig, NodesConfig, SchedulerConfig
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
MEMORY_BYTES = 1 << 40
CALLERS = tuple(Caller(name, "user") for name in ("alice", "bob", "carol"))
AT_ONCE = 1_000  # submissions of one turn while the queue is filled
NARROW = 64  # jobs of one GPU that run: their ends are the completions
PAGE = 50  # jobs of a list


class TimedStore(MemoryStore):
    """Knows its own CPU seconds: a real master writes in a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.used_s = 0.0

    async def commit(self, batch: Batch) -> None:
        """As in memory."""
        begin_s = time.thread_time()
        await super().commit(batch)
        self.used_s += time.thread_time() - begin_s


class _Unchecked(Master):
    def _check(self) -> None:
        """Nothing: other tests have the invariants."""

    def _rows(self) -> object:
        return object()


class GrownMaster:
    """`nodes` nodes of eight GPUs, all held. `waiting` jobs of three users ask for one GPU each,
    and for `shapes` different amounts of memory.
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
        self._sessions: dict[NodeId, int] = {}
        self._join([NodeId(f"n{number:05d}") for number in range(nodes)])
        narrow = min(NARROW, nodes * GPUS)
        self._fill(narrow, 1)
        self._fill(nodes - narrow // GPUS, GPUS)
        assert self._submitted == len(self.master.state.cluster.attempts), "every job runs"
        self._fill(waiting, 1)
        self._narrow = iter(
            [key for key in self.master.state.cluster.attempts if key.job_id <= narrow]
        )

    def close(self) -> None:
        """Give its event loop back."""
        self.master.close()

    # --- operations, each of them one turn or one answer ----------------------------------------

    def submit(self) -> Callable[[], object]:
        """A job of one GPU comes, and waits."""
        return self._turn(self._submission(1))

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
            parts=SimpleNamespace(rows=JobRows()),
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
                step=7, total=None, loss=None, age_s=1.0, memory_bytes=1 << 30,
            )
            for key, attempt in attempts.items() if key.job_id <= NARROW
            if attempt.lease.allocation.slots[0].node_id == some
        )  # fmt: skip
        return self._turn(
            Heartbeat(node_id=some, session_id=self._sessions[some], hold_revision=0, progress=told)
        )

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

    def _join(self, names: list[NodeId]) -> None:
        gpus = tuple(Gpu(index=index, gpu_type="h100") for index in range(GPUS))
        hellos = [
            OpenSession(
                node_id=name,
                facts=Registered(
                    gpus=gpus, boot_id="1", hostname=name, cpu_count=64, memory_bytes=MEMORY_BYTES
                ),
                highest_epoch=0,
                reports=(),
            )
            for name in names
        ]
        for name, opened in zip(names, self.master.turn(*hellos), strict=True):
            self._sessions[name] = opened.session_id

    def _fill(self, count: int, gpus: int) -> None:
        for first in range(0, count, AT_ONCE):
            some = range(min(AT_ONCE, count - first))
            self.master.turn(*(self._submission(gpus) for _ in some))
            self.obey()

    def _submission(self, gpus: int) -> SubmitJob:
        number = self._submitted
        self._submitted += 1
        memory = (1 + number % self._shapes) << 20
        return self.master.submission(
            caller=CALLERS[number % len(CALLERS)],
            request=Request(gpus=gpus, memory_bytes_per_node=memory),
        )

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
