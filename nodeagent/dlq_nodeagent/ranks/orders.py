"""Orders to running ranks: a stop is a notice file, a signal, a timed end, or a kill.

An order that the runtime does not take is given again at the next tick.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from signal import Signals

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.port import Handle, NotDelivered, Runtime, RuntimeFault, StopNotice
from dlq_nodeagent.model.rank import Effect, Stopping
from dlq_nodeagent.ranks.watched import Watched

SIGNALS = {"": Signals.SIGTERM} | {
    name: Signals[f"SIG{name}"] for name in ("TERM", "INT", "USR1", "USR2")
}
SAVE_SIGNALS = frozenset({"INT", "USR1", "USR2"})
UNCATCHABLE = frozenset({Signals.SIGKILL, Signals.SIGSTOP})
SLURM = "slurm"  # the value of compat
RANKS = "ranks"  # a value of signal_to
_FOR_GOOD = frozenset({"cancel", "time_limit"})
# The notice file has fewer words than the master has causes.
_KINDS = {
    "time_limit": "time_limit",
    "pause": "user_pause",
    "drain": "maintenance",
    "reclaim": "reclaim",
    "requeue": "user_pause",
}

log = get_logger("nodeagent.orders")


def ends_as_slurm(launch: Launch, stopping: Stopping) -> bool:
    """Whether the stop ends a Slurm job for good: it then gets SIGCONT and SIGTERM at once, as from
    Slurm, and not its own signal.
    """
    return launch.compat == SLURM and stopping.cause in _FOR_GOOD


@dataclass(frozen=True, slots=True)
class Orders:
    """Gives orders to ranks through the runtime. It has no state of its own."""

    clock: Clock
    runtime: Runtime
    epoch: Callable[[], int]
    term_s: float

    def deliver(self, effect: Effect, watched: Watched) -> bool:
        """Give a stop to the runtime, or note that it must be given again. True if it was taken for
        the first time, which the journal must record.
        """
        stopping = watched.rank.stopping
        assert stopping is not None
        if watched.handle is None:
            return False
        launch = watched.rank.launch
        if effect is Effect.GIVE_NOTICE and stopping.catches is None:
            stopping = replace(stopping, catches=self._catches(watched.handle, launch))
            watched.rank = replace(watched.rank, stopping=stopping)
        if not self._was_delivered(effect, watched.handle, stopping, launch):
            watched.undelivered = effect
            return False
        watched.undelivered = None
        watched.rank = replace(watched.rank, stopping=replace(stopping, delivered=True))
        return not stopping.delivered

    def _catches(self, handle: Handle, launch: Launch) -> bool | None:
        """Whether the program handles the signal of the notice; None if its main process is a
        launcher, which handles signals for others.
        """
        if launch.compat or launch.launch_mode or launch.worker_count or launch.signal_to == RANKS:
            return None
        own = SIGNALS.get(launch.preempt_signal, Signals.SIGTERM)
        try:
            return self.runtime.catches(handle, own)
        except RuntimeFault:
            return None

    def signal(self, watched: Watched, name: str) -> str:
        """Send a signal to the main process; returns "" or the word of a refusal."""
        own = SIGNALS.get(watched.rank.launch.preempt_signal, Signals.SIGTERM)
        number = own if not name else Signals.__members__.get(f"SIG{name}")
        if number is None or number in UNCATCHABLE:
            return "no_such_signal"
        return self._refusal(watched, lambda handle: self._signal(handle, number))

    def ask_save(self, watched: Watched, number: int) -> str:
        """Ask a rank to save and go on, by the file and by its save signal."""
        refusal = self._refusal(watched, lambda handle: self.runtime.ask_save(handle, number))
        name = watched.rank.launch.save_signal
        return refusal if refusal or name not in SAVE_SIGNALS else self.signal(watched, name)

    def _signal(self, handle: Handle, number: Signals) -> None:
        self.runtime.signal(handle, number, epoch=self.epoch())

    def _refusal(self, watched: Watched, say: Callable[[Handle], None]) -> str:
        if watched.handle is None:
            return "not_running"
        try:
            say(watched.handle)
        except NotDelivered:
            return "not_delivered"
        except RuntimeFault as fault:
            log.error("word_refused_by_runtime", key=str(watched.handle.key), error=str(fault))
            return "not_running"
        return ""

    def _was_delivered(
        self, effect: Effect, handle: Handle, stopping: Stopping, launch: Launch
    ) -> bool:
        """False: give it again later. A fault counts as delivered and is logged: the rank has
        ended, or its hold ends it.
        """
        try:
            self._give(effect, handle, stopping, launch)
        except NotDelivered:
            return False
        except RuntimeFault as fault:
            log.error("stop_refused_by_runtime", key=str(handle.key), error=str(fault))
        return True

    def _give(self, effect: Effect, handle: Handle, stopping: Stopping, launch: Launch) -> None:
        if effect is Effect.KILL:
            self.runtime.kill(handle, epoch=self.epoch())
            return
        left_s = max(0.0, stopping.end_s - self.clock.boottime_s())
        self.runtime.notice(handle, self._notice(stopping, left_s))
        pressed = ends_as_slurm(launch, stopping)
        if pressed:
            self.runtime.signal(handle, Signals.SIGCONT, epoch=self.epoch())
        own = SIGNALS.get(launch.preempt_signal, Signals.SIGTERM)
        told = 0 if effect is Effect.SHORTEN_STOP else own
        self.runtime.stop(
            handle,
            epoch=self.epoch(),
            signal=Signals.SIGTERM if pressed else told,
            grace_s=left_s,
            term_s=self.term_s,
        )

    def _notice(self, stopping: Stopping, left_s: float) -> StopNotice:
        now_s = self.clock.now_s()
        noticed_s = stopping.noticed_s or 0.0
        return StopNotice(
            kind=_KINDS.get(stopping.cause, "preempt"),
            reason=f"the master stops this attempt: {stopping.cause}",
            deadline_s=now_s + left_s,
            notice_s=now_s - max(0.0, self.clock.boottime_s() - noticed_s),
        )
