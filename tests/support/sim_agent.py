"""A node's agent as the master sees it: obeys commands, reports, forgets nothing until told to.

Jobs are what tests say they are: `run`, `exit`, `save`. The line may be cut at any moment; what was
on its way is lost then, and the next hello tells everything again, as the real agent does. Its
shims end what they guard `hold_s` after the last answered heartbeat, whoever lives.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from dlq_master.control.stimuli import (
    CloseSession,
    Command,
    CommandDone,
    Heartbeat,
    Launch,
    LookAtGpus,
    Opened,
    OpenSession,
    RankReports,
    ReportedCheckpoint,
    ReportedPhase,
    ReportedProgress,
    ReportedRank,
    Resume,
    Save,
    Signal,
    Stop,
    Suspend,
)
from dlq_master.control.stimuli.nodes import AgentInstance
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes.node import Gpu
from dlq_master.model.nodes.node_steps import Registered
from support.master_harness import Master

_UNSTARTED = (ReportedPhase.PREPARING, ReportedPhase.READY)


@dataclass(slots=True)
class SimRank:
    """One rank on this node."""

    launch: Launch
    phase: ReportedPhase = ReportedPhase.PREPARING
    exit_code: int | None = None
    signal: int = 0
    ended_by: str = ""
    error: str = ""
    no_room: bool = False
    start_cause: str = ""
    checkpoint: ReportedCheckpoint | None = None
    save_s: float | None = None
    ports: tuple[int, ...] = ()
    sequence: int = 0
    confirmed: bool = False  # its end is on the master's disk
    noticed: bool = False
    shim_noticed: bool = False  # the master has been silent for so long that it must leave
    ended_s: float = 0.0
    kill: bool = False
    gpus_held: str = ""
    catches: bool | None = None  # whether it bears the signal of its notice
    last_lines: tuple[str, ...] = ()  # of its output, once it has ended
    said: tuple[int | None, int | None, float] | None = None  # a step, of so many, and when

    @property
    def alive(self) -> bool:
        return self.phase in (ReportedPhase.STARTED, ReportedPhase.STOPPING)

    @property
    def ended(self) -> bool:
        return self.phase in (ReportedPhase.EXITED, ReportedPhase.START_FAILED)


@dataclass(slots=True)
class SimAgent:
    """Say `hello` first."""

    master: Master
    node_id: NodeId
    gpus: int = 4
    gpu_type: str = "H100"
    cpu_count: int = 0  # of the host; 0: not told
    memory_bytes: int = 0
    cores: int = 0  # for jobs without GPUs
    core_memory_bytes: int = 0
    boot_id: str = "boot-1"
    resizes_live: bool = True  # False: an agent from before there were live resizes
    tells_unnoticed: bool = True  # False: an agent from before it was told who heard no notice
    pool_name: str = ""  # of a rented machine, and what its provider calls it
    instance_id: str = ""
    agent: AgentInstance | None = None  # its process, memory and machine
    ranks: dict[AttemptKey, SimRank] = field(default_factory=dict)
    session_id: int | None = None
    highest_epoch: int = 0
    contact_s: float = 0.0
    hold_extension_s: float = 0.0  # what the shims have been told
    tells_gpus: bool = True  # False: it took over what an earlier agent had not written down
    hold_revision: int = 0  # what is said of it in heartbeats
    _absent: dict[AttemptKey, tuple[int, int, int]] = field(default_factory=dict)
    _pending: dict[AttemptKey, int] = field(default_factory=dict)
    _last_sequence: int = 0
    _read: int = 0
    inbox: deque[Command] = field(default_factory=deque)
    looks: list[int] = field(default_factory=list)  # at its GPUs, that it was asked for
    words: list[Signal | Save] = field(default_factory=list)  # what was said to running ranks

    # --- the line -----------------------------------------------------------------------------

    def facts(self) -> Registered:
        """What the host is."""
        gpus = tuple(Gpu(index=index, gpu_type=self.gpu_type) for index in range(self.gpus))
        return Registered(
            gpus=gpus,
            boot_id=self.boot_id,
            hostname=self.node_id,
            cpu_count=self.cpu_count,
            memory_bytes=self.memory_bytes,
            cores=self.cores,
            core_memory_bytes=self.core_memory_bytes,
            resizes_live=self.resizes_live,
        )

    def hello(self) -> Opened:
        """Open a session: tell all, obey the welcome."""
        self.inbox.clear()
        # What the turn itself sends on the new line follows the welcome.
        self._read = len(self.master.wires.sent[self.node_id])
        opened: Opened = self.master.ask(
            OpenSession(
                node_id=self.node_id,
                facts=self.facts(),
                pool_name=self.pool_name,
                instance_id=self.instance_id,
                agent=self.agent,
                highest_epoch=self.highest_epoch,
                reports=tuple(
                    self._report(key) for key, rank in self.ranks.items() if not rank.confirmed
                ),
            )
        )
        assert opened.epoch >= self.highest_epoch
        self.highest_epoch = opened.epoch
        self.session_id = opened.session_id
        self._extend(opened.hold_revision, opened.hold_extension_s)
        wanted = {launch.key for launch in opened.launches}
        for key, rank in self.ranks.items():
            if rank.phase in _UNSTARTED and key not in wanted:
                self._fail_start(key, "not wanted any more")
        for stop in opened.stops:
            self._stop(stop)
        refused = [launch for launch in opened.launches if self._launch(launch)]
        self._acknowledged(opened.acknowledged)
        self.heartbeat()
        if refused:
            self.send([self._refusal(launch) for launch in refused])
        return opened

    def cut(self, *, noticed: bool = True) -> None:
        """The line breaks: what was on its way to us is lost; the master may not notice."""
        if self.session_id is not None:
            self.receive()
            self.inbox.clear()
            if noticed:
                self.master.turn(CloseSession(node_id=self.node_id, session_id=self.session_id))
            self.session_id = None

    def heartbeat(self) -> None:
        """A sign of life, answered at once."""
        if self.session_id is not None:
            beat = Heartbeat(
                node_id=self.node_id,
                session_id=self.session_id,
                hold_revision=self.hold_revision,
                progress=tuple(self._progress(key) for key in self.living()),
            )
            # The session answers before the turn, with what was published before.
            node = self.master.loop.published.node(self.node_id)
            assert node is not None
            self.master.turn(beat)
            self.contact_s = self.master.clock.now_s()
            self._extend(node.hold_revision, node.maintenance_s)

    def _progress(self, key: AttemptKey) -> ReportedProgress:
        """What a rank that runs said last; most have nothing to say."""
        launch, said = self.ranks[key].launch, self.ranks[key].said
        step, total, at_s = (None, None, None) if said is None else said
        return ReportedProgress(
            key=key,
            epoch=launch.epoch,
            node_rank=launch.node_rank,
            step=step,
            total=total,
            loss=None,
            age_s=None if at_s is None else self.master.clock.now_s() - at_s,
        )

    def _extend(self, revision: int, extension_s: float) -> None:
        """All shims are told."""
        self.hold_revision, self.hold_extension_s = revision, extension_s

    def restart(self) -> None:
        """kill -9 of the agent and a new one: it knows what its journal and its shims know."""
        self.cut()

    def reboot(self) -> None:
        """Nothing runs any more; ends that were recorded are still known."""
        self.cut()
        self.boot_id = f"{self.boot_id}+"
        for key in [key for key, rank in self.ranks.items() if not rank.ended]:
            del self.ranks[key]
            self._pending.pop(key, None)

    # --- commands -----------------------------------------------------------------------------

    def receive(self) -> None:
        """Take what has arrived on this session into our hands."""
        sent = self.master.wires.sent[self.node_id]
        self._read = min(self._read, len(sent))
        for session_id, command in sent[self._read :]:
            if session_id == self.session_id:
                self.inbox.append(command)
        self._read = len(sent)

    def obey(self, count: int = 1_000) -> None:
        """Carry out commands in order, and say so."""
        self.receive()
        while self.inbox and count:
            count -= 1
            command = self.inbox.popleft()
            refusal = self._carry_out(command)
            if self.session_id is not None:
                self.master.turn(
                    CommandDone(
                        node_id=self.node_id,
                        session_id=self.session_id,
                        sequence=command.sequence,
                        refusal=refusal,
                    )
                )

    def _carry_out(self, command: Command) -> str:
        match command:
            case Launch():
                return self._launch(command)
            case Stop():
                return self._stop(command)
            case LookAtGpus(number=number):
                self.looks.append(number)
                return ""
            case Signal() | Save():
                self.words.append(command)
                return "" if command.key in self.ranks else "unknown_rank"
            case Suspend() | Resume():  # an agent of before
                return "unknown_order"

    def _launch(self, launch: Launch) -> str:
        if launch.key in self._absent:
            return "stopped"
        known = self.ranks.get(launch.key)
        again = known is not None and known.launch.node_rank != launch.node_rank
        if known is None or (again and known.ended):  # it has left, and comes back as another rank
            self._must_have_room(launch)
            self.ranks[launch.key] = SimRank(launch)
        elif known.launch.epoch != launch.epoch:
            return "fence_mismatch"
        elif known.phase is ReportedPhase.READY and not launch.at_barrier:
            known.launch, known.phase = launch, ReportedPhase.PREPARING
            self.start(launch.key)
        self._tell(launch.key)
        return ""

    def _refusal(self, launch: Launch) -> ReportedRank:
        """No command asked for it, so none is answered: it is reported as a rank is."""
        self._last_sequence += 1
        return ReportedRank(
            sequence=self._last_sequence,
            key=launch.key,
            epoch=launch.epoch,
            node_rank=launch.node_rank,
            phase=ReportedPhase.START_FAILED,
            error="fence_mismatch",
        )

    def _must_have_room(self, launch: Launch) -> None:
        for rank in self.ranks.values():
            if not rank.ended or rank.gpus_held:
                both = set(rank.launch.gpu_indexes) & set(launch.gpu_indexes)
                assert not both, (
                    f"{launch.key} gets GPUs {both} that {rank.launch.key} has on {self.node_id}\n"
                    f"{rank}\n{self.master.story()}"
                )

    def _stop(self, stop: Stop) -> str:
        rank = self.ranks.get(stop.key)
        if rank is None:
            self._absent[stop.key] = (stop.epoch, stop.node_rank, 0)
            self._tell(stop.key)
            return ""
        if rank.launch.epoch != stop.epoch:
            return "fence_mismatch"
        if rank.launch.node_rank != stop.node_rank:  # of one that left long ago
            return ""
        if rank.phase in _UNSTARTED:
            self._fail_start(stop.key, "stopped before it started")
        elif rank.alive:
            rank.phase = ReportedPhase.STOPPING
            rank.noticed = True
            rank.kill = rank.kill or stop.grace_s == 0.0
        self._tell(stop.key)
        return ""

    def _fail_start(self, key: AttemptKey, error: str) -> None:
        self.ranks[key].phase = ReportedPhase.START_FAILED
        self.ranks[key].error = error
        self._tell(key)

    # --- jobs ---------------------------------------------------------------------------------

    def ready(self, key: AttemptKey, *ports: int) -> None:
        """A rank is prepared; it waits for the others, and starts when its launch comes again."""
        rank = self.ranks[key]
        assert rank.launch.at_barrier
        if rank.phase in _UNSTARTED:
            rank.phase, rank.ports = ReportedPhase.READY, ports
            self._tell(key)

    def start(self, key: AttemptKey) -> None:
        """The process of a prepared rank runs. Only while the master is in contact."""
        rank = self.ranks[key]
        if rank.phase is ReportedPhase.PREPARING and self.session_id is not None:
            rank.phase = ReportedPhase.STARTED
            self._tell(key)

    def fail_start(
        self,
        key: AttemptKey,
        error: str = "no such directory",
        *,
        no_room: bool = False,
        cause: str = "",
    ) -> None:
        """A prepared rank cannot be started; `no_room`: because a disk is full; `cause`: in a fixed
        word.
        """
        if self.ranks[key].phase is ReportedPhase.PREPARING:
            self.ranks[key].no_room, self.ranks[key].start_cause = no_room, cause
            self._fail_start(key, error)

    def beat(self, key: AttemptKey, step: int | None, total: int | None = None) -> None:
        """The process has just written its beat; heartbeats tell it."""
        self.ranks[key].said = step, total, self.master.clock.now_s()

    def save(self, key: AttemptKey, step: int, *, save_s: float | None = None) -> None:
        """A checkpoint is committed; `save_s` if its job beats, and says how long that takes."""
        rank = self.ranks[key]
        if rank.alive:
            rank.save_s = save_s
            rank.checkpoint = ReportedCheckpoint(
                path=f"/ckpt/{key}/{step}",
                step=step,
                age_s=0.0,
                after_notice=rank.noticed or rank.shim_noticed,
            )
            self._tell(key)

    def exit(
        self, key: AttemptKey, code: int = 0, ended_by: str = "exited", *last_lines: str
    ) -> None:
        """The process is gone, and its control group empty."""
        rank = self.ranks[key]
        if rank.alive:
            rank.last_lines = last_lines
            rank.phase = ReportedPhase.EXITED
            rank.exit_code = code
            rank.ended_by = ended_by
            rank.error = ""
            rank.ended_s = self.master.clock.now_s()
            self._tell(key)

    def crash(self, key: AttemptKey, signal: int) -> None:
        """A signal that nobody here sent has ended the process."""
        rank = self.ranks[key]
        rank.phase, rank.signal, rank.ended_by = ReportedPhase.EXITED, signal, "exited"
        rank.ended_s = self.master.clock.now_s()
        self._tell(key)

    def give_up(self, key: AttemptKey, why: str) -> None:
        """The agent itself has killed it."""
        rank = self.ranks[key]
        rank.phase, rank.signal, rank.ended_by = ReportedPhase.EXITED, 9, "killed"
        rank.error, rank.ended_s = why, self.master.clock.now_s()
        self._tell(key)

    def vanish(self, key: AttemptKey) -> None:
        """Its shim is dead and left no record: the agent knows that it has ended, and no more."""
        rank = self.ranks[key]
        rank.phase, rank.error = ReportedPhase.EXITED, "shim_lost"
        rank.ended_s = self.master.clock.now_s()
        self._tell(key)

    def cling(self, key: AttemptKey, why: str) -> None:
        """The process is gone, but its GPUs cannot be given back yet."""
        rank = self.ranks[key]
        rank.phase, rank.error = ReportedPhase.STOPPING, why
        self._tell(key)

    def hold_gpus(self, key: AttemptKey, why: str) -> None:
        """It has exited, and its GPUs are not free; an empty word: now they are."""
        self.ranks[key].gpus_held = why
        self.ranks[key].confirmed = False
        self._tell(key)

    def guard(self) -> None:
        """The shims: whoever is silent for too long ends."""
        for key, rank in self.ranks.items():
            if not rank.alive:
                continue
            left_s = rank.launch.hold_s + self.hold_extension_s - self._silent_s()
            grace_s = min(300.0, rank.launch.hold_s / 2.0)
            rank.shim_noticed = not rank.noticed and left_s <= grace_s
            if left_s <= 0.0:
                self.exit(key, 143, "hold_expired")

    def _silent_s(self) -> float:
        return self.master.clock.now_s() - self.contact_s

    def living(self) -> list[AttemptKey]:
        """What runs here, whatever the master thinks."""
        return [key for key, rank in self.ranks.items() if rank.alive]

    # --- reports ------------------------------------------------------------------------------

    def report(self) -> None:
        """Send all that is not acknowledged, in one turn."""
        if self._pending and self.session_id is not None:
            self.send([self._report(key) for key in self._pending])

    def send(self, reports: list[ReportedRank], *, acknowledged: bool = True) -> None:
        """Send reports as given; a refused session acknowledges nothing, and an acknowledgement
        may get lost."""
        assert self.session_id is not None
        (answer,) = self.master.turn(
            RankReports(node_id=self.node_id, session_id=self.session_id, reports=tuple(reports))
        )
        if isinstance(answer, int) and acknowledged:
            self._acknowledged(answer)

    def waiting_reports(self) -> list[ReportedRank]:
        """What `report` would send."""
        return [self._report(key) for key in self._pending]

    def _tell(self, key: AttemptKey) -> None:
        self._last_sequence += 1
        self._pending[key] = self._last_sequence

    def _acknowledged(self, sequence: int) -> None:
        for key, number in list(self._pending.items()):
            if number <= sequence:
                del self._pending[key]
                self._absent.pop(key, None)
                if key in self.ranks and self.ranks[key].ended and not self.ranks[key].gpus_held:
                    self.ranks[key].confirmed = True

    def _report(self, key: AttemptKey) -> ReportedRank:
        if key not in self._pending:
            self._tell(key)
        sequence = self._pending[key]
        rank = self.ranks.get(key)
        if rank is None:
            epoch, node_rank, _ = self._absent[key]
            return ReportedRank(
                sequence=sequence,
                key=key,
                epoch=epoch,
                node_rank=node_rank,
                phase=ReportedPhase.ABSENT,
            )
        return ReportedRank(
            sequence=sequence,
            key=key,
            epoch=rank.launch.epoch,
            node_rank=rank.launch.node_rank,
            phase=rank.phase,
            exit_code=rank.exit_code,
            signal=rank.signal,
            error=rank.error,
            no_room=rank.no_room,
            start_cause=rank.start_cause,
            ended_by=rank.ended_by,
            noticed=_notice_of(rank) if rank.ended else "",
            catches=rank.catches,
            unnoticed=self.tells_unnoticed and _is_unnoticed(rank),
            age_s=self.master.clock.now_s() - rank.ended_s if rank.ended_s else 0.0,
            checkpoint=rank.checkpoint,
            save_s=rank.save_s,
            ports=() if rank.ended else rank.ports,
            gpu_indexes=rank.launch.gpu_indexes if self.tells_gpus else (),
            gpus_held=rank.gpus_held if rank.ended else "",
            last_lines=rank.last_lines,
        )


def _notice_of(rank: SimRank) -> str:
    if rank.noticed:
        return "stop"
    return "hold_expired" if rank.shim_noticed else ""


def _is_unnoticed(rank: SimRank) -> bool:
    return rank.ended and rank.ended_by == "exited" and not _notice_of(rank)


def greet_again(master: Master, agents: Iterable[SimAgent]) -> None:
    """The master dies and comes back; what was on the lines is lost, and the agents say hello."""
    crowd = list(agents)
    for agent in crowd:
        agent.session_id = None
        agent.inbox.clear()
    master.crashed()
    for agent in crowd:
        agent.hello()
