"""Decides when a rank's profile is read, and when the master hears of it.

A rank with an order is read once: when its window is over or it has ended, at the earlier of both.
The agent restarts: the window goes on by the start of the rank, and unrecorded evidence is read
again. The master restarts, or the line is silent: findings stay on record. They are told on every
new line and every few seconds until the master has them. Nothing here holds a rank up.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.model.errands import Errands, ReadOrder
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import ProfileAck, ProfileEvidence, ProfileFound
from dlq_nodeagent.model.port import Runtime
from dlq_nodeagent.model.rank import ALIVE, Rank, RankState
from dlq_nodeagent.model.report import run_s
from dlq_nodeagent.ranks.watched import Watched
from dlq_profiler.records.tail import TrafficLook

LOOK_S = 30.0  # a look at the traffic of a rank takes some milliseconds
_OVER = frozenset({RankState.RELEASING, RankState.ENDED, RankState.KEPT})

log = get_logger("nodeagent.profiling")


@dataclass(slots=True, kw_only=True)
class Profiles:
    """Knows when each evidence was last sent; the rest is noted on the watched ranks."""

    clock: Clock
    errands: Errands
    runtime: Runtime
    record: Callable[[Watched], object]
    watched: Callable[[RankKey], Watched | None]
    _sent_s: dict[RankKey, float] = field(default_factory=dict)

    def drive(self, watched: Watched, now_s: float) -> None:
        """Have it read if that is due. Cheap when it is not."""
        launch = watched.rank.launch
        if launch.profile is None or watched.profiled or watched.found or watched.reading:
            return
        rank = watched.rank
        if rank.state in ALIVE:
            if rank.started_s is None:
                return
            if now_s - rank.started_s >= launch.profile.window_s:
                self._read(watched, now_s - rank.started_s)
            elif now_s >= watched.traffic_due_s:
                watched.traffic_due_s = now_s + LOOK_S
                self.errands.look_at_traffic(launch, watched.traffic_s)
        elif rank.state in _OVER:
            ran_s = _ran_s(rank)
            if ran_s is None:
                self._done(watched)  # nothing of it ever ran
            else:
                self._read(watched, min(ran_s, launch.profile.window_s))

    def read(self, key: RankKey, found: ProfileFound) -> None:
        watched = self.watched(key)
        if watched is None:
            return
        watched.reading = False
        watched.found = found
        reason = found.traffic.reason
        log.info("profiled", key=str(key), method=found.traffic.method, unknown=reason)
        self.record(watched)
        self.errands.drop_profile(key)

    def seen(self, key: RankKey, look: TrafficLook | None) -> None:
        """A look at the sends of a rank that is recorded; it is told with the use of the rank."""
        watched = self.watched(key)
        if watched is not None:
            watched.traffic, watched.traffic_s = look, self.clock.boottime_s()

    def acknowledged(self, ack: ProfileAck) -> None:
        """The master has an evidence, or does not want it."""
        watched = self.watched(ack.key)
        if watched is not None and watched.found and watched.rank.launch.fence == ack.fence:
            self._sent_s.pop(ack.key, None)
            self._done(watched)

    def unsent(self) -> None:
        """There is a new line: messages on the old one may be lost."""
        self._sent_s.clear()

    def due(
        self, all_watched: Iterable[Watched], now_s: float, *, repeat_s: float
    ) -> Iterator[ProfileEvidence]:
        """The evidence to send now; marks it sent."""
        for watched in all_watched:
            if watched.found is None:
                continue
            launch = watched.rank.launch
            if now_s - self._sent_s.get(launch.key, -repeat_s) < repeat_s:
                continue
            self._sent_s[launch.key] = now_s
            yield ProfileEvidence(
                key=launch.key,
                fence=launch.fence,
                age_s=max(0.0, self.clock.now_s() - watched.found.ended_s),
                found=watched.found,
            )

    def settled(self, watched: Watched) -> bool:
        """Whether nothing is to be read or told any more."""
        return watched.found is None and (watched.rank.launch.profile is None or watched.profiled)

    def needed(self, all_watched: Iterable[Watched]) -> frozenset[RankKey]:
        """The ranks whose rings may still be read."""
        return frozenset(
            it.rank.launch.key
            for it in all_watched
            if it.rank.launch.profile is not None and not it.profiled and it.found is None
        )

    def _read(self, watched: Watched, window_s: float) -> None:
        watched.reading = True
        started = None
        if watched.handle is not None and watched.rank.state in ALIVE:
            started = self.runtime.started(watched.handle)
        self.errands.read_profile(
            ReadOrder(
                launch=watched.rank.launch,
                window_s=window_s,
                main_pid=None if started is None else started.main_pid,
            )
        )

    def _done(self, watched: Watched) -> None:
        watched.found = None
        watched.profiled = True
        self.record(watched)
        self.errands.drop_profile(watched.rank.launch.key)


def _ran_s(rank: Rank) -> float | None:
    """How long it ran; None: its main process never did."""
    ran_s = None if rank.record is None else run_s(rank.record)
    if ran_s is None and rank.started_s is not None:
        return 0.0
    return ran_s
