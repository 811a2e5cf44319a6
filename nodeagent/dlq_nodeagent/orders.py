"""Stops in the runtime's words: notice, signal, timed end, kill; given until they are taken."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from signal import Signals

import structlog

from dlq_common.clock import Clock
from dlq_nodeagent.model.rank import Effect, Stopping
from dlq_nodeagent.runtimes.port import Handle, NotDelivered, Notice, Runtime, RuntimeFault
from dlq_nodeagent.watched import Watched

SIGNALS = {"": Signals.SIGTERM} | {
    name: Signals[f"SIG{name}"] for name in ("TERM", "INT", "USR1", "USR2")
}
# The notice file has fewer words than the master has causes.
_KINDS = {"time_limit": "time_limit", "pause": "user_pause", "drain": "maintenance"}

log = structlog.get_logger("nodeagent.orders")


@dataclass(frozen=True, slots=True)
class Orders:
    """Talks to the runtime about one stop at a time; holds no state of its own."""

    clock: Clock
    runtime: Runtime
    epoch: Callable[[], int]
    term_s: float

    def deliver(self, effect: Effect, watched: Watched) -> bool:
        """Give it, or note that it must be given again; whether this stop is the runtime's only now."""
        stopping = watched.rank.stopping
        assert stopping is not None
        if watched.handle is None:
            return False
        signal = SIGNALS.get(watched.rank.launch.preempt_signal, Signals.SIGTERM)
        if not self._taken(effect, watched.handle, stopping, signal):
            watched.undelivered = effect
            return False
        watched.undelivered = None
        watched.rank = replace(watched.rank, stopping=replace(stopping, delivered=True))
        return not stopping.delivered

    def _taken(self, effect: Effect, handle: Handle, stopping: Stopping, signal: Signals) -> bool:
        """False: give it again later. Faults count as taken, and are logged: what cannot be told to
        end has ended, or ends by its hold.
        """
        try:
            self._give(effect, handle, stopping, signal)
        except NotDelivered:
            return False
        except RuntimeFault as fault:
            log.error("stop_refused_by_runtime", key=str(handle.key), error=str(fault))
        return True

    def _give(self, effect: Effect, handle: Handle, stopping: Stopping, signal: Signals) -> None:
        if effect is Effect.KILL:
            self.runtime.kill(handle, epoch=self.epoch())
            return
        left_s = max(0.0, stopping.end_s - self.clock.boottime_s())
        self.runtime.notice(handle, self._notice(stopping, left_s))
        self.runtime.stop(
            handle,
            epoch=self.epoch(),
            signal=signal if effect is Effect.GIVE_NOTICE else 0,
            grace_s=left_s,
            term_s=self.term_s,
        )

    def _notice(self, stopping: Stopping, left_s: float) -> Notice:
        now_s = self.clock.now_s()
        noticed_s = stopping.noticed_s or 0.0
        return Notice(
            kind=_KINDS.get(stopping.cause, "preempt"),
            reason=f"the master stops this attempt: {stopping.cause}",
            deadline_s=now_s + left_s,
            notice_s=now_s - max(0.0, self.clock.boottime_s() - noticed_s),
        )
