"""A rank and what the agent still has to do for it; the takeover of ranks after a restart."""

from dataclasses import dataclass, field, replace

from dlq_nodeagent.jobtree.beats import Beat, parse_beat
from dlq_nodeagent.model.errands import Purpose, SeenCheckpoint
from dlq_nodeagent.model.launch import LaunchPlan
from dlq_nodeagent.model.messages import Fence, Launch, ProfileFound, RankProgress
from dlq_nodeagent.model.port import Handle
from dlq_nodeagent.model.rank import (
    OVER,
    SUSPENSION,
    Effect,
    FoundCheckpoint,
    Rank,
    RankState,
)
from dlq_nodeagent.model.steps import StepList
from dlq_nodeagent.state.journal import KEPT_OF_A_RANK, RankRecord
from dlq_profiler.records.tail import TrafficLook

LOST = "the runtime has lost it"
UNKILLABLE = "unkillable"
HELD = "gpu_releasing"


@dataclass(slots=True)
class StepsWatch:
    """The list of steps of a rank, as it was read last, until the master has it."""

    mark: str = ""
    """The mark of the content that was read last."""
    due_s: float = 0.0
    number: int = 0
    untold: StepList | None = None
    """The list, until the master has it."""
    sent_s: float | None = None
    final: bool = False
    """True once it was read after the end of the rank: it is complete."""
    told: bool = False
    """True if the master has the complete list, or there is none."""


@dataclass(slots=True)
class Watched:
    """A rank and its open work. It is mutable, because most of it matters to this process only."""

    rank: Rank
    handle: Handle | None = None
    plan: LaunchPlan | None = None
    preparing: bool = False
    told: bool = False
    """True once a report says that it is being prepared."""
    prepare_again: bool = False
    """True if the barrier opened while it was being prepared: the result is out of date."""
    confirmed: bool = True
    """False after a restart, for a rank that never started: the master must want it again."""
    beat: Beat | None = None
    beat_bytes: bytes = b""
    beat_seen_s: float = 0.0
    beat_at_s: float = 0.0
    looking: Purpose | None = None
    look_at_s: float = 0.0
    look_sent_s: float = 0.0
    undelivered: Effect | None = None
    """The effect that the runtime has not taken yet; given again at the next tick."""
    moving: bool = False
    """True while it is being moved off its GPUs, or back."""
    move_at_s: float = 0.0
    """When a failed move is tried again."""
    answered_s: float | None = None
    hold_extension_s: float | None = 0.0
    """The hold extension that its shim has; None: unknown after a restart."""
    orphan: bool = False
    """True if it runs without a record: its launch is not known."""
    settled_s: float | None = None
    """When its last checkpoint became known after its end; from then only its GPUs are awaited."""
    held_by: str = ""
    """Why its GPUs are not free after its end; "": they are, or it has not ended."""
    end_told: bool = False
    """True once its end was reported although its GPUs are not free; never taken back."""
    reading: bool = False
    """Its traffic is being read."""
    found: ProfileFound | None = None
    """Its traffic profile, until the master has it."""
    profiled: bool = False
    """True if the master has its profile, or there is none."""
    traffic: TrafficLook | None = None
    """The last look at its sends while it is recorded, until the master has it."""
    traffic_s: float = 0.0
    """When that was, and when the next one is due."""
    traffic_due_s: float = 0.0
    steps: StepsWatch = field(default_factory=StepsWatch)
    recorded_s: float = 0.0
    unrecorded: bool = False
    written: bool = False
    """A record of it is on the disk."""
    bare: Launch | None = None
    """The shorter launch that the journal keeps once it is over."""

    def reported(self) -> Rank:
        if not self.held_by or self.rank.state is not RankState.RELEASING:
            return self.rank
        if not self.end_told:
            return replace(self.rank, error=self.held_by)  # it may not be the end
        return replace(self.rank, gpus_held=self.held_by)

    def take_beat(self, content: bytes | None, now_s: float) -> None:
        """Take in a beat. Its age counts from the change of its file, not by the job's clock."""
        if content is None or content == self.beat_bytes:
            return
        self.beat_bytes, self.beat_seen_s = content, now_s
        self.beat = parse_beat(content)
        if self.beat is not None and not self.rank.beaten:
            self.rank = replace(self.rank, beaten=True)

    def progress(self, now_s: float) -> RankProgress:
        beat = self.beat
        return RankProgress(
            key=self.rank.launch.key,
            fence=self.rank.launch.fence,
            step=None if beat is None else beat.step,
            total=None if beat is None else beat.total,
            loss=None if beat is None else beat.loss,
            age_s=None if beat is None else max(0.0, now_s - self.beat_seen_s),
        )


def recovered(record: RankRecord, handle: Handle | None, *, now_s: float) -> Watched:
    """A rank of an earlier agent process. The next poll finds what has changed since."""
    rank = Rank(
        launch=record.launch,
        state=_state_of(record, handle),
        accepted_s=now_s,
        **{name: getattr(record, name) for name in KEPT_OF_A_RANK},
        beaten=True,  # it has had its first seconds
    )
    if rank.state is RankState.ENDED and record.state is not RankState.ENDED:
        rank = replace(rank, error=LOST)
    if rank.state in OVER:
        rank = replace(rank, ended_s=now_s)
    watched = Watched(
        rank,
        handle,
        confirmed=handle is not None,
        recorded_s=record.recorded_s,
        written=True,
        hold_extension_s=None,
        held_by=HELD if record.end_told else "",
        end_told=record.end_told,
        found=record.found,
        profiled=record.profiled,
        steps=StepsWatch(told=record.steps_told),
    )
    if rank.state is RankState.STOPPING and rank.stopping and not rank.stopping.delivered:
        watched.undelivered = Effect.GIVE_NOTICE if rank.stopping.grace_s else Effect.KILL
    return watched


def orphan(handle: Handle) -> RankRecord:
    """A record for a running rank without one. Only the master can have it stopped."""
    fence = Fence(handle.epoch, handle.key.attempt)
    launch = Launch(key=handle.key, fence=fence, command=("unknown",))
    return RankRecord(launch=launch, state=RankState.LAUNCHING)


def found(seen: SeenCheckpoint, now_s: float, beat: Beat | None = None) -> FoundCheckpoint:
    """A seen checkpoint, with its time on the agent's clock and the duration of the save."""
    return FoundCheckpoint(
        path=seen.path,
        step=seen.step,
        mtime_ns=seen.mtime_ns,
        committed_s=now_s - seen.age_s,
        evidence=seen.evidence,
        save_s=None if beat is None else beat.stop_s,
    )


def _state_of(record: RankRecord, handle: Handle | None) -> RankState:
    if record.state in OVER:
        return record.state
    if handle is None:
        # A stop of a running rank is recorded as such: that one did run, and must not run again.
        stopped = record.state in (RankState.STOP_WAITING, RankState.STOPPING)
        ran = record.end_told or stopped or record.suspension is not None
        return RankState.ENDED if ran else RankState.PREPARING
    if record.stopping is None:
        return record.state if record.state in SUSPENSION else RankState.LAUNCHING
    return RankState.STOP_WAITING if record.stopping.noticed_s is None else RankState.STOPPING
