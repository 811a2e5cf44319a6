"""The twelve invariants, looked at after every event, and liveness when all trouble is over.

It believes no word of the master about itself. It has the batches on disk, the processes on the
hosts, and the answers that clients were given. I1 to I12 are the numbers of the list in
docs/internals/world.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dlq_master.control.composition.starting import start
from dlq_master.control.composition.state import BuiltAhead, State
from dlq_master.control.jobs.state import window_of
from dlq_master.control.loop.loop import Loop
from dlq_master.control.read_model.published import Published
from dlq_master.model.attempts.attempt import LIVE, Attempt, AttemptState
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.eligible import Block, Relation
from dlq_master.model.jobs.job import ENDED, HoldKind, Job, JobState
from dlq_master.model.nodes.node import NodeFlag, NodeState
from dlq_master.store.batch import Batch, Loaded
from dlq_nodeagent.model.port import ExitWhy
from support.invariants import END_WORDS, check_published, check_turn
from support.same_state import differences, facts_of_start
from world.cast.agents import told
from world.cast.hosts import HostAttempt, NodeHost
from world.judging.history import Operation, is_linearizable
from world.judging.parties import Parties
from world.judging.witness import Witness
from world.stage.followed import alike

if TYPE_CHECKING:
    from world.cast.masters import Master
    from world.cast.world import World

LOOKS = 25  # every so many turns with a change, memory is compared with all rows
EXCUSES = ("silent", "given up", "no record")  # in the cause of a loss
KEEP_S = 300.0  # so long GPUs are kept after a lost node
SMALL_QUEUE = 2  # jobs of one user in the queue "small"


@dataclass(slots=True)
class Known:
    """What the world knows of one job from outside."""

    history: list[Operation] = field(default_factory=list)
    starts: Counter[int] = field(default_factory=Counter)  # processes begun, by attempt
    cancelled_at: int | None = None  # attempts that there were when its cancel was answered
    finished: AttemptKey | None = None  # an attempt of one rank that left with 0, asked by nobody


class Judge(Witness):
    """Of the rows, the processes and the answers of clients."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.known: dict[JobId, Known] = defaultdict(Known)
        self._holders: dict[tuple[str, int], AttemptKey] = {}
        self._ends: Counter[AttemptKey] = Counter()
        self._names: Counter[tuple[str, str, int]] = Counter()  # user, name, index of an array
        self._parties = Parties(self, self._jobs, world.settings.keep_s or KEEP_S)
        self._requests: dict[tuple[str, str], str] = {}  # label of what was submitted
        self._acknowledged: dict[tuple[str, str], JobId] = {}
        self._draining: set[NodeId] = set()
        self._causes: dict[AttemptKey, str] = {}  # of losses in the batch at hand
        self._writers: list[str] = []
        self._epoch = 0
        self._commits = 0
        self._looked = 0

    # --- the disk -------------------------------------------------------------------------------

    def committed(self, batch: Batch, writer: str) -> None:
        """A batch is on disk."""
        self._commits += 1
        self._written_by(writer)
        self._causes = {
            AttemptKey(event.job_id, event.attempt or 0): event.cause
            for event in batch.events
            if event.kind == "rank_lost" and event.job_id is not None
        }
        for job in batch.jobs:
            self._job(job)
        for node in batch.nodes:
            self._boots[node.node_id] = node.boot_id
            draining = NodeFlag.DRAINING in node.flags
            (self._draining.add if draining else self._draining.discard)(node.node_id)
        for attempt in batch.attempts:
            self._attempt(attempt)
        self._parties.committed(batch, writer, self._world.loop.time(), self._holders)
        for event in batch.events:
            self._last_event = max(self._last_event, event.seq)
            if event.kind in END_WORDS and event.job_id is not None:
                key = AttemptKey(event.job_id, event.attempt or 0)
                self._ends[key] += 1
                self.hold(self._ends[key] == 1, f"I11: the end of attempt {key} is told twice")
            self._world.noted(event)
        epoch = int(batch.meta.get("epoch", self._epoch + 1))
        self.hold(epoch > self._epoch, f"I6: epoch {epoch} after {self._epoch}")
        self._epoch = int(batch.meta.get("epoch", self._epoch))

    def _written_by(self, writer: str) -> None:
        """I6: a process that another one has followed writes no more."""
        if not self._writers or writer != self._writers[-1]:
            former = writer in self._writers
            self.hold(not former, f"I6: {writer} writes after {self._writers[-1:]} has written")
            self._writers.append(writer)

    def _job(self, job: Job) -> None:
        before = self._jobs.get(job.job_id)
        self._jobs[job.job_id] = job
        if before is None:
            name_ = (job.user, job.name, job.array_index)
            self._names[name_] += 1
            once = self._names[name_] == 1
            self.hold(once, f"I2: {job.name} of {job.user} is a job for the second time")
            self._quotas(job)
            return
        name = f"job {job.job_id}"
        if before.state in ENDED:
            same = job.state is before.state
            self.hold(same, f"I5: {name} is {job.state} after it was {before.state}")
        self.hold(job.version >= before.version, f"I5: the version of {name} falls")
        self.hold(job.attempts >= before.attempts, f"I6: the attempts of {name} fall")
        self.hold(
            job.infra_failures <= job.rules.max_infra_failures + 1,
            f"I8: {name} has failed {job.infra_failures} times by the cluster, and goes on",
        )
        asks = job.checkpoint is None and job.requeues > job.rules.max_requeues + 1
        self.hold(not asks, f"I8: {name} goes on asking to run again")
        known = self.known.get(job.job_id)
        if known is not None and known.cancelled_at is not None:
            more = job.attempts > known.cancelled_at
            self.hold(not more, f"I7: {name} starts again after its cancel was answered")
        ran_on = known is not None and known.finished is not None
        if ran_on and known is not None and known.finished is not None:
            more = job.attempts > known.finished.number
            self.hold(not more, f"I11: {name} had finished as {known.finished}, and runs again")

    def _quotas(self, job: Job) -> None:
        if job.queue != "small":
            return
        count = sum(
            1
            for each in self._jobs.values()
            if each.queue == "small" and each.user == job.user and each.state not in ENDED
        )
        words = f"I9: {job.user} has {count} jobs in a queue that takes {SMALL_QUEUE} of one user"
        self.hold(count <= SMALL_QUEUE, words)

    def _attempt(self, attempt: Attempt) -> None:
        key, before = attempt.key, self._attempts.get(attempt.key)
        if before is not None and before.state in LIVE and attempt.state not in LIVE:
            self._no_process(attempt)
        self._attempts[key] = attempt
        if before is not None and before.state not in LIVE:
            same = attempt.state is before.state
            self.hold(same, f"I5: attempt {key} is {attempt.state} after {before.state}")
        if attempt.state is AttemptState.NODE_LOST and self.known[key.job_id].finished == key:
            # Nobody could tell the master in time, if its node was silent or had lost its records.
            cause = self._causes.get(key, "")
            excused = any(words in cause for words in EXCUSES)
            self.hold(excused, f"I11: {key} had left with 0, and is lost: {cause or 'no cause'}")
            self.known[key.job_id].finished = None
        if before is None:
            self._awaited(attempt)
            self._at_once(attempt)
            shut = [it.node_id for it in attempt.ranks if it.node_id in self._draining]
            self.hold(not shut, f"I4: {key} is placed on {shut}, which take no new work")
            former = self._attempts.get(AttemptKey(key.job_id, key.number - 1))
            if former is not None:
                self.hold(former.state not in LIVE, f"I3: {key} begins while {former.key} lives")
                self.hold(attempt.epoch >= former.epoch, f"I6: the epoch of {key} falls")
            elif key.number > 1:
                self.broken(f"I6: attempt {key} is the first that anybody knows")
        self._claims(attempt)

    def _at_once(self, attempt: Attempt) -> None:
        """I9: so many tasks of an array run at a time as its owner said."""
        job = self._jobs.get(attempt.key.job_id)
        array = None if job is None else job.array
        if array is None or not array.concurrent:
            return
        tasks = range(array.array_id + 1, array.array_id + array.tasks + 1)
        living = [it.key.job_id for it in self._attempts.values() if it.state in LIVE]
        live = sum(1 for job_id in living if job_id in tasks)
        words = f"{live} tasks of array {array.array_id} run, and it has a limit of"
        self.hold(live <= array.concurrent, f"I9: {words} {array.concurrent}")

    def _no_process(self, attempt: Attempt) -> None:
        """I4: the rows give GPUs back only when nothing runs there any more."""
        for node in self._world.nodes.values():
            for one in () if node.host.frozen else node.host.living():
                key = one.plan.key
                same = (key.job_id, key.attempt) == (str(attempt.key.job_id), attempt.key.number)
                words = f"{told(one)} runs on {node.name}, and its attempt is {attempt.state}"
                self.hold(not same, f"I4: {words}")

    def _awaited(self, attempt: Attempt) -> None:
        """A job begins only after the jobs that it waits for."""
        job = self._jobs.get(attempt.key.job_id)
        for term in () if job is None or job.depends is None else job.depends.terms:
            state = self._jobs[term.target].state
            over = state in ENDED if term.relation is Relation.AFTERANY else state == "completed"
            self.hold(over, f"I5: {attempt.key} begins while job {term.target} is {state}")

    def _claims(self, attempt: Attempt) -> None:
        """I4, by the rows alone."""
        key = attempt.key
        for place in [place for place, holder in self._holders.items() if holder == key]:
            del self._holders[place]
        if attempt.state not in LIVE:
            return
        for slot in attempt.lease.allocation.slots:
            for gpu in slot.gpu_indices:
                place = (str(slot.node_id), gpu)
                holder = self._holders.setdefault(place, key)
                self.hold(holder == key, f"I4: {key} gets GPU {gpu} of {slot.node_id} of {holder}")

    # --- turns ----------------------------------------------------------------------------------

    def turned(self, master: Master, state: State, loop: Loop) -> None:
        """I10: memory is what a restart would load."""
        if self._commits - self._looked >= LOOKS:
            self.look(master, state, loop)

    def look(self, master: Master, state: State, loop: Loop) -> None:
        """Compare memory with all rows now."""
        self._looked = self._commits
        try:
            check_turn(state, master.disk.rows)
            check_published(state, loop.published)
        except AssertionError as wrong:
            words = str(wrong).split("\n", 1)[0][:300]
            self.broken(f"I10: the memory of {master.name} is not what its disk says: {words}")

    def took_over(self, master: Master, loaded: Loaded, built: BuiltAhead | None) -> None:
        """I10: a standby leads from what a start would read, and would make of it."""
        config = master.config
        read = master.disk.rows.load(window_of(config))
        epoch = {"epoch": loaded.meta["epoch"]}  # of its own lead
        read = replace(read, meta={**read.meta, **epoch})
        words = f"I10: {master.name} leads from rows that are not on disk"
        wrong = differences(alike(loaded), alike(read))
        self.hold(not wrong, f"{words}: {wrong[:1]}")
        if built is None or wrong:
            return
        states = [start(config, loaded, loaded.last_time_s, ahead=it)[0] for it in (None, built)]
        reads = [Published(state, master.disk.rows) for state in states]
        wrong = differences(*map(facts_of_start, states, reads))
        self.hold(not wrong, f"I10: {master.name} has built something else ahead: {wrong[:1]}")

    # --- clients --------------------------------------------------------------------------------

    def world_saw(self, what: str) -> None:
        """An interesting state has been reached."""
        self._world.seen(what)

    def history_of(self, job_id: JobId) -> list[Operation]:
        return self.known[job_id].history

    def submitting(self, user: str, request_id: str, label: str) -> None:
        self._requests[user, request_id] = label

    def submitted(
        self, user: str, request_id: str, label: str, job_id: JobId, operation: Operation
    ) -> None:
        """I1, I2: a submission has been answered."""
        self.known[job_id].history.append(operation)
        key = (user, request_id)
        before = self._acknowledged.setdefault(key, job_id)
        self.hold(before == job_id, f"I2: one request is job {before} and job {job_id}")
        others = [each for each, it in self._acknowledged.items() if it == job_id and each != key]
        self.hold(not others, f"I2: {key} is answered with job {job_id} of {others}")
        stored = self._world.disk.rows.job(job_id)
        self.hold(stored is not None, f"I1: job {job_id} was acknowledged and is not on disk")
        if stored is not None:
            right = stored.name == label and stored.user == user
            self.hold(right, f"I2: {user} asked for {label} and got {stored.user}'s {stored.name}")

    def edited(self, word: str, job_id: JobId, job: Job) -> None:
        """An edit has been answered."""
        stored = self._world.disk.rows.job(job_id)
        if stored is None or stored.version < job.version:
            self.broken(f"I1: {word} of job {job_id} was acknowledged and is not on disk")
        if word == "cancel" and stored is not None:
            over = stored.state in ENDED
            self.hold(
                over, f"I7: the cancel of job {job_id} was answered, and it is {stored.state}"
            )
            known = self.known[job_id]
            if known.cancelled_at is None:
                known.cancelled_at = job.attempts

    def looked(self, job_id: JobId, job: Job | None) -> None:
        """A reader has been told of a job: of nothing that is not on disk."""
        stored = self._world.disk.rows.job(job_id)
        early = job is not None and (stored is None or stored.version < job.version)
        self.hold(not early, f"I1: a reader saw job {job_id} as it is not on disk")

    # --- hosts ----------------------------------------------------------------------------------

    def began(self, host: NodeHost, attempt: HostAttempt) -> None:
        """A process begins on a host."""
        key = attempt.plan.key
        world, job_id = self._world, JobId(int(key.job_id))
        world.say(f"  {host.name} starts {told(attempt)}")
        for node in world.nodes.values():
            for other in () if node.host.frozen else node.host.living():
                self._beside(host, attempt, node.host, other)
        known = self.known[job_id]
        known.starts[key.attempt] += 1
        row = self._jobs.get(job_id)
        self.hold(row is not None, f"I1: a process of job {job_id}, which is not on disk")
        self.hold(
            key.attempt <= (row.attempts if row else 0), f"I1: {told(attempt)} is not on disk"
        )
        again = key in host.attempts or (key.job_id, key.attempt, key.node_rank) in world.begun
        world.begun.add((key.job_id, key.attempt, key.node_rank))
        self.hold(not again, f"I3: {told(attempt)} runs a second time")
        stored = self._attempts.get(AttemptKey(job_id, key.attempt))
        over = stored is not None and stored.state not in LIVE
        self.hold(not over, f"I3: {told(attempt)} begins after its end is on disk")
        self._parties.begins(AttemptKey(job_id, key.attempt))

    def _beside(
        self, host: NodeHost, attempt: HostAttempt, there: NodeHost, other: HostAttempt
    ) -> None:
        mine, its = attempt.plan.key, other.plan.key
        if mine.job_id == its.job_id and mine.attempt != its.attempt:
            words = f"{told(attempt)} on {host.name} while {told(other)} runs on {there.name}"
            self.broken(f"I3: {words}")
        if there is host:
            both = set(host.gpus_of.get(mine, ())) & set(host.gpus_of.get(its, ()))
            self.hold(not both, f"I4: {told(attempt)} and {told(other)} both have GPUs {both}")

    def ended(self, host: NodeHost, attempt: HostAttempt) -> None:
        """A process has ended; without a record, with its shim."""
        record, key = attempt.record, attempt.plan.key
        if record is None:
            self._world.say(f"  the shim of {told(attempt)} is killed on {host.name}")
            self._world.seen(
                f"a shim was killed {'under its job' if attempt.ran else 'at a start'}"
            )
            return
        self._world.say(f"  {told(attempt)} ends on {host.name}: {record.why}, code {record.code}")
        if record.why is ExitWhy.HOLD_EXPIRED:
            self._world.seen("a shim ended its job when the hold was over")
        own = record.why is ExitWhy.EXITED and record.code == 0 and record.noticed is None
        row = self._jobs.get(JobId(int(key.job_id)))
        alone = row is not None and row.request.nodes in (None, 1) and row.request.gpus > 0
        stored = self._attempts.get(AttemptKey(JobId(int(key.job_id)), key.attempt))
        single = stored is not None and len(stored.ranks) == 1
        if own and alone and single and stored is not None and stored.state in LIVE:
            self.known[JobId(int(key.job_id))].finished = stored.key

    # --- the end --------------------------------------------------------------------------------

    def unfinished(self) -> str:
        """Why the world is not at rest yet; "" when it is."""
        for job in self._jobs.values():
            if job.state not in ENDED and not self._rests(job):
                return f"job {job.job_id} is {job.state}, attempt {job.live_attempt}"
        for attempt in self._attempts.values():
            if attempt.state in LIVE:
                return f"attempt {attempt.key} is {attempt.state}"
        master = self._world.leader()
        if master is None or not master.serving or master.state is None:
            return "no master serves"
        nodes = master.state.cluster.nodes
        for name, node in sorted(self._world.nodes.items()):
            stored = nodes.get(name)  # type: ignore[call-overload] # NodeId is a str
            if stored is None or stored.state is not NodeState.UP:
                return f"node {name} is {'unknown' if stored is None else stored.state}"
            if node.host.living():
                return f"{told(node.host.living()[0])} runs on {name}"
            if node.core is None or node.core.supervisor.unconfirmed():
                return f"the agent of {name} has not been confirmed"
        return ""

    def _rests(self, job: Job) -> bool:
        """It stays as it is until a person says otherwise, or what it waits for does."""
        if job.state is JobState.HELD:
            return job.hold is not None and job.hold is not HoldKind.PAUSED
        if self._parties.awaits_a_person(job):
            return True
        if job.blocked is not Block.DEPENDENCY or job.depends is None:
            return False
        awaited = [self._jobs.get(term.target) for term in job.depends.terms]
        return any(one is not None and self._rests(one) for one in awaited)

    def last(self) -> None:
        """All is at rest: look at everything once more."""
        master = self._world.leader()
        assert master is not None
        assert master.state is not None
        assert master.loop is not None
        self.look(master, master.state, master.loop)
        for key, job_id in sorted(self._acknowledged.items()):
            stored = self._world.disk.rows.job(job_id)
            self.hold(stored is not None, f"I1: job {job_id} of {key} is gone")
        self._parties.last()
        ended = {key for key, it in self._attempts.items() if it.state not in LIVE}
        untold = sorted(ended - self._ends.keys())
        self.hold(not untold, f"I11: nobody has told the end of {untold}")
        for job_id, known in sorted(self.known.items()):
            if not is_linearizable(known.history):
                story = "; ".join(map(str, known.history))
                self.broken(f"the answers about job {job_id} have no order: {story}")
            self._truth(job_id, known)

    def _truth(self, job_id: JobId, known: Known) -> None:
        """A job that says it is completed has a process that left with 0."""
        job = self._jobs.get(job_id)
        if job is None or job.state is not JobState.COMPLETED:
            return
        codes = [
            attempt.record.code
            for node in self._world.nodes.values()
            for key, attempt in node.host.every.items()
            if key.job_id == str(job_id) and attempt.record is not None
        ]
        self.hold(
            0 in codes, f"I11: job {job_id} is completed, and its processes left with {codes}"
        )
        if known.finished is not None:
            last = self._attempts[known.finished]
            right = last.state is AttemptState.SUCCEEDED
            self.hold(right, f"I11: {known.finished} left with 0 and counts as {last.state}")
