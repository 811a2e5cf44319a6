"""The agent as one object without threads, sockets or processes; its parts are handed in.

The daemon (daemon.py) calls `start`, then `tick` as often as `pause_s` says, and `received` for
each message. Tests do the same with a fake clock, runtime and transport.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dlq_common import fence as fences
from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.fence import LeaderFence
from dlq_nodeagent.launch.rules import AgentJobsConfig
from dlq_nodeagent.line.uplink import Contact, LinkState, ReconnectConfig, Uplink, UplinkTransport
from dlq_nodeagent.model.errands import Errands, Look, MoveResult, Preparation, Purpose
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import (
    REPORTS_ANSWER,
    TAKES_STEPS,
    Command,
    CommandResult,
    Fence,
    FromMaster,
    GpuLook,
    HeartbeatReply,
    Hello,
    Instance,
    Launch,
    LookAtGpus,
    OpenExec,
    OpenLog,
    OpenSamples,
    Order,
    Phase,
    ProfileAck,
    ProfileFound,
    RankReport,
    ReportAck,
    Resume,
    Save,
    Signal,
    StepsAck,
    Stop,
    Suspend,
    UnexplainedRank,
    Welcome,
)
from dlq_nodeagent.model.port import Runtime
from dlq_nodeagent.model.report import error_of, report_of
from dlq_nodeagent.ranks.pending import PendingReports, RefusedLaunch, Subject
from dlq_nodeagent.runtimes.process.leftovers import Leftovers
from dlq_nodeagent.state.journal import Journal, Sequences
from dlq_nodeagent.supervisor import JOURNAL_FAILED, TELL_PREPARING_S, Supervisor
from dlq_profiler.records.tail import TrafficLook

HAS_BEGUN = frozenset({Phase.STARTED, Phase.STOPPING, Phase.EXITED, Phase.START_FAILED})
"""Phases that a rank can have only when its node has all its launches on its disk."""
# After a boot, the longest wait of the hello for the ends of ranks from before the boot.
ENDS_S = 10.0

log = get_logger("nodeagent.core")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSettings:
    """Settings of the core; durations in seconds."""

    jobs: AgentJobsConfig = field(default_factory=AgentJobsConfig)
    reconnect: ReconnectConfig = field(default_factory=ReconnectConfig)
    release_timeout_s: float = 30.0
    report_repeat_s: float = 10.0


class _Answer(NamedTuple):
    """An answer to a command that waits for the journal. That of a launch also waits, until
    `by_s`, for a report in its place.
    """

    sequence: int
    refusal: str
    launch: Launch | None = None
    by_s: float = 0.0


class AgentCore:
    """Compares the wanted ranks with the running ones, and starts and stops ranks.

    When the agent restarts, `start` takes over running ranks by handle. When the master restarts,
    its Welcome names all wanted ranks. In silence the shims end their ranks when the hold runs out.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        runtime: Runtime,
        transport: UplinkTransport,
        journal: Journal,
        contact: Contact,
        errands: Errands,
        rng: random.Random,
        boot_id: str,
        settings: CoreSettings,
        instance: Instance | None = None,
        leftovers: Leftovers | None = None,
    ) -> None:
        """`leftovers`: ranks that run here and that the runtime does not know; None: none can."""
        self._clock = clock
        self._instance = instance or Instance()
        self._leftovers = leftovers or Leftovers(clock, lambda known: {})
        self._settings = settings
        node, self._records = journal.load()
        self._sequences = Sequences(journal, node)
        self._pending = PendingReports(self._sequences.next)
        self._absent: dict[RankKey, Fence] = {}
        self._refused: dict[RefusedLaunch, str] = {}
        self._answers: list[_Answer] = []
        self._reports_answer = False
        self._hello_by_s = 0.0
        self._errands = errands
        self.uplink = Uplink(
            clock=clock,
            transport=transport,
            contact=contact,
            rng=rng,
            reconnect=settings.reconnect,
            hello=self._hello,
            progress=lambda: self.supervisor.progress(),
            hold_revision=lambda: self.supervisor.hold_revision(),
        )
        self.supervisor = Supervisor(
            clock=clock,
            runtime=runtime,
            journal=journal,
            errands=errands,
            jobs=settings.jobs,
            release_timeout_s=settings.release_timeout_s,
            tell=self._pending.add,
            may_start=self._may_start,
            epoch=lambda: self.highest_epoch,
            boot_id=boot_id,
        )

        self.uplink.rank_uses = self.supervisor.rank_uses

    @property
    def highest_epoch(self) -> int:
        """The highest epoch ever obeyed; anything lower is refused."""
        return self._sequences.node.highest_epoch

    def start(self) -> None:
        """Take over the ranks of an earlier agent. Call once, before anything else."""
        self.supervisor.recover(self._records)
        self._records = ()
        self._hello_by_s = self._clock.boottime_s() + ENDS_S
        self._leftovers.look(self.supervisor.keys())

    def tick(self) -> None:
        """Do the work that is due; cheap if there is none."""
        if not self._awaits_ends():
            self.uplink.tick()
        self.supervisor.tick()
        if self._leftovers.any and self._leftovers.tick(self.supervisor.keys()):
            self.uplink.drop()  # the next hello names the remaining ranks
        self.speak()

    def pause_s(self) -> float:
        """Seconds until the next tick. A message or an event makes it due at once."""
        if self._awaits_ends():
            return self.supervisor.poll_s()
        until_uplink_s = self.uplink.next_due_s() - self._clock.boottime_s()
        return max(0.0, min(self.supervisor.poll_s(), until_uplink_s))

    def _awaits_ends(self) -> bool:
        """Whether the first hello must wait for ends of ranks from before a boot: with these it
        reports them as ended. Otherwise the master would count them as lost.
        """
        if self._hello_by_s and self._clock.boottime_s() < self._hello_by_s:
            if self.supervisor.settles_former_boot():
                return True
            self._hello_by_s = 0.0
        return False

    # ---- messages and events

    def opened(self) -> None:
        self.uplink.opened()
        self.supervisor.unsent()

    def closed(self) -> None:
        self._answers.clear()
        self.uplink.closed()

    def received(self, message: FromMaster) -> None:
        match message:
            case Welcome():
                self._welcome(message)
            case HeartbeatReply():
                self.uplink.heartbeat_answered(message.sequence)
                self.supervisor.hold_out(message.hold_revision, message.hold_extension_s)
                self.supervisor.tick()
            case ReportAck(sequence):
                self._confirmed(sequence)
            case ProfileAck():
                self.supervisor.profiles.acknowledged(message)
            case StepsAck():
                self.supervisor.step_lists.acknowledged(message)
            case Command():
                self._command(message)

    def prepared(self, key: RankKey, preparation: Preparation) -> None:
        self.supervisor.prepared(key, preparation)

    def preparing(self, key: RankKey, detail: str) -> None:
        self.supervisor.preparing(key, detail)

    def looked(self, key: RankKey, purpose: Purpose, look: Look) -> None:
        self.supervisor.looked(key, purpose, look)

    def moved(self, key: RankKey, result: MoveResult) -> None:
        self.supervisor.moves.done(key, result)

    def gpus_seen(self, look: GpuLook) -> None:
        self.uplink.send(look)

    def profile_read(self, key: RankKey, found: ProfileFound) -> None:
        self.supervisor.profiles.read(key, found)

    def traffic_seen(self, key: RankKey, seen: TrafficLook | None) -> None:
        self.supervisor.profiles.seen(key, seen)

    # ---- the session

    def _welcome(self, welcome: Welcome) -> None:
        if self.uplink.state is not LinkState.GREETED:
            return
        if refused := self._refused_leader(welcome):
            log.warning("stale_master", epoch=welcome.epoch, cause=refused)
            self.uplink.drop()
            return
        log.info("welcomed", epoch=welcome.epoch, wanted=len(welcome.wanted))
        self.supervisor.drop_unwanted_unstarted(frozenset(it.key for it in welcome.wanted))
        for stop in welcome.stops:
            self._stop(stop)
        for launch in welcome.wanted:
            self._take_wanted(launch)
        self.supervisor.hold_out(welcome.hold_revision, welcome.hold_extension_s)
        self.supervisor.step_lists.taken = TAKES_STEPS in welcome.features
        self._reports_answer = REPORTS_ANSWER in welcome.features
        self.uplink.welcomed(welcome)

    def _take_wanted(self, launch: Launch) -> None:
        """Take a launch from a Welcome. No command can be answered, so a refusal is reported like
        the end of a rank.
        """
        if self._leftovers.has(launch.key):
            log.error("wanted_runs_unexplained", key=str(launch.key))
            return
        refusal = self.supervisor.launch(launch)
        if not refusal:
            return
        log.error("wanted_refused", key=str(launch.key), refusal=refusal)
        rank = self.supervisor.rank(launch.key)
        if rank is None or rank.launch.fence != launch.fence:
            refused = RefusedLaunch(launch.key, launch.fence)
            self._refused[refused] = refusal
            self._pending.add(refused)

    def _command(self, command: Command) -> None:
        if not self.uplink.up:
            return
        refusal = (
            self._carry_out(command.order) if self._is_current(command.epoch) else "stale_epoch"
        )
        order, by_s = command.order, 0.0
        launch = order if isinstance(order, Launch) and not refusal else None
        if launch is not None and self._reports_answer and not launch.at_barrier:
            by_s = self._clock.boottime_s() + TELL_PREPARING_S
        self._answers.append(_Answer(command.sequence, refusal, launch, by_s))

    def _carry_out(self, order: Order) -> str:
        match order:
            case Launch() if self._leftovers.has(order.key):
                return "unexplained"
            case Launch():
                # A stop that overtook its launch has been answered with "absent".
                return "stopped" if order.key in self._absent else self.supervisor.launch(order)
            case Stop():
                return self._stop(order)
            case Signal():
                return self.supervisor.signal(order)
            case Save():
                return self.supervisor.ask_save(order)
            case Suspend() | Resume():
                return self.supervisor.moves.ask(order)
            case OpenLog():
                self._open_log(order)
                return ""
            case OpenExec():
                self._errands.run_inside(order, self.supervisor.running(order.key, order.fence))
                return ""
            case OpenSamples():
                self._errands.send_samples(order)
                return ""
            case LookAtGpus(number):
                self._errands.look_at_gpus(number)
                return ""

    def _open_log(self, order: OpenLog) -> None:
        rank = self.supervisor.rank(order.key)
        never_ran = "" if rank is None else error_of(rank)
        self._errands.send_log(order, self.supervisor.handle(order.key), never_ran)

    def _stop(self, stop: Stop) -> str:
        refusal = self.supervisor.stop(stop)
        if refusal == "unknown_rank" and self._leftovers.has(stop.key):
            self._leftovers.end(stop.key)
            return ""
        if refusal == "unknown_rank":
            # Nothing of it runs here, so the stop is done: report the rank as absent.
            self._absent[stop.key] = stop.fence
            self._pending.add(stop.key)
            return ""
        return refusal

    def _refused_leader(self, welcome: Welcome) -> str:
        """Why this master must not be obeyed; "" if it may, and then its fence is remembered."""
        known = self._sequences.node.fence
        told = LeaderFence(welcome.system, welcome.timeline, welcome.epoch)
        refused = fences.refusal(known, told, welcome.former_systems)
        if not refused and (fence := fences.later(known, told)) != known:
            self._sequences.raise_fence(fence)
        return refused

    def _is_current(self, epoch: int) -> bool:
        """Whether a command of this epoch may be obeyed. A higher epoch is remembered."""
        known = self._sequences.node.fence
        if epoch > known.epoch:
            self._sequences.raise_fence(known._replace(epoch=epoch))
        return epoch >= known.epoch

    def _may_start(self, launch: Launch) -> bool:
        return self.uplink.in_contact and self.uplink.silence_s() < launch.hold_s

    # ---- reports

    def _hello(self) -> Hello:
        keys = self.supervisor.unconfirmed()
        ranks = tuple(self._report(key) for key in keys)
        self._pending.begin(keys, self._clock.boottime_s())
        return Hello(
            highest_epoch=self.highest_epoch,
            ranks=ranks,
            instance=self._instance,
            unexplained=tuple(
                UnexplainedRank(each.key, Fence(each.epoch, each.key.attempt))
                for each in self._leftovers.all()
            ),
        )

    def speak(self) -> None:
        """Send answers and reports, after one wait for the journal."""
        self.supervisor.sync()
        if not self.uplink.up:
            return
        self._send_reports()

    def _send_reports(self) -> None:
        due = self._pending.due(self._clock.boottime_s(), repeat_s=self._settings.report_repeat_s)
        reports = [self._report(subject) for subject, _ in due]
        if self._answers:
            self._send_answers(reports)
        for report in reports:
            self.uplink.send(report)
        for evidence in self.supervisor.evidence(repeat_s=self._settings.report_repeat_s):
            self.uplink.send(evidence)
        for steps in self.supervisor.steps(repeat_s=self._settings.report_repeat_s):
            self.uplink.send(steps)

    def _send_answers(self, reports: Sequence[RankReport]) -> None:
        """Most ranks start at once. Then their report is the answer to their launch too: one
        message, and one turn of the master.
        """
        began = {(it.key, it.fence) for it in reports if it.phase in HAS_BEGUN}
        now_s, answers = self._clock.boottime_s(), self._answers
        self._answers = []
        for answer in answers:
            launch, refusal = answer.launch, answer.refusal
            if launch is not None and self.supervisor.is_refused(launch.key):
                refusal = JOURNAL_FAILED
            elif launch is not None and answer.by_s and (launch.key, launch.fence) in began:
                continue
            elif now_s < answer.by_s:
                self._answers.append(answer)
                continue
            self.uplink.send(CommandResult(answer.sequence, refusal))

    def _report(self, subject: Subject) -> RankReport:
        sequence = self._pending.sequence_of(subject)
        if isinstance(subject, RefusedLaunch):
            return RankReport(
                sequence=sequence,
                key=subject.key,
                fence=subject.fence,
                phase=Phase.START_FAILED,
                error=self._refused[subject],
            )
        key = subject
        rank = self.supervisor.rank(key)
        if rank is None:
            return RankReport(
                sequence=sequence, key=key, fence=self._absent[key], phase=Phase.ABSENT
            )
        return report_of(rank, sequence=sequence, now_s=self._clock.boottime_s())

    def _confirmed(self, sequence: int) -> None:
        for subject in self._pending.confirmed(sequence):
            if isinstance(subject, RefusedLaunch):
                del self._refused[subject]
            else:
                self._absent.pop(subject, None)
                self.supervisor.acknowledged(subject)
