"""The CPU time, memory, disks and work times of running ranks, told beside a heartbeat.

Counters of the kernel are read twice, and the difference is told with its span. So nothing is
kept for each sample. An agent that starts again, or a rank that is new, has no first reading: its
first span is not told. Counters that fall, as after the end of processes, count as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from dlq_common.clock import Clock
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import RankUse, StepWork
from dlq_nodeagent.model.port import Handle, Runtime
from dlq_nodeagent.ranks.watched import Watched

EVERY_S = 30.0
NumberT = TypeVar("NumberT", int, float)


class _Reading(NamedTuple):
    at_s: float
    cpu_s: float | None
    read: int | None
    written: int | None
    work: StepWork | None
    memory_bytes: int | None


@dataclass(slots=True)
class RankUses:
    """The last reading of each rank that runs."""

    clock: Clock
    runtime: Runtime
    _read: dict[RankKey, _Reading] = field(default_factory=dict)
    _due_s: float = 0.0

    def told(self, living: Iterable[Watched]) -> tuple[RankUse, ...]:
        """The uses since the last time, once in `EVERY_S`; empty in between."""
        now_s = self.clock.boottime_s()
        if now_s < self._due_s:
            return ()
        self._due_s = now_s + EVERY_S
        before, self._read = self._read, {}
        found = []
        for watched in living:
            if watched.handle is None:
                continue
            launch = watched.rank.launch
            self._read[launch.key] = now = self._reading(watched, watched.handle, now_s)
            was = before.get(launch.key)
            if was is not None:
                found.append(
                    RankUse(
                        key=launch.key,
                        fence=launch.fence,
                        span_s=now_s - was.at_s,
                        cpu_s=_grown(was.cpu_s, now.cpu_s),
                        read_bytes=_grown(was.read, now.read),
                        written_bytes=_grown(was.written, now.written),
                        work=now.work.since(was.work) if now.work and was.work else None,
                        memory_bytes=now.memory_bytes,
                    )
                )
                found[-1] = _with_traffic(found[-1], watched, now_s)
        return tuple(found)

    def _reading(self, watched: Watched, handle: Handle, now_s: float) -> _Reading:
        read, written = self.runtime.disk(handle) or (None, None)
        work = None if watched.beat is None else watched.beat.work
        used = self.runtime.usage(handle)
        return _Reading(now_s, used.cpu_s, read, written, work, used.memory_bytes)


def _grown(was: NumberT | None, now: NumberT | None) -> NumberT | None:
    return None if was is None or now is None or now < was else now - was


def _with_traffic(use: RankUse, watched: Watched, now_s: float) -> RankUse:
    """The same with the last look at its traffic. Its work times count where its beats tell none,
    and once.
    """
    seen, watched.traffic = watched.traffic, None
    if seen is None:
        return use
    work = use.work
    if work is None and seen.work is not None:
        count, logs, squares = seen.work
        work = StepWork(step_count=count, log_sum=logs, log_square_sum=squares, from_traffic=True)
    return replace(
        use,
        work=work,
        sent_ago_s=seen.sent_ago_s,
        quiet_s=seen.quiet_s,
        looked_ago_s=max(0.0, now_s - watched.traffic_s),
    )
