"""Orders looks at a rank's files and GPUs: when they are due, and one at a time."""

from dataclasses import dataclass, replace

from dlq_common.clock import Clock
from dlq_nodeagent.model.errands import Errands, Look, LookOrder, Purpose
from dlq_nodeagent.ranks.watched import Watched, found


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """Holds no state: the watched rank notes the current look and its beginning."""

    clock: Clock
    errands: Errands

    def if_due(self, watched: Watched, purpose: Purpose, period_s: float) -> None:
        """Look, unless a look is under way or it is too early; again after `period_s`."""
        if watched.looking is None and self.clock.boottime_s() >= watched.look_at_s:
            self.now(watched, purpose, period_s)

    def now(self, watched: Watched, purpose: Purpose, period_s: float) -> None:
        """Look, also beside other looks."""
        watched.looking = purpose
        watched.look_sent_s = self.clock.boottime_s()
        watched.look_at_s = watched.look_sent_s + period_s
        record = watched.rank.record
        self.errands.look(
            LookOrder(
                launch=watched.rank.launch,
                purpose=purpose,
                floor_mtime_ns=watched.rank.floor_mtime_ns,
                settled=record is not None and record.code is not None,
            )
        )

    def take(self, watched: Watched, look: Look) -> bool:
        """Keep the result; returns whether it is a checkpoint newer than the known one."""
        seen, known = look.checkpoint, watched.rank.checkpoint
        if seen is None or (known is not None and seen.mtime_ns <= known.mtime_ns):
            return False
        checkpoint = found(seen, self.clock.boottime_s(), watched.beat)
        watched.rank = replace(watched.rank, checkpoint=checkpoint)
        return True
