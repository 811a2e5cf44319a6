"""A whole master without sockets, disk or waiting: one call, one turn, and every invariant after
it.

`Master` is what `dlq_master.app` builds, on a clock that stands still, a store in memory and a
transport that only remembers. A restart throws the working state away and loads it from the store.
"""

import asyncio
import shutil
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dlq_common.daemon.config import Seconds
from dlq_common.errors import DlqError
from dlq_master.control.composition.starting import start
from dlq_master.control.composition.state import State
from dlq_master.control.composition.wiring import WIRING
from dlq_master.control.config import JobsConfig, MasterConfig, NodesConfig, SchedulerConfig
from dlq_master.control.jobs.state import window_of
from dlq_master.control.loop.failpoints import Failpoints
from dlq_master.control.loop.inbox import Envelope
from dlq_master.control.loop.incidents import Incidents
from dlq_master.control.loop.loop import Loop
from dlq_master.control.loop.ports import NOBODY_FORESEES, ForeseenStarts
from dlq_master.control.stimuli import (
    Caller,
    CancelJob,
    Command,
    Explained,
    ExplainJob,
    HoldJob,
    JobEdit,
    Stimulus,
    SubmitJob,
    Tick,
)
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job, RunRules
from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import Request
from dlq_master.store.batch import Batch, User
from dlq_master.store.stored_tables import USERS
from dlq_master.store.tables.table import put
from support.fake_clock import FakeClock
from support.invariants import check_published, check_turn
from support.memory_store import MemoryStore

ALICE = Caller("alice", "user")
ROOT = Caller("root", "admin")


class Wires:
    """A transport that keeps what was sent to each node's session."""

    def __init__(self) -> None:
        self.sent: dict[NodeId, list[tuple[int, Command]]] = defaultdict(list)
        self.closed: list[tuple[NodeId, int]] = []

    def send(self, node_id: NodeId, session_id: int, commands: Sequence[Command]) -> None:
        self.sent[node_id] += [(session_id, command) for command in commands]

    def close(self, node_id: NodeId, session_id: int) -> None:
        self.closed.append((node_id, session_id))


def config_of(policy: str = "best-effort", **settings: str) -> MasterConfig:
    """The defaults, with a policy, and no waiting: for nodes after a start, or after a failure."""
    return MasterConfig(
        scheduler=SchedulerConfig(policy, settings),
        nodes=NodesConfig(start_grace=Seconds(0.0)),
        jobs=JobsConfig(retry_backoff=Seconds(0.0)),
    )


class Master:
    """Drives a loop turn by turn."""

    def __init__(
        self,
        config: MasterConfig | None = None,
        *,
        clock: FakeClock | None = None,
        store: MemoryStore | None = None,
        foresees: Callable[[State, FakeClock], ForeseenStarts] = lambda _, __: NOBODY_FORESEES,
        failpoints: Failpoints | None = None,
    ) -> None:
        """`failpoints`: of the first process; those that follow have none."""
        self.config = config or config_of()
        self.clock = clock or FakeClock()
        self.store = store or MemoryStore()
        self.wires = Wires()
        self._tasks = asyncio.new_event_loop()
        self._requests = 0
        self._foresees = foresees
        self._incidents = Path(tempfile.mkdtemp(prefix="dlq-incidents-"))
        weakref.finalize(self, shutil.rmtree, self._incidents, ignore_errors=True)
        self._failpoints = failpoints
        self._checked: object = None  # rows that were looked at
        self._unseen = (
            False  # whether a turn has left them, and everything is to be looked at in the end
        )
        if store is None:
            people = [
                User("alice", "user", 1001, 1001, (1001,), 0.0),
                User("root", "admin", 0, 0, (), 0.0),
            ]
            self.store.write(Batch(changes=put(USERS, people), meta={"epoch": "0"}))
        self.start()

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the store and begin with the next epoch, as the daemon does."""
        self.wires.sent.clear()
        loaded = self.store.load(window_of(self.config))
        self.state, first = start(self.config, loaded, self.clock.now_s())
        self.store.write(first)
        self.loop = Loop(
            state=self.state,
            wiring=WIRING,
            clock=self.clock,
            store=self.store,
            records=self.store,
            transport=self.wires,
            failpoints=self._failpoints or Failpoints(),
            state_dir=Path("/"),
            foreseen=self._foresees(self.state, self.clock),
            incidents=Incidents(self._incidents),
        )

    def crashed(self) -> None:
        """A new process, whatever the one before had in mind."""
        self._failpoints = None
        self.start()

    def restart(self) -> None:
        """kill -9, and a new process: sessions and all that was not stored are gone."""
        before = self.state
        self.start()
        _same(before, self.state)

    def close(self) -> None:
        """Give the event loop back; what the last turns did without changing a row is looked at
        too.
        """
        self._tasks.close()
        if self._unseen:
            self._check()

    # --- turns --------------------------------------------------------------------------------

    def turn(self, *stimuli: Stimulus) -> list[Any]:
        """All stimuli in one turn; a refusal is returned, not raised."""
        answers = [self._tasks.create_future() for _ in stimuli]
        letters = [Envelope(one, answer) for one, answer in zip(stimuli, answers, strict=True)]
        self._unseen = False
        self._tasks.run_until_complete(self.loop.turn(letters))
        outcomes = [answer.exception() or answer.result() for answer in answers]
        rows = self._rows()
        self._unseen = rows == self._checked
        if not self._unseen:
            self._check()
            self._checked = rows
        wake_s = self.loop._wake_at_s
        assert wake_s is None or wake_s > self.clock.now_s(), "the loop would spin"
        return outcomes

    def _check(self) -> None:
        check_turn(self.state, self.store)
        check_published(self.state, self.loop.published)

    def _rows(self) -> object:
        """What the invariants are about. Four turns of five leave it as it was: nothing is looked
        at twice.
        """
        state, cluster = self.state, self.state.cluster
        kept = (cluster.jobs, cluster.attempts, cluster.nodes)
        held = (state.people.users, state.people.tokens, state.attempts.outbox)
        numbers = (
            self.store.commits,
            state.journal.next_sequence,
            state.epoch,
            state.journal.horizon,
        )
        return (numbers, *(dict(each) for each in (*kept, *held)))

    def ask(self, stimulus: Stimulus) -> Any:
        """One stimulus, one turn; returns its answer or raises its refusal."""
        (outcome,) = self.turn(stimulus)
        if isinstance(outcome, DlqError):
            raise outcome
        return outcome

    def tick(self, seconds: float = 0.0) -> None:
        """Let time pass, then have the metronome's `leases`."""
        self.clock.advance(seconds)
        self.turn(Tick("leases"))

    # --- people -------------------------------------------------------------------------------

    def submit(
        self,
        gpus: int = 1,
        *,
        nodes: int | None = None,
        caller: Caller = ALICE,
        request_id: str | None = None,
        digest: str = "d",
        rules: RunRules | None = None,
        **more: Any,
    ) -> Job:
        """A job, accepted."""
        return self.ask(  # type: ignore[no-any-return] # answers of the loop are as its stimuli say
            self.submission(
                gpus,
                nodes=nodes,
                caller=caller,
                request_id=request_id,
                digest=digest,
                rules=rules,
                **more,
            )
        ).job

    def submission(
        self,
        gpus: int = 1,
        *,
        nodes: int | None = None,
        caller: Caller = ALICE,
        request_id: str | None = None,
        digest: str = "d",
        rules: RunRules | None = None,
        **more: Any,
    ) -> SubmitJob:
        """What `submit` asks."""
        return SubmitJob(
            caller=caller,
            request_id=self._request_id() if request_id is None else request_id,
            digest=digest,
            name=more.pop("name", "job"),
            queue=more.pop("queue", ""),
            request=more.pop("request", None) or Request(gpus=gpus, nodes=nodes),
            spec=b"spec",
            rules=rules or RunRules(),
            **more,
        )

    def edit(
        self,
        stimulus: type[JobEdit],
        job_id: JobId,
        /,
        *,
        caller: Caller = ALICE,
        request_id: str | None = None,
        **more: Any,
    ) -> Job:
        """cancel, hold, release, pause, resume."""
        return self.ask(  # type: ignore[no-any-return] # likewise
            stimulus(
                caller=caller,
                request_id=self._request_id() if request_id is None else request_id,
                job_id=job_id,
                **more,
            )
        )

    def cancel(self, job_id: JobId, **more: Any) -> Job:
        return self.edit(CancelJob, job_id, **more)

    def hold(self, job_id: JobId, **more: Any) -> Job:
        return self.edit(HoldJob, job_id, **more)

    def why(self, job_id: JobId) -> Explained:
        return self.ask(ExplainJob(job_id=job_id))  # type: ignore[no-any-return] # likewise

    def _request_id(self) -> str:
        self._requests += 1
        return f"request-{self._requests}"

    # --- looking ------------------------------------------------------------------------------

    def job(self, job_id: JobId) -> Job:
        """As published."""
        job = self.loop.published.job(job_id)
        assert job is not None
        return job

    def attempt(self, job_id: JobId) -> Attempt:
        """The living attempt, as published."""
        key = self.job(job_id).live_key
        assert key is not None, self.story(job_id)
        attempt = self.loop.published.attempt(key)
        assert attempt is not None
        return attempt

    def ended(self, job_id: JobId, number: int) -> Attempt:
        """An attempt of the past."""
        return next(a for a in self.store.attempts(job_id) if a.key == AttemptKey(job_id, number))

    def node(self, name: str) -> Node:
        """As published."""
        node = self.loop.published.node(NodeId(name))
        assert node is not None
        return node

    def events(self, job_id: JobId | None = None) -> tuple[JournalEvent, ...]:
        """The journal."""
        return self.store.events(0, 1_000_000, job_id)

    def words(self, job_id: JobId | None = None) -> list[str]:
        """The journal's words."""
        return [event.kind for event in self.events(job_id)]

    def story(self, job_id: JobId | None = None) -> str:
        """The journal in lines, for failures."""
        return "\n".join(
            f"{e.seq} {e.time_s:.0f} {e.kind} {e.job_id}.{e.attempt} {e.node_id} {e.cause}"
            f" {dict(e.data)}"
            for e in self.events(job_id)
        )


def _same(before: State, after: State) -> None:
    """I10: what a restart loads is what was in memory."""
    living = [
        {k: job for k, job in of.cluster.jobs.items() if not job.ended} for of in (before, after)
    ]
    assert living[0] == living[1]
    for what in ("attempts", "nodes"):
        assert dict(getattr(before.cluster, what)) == dict(getattr(after.cluster, what)), what
    assert before.people == after.people
    assert before.attempts.outbox == after.attempts.outbox
    assert before.jobs.next_id == after.jobs.next_id
    assert after.journal.next_sequence > before.journal.next_sequence  # it said that it has started
    assert after.epoch == before.epoch + 1
    assert known(after.cluster) == known(before.cluster)


def known(cluster: Cluster) -> dict[str, object]:
    """All that a cluster has learned from jobs, in its order."""
    trials, history, offers = cluster.profiling.remembered, cluster.history, cluster.offers
    return {
        "runs": [(key, runs) for key, runs in trials.runs.items()],
        "ratios": (trials.ratios.total, list(trials.ratios)),
        "errors": (trials.erred, list(trials.errors.items())),
        "outcomes": (trials.outcomes.total, list(trials.outcomes)),
        "paces": (trials.paces.told, list(trials.paces.by_kind.items())),
        "sent": (trials.sent.total, list(trials.sent)),
        "scale": (trials.hour, trials.gpus),
        "services": (history.newest.total, list(history.newest)),
        "distribution": (history.refreshed, history.learned, cluster.ordering.thresholds),
        "offers": (offers.newest.total, offers.begin_s, list(offers)),
        "costs": list(cluster.costs.families.items()),
        "machine runs": (cluster.ran.total, list(cluster.ran)),
    }
