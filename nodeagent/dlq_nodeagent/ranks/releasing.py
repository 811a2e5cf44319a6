"""After a rank's end: when it was, and whether its GPUs can be given back."""

from dataclasses import dataclass

from dlq_common.clock import Clock
from dlq_nodeagent.model.errands import Look
from dlq_nodeagent.model.port import ExitRecord, Runtime
from dlq_nodeagent.ranks.watched import UNKILLABLE, Watched


@dataclass(frozen=True, slots=True, kw_only=True)
class Releasing:
    """Judges ended ranks; holds no state."""

    clock: Clock
    runtime: Runtime
    boot_id: str
    timeout_s: float
    """How long memory of a GPU may stay in use after the end before the master must hear of it."""

    def ended_s(self, record: ExitRecord) -> float:
        """Boottime of an end; one from before the host's boot is placed by the wall clock."""
        if record.boot_id in ("", self.boot_id):
            return record.ended_boottime_ns / 1e9
        ago_s = max(0.0, self.clock.now_s() - record.ended_wall_ns / 1e9)
        return self.clock.boottime_s() - ago_s

    def obstacle(self, watched: Watched, look: Look) -> str | None:
        """The obstacle to freeing its GPUs: empty when it is only early; None: they are free."""
        if self.unkillable(watched):
            return UNKILLABLE
        if look.released is not False:
            return None
        late_s = self.clock.boottime_s() - (watched.rank.ended_s or 0.0)
        return f"gpu_not_released: {look.held_by}" if late_s >= self.timeout_s else ""

    def unkillable(self, watched: Watched) -> bool:
        """Whether something of it is left that no signal ends: then it has not ended yet."""
        record = watched.rank.record
        if record is None or record.remaining_pids == 0 or watched.handle is None:
            return False
        if record.boot_id != self.boot_id:
            return False
        return self.runtime.usage(watched.handle).pids != 0
