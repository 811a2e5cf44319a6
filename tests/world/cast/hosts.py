"""A node's host: its shims and jobs as timed processes, and the disk of its agent.

A shim may be killed at each of its steps, and at any instant. Its job's process goes with it, and
no record is left. The agent finds that, as the product's runtime does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from dlq_nodeagent.model.launch import LaunchPlan, RankKey
from dlq_nodeagent.model.port import (
    AttemptExists,
    ExitRecord,
    ExitWhy,
    Handle,
    Started,
    StartError,
)
from dlq_nodeagent.model.rank import RankState
from dlq_nodeagent.runtimes.fake.attempt import FakeAttempt, FakeJob
from dlq_nodeagent.runtimes.fake.runtime import FakeHost, FakeRuntime
from dlq_nodeagent.state.journal import NodeRecord, RankRecord
from support.agent_fakes import MemoryJournal
from world.stage.clocks import HostClock
from world.stage.tape import Stream

Touch = Callable[[], None]  # the agent may die here


class Killed(BaseException):
    """The agent has been killed at one of its touches of the host."""


class HostAttempt(FakeAttempt):
    """An attempt of this boot of its host."""

    boot_id = "fake"
    late_s = 0.0  # a process that is killed when its hold is over takes so long to be gone
    burns: Callable[[], bool] = staticmethod(lambda: False)  # whether its shim dies at this step
    gone = False  # its shim is dead, and has left no record
    ran = True  # the shim came to start the job's process

    def _events(self, contact_s: float) -> Iterator[Any]:
        return iter(()) if self.gone else super()._events(contact_s)

    def _happen(self, event: Any) -> None:
        if self.burns():
            self.gone = True
        else:
            super()._happen(event)

    def signal(self, number: int, now_s: float) -> None:
        if not self.gone:
            super().signal(number, now_s)

    def kill(self, now_s: float) -> None:
        if not self.gone:
            super().kill(now_s)

    def found(self, now_s: float) -> None:
        """An agent looks, and writes down what the shim has not."""
        if not self.gone or self.record is not None:
            return
        if self.ran:
            self._end(now_s, ExitWhy.SHIM_LOST)
        else:
            error = StartError(stage="shim", errno=0, text="the agent ended before the launch")
            self._end(now_s, ExitWhy.START_ERROR, start_error=error)

    def _hold_events(self, kill_s: float) -> Iterator[Any]:
        for event in super()._hold_events(kill_s):
            late = event.act == "hold_kill"
            yield event._replace(at_s=event.at_s + self.late_s) if late else event

    def settle(self, now_s: float, contact_s: float) -> None:
        """Most often nothing is due: that takes a look at two instants."""
        if self._stop_kill_s is None and self.record is None and now_s < self._exits_at_s:
            hold_s = self.hold_s
            if now_s < contact_s + hold_s - min(self.plan.grace_s, hold_s / 2):
                return
        super().settle(now_s, contact_s)

    def started(self) -> Started | None:
        told = super().started() if self.ran else None
        return None if told is None else replace(told, boot_id=self.boot_id)

    def _end(self, at_s: float, why: ExitWhy, **how: object) -> None:
        super()._end(at_s, why, **how)  # type: ignore[arg-type] # as given
        assert self.record is not None
        self.record = replace(self.record, boot_id=self.boot_id)

    def slept(self, for_s: float) -> None:
        """Its host was frozen: it ends later by itself."""
        self._exits_at_s += for_s

    def lost(self, now_s: float) -> None:
        """The power is gone, and with it the process; no shim has written its end."""
        self._end(now_s, ExitWhy.SHIM_LOST)


class NodeHost(FakeHost):
    """Outlives its agents. `began` and `ended` are told of every process."""

    def __init__(self, name: str, clock: HostClock, gpus: int) -> None:
        super().__init__(clock)
        self.name = name
        self.host_clock = clock
        self.gpus = gpus
        self.late_s = 0.0
        self.fuse = 0  # a shim dies at so many steps of the host's shims from now
        self.frozen = False  # as a host that is suspended: its clock goes on, and nothing else
        self.gpus_of: dict[RankKey, tuple[int, ...]] = {}
        self.began: Callable[[NodeHost, HostAttempt], None] = lambda host, attempt: None
        self.ended: Callable[[NodeHost, HostAttempt], None] = lambda host, attempt: None
        self._living: dict[RankKey, HostAttempt] = {}
        self.every: dict[RankKey, HostAttempt] = {}  # also those that the agent has let go

    @property
    def boot_id(self) -> str:
        return f"boot-{self.host_clock.boot}"

    def living(self) -> list[HostAttempt]:
        """All processes that run now."""
        self.settle()
        return list(self._living.values())

    def settle(self) -> None:
        """Only those that live can change."""
        if self.frozen:
            return
        now_s = self.clock.boottime_s()
        for key, attempt in list(self._living.items()):
            attempt.settle(now_s, self._contact_s)
            if attempt.record is not None or attempt.gone:
                del self._living[key]
                self.ended(self, attempt)

    def run(self, plan: LaunchPlan) -> None:
        """A process begins."""
        clock = self.host_clock
        job = FakeJob.from_argv(plan.argv)
        attempt = HostAttempt(plan, job, start_s=clock.boottime_s(), wall_s=clock.now_s())
        attempt.boot_id, attempt.late_s = self.boot_id, self.late_s
        attempt.burns = self.burns
        self.settle()
        attempt.gone = self.burns()
        attempt.ran = not attempt.gone
        (self.began if attempt.ran else self.ended)(self, attempt)
        self.attempts[plan.key] = self.every[plan.key] = attempt
        if attempt.ran:
            self._living[plan.key] = attempt

    def burns(self) -> bool:
        """A step of a shim begins: whether it dies there."""
        if not self.fuse:
            return False
        self.fuse -= 1
        return not self.fuse

    def kill_shim(self, which: int) -> None:
        """kill -9 of the shim of one of the processes that run now."""
        living = [] if self.frozen else self.living()
        if living:
            living[which % len(living)].gone = True
            self.settle()

    def contact(self, sent_s: float) -> None:
        """The heartbeat that was sent then has been answered."""
        self.settle()
        self._contact_s = max(self._contact_s, sent_s)
        for key in list(self._living):
            self.extended(key)

    def freeze(self) -> None:
        """Nothing on it runs for a while."""
        self.settle()
        self.frozen = True

    def thaw(self, after_s: float) -> None:
        """It goes on. Its shims look at the clock first, and jobs have lost the time."""
        if self.frozen:
            self.frozen = False
            for attempt in self._living.values():
                attempt.slept(after_s)
            self.settle()

    def power_cut(self) -> None:
        """Everything that runs is gone. Records of ends stay: they were synced and renamed."""
        self.frozen = False
        self.settle()
        now_s = self.clock.boottime_s()
        for attempt in self._living.values():
            attempt.lost(now_s)
        self.settle()
        self.host_clock.reboot()
        self._contact_s = float("-inf")


class HostContact:
    """The contact file: it outlives the agent, and is of one boot."""

    def __init__(self, host: NodeHost, renewed: Callable[[float], None]) -> None:
        """`renewed` is told of the instant of each contact, in virtual time."""
        self._host = host
        self._renewed = renewed
        self._last: tuple[int, float] | None = None

    def boottime_s(self) -> float | None:
        if self._last is None or self._last[0] != self._host.host_clock.boot:
            return None
        return self._last[1]

    def renew(self, boottime_s: float) -> None:
        known = self.boottime_s()
        at_s = boottime_s if known is None else max(known, boottime_s)
        self._last = (self._host.host_clock.boot, at_s)
        self._renewed(self._host.host_clock.instant_of(boottime_s))
        self._host.contact(at_s)


class HostRuntime(FakeRuntime):
    """The agent's side, which may die just before or after each of its acts."""

    def __init__(self, host: NodeHost, touch: Touch, starts: Callable[[RankKey], None]) -> None:
        """`starts` is told before each start."""
        super().__init__(host)
        self._node = host
        self._touch = touch
        self._starts = starts

    def ends(self) -> int | None:
        """The world wakes the agent when a process ends."""
        return -1

    def start(self, plan: LaunchPlan) -> Handle:
        self._touch()
        if plan.key in self._host.attempts:
            raise AttemptExists(str(plan.key))
        self._starts(plan.key)
        self._node.run(plan)
        self._known[plan.key] = self._host.attempts[plan.key]
        self._touch()
        return Handle(plan.key, plan.epoch)

    def stop(
        self, handle: Handle, *, epoch: int, signal: int, grace_s: float, term_s: float
    ) -> None:
        self._touch()
        super().stop(handle, epoch=epoch, signal=signal, grace_s=grace_s, term_s=term_s)
        self._touch()

    def kill(self, handle: Handle, *, epoch: int) -> None:
        self._touch()
        super().kill(handle, epoch=epoch)
        self._touch()

    def forget(self, handle: Handle) -> None:
        self._touch()
        super().forget(handle)

    def exited(self, handles: object) -> list[ExitRecord]:
        self._host.settle()
        return super().exited(handles)  # type: ignore[arg-type] # as the port has it

    def poll(self, handle: Handle) -> ExitRecord | None:
        attempt = self._settled(handle)
        if isinstance(attempt, HostAttempt):
            attempt.found(self._now_s())
        return attempt.record


class HostJournal(MemoryJournal):
    """The agent's journal: records that were not synced may be gone after a power cut."""

    def __init__(self, touch: Touch, draws: Stream, kept: Callable[[RankKey], None]) -> None:
        """`kept` is told of each end that the agent takes for confirmed."""
        super().__init__()
        self.touch = touch
        self._draws = draws
        self._kept = kept
        self._unsynced: dict[RankKey, RankRecord | None] = {}  # as they were before

    def load(self) -> tuple[NodeRecord, tuple[RankRecord, ...]]:
        """An agent that starts writes its records anew, and waits for them."""
        self._unsynced.clear()
        return super().load()

    def save_node(self, record: NodeRecord) -> None:
        self.touch()
        super().save_node(record)
        self.touch()

    def save_rank(self, record: RankRecord) -> None:
        self.touch()
        key = record.launch.key
        before = self._ranks.get(key)
        super().save_rank(record)
        self._unsynced.setdefault(key, before)
        if record.state is RankState.KEPT:
            self._kept(key)
        self.touch()

    def is_written(self, key: RankKey) -> bool:
        """Whether a power cut leaves a record of this rank."""
        return key in self._ranks and self._unsynced.get(key, self._ranks[key]) is not None

    def lose_one(self) -> RankKey | None:
        """A record that cannot be read any more, as after a flipped bit; None: there is none."""
        keys = sorted(self._ranks, key=RankKey.numbers)
        if not keys:
            return None
        key = self._draws.pick(keys)
        del self._ranks[key]
        self._unsynced.pop(key, None)
        return key

    def sync(self) -> None:
        super().sync()
        self._unsynced.clear()

    def power_cut(self) -> None:
        """Of the unsynced records the later ones are torn off at a place that the tape names."""
        lost = list(self._unsynced.items())
        for key, before in lost[self._draws.below(len(lost) + 1) :]:
            if before is None:
                self._ranks.pop(key, None)
            else:
                self._ranks[key] = before
        self._unsynced.clear()
