"""Runs the ranks of this node: the state machine in `model/rank.py` decides, and this
module acts.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.start_causes import StartCause
from dlq_nodeagent.launch.live_torchrun import may_fail_to_join, stop_of_a_failure
from dlq_nodeagent.launch.rules import AgentJobsConfig
from dlq_nodeagent.model.errands import Errands, Look, Preparation, PrepareOrder, Purpose
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import (
    Fence,
    Launch,
    ProfileEvidence,
    RankProgress,
    RankUse,
    Save,
    Signal,
    StepsReport,
    Stop,
)
from dlq_nodeagent.model.mistakes import LaunchRefused, cause_of_own, lacks_room
from dlq_nodeagent.model.port import AttemptExists, ExitRecord, Handle, Runtime, RuntimeFault
from dlq_nodeagent.model.rank import (
    ALIVE,
    OVER,
    SUSPENSION,
    Acknowledged,
    Effect,
    Exited,
    HandedOver,
    LaunchFailed,
    LetGo,
    MainStarted,
    NoticeDue,
    Prepared,
    Rank,
    RankEvent,
    RankState,
    RankStep,
    Released,
    StopAsked,
    accept,
    answered_notice,
    awaits_beat,
    leave_now,
    notice_due_s,
    step,
)
from dlq_nodeagent.profiling.profiles import Profiles
from dlq_nodeagent.ranks.holding import Holding
from dlq_nodeagent.ranks.keeping import Keeping
from dlq_nodeagent.ranks.last_words import blames_others, is_told, last_lines, no_secrets
from dlq_nodeagent.ranks.looking import Looking
from dlq_nodeagent.ranks.moves import RankMoves
from dlq_nodeagent.ranks.orders import Orders
from dlq_nodeagent.ranks.step_lists import StepLists
from dlq_nodeagent.ranks.using import RankUses
from dlq_nodeagent.ranks.watched import HELD, UNKILLABLE, Watched, orphan, recovered
from dlq_nodeagent.state.journal import Journal, RankRecord

# The longest delay of the report of an end, while the rank's GPUs are not free.
_SETTLE_S = 1.0
TELL_PREPARING_S = 0.2
"""A rank that prepares longer is reported as preparing. Others are first reported when they run."""
JOURNAL_FAILED = "journal_failed"
# States that another line of the log implies.
_SAID_OTHERWISE = frozenset({RankState.LAUNCHING, RankState.RELEASING, RankState.KEPT})
# States whose next step the runtime announces, if it has hints.
_SHOWN = frozenset({RankState.LAUNCHING, RankState.RUNNING})
_WATCH_S, _WATCH_STOPPING_S = 1.0, 0.25
_LOOK_TIMEOUT_S, _BASELINE_TIMEOUT_S = 30.0, 5.0

log = get_logger("nodeagent.supervisor")


@dataclass(slots=True, kw_only=True)
class Supervisor:
    """All ranks of this node.

    `tell` queues a report of a rank. `may_start` says whether the last contact with the master is
    fresh enough to start one. A rank is stopped only by a Stop that names it, never by its absence
    from a list.
    """

    clock: Clock
    runtime: Runtime
    journal: Journal
    errands: Errands
    jobs: AgentJobsConfig
    release_timeout_s: float
    tell: Callable[[RankKey], None]
    may_start: Callable[[Launch], bool]
    epoch: Callable[[], int]
    boot_id: str
    secrets_of: Callable[[Launch], Sequence[bytes] | None] = no_secrets
    """Secrets of a rank, to be hidden in its output; None: they are not known any more."""
    profiles: Profiles = field(init=False)
    moves: RankMoves = field(init=False)
    step_lists: StepLists = field(init=False)
    _uses: RankUses = field(init=False)
    _watched: dict[RankKey, Watched] = field(default_factory=dict)
    _open: dict[RankKey, Watched] = field(default_factory=dict)
    """The watched ranks with open work; the others are kept only to answer repeats."""
    _keeping: Keeping = field(init=False)
    _looking: Looking = field(init=False)
    _orders: Orders = field(init=False)
    _holding: Holding = field(init=False)

    def __post_init__(self) -> None:
        self._orders = Orders(self.clock, self.runtime, self.epoch, self.jobs.term)
        self._holding = Holding(runtime=self.runtime, epoch=self.epoch)
        self._looking = Looking(
            clock=self.clock,
            runtime=self.runtime,
            errands=self.errands,
            boot_id=self.boot_id,
            release_timeout_s=self.release_timeout_s,
            open_ranks=self._open.values(),
        )
        self._keeping = Keeping(
            clock=self.clock,
            runtime=self.runtime,
            journal=self.journal,
            errands=self.errands,
            keep_s=self.jobs.keep,
            keep_count=self.jobs.keep_count,
        )
        self.profiles = Profiles(
            clock=self.clock,
            errands=self.errands,
            runtime=self.runtime,
            record=self._keeping.record,
            watched=self._watched.get,
        )
        self.moves = RankMoves(
            clock=self.clock,
            runtime=self.runtime,
            errands=self.errands,
            apply=self._apply,
            sync=self.sync,
            fenced_rank=self._fenced_rank,
            open_ranks=self._open.values(),
        )
        self._uses = RankUses(self.clock, self.runtime)
        self.step_lists = StepLists(
            clock=self.clock,
            runtime=self.runtime,
            record=self._keeping.record,
            watched=self._watched.get,
        )

    # ---- orders of the master, results of errands

    def recover(self, records: Iterable[RankRecord]) -> None:
        handles = {handle.key: handle for handle in self.runtime.recover()}
        for record in records:
            self._adopt(record, handles.pop(record.launch.key, None))
        for handle in handles.values():
            log.warning("rank_without_record", key=str(handle.key))
            self._adopt(orphan(handle), handle)
            self._watched[handle.key].orphan = True
        self.errands.drop_profiles_but(self.profiles.needed(self._open.values()))
        self._poll()

    def launch(self, launch: Launch) -> str:
        """Accept a launch; return "" or the fixed word of a refusal. A known rank is reported."""
        known = self._watched.get(launch.key)
        if known is not None:
            if known.rank.launch.fence != launch.fence:
                return "fence_mismatch"
            known.confirmed = True
            self._pass_barrier(known, launch)
            self.tell(launch.key)
            return ""
        watched = Watched(accept(launch, now_s=self.clock.boottime_s()).rank)
        self._watched[launch.key] = self._open[launch.key] = watched
        unwritten = self._keeping.record(watched)
        if unwritten is not None:
            self._fail_unwritten(watched, unwritten)  # the master is told at once
            return JOURNAL_FAILED
        log.info("launch_taken", key=str(launch.key), fence=str(launch.fence))
        self._prepare(watched)
        return ""

    def sync(self) -> None:
        """Wait until the journal is on disk: nothing may be reported before."""
        error = self._keeping.sync()
        if error is not None:
            for watched in list(self._open.values()):
                if watched.rank.state is RankState.PREPARING and not watched.written:
                    self._fail_unwritten(watched, error)

    def is_refused(self, key: RankKey) -> bool:
        """Whether a launch was accepted and could not be written to the journal."""
        watched = self._watched.get(key)
        return watched is not None and not watched.written and watched.rank.state in OVER

    def _fail_unwritten(self, watched: Watched, error: OSError) -> None:
        """Fail a launch that the journal cannot hold: after a crash it would be unknown."""
        words = f"the agent cannot write its journal: {error.strerror}"
        self._apply(watched, LaunchFailed(words, None, lacks_room(error), cause_of_own(error)))

    def stop(self, stop: Stop) -> str:
        """Accept a stop; return "" or the fixed word of a refusal. May be repeated."""
        watched = self._fenced_rank(stop.key, stop.fence)
        if isinstance(watched, str):
            return watched
        log.info("stop_taken", key=str(stop.key), cause=stop.cause, grace_s=stop.grace_s)
        self._apply(watched, StopAsked(stop))
        return ""

    def signal(self, order: Signal) -> str:
        """Send a signal to the main process of a running rank; return a refusal like `stop`."""
        found = self._running_rank(order.key, order.fence)
        return found if isinstance(found, str) else self._orders.signal(found, order.signal)

    def ask_save(self, order: Save) -> str:
        """Ask a running rank to save and go on; return a refusal like `stop`."""
        found = self._running_rank(order.key, order.fence)
        return found if isinstance(found, str) else self._orders.ask_save(found, order.number)

    def _fenced_rank(self, key: RankKey, fence: Fence) -> Watched | str:
        """The rank with this fence, or the fixed word of a refusal."""
        watched = self._watched.get(key)
        if watched is None:
            return "unknown_rank"
        return watched if watched.rank.launch.fence == fence else "fence_mismatch"

    def _running_rank(self, key: RankKey, fence: Fence) -> Watched | str:
        """The same; a rank that does not run is refused."""
        found = self._fenced_rank(key, fence)
        if isinstance(found, str):
            return found
        runs = found.handle is not None and found.rank.state is RankState.RUNNING
        return found if runs else "not_running"

    def hold_out(self, revision: int, extension_s: float) -> None:
        """Let every rank survive `extension_s` more silence of the master than its launch says."""
        self._holding.take(revision, extension_s)
        self._holding.apply(self._open.values())

    def drop_unwanted_unstarted(self, wanted: frozenset[RankKey]) -> None:
        """After a Welcome: drop unwanted ranks that have not started. Running ranks stay.

        Their jobs may have moved to another node while there was no contact.
        """
        for key, watched in self._open.items():
            if watched.rank.state is not RankState.PREPARING:
                continue
            if key in wanted:
                watched.confirmed = True
            else:
                self._apply(
                    watched, LaunchFailed("not wanted any more", cause=StartCause.WITHDRAWN)
                )

    def acknowledged(self, key: RankKey) -> None:
        watched = self._watched.get(key)
        if watched is not None and watched.rank.state is RankState.ENDED:
            self._apply(watched, Acknowledged())

    def prepared(self, key: RankKey, preparation: Preparation) -> None:
        """Take the result of a preparation; ignored if the rank was stopped meanwhile."""
        watched = self._watched.get(key)
        if watched is None or watched.rank.state is not RankState.PREPARING:
            self.errands.tidy(key)
            return
        watched.preparing = False
        if watched.prepare_again or preparation.again:
            watched.prepare_again = False
            self._prepare(watched)
            return
        if preparation.plan is None:
            failed = LaunchFailed(
                preparation.error, preparation.exit_code, preparation.no_room, preparation.cause
            )
            self._apply(watched, failed)
            return
        watched.plan = preparation.plan
        box = preparation.plan.container
        digest = "" if box is None else box.image_digest
        self._apply(watched, Prepared(preparation.floor_mtime_ns, preparation.ports, digest))
        self._start_if_due(watched)

    def preparing(self, key: RankKey, detail: str) -> None:
        """Report the present step of a preparation, such as pulling an image."""
        watched = self._watched.get(key)
        if watched is not None and watched.preparing and watched.rank.detail != detail:
            log.info("rank_preparing", key=str(key), detail=detail)
            watched.rank = replace(watched.rank, detail=detail)
            self.tell(key)

    def looked(self, key: RankKey, purpose: Purpose, look: Look) -> None:
        watched = self._watched.get(key)
        if watched is None:
            return
        if watched.looking is purpose:
            watched.looking = None
        if watched.rank.state in OVER:
            return
        if self._looking.take(watched, look) and watched.rank.state in ALIVE:
            self.tell(key)
        if purpose is Purpose.BASELINE and watched.rank.state is RankState.STOP_WAITING:
            self._notice(watched)
        elif watched.rank.state is RankState.RELEASING:
            self._release(watched, purpose, look)

    # ---- questions

    def unconfirmed(self) -> list[RankKey]:
        """The ranks that a Hello must name: all without a confirmed end."""
        return [key for key, it in self._open.items() if it.rank.state is not RankState.KEPT]

    def settles_former_boot(self) -> bool:
        """Whether the end of a rank from before this boot is still being looked at."""
        return any(
            it.rank.state is RankState.RELEASING
            and it.rank.record is not None
            and it.rank.record.boot_id != self.boot_id
            for it in self._open.values()
        )

    def keys(self) -> frozenset[RankKey]:
        return frozenset(self._watched)

    def rank(self, key: RankKey) -> Rank | None:
        """The rank as reported to the master; None: unknown."""
        watched = self._watched.get(key)
        return None if watched is None else watched.reported()

    def handle(self, key: RankKey) -> Handle | None:
        """The runtime's handle of a rank; None: the runtime never had it."""
        watched = self._watched.get(key)
        return None if watched is None else watched.handle

    def running(self, key: RankKey, fence: Fence) -> Handle | None:
        """The handle of a running rank with this fence; None: there is none."""
        watched = self._watched.get(key)
        if watched is None or watched.rank.launch.fence != fence:
            return None
        state = watched.rank.state
        return watched.handle if state in ALIVE and state not in SUSPENSION else None

    def progress(self) -> tuple[RankProgress, ...]:
        now_s = self.clock.boottime_s()
        living = (it for it in self._open.values() if it.rank.state in ALIVE)
        return tuple(watched.progress(now_s) for watched in living)

    def rank_uses(self) -> tuple[RankUse, ...]:
        """The ranks' use of the host since the last call; empty until it is due."""
        return self._uses.told(it for it in self._open.values() if it.rank.state in ALIVE)

    def gpus_in_use(self) -> frozenset[int]:
        """GPUs of ranks that may run or have not freed them. Any thread may call it."""
        return frozenset(
            index for watched in list(self._open.values()) for index in watched.rank.gpus_of_its_own
        )

    def jobs_of_gpus(self) -> dict[int, str]:
        """GPU -> the job whose rank runs there, starts, or leaves."""
        return {
            index: watched.rank.launch.key.job_id
            for watched in self._open.values()
            if watched.rank.state in ALIVE
            for index in watched.rank.gpus_of_its_own
        }

    def images_in_use(self) -> frozenset[str]:
        """Ids of images that this process has prepared for ranks that are not over. Any thread may
        call it.
        """
        plans = [it.plan for it in list(self._open.values()) if it.rank.state not in OVER]
        boxes = (plan.container for plan in plans if plan is not None)
        return frozenset(box.image for box in boxes if box is not None)

    def unsent(self) -> None:
        """Send evidence and lists again: messages on the closed line may be lost."""
        self.profiles.unsent()
        self.step_lists.unsent(self._open.values())

    def evidence(self, *, repeat_s: float) -> list[ProfileEvidence]:
        """The evidence for the master; marks it sent."""
        now_s = self.clock.boottime_s()
        return list(self.profiles.due(self._open.values(), now_s, repeat_s=repeat_s))

    def steps(self, *, repeat_s: float) -> list[StepsReport]:
        """The lists of steps for the master; marks them sent."""
        now_s = self.clock.boottime_s()
        return list(self.step_lists.due(self._open.values(), now_s, repeat_s=repeat_s))

    def hold_revision(self) -> int:
        """The latest hold revision of the master that every living rank has; 0: none."""
        return self._holding.in_force()

    def poll_s(self) -> float:
        states = {watched.rank.state for watched in self._open.values()}
        states -= OVER
        if states and states <= _SHOWN and self.runtime.ends() is not None:
            return 0.25  # starts and ends show by themselves: beats and looks remain
        if RankState.LAUNCHING in states:
            return 0.01
        return 0.1 if states else 1.0

    # ---- time

    def tick(self) -> None:
        self._poll()
        now_s = self.clock.boottime_s()
        for watched in list(self._open.values()):
            self._drive(watched, now_s)
            self.profiles.drive(watched, now_s)
            self.step_lists.drive(watched, now_s)
        self.moves.make_room(now_s)
        self._holding.apply(self._open.values())
        self._keeping.catch_up(self._open.values())
        settled = [watched for watched in self._open.values() if self._is_settled(watched)]
        for watched in sorted(settled, key=lambda it: it.recorded_s):
            self._keeping.keep(self._open.pop(watched.rank.launch.key))
        for watched in self._keeping.too_old():
            self._keeping.forget(watched)
            del self._watched[watched.rank.launch.key]

    def _is_settled(self, watched: Watched) -> bool:
        """Whether a rank has no open work. It is kept only to answer repeated orders."""
        settled = watched.rank.state is RankState.KEPT and not watched.unrecorded
        return settled and self.profiles.settled(watched) and self.step_lists.settled(watched)

    def _poll(self) -> None:
        living = {
            watched.handle: watched
            for watched in self._open.values()
            if watched.handle is not None and watched.rank.state in ALIVE
        }
        for record in self.runtime.exited(living):
            self._exited(living.pop(Handle(record.key, record.epoch)), record)
        for handle, watched in living.items():
            if watched.rank.started_s is None:
                started = self.runtime.started(handle)
                if started is not None:
                    self._apply(watched, MainStarted(started.started_boottime_ns / 1e9))

    def _drive(self, watched: Watched, now_s: float) -> None:
        beat_due = now_s >= watched.beat_at_s or awaits_beat(watched.rank)
        if watched.rank.state in ALIVE and beat_due:
            watched.beat_at_s = now_s + _WATCH_S
            assert watched.handle is not None
            watched.take_beat(self.runtime.beat(watched.handle), now_s)
            self._check_workers(watched, watched.handle)
        match watched.rank.state:
            case RankState.PREPARING:
                self._drive_preparing(watched, now_s)
            case RankState.LAUNCHING | RankState.RUNNING:
                self._looking.if_due(watched, Purpose.WATCH, _WATCH_S)
            case RankState.SUSPENDING | RankState.SUSPENDED | RankState.RESUMING:
                self.moves.drive(watched, now_s)
            case RankState.STOP_WAITING:
                self._drive_waiting(watched, now_s)
            case RankState.STOPPING:
                self._drive_stopping(watched, now_s)
            case RankState.RELEASING:
                self._drive_releasing(watched, now_s)
            case _:
                pass

    # ---- starting

    def _adopt(self, record: RankRecord, handle: Handle | None) -> None:
        watched = recovered(record, handle, now_s=self.clock.boottime_s())
        key = record.launch.key
        self._watched[key] = self._open[key] = watched
        log.info("rank_recovered", key=str(key), state=watched.rank.state.value)
        ended = None if handle is None or watched.rank.state in ALIVE else self.runtime.poll(handle)
        if ended is not None:
            watched.rank = replace(watched.rank, record=ended, ended_s=self._looking.ended_s(ended))
            self._read_last_lines(watched, ended)

    def _drive_preparing(self, watched: Watched, now_s: float) -> None:
        if not watched.told and now_s - watched.rank.accepted_s >= TELL_PREPARING_S:
            watched.told = True
            self.tell(watched.rank.launch.key)
        if not watched.confirmed or watched.preparing:
            return
        if watched.plan is None:
            self._prepare(watched)
        else:
            self._start_if_due(watched)

    def _pass_barrier(self, watched: Watched, launch: Launch) -> None:
        """The launch of a rank at the barrier was repeated; start the rank if it says so."""
        rank = watched.rank
        if rank.state is not RankState.PREPARING or not rank.launch.at_barrier or launch.at_barrier:
            return
        log.info("rank_let_go", key=str(launch.key))
        self._apply(watched, LetGo(launch))
        watched.plan = None
        if watched.preparing:
            watched.prepare_again = True
        else:
            self._prepare(watched)

    def _prepare(self, watched: Watched) -> None:
        watched.preparing = True
        others = (it.rank for it in self._open.values() if it is not watched)
        taken = frozenset(port for it in others if it.state not in OVER for port in it.ports)
        order = PrepareOrder(launch=watched.rank.launch, ports=watched.rank.ports, taken=taken)
        self.errands.prepare(order)

    def _start_if_due(self, watched: Watched) -> None:
        launch = watched.rank.launch
        if launch.at_barrier or watched.plan is None or not watched.confirmed:
            return
        if not self.may_start(launch):
            return
        self.sync()
        if watched.rank.state is not RankState.PREPARING:
            return
        try:
            watched.handle = self.runtime.start(watched.plan)
        except AttemptExists:
            watched.handle = Handle(launch.key, launch.fence.epoch)
        except (LaunchRefused, RuntimeFault, OSError) as refused:
            failed = LaunchFailed(str(refused), None, lacks_room(refused), cause_of_own(refused))
            self._apply(watched, failed)
            return
        self._apply(watched, HandedOver())
        # Nothing can be saved or said before.
        watched.look_at_s = watched.beat_at_s = self.clock.boottime_s() + _WATCH_S

    # ---- stopping

    def _drive_waiting(self, watched: Watched, now_s: float) -> None:
        stopping = watched.rank.stopping
        assert stopping is not None
        if now_s < notice_due_s(watched.rank, startup_grace_s=self.jobs.startup_grace):
            self._looking.if_due(watched, Purpose.WATCH, _WATCH_S)
        elif stopping.grace_s == 0:
            self._notice(watched)
        elif watched.looking is not Purpose.BASELINE:
            self._looking.now(watched, Purpose.BASELINE, _WATCH_STOPPING_S)
        elif now_s - watched.look_sent_s >= _BASELINE_TIMEOUT_S:
            # The look hangs (a file system): give notice without it.
            self._notice(watched)

    def _notice(self, watched: Watched) -> None:
        """Give notice, unless the rank has ended meanwhile."""
        ended = None if watched.handle is None else self.runtime.poll(watched.handle)
        if ended is not None:
            self._exited(watched, ended)
            return
        known = watched.rank.checkpoint
        self._apply(watched, NoticeDue(0 if known is None else known.mtime_ns))

    def _drive_stopping(self, watched: Watched, now_s: float) -> None:
        self._looking.if_due(watched, Purpose.WATCH, _WATCH_STOPPING_S)
        if watched.undelivered is not None:
            self._deliver(watched, watched.undelivered)
        if answered_notice(watched.rank) and watched.answered_s is None:
            watched.answered_s = now_s
        if watched.answered_s is not None and now_s - watched.answered_s >= self.jobs.leave:
            self._enter(watched, leave_now(watched.rank, now_s=now_s, term_s=self.jobs.term))

    def _deliver(self, watched: Watched, effect: Effect) -> None:
        self.sync()
        if self._orders.deliver(effect, watched):
            self._keeping.record(watched)

    # ---- ending

    def _exited(self, watched: Watched, record: ExitRecord) -> None:
        log.info("rank_exited", key=str(record.key), why=record.why.value, code=record.code)
        self._apply(watched, Exited(record))
        handle = watched.handle
        done = handle is not None and (
            self.runtime.done(handle) or self._at_last_step(watched, handle, record)
        )
        watched.rank = replace(watched.rank, ended_s=self._looking.ended_s(record), done=done)
        self._read_last_lines(watched, record)
        self._looking.now(watched, Purpose.FINAL, _WATCH_S)

    def _at_last_step(self, watched: Watched, handle: Handle, record: ExitRecord) -> bool:
        """Whether it exited with 0 at its last step, and so has finished."""
        if record.code != 0:
            return False
        watched.take_beat(self.runtime.beat(handle), self.clock.boottime_s())
        beat = watched.beat
        return beat is not None and bool(beat.total) and (beat.step or 0) >= (beat.total or 0)

    def _check_workers(self, watched: Watched, handle: Handle) -> None:
        """Report once that the workers here are done (again after a restart of the agent).

        Stop a rank whose workers cannot join the other ranks.
        """
        rank = watched.rank
        serves = rank.launch.worker_count or rank.launch.step_key
        if serves and not rank.workers_done and self.runtime.workers_done(handle):
            watched.rank = replace(rank, workers_done=True)
            self.tell(rank.launch.key)
        if may_fail_to_join(rank, self.clock.boottime_s()):
            failures = self.runtime.worker_failures(handle)
            others = partial(blames_others, self.runtime, handle)
            stop = stop_of_a_failure(rank, failures, others)
            if stop is not None:
                log.info("join_failed", key=str(rank.launch.key))
                self._apply(watched, StopAsked(stop))

    def _read_last_lines(self, watched: Watched, record: ExitRecord) -> None:
        if watched.handle is None or not is_told(watched.rank.launch, record):
            return
        task = self.runtime.failed_task(watched.handle)
        secrets = self.secrets_of(watched.rank.launch)
        known = secrets is not None  # otherwise the secrets in its output would be unknown
        lines = last_lines(self.runtime, watched.handle, task, secrets or ()) if known else ()
        watched.rank = replace(watched.rank, failed_task=task, last_lines=lines)

    def _drive_releasing(self, watched: Watched, now_s: float) -> None:
        if watched.looking is None:
            purpose = Purpose.FINAL if watched.settled_s is None else Purpose.RELEASE
            slow = bool(watched.held_by)
            period_s = _WATCH_S if slow else _WATCH_STOPPING_S
            self._looking.if_due(watched, purpose, period_s)
        elif now_s - watched.look_sent_s >= _LOOK_TIMEOUT_S:
            self._report_held_gpus(watched, "look_timeout")
        if watched.held_by or watched.settled_s is None:
            return
        if now_s - watched.settled_s >= _SETTLE_S:
            unkillable = self._looking.unkillable(watched)
            self._report_held_gpus(watched, UNKILLABLE if unkillable else HELD)

    def _release(self, watched: Watched, purpose: Purpose, look: Look) -> None:
        """Use a look after the end: first for the last checkpoint, then for the GPUs."""
        if purpose not in (Purpose.FINAL, Purpose.RELEASE):
            return
        if purpose is Purpose.FINAL:
            watched.settled_s = self.clock.boottime_s()
            if look.released is None:
                self._looking.now(watched, Purpose.RELEASE, _WATCH_STOPPING_S)
                return
        obstacle = self._looking.obstacle(watched, look)
        if obstacle is None:
            self._apply(watched, Released())
        elif obstacle:
            self._report_held_gpus(watched, obstacle)

    def _report_held_gpus(self, watched: Watched, why: str) -> None:
        """Report, once per reason, that the GPUs of an ended rank are not free."""
        if watched.held_by != why:
            watched.held_by = why
            log.error("gpus_not_released", key=str(watched.rank.launch.key), why=why)
            if watched.settled_s is not None and why != UNKILLABLE and not watched.end_told:
                watched.end_told = True
                self._keeping.record(watched)
            self.tell(watched.rank.launch.key)

    # ---- carrying out

    def _apply(self, watched: Watched, event: RankEvent) -> None:
        self._enter(watched, step(watched.rank, event, now_s=self.clock.boottime_s()))

    def _enter(self, watched: Watched, taken: RankStep) -> None:
        if taken.rank.state is not watched.rank.state:
            say = log.debug if taken.rank.state in _SAID_OTHERWISE else log.info
            key, state = str(taken.rank.launch.key), taken.rank.state.value
            say("rank_moved", key=key, state=state, was=watched.rank.state.value)
            if watched.preparing and watched.rank.state is RankState.PREPARING:
                self.errands.abandon(taken.rank.launch.key)
        watched.rank = taken.rank
        for effect in taken.effects:
            if effect is Effect.RECORD:
                self._keeping.record(watched)
            elif effect is Effect.TELL:
                watched.told = True
                self.tell(watched.rank.launch.key)
            else:
                self._deliver(watched, effect)
