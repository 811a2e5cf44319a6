"""Reads the lists of steps that jobs with compat "slurm" write, and tells the master of them.

Only the first rank of a job writes one. A changed list is read at once if the last change was long
ago. One that goes on changing is read in ever larger pauses the longer it is. The last time is
when the rank has ended. The agent restarts: it is read again. The
master restarts, or the line is silent: the last list stays here. It is told on every new line and
every few seconds until the master has it. A list that makes no sense is left out, and the last good
one stays. Nothing here holds a rank up.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.jobtree.steps import StepsRefused, parse_steps
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import StepsAck, StepsReport
from dlq_nodeagent.model.port import Handle, Runtime, StepsFile
from dlq_nodeagent.model.rank import ALIVE, RankState
from dlq_nodeagent.model.steps import StepList, told_step
from dlq_nodeagent.ranks.orders import SLURM
from dlq_nodeagent.ranks.watched import StepsWatch, Watched

_LOOK_S = 0.25  # as often as a supervisor with running ranks alone looks
_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0  # after a change
_BYTES_PER_S = 8_192  # of one list, on average
_OVER = frozenset({RankState.RELEASING, RankState.ENDED, RankState.KEPT})

log = get_logger("nodeagent.steps")


@dataclass(slots=True, kw_only=True)
class StepLists:
    """Lists are noted on the watched ranks."""

    taken: bool = False
    """The master takes lists. An older one would end the session over them."""
    clock: Clock
    runtime: Runtime
    record: Callable[[Watched], object]
    watched: Callable[[RankKey], Watched | None]

    def drive(self, watched: Watched, now_s: float) -> None:
        """Read its list if that is due. Cheap when it is not."""
        steps, state = watched.steps, watched.rank.state
        if watched.handle is None or steps.final or steps.told or not _writes(watched):
            return
        if not self.taken:
            return
        if state in _OVER:
            self._read(watched, watched.handle, now_s)
            steps.final = True
            steps.told = steps.untold is None
        elif state in ALIVE and now_s >= steps.due_s:
            self._read(watched, watched.handle, now_s)

    def acknowledged(self, ack: StepsAck) -> None:
        """The master has a list, or does not want it."""
        watched = self.watched(ack.key)
        if watched is None or watched.rank.launch.fence != ack.fence:
            return
        steps = watched.steps
        if steps.untold is None or steps.number != ack.number:
            return
        steps.untold = None
        if steps.final:
            steps.told = True
            self.record(watched)

    def settled(self, watched: Watched) -> bool:
        """Whether no list is to be read or told any more."""
        steps = watched.steps
        return watched.handle is None or not _writes(watched) or steps.told

    def unsent(self, all_watched: Iterable[Watched]) -> None:
        """There is a new line: messages on the old one may be lost."""
        for watched in all_watched:
            watched.steps.sent_s = None

    def due(
        self, all_watched: Iterable[Watched], now_s: float, *, repeat_s: float
    ) -> Iterator[StepsReport]:
        """The lists to send now; marks them sent."""
        for watched in all_watched if self.taken else ():
            steps = watched.steps
            if steps.untold is None:
                continue
            if steps.sent_s is not None and now_s - steps.sent_s < repeat_s:
                continue
            steps.sent_s = now_s
            yield self._report(watched, steps, steps.untold)

    def _report(self, watched: Watched, steps: StepsWatch, listed: StepList) -> StepsReport:
        wall_s = self.clock.now_s()
        return StepsReport(
            key=watched.rank.launch.key,
            fence=watched.rank.launch.fence,
            number=steps.number,
            steps=tuple(told_step(step, wall_s) for step in listed.steps),
            dropped_count=listed.dropped_count,
            dropped_failed_count=listed.dropped_failed_count,
            script_peak_memory_bytes=listed.script_peak_memory_bytes,
            script_cpu_s=listed.script_cpu_s,
        )

    def _read(self, watched: Watched, handle: Handle, now_s: float) -> None:
        steps = watched.steps
        found = self.runtime.steps(handle, steps.mark)
        steps.due_s = now_s + _LOOK_S
        if found is None:
            return
        steps.mark = found.mark
        steps.due_s = now_s + min(_LONGEST_PAUSE_S, _PAUSE_S + len(found.content) / _BYTES_PER_S)
        listed = _parsed(watched, found)
        if listed is not None:
            steps.untold, steps.sent_s = listed, None
            steps.number += 1


def _writes(watched: Watched) -> bool:
    launch = watched.rank.launch
    return launch.compat == SLURM and launch.key.node_rank == 0


def _parsed(watched: Watched, found: StepsFile) -> StepList | None:
    try:
        return parse_steps(found.content)
    except StepsRefused as error:
        log.warning("steps_refused", key=str(watched.rank.launch.key), why=str(error))
        return None
